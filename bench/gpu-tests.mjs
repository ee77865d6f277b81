// `npm run test:gpu`: the suites of all ops, gradients, transforms, loops, lanes, attention, memory and golden values on the
// GPU against the reference device, each file in its own process, several at a time; then the sharding suite with two workers
// on the one GPU. Prints a table of counts, writes them as JSON, and exits with 1 where something failed, ran out of time or
// did not run at all. Needs the built engine and a GPU: in a checkout, or packed (bash .gpu/node .gpu/bench/gpu-tests.mjs).
//   --only TEXT[,TEXT]  --skip TEXT[,TEXT]  --all (models, optimisers and the rest of quantum too)  --together N  --seconds N
//   (a file)  --no-sharding  --out FILE  --logs FOLDER  --emulated (tries the command without a GPU: not a test of one)
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    only: { type: "string" },
    skip: { type: "string" },
    all: { type: "boolean", default: false },
    together: { type: "string", default: String(availableParallelism()) },
    seconds: { type: "string", default: "300" },
    "no-sharding": { type: "boolean", default: false },
    out: { type: "string" },
    logs: { type: "string" },
    emulated: { type: "boolean", default: false },
  },
});
const dist = dirname(fileURLToPath(import.meta.resolve("@weft/core")));
const preload = options.emulated ? ["--import", join(dist, "device/cuda/emulated/preload.testkit.js")] : [];

// Suites that run on every device, the slowest first; those that only look at graphs and plans have no place here.
const core = [
  "test/ops",
  "quantum/golden",
  "device/cuda/recognise-gpu",
  "test/fuzz",
  "test/memory",
  "test/gradients",
  "quantum/solvers/closed-forms",
  "quantum/solvers/lindblad",
  "compile/lane",
  "test/scan",
  "test/vmap",
  "test/transforms",
  "test/jit",
  "test/reduce-axes",
];
const more = [
  "nn/layers",
  "nn/transformer",
  "nn/mixed",
  "optim/optim",
  "quantum/control/golden",
  "quantum/control/control",
  "quantum/noise/noise",
  "quantum/systems/systems",
  "quantum/meta/meta",
];
const texts = (list) => list?.split(",") ?? [];
const isChosen = (name) =>
  (options.only === undefined || texts(options.only).some((text) => name.includes(text))) &&
  !texts(options.skip).some((text) => name.includes(text));
const suites = (options.all ? [...core, ...more] : core).filter(isChosen);
const shardingDevice = process.env.WEFT_SHARD_TEST_DEVICE ?? (options.emulated ? null : "cuda");
const withSharding = !options["no-sharding"] && shardingDevice !== null && isChosen("sharding");

/** The GPU's name; what is missing is said before anything runs, because the suites would quietly run on the reference alone. */
function gpuName() {
  const look = `import { CudaDevice } from ${JSON.stringify(new URL("index.js", `file://${dist}/`).href)};
    if (!CudaDevice.available()) { console.error("no GPU can be used: npx weft doctor says why"); process.exit(1); }
    console.log(new CudaDevice().context.name);`;
  const done = spawnSync(process.execPath, [...preload, "--input-type=module", "-e", look], { encoding: "utf8" });
  if (done.status !== 0) {
    console.error(`test:gpu: ${done.stderr.trim().split("\n").slice(-3).join("\n")}`);
    process.exit(1);
  }
  return done.stdout.trim().split("\n").at(-1);
}

/** Runs a command in a process group of its own; past its time all of the group is ended. */
function run(args, env, seconds) {
  return new Promise((resolve) => {
    const started = performance.now();
    const child = spawn(process.execPath, args, {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let [out, err, late] = ["", "", false];
    child.stdout.setEncoding("utf8").on("data", (text) => {
      out += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text) => {
      err = (err + text).slice(-20000);
    });
    const timer = setTimeout(() => {
      late = true;
      end(child);
    }, seconds * 1000);
    running.add(child);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      running.delete(child);
      resolve({ code: code ?? signal, out, err, late, seconds: (performance.now() - started) / 1e3 });
    });
  });
}

const running = new Set();
function end(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    for (const child of running) end(child);
    process.exit(130);
  });

/** Counts of a finished file are node's own; of one that was ended, those of the lines that came. */
function countsOf(out) {
  const total = (name) => Number(new RegExp(`^# ${name} (\\d+)$`, "m").exec(out)?.[1] ?? Number.NaN);
  const failures = [...out.matchAll(/^ *not ok \d+ - (.*)$/gm)].map(([, name]) => name);
  if (Number.isNaN(total("pass"))) {
    const oks = out.match(/^ *ok \d+ - /gm)?.length ?? 0;
    const skipped = out.match(/^ *ok \d+ - .*# SKIP/gm)?.length ?? 0;
    return { passed: oks - skipped, failed: failures.length, skipped, failures };
  }
  return { passed: total("pass"), failed: total("fail") + total("cancelled"), skipped: total("skipped"), failures };
}

function keepLog(name, { out, err }) {
  if (options.logs === undefined) return;
  mkdirSync(options.logs, { recursive: true });
  writeFileSync(join(options.logs, `${name.replaceAll("/", "_")}.log`), `${out}\n${err}`);
}

async function runSuite(name) {
  const file = join(dist, `${name}.test.js`);
  const done = await run(
    [...preload, "--test-reporter=tap", file],
    { WEFT_TEST_DEVICES: "reference,cuda", ...(options.emulated ? { WEFT_CUDA_GRAPHS: "0" } : {}) },
    Number(options.seconds),
  );
  keepLog(name, done);
  const counts = countsOf(done.out);
  const problem = done.late
    ? `not finished after ${options.seconds} s`
    : done.code !== 0 && counts.failed === 0
      ? `ended with ${done.code}: ${done.err.trim().split("\n").slice(-3).join(" ")}`
      : counts.passed === 0
        ? "no test ran"
        : null;
  return { suite: name, ...counts, seconds: done.seconds, problem };
}

async function runSharding() {
  const env = { WEFT_SHARD_TEST_DEVICE: shardingDevice, WEFT_SHARD_TEST_WORKERS: "2", WEFT_SHARD_TEST_CLUSTERS: "4" };
  const done = await run([join(dist, "test/cluster-suite.main.js")], env, Number(options.seconds));
  keepLog("sharding", done);
  const lines = done.out.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));
  const summary = lines.find(({ suite }) => suite === "sharding");
  const failures = lines.flatMap(({ failed }) => (typeof failed === "string" ? [failed.slice(0, 200)] : []));
  const ended = done.late ? `not finished after ${options.seconds} s` : `ended with ${done.code}`;
  return {
    suite: `sharding, two workers on ${shardingDevice === "cuda" ? "one GPU" : shardingDevice}`,
    passed: summary?.passed ?? 0,
    failed: summary?.failed ?? 0,
    skipped: 0,
    failures,
    seconds: done.seconds,
    problem: done.code === 0 && summary?.ok ? null : (summary?.broken?.[0] ?? ended),
  };
}

const gpu = gpuName();
console.error(`test:gpu: ${suites.length} files on ${gpu}, ${options.together} at a time`);
const started = new Date();
const waiting = [...suites];
const results = [];
const say = ({ suite, passed, failed, skipped, seconds, problem }) =>
  console.error(
    `${suite}: ${passed} passed, ${failed} failed, ${skipped} skipped, ${seconds.toFixed(0)} s${problem ? `: ${problem}` : ""}`,
  );
await Promise.all(
  Array.from({ length: Math.max(1, Number(options.together)) }, async () => {
    while (waiting.length > 0) {
      const result = await runSuite(waiting.shift());
      say(result);
      results.push(result);
    }
  }),
);
if (withSharding) {
  results.push(await runSharding());
  say(results.at(-1));
}

const order = [...suites, "sharding"];
results.sort((a, b) => order.findIndex((s) => a.suite.startsWith(s)) - order.findIndex((s) => b.suite.startsWith(s)));
const sum = (pick) => results.reduce((total, result) => total + pick(result), 0);
const isBad = ({ failed, problem }) => failed > 0 || problem !== null;
const report = {
  kind: "gpu-tests",
  at: started.toISOString(),
  seconds: (Date.now() - started.getTime()) / 1e3,
  hardware: { gpu },
  versions: { node: process.version },
  command: `npm run test:gpu${options.all ? " -- --all" : ""}`,
  total: {
    suites: results.length,
    passed: sum((r) => r.passed),
    failed: sum((r) => r.failed),
    skipped: sum((r) => r.skipped),
    unfinished: results.filter(({ problem }) => problem !== null).length,
  },
  suites: results,
};
const wide = Math.max(...results.map(({ suite }) => suite.length));
const row = (cells) =>
  `${cells[0].padEnd(wide)}  ${cells
    .slice(1)
    .map((c) => String(c).padStart(8))
    .join("")}`;
console.log(row(["suite", "passed", "failed", "skipped", "s"]));
for (const r of results) {
  console.log(
    `${row([r.suite, r.passed, r.failed, r.skipped, r.seconds.toFixed(0)])}${r.problem ? `  ${r.problem}` : ""}`,
  );
  for (const name of r.failures.slice(0, 10)) console.log(`    not ok: ${name}`);
}
const { total } = report;
console.log(row(["all", total.passed, total.failed, total.skipped, report.seconds.toFixed(0)]));
// A part of the suites, or none on a GPU, is not what the documentation cites.
const isWhole = options.only === undefined && options.skip === undefined && !options.emulated && withSharding;
const out = options.out ?? (isWhole ? fileURLToPath(new URL("results/gpu-tests.json", import.meta.url)) : null);
if (out !== null) {
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, `${JSON.stringify(report, null, 1)}\n`);
}
process.exitCode = results.length === 0 || results.some(isBad) ? 1 : 0;
