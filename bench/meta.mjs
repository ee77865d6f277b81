// `node bench/meta.mjs`: ensembles of one-qubit problems with gradients (W1), the controlled-Z (W3) and one iteration of
// first-order MAML (W2) on the CPU, against PyTorch with the tasks batched and QuTiP task by task; with --training also the whole meta-training of
// 2,000 iterations and its baselines. Answers are compared before a time counts. Writes results/meta.json.
// Options: --rows a,b  --rounds 5  --seconds 0.5  --cores 0,1  --patience 20  --training  --out FILE
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { setup, sh } from "../scripts/setup.mjs";
import { Contest } from "./lib/contest.mjs";
import { allowedCores, pinned, threadEnvironment } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { printTable } from "./lib/table.mjs";

setup();
if (sh(process.execPath, [fileURLToPath(new URL("../scripts/build.mjs", import.meta.url))]) !== 0) process.exit(1);
const { torchPython } = await import("./lib/install.mjs");

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    rows: { type: "string" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "0.5" },
    cores: { type: "string" },
    patience: { type: "string", default: "20" },
    training: { type: "boolean", default: false },
    out: { type: "string" },
  },
});
const cores = options.cores?.split(",").map(Number) ?? allowedCores();
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);
const patience = Number(options.patience);
/** Fidelity of the published test pulse, the first task of every ensemble. */
const published = 0.9778427990483176;

/** peer -> the ratio that is wanted (null: reported only). "torch-tree" takes all steps at once as matrices. */
const ensemblePeers = { torch: 50, "torch-tree": null, qutip: 100 };
const rows = [
  { id: "w1-16", title: "one-qubit ensemble, 16 tasks, value and gradient", peers: ensemblePeers },
  { id: "w1-4096", title: "one-qubit ensemble, 4096 tasks, value and gradient", peers: ensemblePeers },
  {
    id: "w2-32",
    title: "first-order MAML iteration, 32 tasks, 5 steps, 49,016 parameters",
    peers: { torch: null, "torch-tree": null },
  },
  {
    id: "w3-16",
    title: "controlled-Z, 16 tasks of 12 states, value and gradient",
    peers: { torch: null },
  },
  { id: "w2-32-second-order", title: "the same of second order", peers: {} },
].filter(({ id }) => options.rows?.split(",").includes(id) ?? true);
const peerNames = {
  torch: "PyTorch, tasks batched, step by step",
  "torch-tree": "PyTorch, tasks and steps batched as matrices",
  qutip: "QuTiP, task by task, forward only",
};

function qutipPython() {
  const has = () => spawnSync("/usr/bin/python3", ["-c", "import qutip"], { stdio: "ignore" }).status === 0;
  if (!has() && process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    console.error("bench: installing Debian's python3-qutip ...");
    spawnSync("apt-get", ["-qq", "install", "-y", "--no-install-recommends", "python3-qutip"], { stdio: "ignore" });
  }
  return has() ? null : "there is no python3-qutip";
}

const absent = {};
const python = torchPython();
if ("reason" in python) absent.torch = python.reason;
if (rows.some(({ peers }) => "qutip" in peers)) {
  const reason = qutipPython();
  if (reason !== null) absent.qutip = reason;
}
const commands = {
  weft: () => [process.execPath, [join(here, "weft/meta.mjs")]],
  torch: () => [python.python, ["-W", "ignore", join(here, "peers/torch_meta.py")]],
  qutip: () => ["/usr/bin/python3", ["-W", "ignore", join(here, "peers/qutip_meta.py")]],
};
const seats = {
  weft: { process: "weft", row: (id) => id },
  torch: { process: "torch", row: (id) => id },
  "torch-tree": { process: "torch", row: (id) => `${id}-tree` },
  qutip: { process: "qutip", row: (id) => id },
};
/** What is wrong with the answers, or null: the published fidelity, and every number that two contestants share. */
function wrongAnswer(row, checks) {
  const near = (a, b, room) => Math.abs(a - b) <= room * Math.max(Math.abs(a), Math.abs(b), 1e-6);
  for (const [name, check] of Object.entries(checks)) {
    if (row.id.startsWith("w1") && !near(check[0], published, 1e-5))
      return `${name}: fidelity ${check[0]} of the test pulse`;
    const other = checks.weft.slice(0, check.length);
    const bad = other.findIndex((x, i) => !near(x, check[i], 2e-3));
    if (bad >= 0) return `${name}: number ${bad} is ${check[bad]}, Weft has ${other[bad]}`;
  }
  return null;
}

const contest = new Contest({ cores, rounds, seconds, patience, commands, seats, absent, peerNames });

/** The whole training in a process of its own, as a user would start it. */
function training() {
  const [file, args] = pinned(cores, process.execPath, [join(here, "weft/meta-training.mjs")]);
  const done = spawnSync(file, args, {
    encoding: "utf8",
    env: { ...process.env, ...threadEnvironment(cores) },
    stdio: ["ignore", "pipe", "inherit"],
    maxBuffer: 2 ** 28,
  });
  return done.status === 0 ? JSON.parse(done.stdout) : { problem: `exit ${done.status}` };
}

const out = options.out ?? (options.rows === undefined ? join(here, "results/meta.json") : null);
const before = out !== null && existsSync(out) ? JSON.parse(readFileSync(out, "utf8")) : {};
const report = {
  measured: new Date().toISOString(),
  hardware: hardware(cores),
  versions: versions(),
  rounds,
  seconds,
  rows: [],
};
for (const row of rows) {
  process.stderr.write(`bench: ${row.id}\n`);
  report.rows.push(await contest.run({ ...row, check: (answers) => wrongAnswer(row, answers) }));
}
contest.stop();
report.contestants = contest.versions;
report.training = options.training ? training() : before.training;
printTable(report);
if (report.training?.final !== undefined)
  console.log(
    `\n${report.training.iterations} iterations in ${report.training.seconds.toFixed(1)} s: validation fidelity ` +
      `${report.training.final.after.toFixed(6)} (wanted 0.990), adaptation gains ${report.training.final.gain.toExponential(2)}`,
  );
if (out !== null) writeFileSync(out, `${JSON.stringify(report, null, 1)}\n`);
process.exit(0);
