// `node bench/train-scale.mjs`: `weft scale` on our own trainer at 1 and 2 workers with one core each, on a quiet machine. The
// small model is measured as it is configured (a loader a rank), then with the advice of the lab followed, and the ledger
// shows whether what was promised came; the larger model with 24 steps in two repeats, the second backwards (1, 2, 2, 1), so that a
// machine that changes its speed meanwhile is not taken for scaling. Beside what the lab says of a study stand the medians of its
// steps: the two must agree. Writes results/train-scale.json.
// Options: --only small,larger  --steps 60  --larger-steps 12  --repeats 2  --out FILE
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allowedCores } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { median } from "./lib/stats.mjs";
import { batches, makeTexts, models, weftCommand } from "./lib/train-work.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    only: { type: "string", default: "small,larger" },
    steps: { type: "string", default: "60" },
    "larger-steps": { type: "string", default: "12" },
    repeats: { type: "string", default: "2" },
    out: { type: "string", default: join(here, "results/train-scale.json") },
  },
});
const folder = mkdtempSync(join(tmpdir(), "weft-bench-scale-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const ledger = join(folder, "ledger.jsonl");
const env = { ...process.env, WEFT_DATA: join(folder, "home"), WEFT_DEVICE: "cpu", WEFT_LEDGER: ledger };
delete env.WEFT_THREADS;

function weft(args) {
  const done = spawnSync(process.execPath, [weftCommand, ...args], {
    cwd: folder,
    env,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (done.status !== 0) throw new Error(`weft ${args.slice(0, 6).join(" ")} ended with ${done.status}`);
  return done.stdout;
}

/** The shipped shapes on texts that fill every position, so that all steps are equal. */
function configOf(size, loaders) {
  const file = join(folder, `${size}-${loaders}.yaml`);
  const content = {
    name: size,
    model: models[size],
    data: { dataset: "imdb", path: makeTexts(models[size].max_seq_len, size === "small" ? 8192 : 2048), loaders },
    training: { epochs: 1000, batch_per_rank: batches[size], gradient_clip: 1, evaluate: false },
    optimizer: { learning_rate: 3e-4 },
  };
  writeFileSync(file, JSON.stringify(content));
  return file;
}

/** The steps of one run, all ranks: what the lab's figure has to agree with. Milliseconds, medians without the warm-up. */
function stepsOf(run) {
  const files = readdirSync(run).filter((name) => /^rank\d+\.jsonl$/.test(name));
  const all = files.map((name) =>
    readFileSync(join(run, name), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line))
      .filter(({ type }) => type === "step"),
  );
  const steady = all.flatMap((steps) => steps.slice(warmSteps).filter(({ compile }) => compile !== true));
  const middle = (key) => median(steady.map((step) => (step[key] ?? 0) / 1e3));
  return {
    ranks: all.length,
    epochs: new Set(all[0].map(({ epoch }) => epoch)).size,
    stepMs: middle("durationUs"),
    computeMs: middle("computeUs"),
    exposedCommMs: middle("exposedCommUs"),
    /** Processor time: where a step takes longer than this and its communication, something else had the core. */
    cpuMs: middle("cpuUs"),
    dataWaitMs: middle("dataWaitUs"),
    /** Of rank 0, one by one. */
    each: all[0].map(({ durationUs }) => Math.round(durationUs / 100) / 10),
  };
}

/** Steps before those that count here. */
const warmSteps = 2;

function study(size, loaders, steps, repeats) {
  const out = join(folder, `studies-${loaders}`);
  mkdirSync(out, { recursive: true });
  const command = [process.execPath, weftCommand, "train", configOf(size, loaders), "--devices", "{n}"];
  const run = [...command, "--max-steps", String(steps)];
  const how = ["--devices", "1,2", "--repeats", String(repeats), "--warmup", "2", "--out", out, "--name", size];
  const { folder: place } = JSON.parse(weft(["scale", ...how, "--no-pictures", "--json", "--", ...run]));
  // Writes down what is promised, and scores what was promised before.
  const { studies } = JSON.parse(weft(["analyze", place, "--json", "--warmup", "2", "--ledger", ledger]));
  const [report] = studies;
  const at = report.scaling.find((point) => point.devices === 2);
  const runs = join(place, "runs");
  const measured = readdirSync(runs)
    .sort()
    .map((name) => ({ run: name, ...stepsOf(join(runs, name)) }));
  const alone = median(measured.filter(({ ranks }) => ranks === 1).map(({ stepMs }) => stepMs));
  const pair = median(measured.filter(({ ranks }) => ranks === 2).map(({ stepMs }) => stepMs));
  return {
    model: size,
    loaders,
    steps,
    repeats,
    command: `weft scale --devices 1,2 --repeats ${repeats} -- weft train CONFIG --devices {n} --max-steps ${steps}`,
    valid: report.valid,
    verdict: report.valid ? "valid" : "not valid",
    speedup: at?.workSpeedup ?? null,
    efficiency: at?.workEfficiency ?? null,
    class: at?.class ?? null,
    basis: report.basis,
    /** The same from the medians of the steps: a rank's batch is the same at both counts. */
    efficiencyOfMedians: alone / pair,
    measured,
    findings: report.findings.map(({ id, severity, devices, cause, fix, predicted }) => ({
      id,
      severity,
      devices,
      cause,
      fix,
      predicted,
    })),
  };
}

const runs = [];
const only = options.only.split(",");
const say = (r) =>
  process.stderr.write(
    `bench: ${r.model}, ${r.loaders} loaders: ${r.verdict}, efficiency ${r.efficiency?.toFixed(3)} (of median steps ${r.efficiencyOfMedians.toFixed(3)}), findings ${r.findings.map((f) => f.id).join(", ") || "none"}\n`,
  );
if (only.includes("small")) {
  const steps = Number(options.steps);
  const first = study("small", 1, steps, Number(options.repeats));
  say(first);
  runs.push(first);
  if (first.findings.some(({ id }) => id === "cpu-oversubscription")) {
    const second = study("small", 0, steps, Number(options.repeats));
    say(second);
    const gone = !second.findings.some(({ id }) => id === "cpu-oversubscription");
    second.followed = `with the advice "lower the loaders to 0" followed; the finding is ${gone ? "gone" : "still there"}`;
    runs.push(second);
  }
}
if (only.includes("larger")) {
  const larger = study("larger", 0, Number(options["larger-steps"]), Number(options.repeats));
  say(larger);
  runs.push(larger);
}
const lines = existsSync(ledger)
  ? readFileSync(ledger, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line))
  : [];
const shown = existsSync(ledger) ? weft(["ledger"]) : "";
/** A model that is not measured now stays as it is. */
const before = existsSync(options.out) ? JSON.parse(readFileSync(options.out, "utf8")) : { runs: [], ledger: [] };
const kept = before.runs.filter(({ model }) => !only.includes(model));
const report = {
  benchmark: "weft scale on weft train",
  at: new Date().toISOString(),
  hardware: hardware(allowedCores()),
  versions: versions(),
  runs: [...kept, ...runs].sort((a, b) => (a.model < b.model ? 1 : a.model > b.model ? -1 : b.loaders - a.loaders)),
  ledger: [...before.ledger.filter(({ study: name }) => !only.includes(name)), ...lines],
};
writeFileSync(options.out, `${JSON.stringify(report, null, 1)}\n`);
process.stdout.write(`${shown}\n`);
console.log(JSON.stringify(report.runs.map(({ findings: _, command: __, measured: ___, ...row }) => row)));
