// Joins the modules of each package into a few files: Node spends most of the start of a process on finding and opening hundreds of
// small ones. Modules that the same public entries reach share a bundle, so that nobody loads more than before. Every module keeps its
// path, where it exports its names from its bundle, so that no module exists twice. Modules that no public entry reaches by static
// imports (threads, processes, tests, lazily loaded parts) stay as they are.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { build } from "esbuild";
import { root } from "./setup.mjs";

const marker = "// Part of ";
const sourceOf = (path) => path.replace(/\.js$/, ".ts");
const outputOf = (module) => module.replace(/\.ts$/, ".js");

/** A package: its folders, and how esbuild reads its modules. */
function describe(folder) {
  const src = join(folder, "src");
  const common = {
    absWorkingDir: src,
    format: "esm",
    platform: "node",
    target: "node20",
    write: false,
    metafile: true,
  };
  /** What is loaded lazily or is not in `members` keeps its own file; files beside a module are found from its path. */
  const inside = (members) => ({
    name: "inside",
    setup({ onLoad, onResolve }) {
      onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) => {
        const file = resolve(resolveDir, path);
        const isMember = kind !== "dynamic-import" && members(relative(src, sourceOf(file)));
        return isMember ? { path: sourceOf(file) } : { path: `./${relative(src, file)}`, external: true };
      });
      onLoad({ filter: /\.ts$/ }, ({ path }) => {
        const url = `new URL("./${outputOf(relative(src, path))}", import.meta.url).href`;
        return { contents: readFileSync(path, "utf8").replaceAll("import.meta.url", url), loader: "ts" };
      });
    },
  });
  const bundle = (members, options) =>
    build({
      ...common,
      bundle: true,
      packages: "external",
      plugins: [inside(members)],
      logLevel: "warning",
      ...options,
    });
  const each = (modules, options) =>
    build({ ...common, entryPoints: modules, outdir: src, logLevel: "silent", ...options });
  return { src, dist: join(folder, "dist"), bundle, each };
}

/** Files of the public entries of a published package, such as "index.ts". */
function entriesOf({ exports = {}, private: isPrivate = false }) {
  const targets = isPrivate ? [] : Object.values(exports).flatMap((value) => value.default ?? []);
  return [...new Set(targets)].map((path) => sourceOf(path.replace("./dist/", "")));
}

/** The modules that each module imports, from all that the entries reach. */
async function importsOf({ bundle }, entries, dist) {
  const { inputs } = (await bundle(() => true, { entryPoints: entries.map((entry) => `./${entry}`), outdir: dist }))
    .metafile;
  const internal = ({ imports }) => imports.filter(({ external }) => !external).map(({ path }) => path);
  return new Map(Object.entries(inputs).map(([module, input]) => [module, internal(input)]));
}

/** All modules that a module reaches, itself included. */
function reach(imports, module, seen = new Set()) {
  if (seen.has(module)) return seen;
  seen.add(module);
  for (const next of imports.get(module)) reach(imports, next, seen);
  return seen;
}

/** Modules that wait while they load (`await` outside a function): what they wait for may need this package. */
async function waiting({ each }, modules) {
  try {
    await each(modules, { format: "cjs" });
    return new Set();
  } catch ({ errors }) {
    return new Set(errors.map(({ location }) => location.file));
  }
}

/** Modules by the entries that reach them; a module alone stays as it is. */
async function groupsOf(own, entries, imports) {
  const waits = await waiting(own, [...imports.keys()]);
  const reachable = new Map([...imports.keys()].map((module) => [module, reach(imports, module)]));
  const groups = new Map();
  for (const module of [...imports.keys()].sort()) {
    if ([...reachable.get(module)].some((other) => waits.has(other))) continue;
    const key = entries.filter((entry) => reachable.get(entry).has(module)).join();
    groups.set(key, [...(groups.get(key) ?? []), module]);
  }
  return [...groups.values()].filter((modules) => modules.length > 1);
}

/** Names that each module exports, also those that it passes on from others with `export *`. */
async function exportsOf({ src, each }, modules) {
  const { outputs } = (await each(modules)).metafile;
  const own = new Map(Object.values(outputs).map(({ entryPoint, exports }) => [entryPoint, exports]));
  const namesOf = (module) => {
    const stars = [...readFileSync(join(src, module), "utf8").matchAll(/^export \* from "(\..*)";$/gm)];
    const passed = stars.flatMap(([, path]) => namesOf(sourceOf(join(dirname(module), path))));
    return [...new Set([...own.get(module), ...passed])];
  };
  return new Map(modules.map((module) => [module, namesOf(module)]));
}

/** Writes modules that are no longer in a bundle: the compiler does not, because their sources have not changed. */
async function restore({ src, dist, each }, modules) {
  if (modules.length === 0) return;
  for (const { path, text } of (await each(modules)).outputFiles) writeFileSync(join(dist, relative(src, path)), text);
}

async function bundlePackage(folder) {
  const own = describe(folder);
  const { src, dist } = own;
  const manifest = readFileSync(join(folder, "package.json"), "utf8");
  const entries = entriesOf(JSON.parse(manifest));
  if (entries.length === 0 || !existsSync(dist)) return;
  const imports = await importsOf(own, entries, dist);
  const groups = await groupsOf(own, entries, imports);
  const hash = createHash("sha256")
    .update(readFileSync(new URL(import.meta.url)))
    .update(manifest);
  for (const module of [...imports.keys()].sort()) hash.update(`${module}\n`).update(readFileSync(join(src, module)));
  const head = `// ${hash.digest("hex")}\n`;
  const pathOf = (module) => join(dist, outputOf(module));
  const bundleOf = (i) => join(dist, `bundle-${i}.js`);
  const startsWith = (file, text) => existsSync(file) && readFileSync(file, "utf8").startsWith(text);
  const isCurrent = (modules, i) =>
    startsWith(bundleOf(i), head) && modules.every((module) => startsWith(pathOf(module), marker));
  if (groups.every(isCurrent)) return;
  await restore(
    own,
    [...imports.keys()].filter((module) => !groups.flat().includes(module) && startsWith(pathOf(module), marker)),
  );
  for (const name of readdirSync(dist)) if (/^bundle-\d+\.js$/.test(name)) rmSync(join(dist, name));
  const names = await exportsOf(own, [...imports.keys()]);
  for (const [i, modules] of groups.entries()) {
    const lines = modules.map((module, k) => {
      const list = names.get(module).map((name) => `${name} as m${k}_${name}`);
      return `export { ${list.join(", ")} } from "./${outputOf(module)}";`;
    });
    // Entries come first, so that modules are evaluated in the same order as before.
    const first = entries.filter((entry) => modules.includes(entry)).map((entry) => `import "./${outputOf(entry)}";`);
    const members = new Set(modules);
    const made = await own.bundle((module) => members.has(module), {
      stdin: { contents: [...first, ...lines].join("\n"), resolveDir: src },
      outfile: bundleOf(i),
    });
    writeFileSync(bundleOf(i), head + made.outputFiles[0].text);
    modules.forEach((module, k) => {
      const list = names.get(module).map((name) => `m${k}_${name} as ${name}`);
      const path = relative(dirname(pathOf(module)), bundleOf(i));
      const from = path.startsWith(".") ? path : `./${path}`;
      writeFileSync(pathOf(module), `${marker}${from}\nexport { ${list.join(", ")} } from "${from}";\n`);
    });
  }
}

/** Bundles all packages; those that have not changed since the last time stay as they are. */
export async function bundlePackages() {
  const folders = readdirSync(join(root, "packages")).map((name) => join(root, "packages", name));
  await Promise.all(folders.filter((folder) => existsSync(join(folder, "package.json"))).map(bundlePackage));
}
