// The size and order of the code base in one table: `node scripts/figures.mjs` (after a build; --unused lists exports that nobody
// imports).
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { undocumentedExports } from "../packages/core/dist/testing/examples.js";
import { entries } from "./docs/entries.mjs";
import { exportedNames, isTest, namesInSeveralFiles } from "./modules.mjs";
import { root } from "./setup.mjs";

const text = (path) => readFileSync(join(root, path), "utf8");
const linesOf = (path) => text(path).split("\n").length - 1;
const sum = (numbers) => numbers.reduce((total, n) => total + n, 0);

const tracked = execFileSync("git", ["ls-files"], { cwd: root, encoding: "utf8", maxBuffer: 1 << 26 })
  .trim()
  .split("\n");
// Stored numbers of other programs are data, whatever their extension.
const code = tracked.filter(
  (path) => /\.(tsx?|mjs|cc?|h|cuh?|py|sh)$/.test(path) && !/testdata\/|\/corpus\//.test(path),
);
const typescript = code.filter((path) => /\.tsx?$/.test(path));
const tests = code.filter((path) => isTest(`/${path}`));

const all = exportedNames().filter(({ file }) => !isTest(`/${file}`));
const exported = all.filter(({ isReexport }) => !isReexport);
// The compiler needs the name of this class in the declarations of other packages.
const needed = new Set(["Setting"]);
const unused = all.filter(({ name, isPublic, by }) => !isPublic && by.length === 0 && !needed.has(name));

const casts = sum(
  typescript
    .filter((path) => !isTest(`/${path}`))
    .map((path) => text(path).match(/\bas unknown as\b|\bas any\b(?! ?[.,"])/g)?.length ?? 0),
);

function installedBytes(path) {
  return Number(execFileSync("du", ["-sb", join(root, path)], { encoding: "utf8" }).split("\t")[0]);
}
function packedBytes() {
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const out = execFileSync("npm", args, {
    cwd: join(root, "packages/core"),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return JSON.parse(out)[0].unpackedSize;
}

/** Processor milliseconds of a command, the median of five. */
function startUp(argument) {
  const times = Array.from({ length: 5 }, () => {
    const script = `const { spawnSync } = require("node:child_process"); spawnSync(process.execPath, ["packages/cli/bin/weft.js", "${argument}"]); const f = require("node:fs").readFileSync("/proc/self/stat", "utf8").split(") ")[1].split(" "); console.log((Number(f[13]) + Number(f[14])) * 10)`;
    return Number(spawnSync(process.execPath, ["-e", script], { cwd: root, encoding: "utf8" }).stdout);
  });
  return times.sort((a, b) => a - b)[2];
}

if (process.argv.includes("--unused")) {
  for (const { file, name } of unused) console.log(`${file}: ${name}`);
} else {
  const core = JSON.parse(text("packages/core/package.json"));
  const rows = {
    "lines of code": sum(code.map(linesOf)),
    "of them TypeScript": sum(typescript.map(linesOf)),
    "of them tests": sum(tests.map(linesOf)),
    "files of code": code.length,
    "files over 600 lines": code.filter((path) => linesOf(path) > 600).length,
    "exported names, without tests": exported.length,
    "names in more than one file": namesInSeveralFiles().length,
    "exports that nobody imports": unused.length,
    "public names": exported.filter(({ isPublic }) => isPublic).length,
    "public names without TSDoc": new Set(entries.flatMap(({ source }) => undocumentedExports(source))).size,
    "casts (`as unknown as`, `as any`)": casts,
    "dependencies of @weft/core": Object.keys(core.dependencies).join(", "),
    "size of @weft/core, installed (MiB)": (packedBytes() / 2 ** 20).toFixed(1),
    "with its dependencies (MiB)": (
      (packedBytes() + sum(["koffi", "@koromix"].map((name) => installedBytes(`node_modules/${name}`)))) /
      2 ** 20
    ).toFixed(1),
    "`weft --version`, processor time (ms)": startUp("--version"),
    "`weft --help`, processor time (ms)": startUp("--help"),
  };
  for (const [name, value] of Object.entries(rows)) console.log(`| ${name} | ${value} |`);
}
