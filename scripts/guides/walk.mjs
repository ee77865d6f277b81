// `npm run guides`: types what the rows of the four guides say, stores what came out in bench/results/guides.json, and writes
// docs/guides.md from it. `npm run guides -- 47 48` types only these rows again; `npm run guides -- --missing` those
// that do not work yet, and `npm run guides -- --page` only writes the page.
//
// A row works if its command ends with the expected exit code and prints what the row expects. Rows that share a command run it once.
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { arch, availableParallelism, cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../setup.mjs";
import { autoShard } from "./auto-shard.mjs";
import { dataParallel } from "./data-parallel.mjs";
import { metaControl } from "./meta-control.mjs";
import { writePage } from "./page.mjs";
import { simulation } from "./simulation.mjs";

const record = join(root, "bench/results/guides.json");
const guides = [autoShard, dataParallel, simulation, metaControl];
const rows = guides.flatMap(({ sections }) => sections.flatMap((section) => section.rows));
rows.forEach((row, i) => {
  row.number = i + 1;
});

const cache = join(process.env.XDG_CACHE_HOME ?? join(process.env.HOME ?? "", ".cache"), "weft/venvs");
/** Whether the tests have found these packages, or installed them. */
const works = (name) => {
  const note = join(cache, `${name}.json`);
  return existsSync(note) && JSON.parse(readFileSync(note, "utf8")).works;
};
/** What a row may need beside Weft, and whether it is here. */
const needs = { torch: works("torch"), jax: works("jax") };

/** A folder in which the commands run: `weft` and `node` as after an installation, and the files that the rows use. */
function prepare() {
  const folder = mkdtempSync(join(tmpdir(), "weft-guides-"));
  mkdirSync(join(folder, "bin"));
  writeFileSync(
    join(folder, "bin/weft"),
    `#!/bin/sh\nexec "${process.execPath}" "${join(root, "packages/cli/bin/weft.js")}" "$@"\n`,
  );
  chmodSync(join(folder, "bin/weft"), 0o755);
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  for (const [name, from] of [
    ["configs", "configs"],
    ["examples", "examples"],
    ["experiments", "packages/lab/testdata/ddp_experiments"],
    ["traces", "packages/lab/testdata/traces"],
  ])
    symlinkSync(join(root, from), join(folder, name));
  for (const { files = {} } of guides)
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(folder, name, ".."), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
  return folder;
}

const outputs = new Map();
/** Runs a command or a program; equal ones run once. */
function type(folder, row) {
  const key = JSON.stringify([row.run, row.program]);
  if (outputs.has(key)) return outputs.get(key);
  let command = row.run;
  if (row.program !== undefined) {
    const name = `row${row.number}.mjs`;
    writeFileSync(join(folder, name), row.program);
    command = `node ${name}`;
  }
  const venvs = needs.torch || needs.jax ? [join(cache, "shared/bin")] : [];
  const start = performance.now();
  const done = spawnSync("bash", ["-c", `trap 'kill $(jobs -p) 2>/dev/null' EXIT\n${command}`], {
    cwd: folder,
    encoding: "utf8",
    timeout: (row.seconds ?? 120) * 1000,
    maxBuffer: 64 * 2 ** 20,
    env: {
      ...process.env,
      PATH: [join(folder, "bin"), ...venvs, process.env.PATH].join(":"),
      PYTHON: needs.torch ? join(cache, "shared/bin/python") : "python3",
      JAX_PYTHON: needs.jax ? join(cache, "shared/bin/python") : "python3",
      WEFT_LEDGER: join(folder, "ledger.jsonl"),
      WEFT_PROGRESS: "0",
      NO_COLOR: "1",
    },
  });
  const found = {
    exit: done.status,
    seconds: Math.round((performance.now() - start) / 100) / 10,
    text: `${done.stdout ?? ""}\n${done.stderr ?? ""}`.replaceAll(folder, ".").replaceAll(root, "weft"),
  };
  outputs.set(key, found);
  return found;
}

/** What a row prints: the parts of the output that it expects. */
function walk(folder, row) {
  const missing = (row.needs ?? []).filter((name) => !needs[name]);
  if (missing.length > 0) return { row: row.number, skipped: `needs ${missing.join(" and ")}` };
  const { exit, seconds, text } = type(folder, row);
  const lines = text.split("\n").map((line) => line.trim());
  const printed = [];
  const absent = [];
  for (const pattern of row.shows ?? []) {
    const line = lines.find((each) => pattern.test(each));
    if (line === undefined) absent.push(String(pattern));
    else printed.push((pattern.exec(line)[1] ?? line).slice(0, 160));
  }
  const wanted = [row.exit ?? 0].flat();
  const works = absent.length === 0 && wanted.includes(exit);
  const result = { row: row.number, works, exit, seconds, printed };
  return works ? result : { ...result, absent, tail: text.slice(-1500) };
}

const args = process.argv.slice(2);
const chosen = args.filter((arg) => /^\d+$/.test(arg)).map(Number);
const earlier = existsSync(record) ? JSON.parse(readFileSync(record, "utf8")) : { rows: [] };
const results = new Map(earlier.rows.map((result) => [result.row, result]));

/** Whether a row is typed now: those that were named, those that do not work yet (--missing), or all. */
const isTyped = ({ number }) =>
  args.includes("--missing") ? results.get(number)?.works !== true : chosen.length === 0 || chosen.includes(number);

/** What is known now: written after every row, so that an interrupted walk loses nothing. */
function save() {
  const machine = {
    processor: cpus()[0]?.model.trim(),
    cores: availableParallelism(),
    arch: arch(),
    node: process.version,
  };
  const date = new Date().toISOString().slice(0, 10);
  const known = { date, machine, rows: rows.map(({ number }) => results.get(number)).filter((r) => r !== undefined) };
  writeFileSync(record, `${JSON.stringify(known, null, 1)}\n`);
  return known;
}

let known = earlier;
if (!args.includes("--page")) {
  const folder = prepare();
  try {
    for (const row of rows.filter(isTyped)) {
      const result = walk(folder, row);
      results.set(row.number, result);
      known = save();
      const state = result.skipped ?? (result.works ? "works" : "FAILS");
      console.log(`${String(row.number).padStart(3)}  ${state.padEnd(8)} ${result.seconds ?? ""} s  ${row.ask}`);
      if (result.works === false)
        console.log(`     exit ${result.exit}; not found: ${result.absent.join(" ")}\n${result.tail}`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
writeFileSync(join(root, "docs/guides.md"), writePage(guides, known));
const broken = known.rows.filter(({ works }) => works === false);
console.log(`${known.rows.length} of ${rows.length} rows; ${broken.length} do not work as written`);
process.exitCode = broken.length === 0 ? 0 : 1;
