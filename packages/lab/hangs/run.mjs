// Benchmark of `weft hang`: PyTorch jobs with one injected desynchronization each. Prints a row per scenario and writes
// bench/results/hangs.json. `--subset` runs four; names run those, and `--out FILE` writes their rows; with `--add`
// they replace the rows of the same names in the record, each with its date; `--keep DIR` keeps what the jobs wrote; `--jobs N` runs N at a time; `--limit S` takes a rank for stuck after S seconds (6).
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { runScenario, scenarios } from "../dist/test/hang-jobs.js";
import { pythonWith } from "../dist/test/python.js";

const args = process.argv.slice(2);
const option = (name) => {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
};
const keep = option("--keep");
const out = option("--out");
const jobs = Number(option("--jobs") ?? 1);
const limit = Number(option("--limit") ?? 6);
const add = args.includes("--add");
const subset = args.includes("--subset") ? ["skip-2", "stopped-2", "p2p-2", "checkpoint-2"] : undefined;
const named = [...new Set(args.filter((arg) => !arg.startsWith("--")))];
const names = subset ?? (named.length > 0 ? named : Object.keys(scenarios));
const unknown = names.filter((name) => !Object.hasOwn(scenarios, name));
if (unknown.length > 0)
  throw new Error(`no scenario ${unknown.join(", ")}; there are ${Object.keys(scenarios).join(", ")}`);

// The ranks lead process groups of their own, which a terminal does not interrupt: ending this program ends them.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
const torch = await pythonWith("torch");
if (typeof torch === "string") throw new Error(torch);
const rows = [];
const run = async (name) => {
  const folder = keep === undefined ? undefined : join(keep, name);
  if (folder !== undefined) mkdirSync(folder, { recursive: true });
  const { verdict, ...score } = await runScenario(torch.python, name, limit, folder);
  const right = score.culprit && score.collective && score.line;
  rows[names.indexOf(name)] = {
    ...score,
    right,
    seconds: Math.round(score.seconds * 10) / 10,
    found: verdict.kind,
    confidence: verdict.confidence,
  };
  const wrong = ["culprit", "collective", "line", "kind"].filter((key) => !score[key]);
  console.log(
    `${right ? "right" : "WRONG"}  ${name.padEnd(16)} ${String(score.ranks).padStart(2)} ranks  ${verdict.kind}${wrong.length > 0 ? `  (not: ${wrong.join(", ")}: ${verdict.evidence.join("; ")})` : ""}`,
  );
};
const left = [...names];
const work = async () => {
  for (let name = left.shift(); name !== undefined; name = left.shift()) await run(name);
};
await Promise.all(Array.from({ length: jobs }, work));
const count = (key, list) => list.filter((row) => row[key]).length;
const summary = `${count("right", rows)} of ${rows.length}: culprit, collective and line`;
console.log(`${summary}; kind: ${count("kind", rows)} of ${rows.length}`);
if (out !== undefined || add || (subset === undefined && named.length === 0)) {
  const results = out ?? join(dirname(fileURLToPath(import.meta.url)), "../../../bench/results/hangs.json");
  const before = add && existsSync(results) ? JSON.parse(readFileSync(results, "utf8")) : { rows: [] };
  const all = new Map(before.rows.map((row) => [row.scenario, { date: before.date, ...row }]));
  const date = new Date().toISOString();
  for (const row of rows) all.set(row.scenario, add ? { date, ...row } : row);
  const list = Object.keys(scenarios).flatMap((name) => all.get(name) ?? []);
  const head = { version: 1, date, scenarios: list.length, right: count("right", list), kinds: count("kind", list) };
  writeFileSync(results, `${JSON.stringify({ ...head, rows: list }, null, 2)}\n`);
}
