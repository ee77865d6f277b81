// Which exports of the packages are used where: read from the import and export statements of their sources.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { entries } from "./docs/entries.mjs";
import { globSync } from "./glob.mjs";
import { root } from "./setup.mjs";

export const isTest = (path) => /\.test\.|testkit|\/src\/test(ing)?\/|\/emulated\/|packages\/testing\//.test(path);

/** Sources of the packages and of everything that imports their compiled files. */
const sources = () => [
  ...globSync(join(root, "packages"), (path) => /\/src\/.*\.tsx?$|\.mjs$/.test(path) && !path.includes("node_modules")),
  ...["scripts", "examples", "bench", "docs"].flatMap((folder) =>
    globSync(join(root, folder), (path) => /\.(mjs|ts|tsx|md)$/.test(path) && !path.includes("node_modules")),
  ),
];

const exportsOf = (name) => {
  const { exports = {}, name: scoped } = JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8"));
  return Object.entries(exports).flatMap(([key, value]) => {
    const file = typeof value === "string" ? value : value.default;
    return [[join(scoped, key), join(root, "packages", name, file.replace("./dist/", "src/"))]];
  });
};

function resolver(files) {
  const packages = new Map(
    [...new Set(files.map((file) => /packages\/(\w+)\//.exec(relative(root, file))?.[1]))]
      .filter((name) => name !== undefined && existsSync(join(root, "packages", name, "package.json")))
      .flatMap(exportsOf),
  );
  const known = new Set(files);
  const source = (path) =>
    [".ts", ".tsx", ".mjs"]
      .map((extension) => path.replace(/\.js$/, extension))
      .find((candidate) => known.has(candidate));
  return (from, target) => {
    if (target.startsWith(".")) return source(resolve(dirname(from), target).replace("/dist/", "/src/"));
    for (const [name, path] of packages) {
      if (name === target) return source(path);
      const [head, tail] = name.split("*");
      if (tail !== undefined && target.startsWith(head)) return source(path.replace("*", target.slice(head.length)));
    }
    return undefined;
  };
}

const names = (list) =>
  list
    .split(",")
    .map((part) => part.trim().replace(/^type /, ""))
    .filter((part) => part !== "")
    .map((part) => part.split(/ as |: /).map((name) => name.trim()));

/** The exports and imports of one file. */
function parse(file, find) {
  // Files that a program writes stand in it as texts; their exports are not its own.
  const text = readFileSync(file, "utf8").replace(/(=>? )`[^`]*\nexport [^`]*`/g, "$1``");
  const defined = [
    ...text.matchAll(
      /^export (?:declare |abstract |async )*(?:function\*?|const|let|class|interface|type|enum) ([\w$]+)/gm,
    ),
  ].map((match) => match[1]);
  for (const [, list] of text.matchAll(/^export (?:type )?\{([^}]*)\};/gm))
    defined.push(...names(list).map(([a, b]) => b ?? a));
  for (const [, list] of text.matchAll(/^export const \{([^}]*)\}/gm))
    defined.push(...names(list).map(([a, b]) => b ?? a));
  const uses = [];
  const again = [];
  for (const [, list, target] of text.matchAll(/\bexport (?:type )?\{([^}]*)\} from "([^"]+)"/g)) {
    const to = find(file, target);
    if (to !== undefined) for (const [name, as] of names(list)) again.push({ name: as ?? name, to, as: name });
  }
  const stars = [];
  for (const [, as, target] of text.matchAll(/^export \* (as \w+ )?from "([^"]+)"/gm)) {
    const to = find(file, target);
    if (to === undefined) continue;
    if (as === undefined) stars.push(to);
    else again.push({ name: as.slice(3).trim(), to, as: "*" });
  }
  for (const [, clause, target] of text.matchAll(/\bimport\s+(?:type\s+)?([^"';]+?)\s+from\s+["']([^"']+)["']/g)) {
    const to = find(file, target);
    if (to === undefined) continue;
    const list = /\{([^}]*)\}/.exec(clause)?.[1];
    if (list !== undefined) for (const [name] of names(list)) uses.push({ to, name });
    if (clause.includes("*")) uses.push({ to, name: "*" });
  }
  for (const [, list, target] of text.matchAll(
    /(?:\{([^{}]*)\}\s*=\s*)?\(?\s*(?:await\s+)?import\(\s*["'`]([^"'`]+)["'`]\s*\)/g,
  )) {
    const to = find(file, target);
    if (to === undefined) continue;
    if (list === undefined) uses.push({ to, name: "*" });
    else for (const [name] of names(list)) uses.push({ to, name });
  }
  return { text, defined, uses, again, stars };
}

const exportsIn = ({ defined, again }) =>
  new Map([...again.map(({ name }) => [name, true]), ...defined.map((name) => [name, false])]);

/**
 * Whether a name has a qualifier: it is used outside of its folder through a namespace (`build.add`, `io.load`), or it belongs to an
 * entry point other than the root of its package (`mean` of `@weft/formats/stats`, `destroy` of `@weft/quantum/qutip`).
 */
function qualifiedNames(modules) {
  const namespaces = new Set();
  const byName = new Set();
  for (const [file, { uses, again, stars }] of modules) {
    const add = (to, name) => {
      if (name === "*") namespaces.add(to);
      else if (dirname(to) !== dirname(file)) byName.add(to);
    };
    for (const { to, name } of uses) add(to, name);
    for (const { to, as } of again) add(to, as);
    for (const to of stars) byName.add(to);
  }
  /** Files and names that an entry exports, without those of its namespaces. */
  const exportedBy = (file, name, found = new Set()) => {
    const { defined, again, stars } = modules.get(file);
    if (defined.includes(name) || name === "*")
      for (const own of name === "*" ? defined : [name]) found.add(`${file} ${own}`);
    for (const { name: as, to, as: original } of again)
      if (original !== "*" && (name === "*" || name === as)) exportedBy(to, original, found);
    for (const to of stars) exportedBy(to, name, found);
    return found;
  };
  const namespacesOf = (file) => {
    const { again, stars } = modules.get(file);
    return [...again.filter(({ as }) => as === "*").map(({ to }) => to), ...stars.flatMap(namespacesOf)];
  };
  const roots = new Set();
  const others = new Set();
  for (const folder of readdirSync(join(root, "packages")))
    for (const [key, source] of existsSync(join(root, "packages", folder, "package.json")) ? exportsOf(folder) : []) {
      const entry = source.replace(/\.js$/, ".ts");
      if (!modules.has(entry) || key.includes("/internal")) continue;
      for (const one of exportedBy(entry, "*")) (key.split("/").length === 2 ? roots : others).add(one);
      for (const to of namespacesOf(entry)) for (const one of exportedBy(to, "*")) others.add(one);
    }
  return (file, name) =>
    (namespaces.has(file) && !byName.has(file)) || (others.has(`${file} ${name}`) && !roots.has(`${file} ${name}`));
}

/** Every exported name of the packages: its file, whether it is exported again from another file, whether a public entry exports it, and the files that import it. */
export function exportedNames() {
  const files = sources();
  const find = resolver(files);
  const modules = new Map(files.map((file) => [file, parse(file, find)]));
  const used = new Map();
  const mark = (file, name, by, seen = new Set()) => {
    const module = modules.get(file);
    if (module === undefined || seen.has(`${file} ${name}`)) return;
    seen.add(`${file} ${name}`);
    for (const own of name === "*" ? module.defined : module.defined.includes(name) ? [name] : []) {
      const key = `${file} ${own}`;
      used.set(key, (used.get(key) ?? new Set()).add(by));
    }
    for (const { name: as, to, as: original } of module.again) {
      if (name !== "*" && name !== as) continue;
      used.set(`${file} ${as}`, (used.get(`${file} ${as}`) ?? new Set()).add(by));
      mark(to, original, by, seen);
    }
    for (const to of module.stars) mark(to, name, by, seen);
  };
  for (const [file, { uses }] of modules) for (const { to, name } of uses) mark(to, name, file);
  for (const { source } of entries) mark(join(root, source), "*", "public");
  // Entry points beside the documented ones, such as the module `@weft/models/fine-tune` that the trainer loads by its name.
  for (const folder of readdirSync(join(root, "packages")))
    for (const [key, source] of existsSync(join(root, "packages", folder, "package.json")) ? exportsOf(folder) : [])
      if (!key.includes("/internal") && folder !== "testing") mark(source.replace(/\.js$/, ".ts"), "*", "entry");
  const isQualified = qualifiedNames(modules);
  return files
    .filter((file) => file.includes("/src/"))
    .flatMap((file) =>
      [...exportsIn(modules.get(file))].map(([name, isReexport]) => {
        const by = [...(used.get(`${file} ${name}`) ?? [])];
        return {
          file: relative(root, file),
          name,
          isReexport,
          isPublic: by.includes("public"),
          isQualified: isQualified(file, name),
          by: by.filter((one) => one !== "public").map((one) => relative(root, one)),
        };
      }),
    );
}

/**
 * Exported names that more than one file defines. Functions and values with a qualifier do not count (see `qualifiedNames`); types
 * do, because their names stand alone in declarations and messages.
 */
export function namesInSeveralFiles() {
  const places = new Map();
  for (const { file, name, isReexport, isQualified } of exportedNames())
    if (!isReexport && !isTest(`/${file}`) && (!isQualified || /^[A-Z]/.test(name)))
      places.set(name, [...(places.get(name) ?? []), file]);
  return [...places].filter(([, files]) => files.length > 1).map(([name, files]) => ({ name, files }));
}
