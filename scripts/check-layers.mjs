// The layer rule: inside a package a folder imports only from folders above it in the list, and only their index.
import { readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { globSync } from "./glob.mjs";
import { root } from "./setup.mjs";

const layers = {
  engine: [
    "graph",
    "ops",
    "transform",
    "shard",
    "compile",
    "device",
    "runtime",
    "tensor",
    "io",
    "cluster",
    "nn",
    "optim",
    "data",
    "train",
    "quantum",
    "bench",
    "test",
  ],
  lab: [
    "model",
    "stats",
    "import",
    "store",
    "metrics",
    "trace",
    "validity",
    "predict",
    "diagnosis",
    "ledger",
    "report",
    "bench",
    "lint",
    "runner",
    "test",
  ],
  cli: ["terminal", "commands", "test"],
};
// Which packages of the workspace a package may import.
const packages = { engine: [], lab: [], cli: ["weft", "@weft/lab"] };
// Libraries that only some of the engine's layers may load: who wants tensors alone must not pay for the rest.
const libraries = {
  "@grpc/grpc-js": ["cluster"],
  yaml: ["cluster", "nn", "optim", "data", "train", "quantum"],
  zod: ["cluster", "nn", "optim", "data", "train", "quantum"],
  "@huggingface/tokenizers": ["data"],
  hyparquet: ["data"],
};

const problems = [];
for (const [name, order] of Object.entries(layers)) {
  const src = join(root, "packages", name, "src");
  for (const file of globSync(src, (path) => path.endsWith(".ts"))) {
    const here = relative(src, file).split("/");
    const mine = here.length > 1 ? here[0] : null;
    if (mine !== null && !order.includes(mine))
      problems.push(`${relative(root, file)}: folder ${mine} is not in the layer list`);
    const text = readFileSync(file, "utf8");
    for (const match of text.matchAll(
      /(?:^|\n)\s*(?:import|export)[^;'"]*?from\s+["']([^"']+)["']|import\(\s*["']([^"']+)["']\s*\)/g,
    )) {
      const target = match[1] ?? match[2];
      if (!target.startsWith(".")) {
        const workspace = target.startsWith("@weft/") ? target.split("/").slice(0, 2).join("/") : target.split("/")[0];
        if (["weft", "@weft/lab", "@weft/cli"].includes(workspace) && !packages[name].includes(workspace))
          problems.push(`${relative(root, file)}: package ${name} may not import ${workspace}`);
        const library = target.startsWith("@") ? target.split("/").slice(0, 2).join("/") : target.split("/")[0];
        if (name === "engine" && library in libraries && !libraries[library].includes(mine))
          problems.push(`${relative(root, file)}: layer ${mine} may not import ${library}`);
        continue;
      }
      const path = relative(src, resolve(dirname(file), target)).split("/");
      if (path.length < 2 || path[0] === mine || mine === null) continue;
      const isTest = file.endsWith(".test.ts") || file.endsWith("testkit.ts");
      if (!isTest && order.indexOf(path[0]) > order.indexOf(mine))
        problems.push(`${relative(root, file)}: layer ${mine} imports from the later layer ${path[0]}`);
      if (!isTest && path.slice(1).join("/") !== "index.js")
        problems.push(
          `${relative(root, file)}: imports ${path.join("/")}; other layers are reached through their index.js`,
        );
    }
  }
}
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
