// The layer rule: inside a package a folder imports only from folders before it in the list, and only their index.js (or
// internal.js, which the package does not export). And the rule of names: an exported name has one meaning.
import { readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { globSync } from "./glob.mjs";
import { namesInSeveralFiles } from "./modules.mjs";
import { root } from "./setup.mjs";

const layers = {
  formats: ["stats"],
  core: [
    "graph",
    "settings",
    "ops",
    "transform",
    "cost",
    "shard",
    "compile",
    "device",
    "runtime",
    "tensor",
    "io",
    "nn",
    "optim",
    "test",
    "testing",
  ],
  cluster: ["test"],
  models: ["config", "architectures", "model", "checkpoint", "text", "generate", "tune"],
  train: ["data", "trainer"],
  quantum: [
    "schema",
    "operators",
    "pictures",
    "pulses",
    "solvers",
    "systems",
    "fidelity",
    "cache",
    "noise",
    "control",
    "meta",
    "spec",
    "qutip",
  ],
  bench: ["harness", "suites"],
  lab: [
    "model",
    "import",
    "store",
    "atlas",
    "metrics",
    "trace",
    "predict",
    "validity",
    "diagnosis",
    "ledger",
    "report",
    "bench",
    "lint",
    "hang",
    "runner",
    "test",
  ],
  ui: ["wire", "data", "jobs", "server", "page", "test"],
  cli: ["usage", "terminal", "commands", "test"],
};
const bundled = { ui: "page" };
// Which packages of the workspace a package may import; its package.json lists them (tests and
// unpublished folders may use devDependencies).
const manifestOf = (name) => JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8"));

const problems = [];
for (const [name, order] of Object.entries(layers)) {
  const src = join(root, "packages", name, "src");
  const manifest = manifestOf(name);
  for (const file of globSync(src, (path) => /\.tsx?$/.test(path))) {
    const here = relative(src, file).split("/");
    const mine = here.length > 1 ? here[0] : null;
    if (mine !== null && !order.includes(mine))
      problems.push(`${relative(root, file)}: folder ${mine} is not in the layer list`);
    const text = readFileSync(file, "utf8");
    for (const match of text.matchAll(
      /(?:^|\n)\s*(?:import|export)[^;'"]*?from\s+["']([^"']+)["']|import\(\s*["']([^"']+)["']\s*\)/g,
    )) {
      const target = match[1] ?? match[2];
      const isTest = /\.test\.ts$|testkit\.ts$/.test(file) || mine === "test";
      // A folder that package.json leaves out of the published files may use devDependencies, as tests may.
      // So may a folder that the build bundles together with what it imports.
      const isPublished = !isTest && !manifest.files?.includes(`!dist/${mine}`) && bundled[name] !== mine;
      if (!target.startsWith(".")) {
        if (target.startsWith("node:")) continue;
        const library = target.startsWith("@") ? target.split("/").slice(0, 2).join("/") : target.split("/")[0];
        const allowed = { ...manifest.dependencies, ...(isPublished ? {} : manifest.devDependencies) };
        if (!(library in allowed) && library !== manifest.name)
          problems.push(`${relative(root, file)}: ${library} is not a dependency of ${manifest.name}`);
        continue;
      }
      const path = relative(src, resolve(dirname(file), target)).split("/");
      if (path.length < 2 || path[0] === mine || mine === null) continue;
      if (!isTest && order.indexOf(path[0]) > order.indexOf(mine))
        problems.push(`${relative(root, file)}: layer ${mine} imports from the later layer ${path[0]}`);
      if (!isTest && !["index.js", "internal.js"].includes(path.slice(1).join("/")))
        problems.push(
          `${relative(root, file)}: imports ${path.join("/")}; other layers are reached through their index.js`,
        );
    }
  }
}
for (const { name, files } of namesInSeveralFiles())
  problems.push(`${files.join(", ")}: all of them define ${name}; one name, one meaning`);
// The table of packages in the documentation shows the same layers.
const page = readFileSync(join(root, "docs/architecture.md"), "utf8");
for (const [name, order] of Object.entries(layers)) {
  const shown = /\| ([^|]*) \|$/.exec(new RegExp(`^\\| \\[\`@weft/${name}\`\\].*$`, "m").exec(page)?.[0] ?? "")?.[1];
  const expected = order.filter((layer) => !layer.startsWith("test")).map((layer) => `\`${layer}\``);
  if (shown !== (expected.join(", ") || "none"))
    problems.push(`docs/architecture.md: the layers of @weft/${name} are ${expected.join(", ") || "none"}`);
}
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
