// The GPU table: Weft's rows (weft/gpu-rows.mjs) checked and timed, the peers' rows of the same run beside them, as one
// JSON. Needs a GPU, Node and koffi; the peers need Python with PyTorch and JAX.
// Rows with `live` alternate with a PyTorch that stays alive, round by round; the other peers run as whole scripts.
//   node bench/gpu.mjs [--only TEXT[,TEXT]] [--peers FILE.jsonl | --peers-script gpu_peers.py | --no-peers] [--out FILE]
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { judge } from "./lib/gpu-judge.mjs";
import { startLivePeer } from "./lib/live-peer.mjs";
import { summary } from "./lib/stats.mjs";
import { rows } from "./weft/gpu-rows.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const option = (name) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? null : (process.argv[at + 1] ?? "");
};
const only = option("only")?.split(",") ?? null;
const chosen = rows.filter(({ id }) => only === null || only.some((text) => id.includes(text)));
const log = (row) => console.error(JSON.stringify(row));

const device = weft.setDevice(process.env.WEFT_BENCH_DEVICE ?? "cuda");

const livePeer =
  process.argv.includes("--no-peers") || !chosen.some(({ live }) => live)
    ? null
    : startLivePeer(join(here, "peers/torch_live.py"), {
        python: process.env.WEFT_BENCH_PYTHON,
        device: device.kind === "cuda" ? "cuda" : "cpu",
      });

/**
 * Milliseconds of each of `reps` rounds of `inner` runs, at most about four seconds a row; `between` runs after every
 * round, with the GPU idle.
 */
async function measure({ run }, { inner = 10, reps = 5, issueOnly = false }, between) {
  // Three runs and a fifth of a second, or a hundred runs: short rows would otherwise time JavaScript that is still
  // interpreted, and no loop of a user stays there. Live peers are warmed up by the same rule.
  const start = performance.now();
  let warm = 0;
  while (warm < 3 || (warm < 100 && performance.now() - start < 200)) {
    await run();
    warm++;
  }
  device.synchronize();
  const once = (performance.now() - start) / warm;
  const n = Math.max(1, Math.min(inner, Math.floor(4000 / Math.max(once, 1e-3) / reps)));
  const samples = [];
  for (let r = 0; r < reps; r++) {
    // The peer had the GPU until now: one run to get it back, as the peer has.
    if (between && n > 1) {
      await run();
      device.synchronize();
    }
    const t = performance.now();
    for (let i = 0; i < n; i++) {
      const result = run();
      if (result instanceof Promise) await result;
    }
    if (!issueOnly) device.synchronize();
    samples.push((performance.now() - t) / n);
    device.synchronize();
    await between?.();
  }
  return samples;
}

/** Microseconds of each kernel of one run, the longest first. */
function profileOf({ run }) {
  const path = join(tmpdir(), `weft-bench-${process.pid}.json`);
  const best = new Map();
  for (let i = 0; i < 3; i++) {
    weft.profile.start();
    run();
    device.synchronize();
    weft.profile.stop(path);
    const totals = new Map();
    for (const e of JSON.parse(readFileSync(path, "utf8")).traceEvents) {
      if (e.tid !== 2) continue;
      const known = totals.get(e.name) ?? { name: e.name, kind: e.args?.kind, calls: 0, us: 0 };
      known.calls++;
      known.us += e.dur;
      totals.set(e.name, known);
    }
    for (const [name, t] of totals) if (!(best.get(name)?.us <= t.us)) best.set(name, t);
  }
  rmSync(path, { force: true });
  return [...best.values()].sort((a, b) => b.us - a.us).slice(0, 40);
}

/** Everybody who takes turns with a row. Compiling a network takes tens of seconds, so they are made before the first round. */
async function liveContestants(row) {
  if (livePeer === null || !row.live) return [];
  const made = row.live.map((job) => ({ job: { inner: 1, ...job }, samples: [], problem: null }));
  for (const contestant of made) await turn(contestant, 0, 300);
  return made;
}

/** One round of a live peer. One that fails is left out from then on; the row goes on without it. */
async function turn(contestant, inner = contestant.job.inner, seconds = 120) {
  if (contestant.problem !== null) return;
  try {
    const { ms } = await livePeer.ask({ ...contestant.job, inner }, seconds);
    if (inner > 0) contestant.samples.push(ms);
  } catch (error) {
    contestant.problem = String(error.message);
  }
}

async function runRow(row) {
  const result = {
    id: row.id,
    title: row.title,
    work: row.work,
    flops: row.flops,
    wanted: row.wanted,
    wrong: null,
    times: {},
  };
  try {
    const started = performance.now();
    const made = row.make();
    await made.check();
    const firstSeconds = (performance.now() - started) / 1e3;
    const contestants = await liveContestants(row);
    const everybody = async () => {
      for (const contestant of contestants) await turn(contestant);
    };
    const samples = await measure(made, row, contestants.length > 0 ? everybody : undefined);
    result.livePeers = contestants.map(({ job, samples: theirs, problem }) =>
      problem === null
        ? { peer: job.peer, ms: summary(theirs).median, spread: summary(theirs), samples: theirs }
        : { peer: job.peer, problem },
    );
    result.times.weft = {
      ms: summary(samples).median,
      spread: summary(samples),
      samples,
      info: { firstSeconds, ...made.info?.() },
    };
    if (row.profile) result.times.weft.info.profile = profileOf(made);
  } catch (error) {
    result.wrong = String(error?.message ?? error).slice(0, 500);
  }
  weft.collectGarbage();
  device.trim();
  if (livePeer && row.live) await livePeer.ask({ kind: "drop" }).catch(() => {});
  log({ id: row.id, ms: result.times.weft?.ms, wrong: result.wrong });
  return result;
}

const jsonLines = (text) =>
  text.split("\n").flatMap((line) => {
    try {
      return line.startsWith("{") ? [JSON.parse(line)] : [];
    } catch {
      return [];
    }
  });

/** What a script printed, and what went wrong; a script that runs out of time keeps what it printed before. */
function python(script, args = [], seconds = 600) {
  const done = spawnSync(process.env.WEFT_BENCH_PYTHON ?? "python3", [script, ...args], {
    encoding: "utf8",
    maxBuffer: 1 << 26,
    timeout: seconds * 1000,
  });
  const lines = jsonLines(done.stdout ?? "");
  if (done.error) return { lines, problem: done.error.message };
  return { lines, problem: done.status === 0 ? null : done.stderr.split("\n").slice(-4).join(" ") };
}

/** The largest ensembles take JAX seconds a run; the peers' script asks for a dozen runs, which few slots have time for. */
function missingEnsembles(lines) {
  const known = new Set(lines.filter(({ peer }) => peer.startsWith("jax")).map(({ work }) => work));
  const sizes = chosen.flatMap(({ work }) => {
    const size = /^lindblad d2 .* B=(\d+)$/.exec(work ?? "");
    return size === null || known.has(work) ? [] : [size[1]];
  });
  return sizes.length === 0 ? { lines: [] } : python(join(here, "peers/jax_ensemble.py"), sizes, 90);
}

/** The definitions of the peers' rows, and where they are measured. */
const definitions = {
  live: "bench/peers/torch_live.py, in turn with Weft: products, networks and end-to-end rows as in gpu_peers.py",
  train: "bench/peers/train_peers.py: model, optimiser, dropout, precision and timing as in gpu_peers.py train",
  lindblad: "gpu_peers.py lindblad; bench/peers/jax_ensemble.py for the sizes that it did not reach",
};

const findScript = () =>
  [
    option("peers-script"),
    join(here, "../peers/gpu_peers.py"),
    join(here, "../.gpu/peers/gpu_peers.py"),
    join(here, "../../shared/peers/gpu_peers.py"),
  ].find((path) => path !== null && existsSync(path));

/** The peers' rows that do not take turns: from a file, or by running their scripts where PyTorch is. */
function peers() {
  if (process.argv.includes("--no-peers")) return { lines: [], absent: { peers: "not asked for" } };
  const file = option("peers");
  if (file !== null) return { lines: jsonLines(readFileSync(file, "utf8")), absent: {} };
  const shared = findScript();
  const training = join(here, "peers/train_peers.py");
  const isChosen = (group) => chosen.some(({ id }) => id.startsWith(group));
  const wanted = [
    { group: "train", script: training, name: "jax", seconds: 120 },
    { group: "train", script: training, name: "torch", seconds: 150 },
    { group: "lindblad", script: shared, name: "lindblad", seconds: 90 },
  ].filter(({ group }) => isChosen(group));
  const lines = [];
  const absent = {};
  for (const { group, script, name, seconds } of wanted) {
    if (script === undefined) {
      absent[group] = "gpu_peers.py was not found";
      continue;
    }
    const made = python(script, [name], seconds);
    lines.push(...made.lines);
    if (made.problem !== null) absent[name === group ? group : `${group} (${name})`] = made.problem;
  }
  if (isChosen("lindblad")) lines.push(...missingEnsembles(lines).lines);
  return { lines, absent };
}

function versionsOf() {
  const found = python("-c", [
    "import json\nd={}\nfor m in ('torch','jax'):\n  try: d[m]=__import__(m).__version__\n  except Exception: pass\nprint(json.dumps(d))",
  ]);
  return found.lines[0] ?? {};
}

const driverVersion = () =>
  spawnSync("nvidia-smi", ["--query-gpu=driver_version", "--format=csv,noheader"], {
    encoding: "utf8",
  }).stdout?.trim() || String(device.context?.driverVersion ?? "none");

const started = new Date();
const to = option("out") ?? join(here, "results/gpu.json");
mkdirSync(dirname(to), { recursive: true });
const own = [];

/** Written after every row, and with the peers at the end: what was measured is not lost with what comes after it. */
function write(lines, absent, versions) {
  const report = reportOf(device.readings?.() ?? {}, lines, absent, versions);
  writeFileSync(to, `${JSON.stringify(report, null, 1)}\n`);
  return report;
}

const reportOf = (readings, lines, absent, versions) => ({
  kind: "gpu-table",
  at: started.toISOString(),
  seconds: (Date.now() - started.getTime()) / 1e3,
  hardware: {
    gpu: device.context?.name ?? device.name,
    multiprocessors: device.context?.multiprocessors,
    watts: readings.watts,
  },
  versions: {
    node: process.version,
    driver: driverVersion(),
    ...versions,
  },
  definitions,
  absent,
  rows: own.map((row) => judge(row, lines)),
});

for (const row of chosen) {
  own.push(await runRow(row));
  write([], { peers: "not measured yet" }, {});
}
livePeer?.stop();
const { lines, absent } = peers();
if (livePeer?.ended) absent.live = livePeer.ended.message;
const report = write(lines, absent, lines.length > 0 || livePeer !== null ? versionsOf() : {});
for (const { id, wrong, times, verdicts } of report.rows)
  console.log(JSON.stringify({ id, ms: times.weft?.ms, wrong, verdicts }));
process.exitCode = report.rows.some(({ wrong }) => wrong !== null) ? 1 : 0;
