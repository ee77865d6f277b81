// ScaleFault: small real jobs (PyTorch, JAX, Weft's trainer), each with one injected fault or none, measured at one and two devices
// and judged by the lab. Where the lab promises a gain, the fix is applied and the promise compared with the measurement.
//   node packages/lab/scalefault/run.mjs [--subset] [--more] [--only NAME,NAME] [--state FILE] [--attempts N] [--calibrate]
// Every finished job is appended to the state file; a second call continues there and writes bench/results/scalefault.json when all
// jobs are done. Jobs that others disturbed are repeated (--attempts, 3) and otherwise marked.
// --subset: one job per fault and four healthy ones, as in CI; writes no result. --calibrate: also writes the quantiles of the
// intervals (src/predict/effect-constants.ts). --more: jobs of another family, which the rules were not written against; writes
// bench/results/scalefault-more.json. Needs the virtual environments of the lab's tests.
import { execFileSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { analyzeStudy, causesOf, symptoms } from "../dist/diagnosis/index.js";
import { studyFromScaleDirectory } from "../dist/import/index.js";
import { runStudy } from "../dist/runner/index.js";
import { jobs, moreJobs } from "./cases.mjs";
import { score, tensorboardSays } from "./score.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../../..");
const venvs = process.env.WEFT_VENVS ?? join(homedir(), ".cache/weft/venvs");
const python = join(venvs, "shared/bin/python");
const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const subset = process.argv.includes("--subset");
const only = option("only", null)?.split(",") ?? null;
const attempts = Number(option("attempts", "3"));
const more = process.argv.includes("--more");
const state = option("state", join(here, more ? ".state-more.jsonl" : ".state.jsonl"));
const partial = subset || only !== null;

function chosen() {
  const all = more ? moreJobs() : jobs();
  if (only !== null) return all.filter((j) => only.some((o) => o === j.fault || o === j.kind || o === j.name));
  if (!subset) return all;
  const seen = new Set();
  return all.filter((j) => {
    const key = `${j.framework} ${j.fault ?? j.kind}`;
    if (seen.has(key) || (j.fault === null && [...seen].filter((k) => k.startsWith("healthy")).length >= 4))
      return false;
    seen.add(key);
    if (j.fault === null) seen.add(`healthy ${j.kind}`);
    return true;
  });
}

const launched = (script) => (job, fixed) => [
  "bash",
  join(here, "launch.sh"),
  "{n}",
  python,
  join(here, script),
  ...job.args,
  ...fixed,
];

/** The command of a job, with {n} for the devices. */
const commandOf = {
  torch: launched("job.py"),
  more: launched("more_job.py"),
  jax: (job, fixed) => [python, join(here, "jax_job.py"), "--devices", "{n}", ...job.args, ...fixed],
  weft: () => [
    process.execPath,
    join(root, "packages/cli/bin/weft.js"),
    "train",
    "weft-{n}.yaml",
    "--devices",
    "{n}",
    "--no-evaluate",
    "--output",
    "out-{n}",
  ],
};

async function measure(job, home, counts, fixed) {
  for (const [file, text] of Object.entries(job.files ?? {})) writeFileSync(join(home, file), text);
  for (const n of [1, 2]) rmSync(join(home, `out-${n}`), { recursive: true, force: true });
  const { folder } = await runStudy({
    command: commandOf[job.framework](job, fixed ? ["--fixed"] : []),
    counts,
    repeats: 1,
    launcher: "local",
    parent: home,
    name: `job${Date.now()}`,
    cwd: home,
    env: { ...process.env, SCALEFAULT: fixed ? "" : (job.launch ?? "") },
    site: {},
    warmupRuns: 0,
    ...(job.warmup !== undefined && { warmup: job.warmup }),
    sampleSeconds: 0.3,
    probe: true,
    timeLimit: 120,
  });
  const study = studyFromScaleDirectory(folder);
  const { report, verdict } = analyzeStudy(study);
  if (process.env.SCALEFAULT_KEEP === undefined) rmSync(folder, { recursive: true, force: true });
  const disturbed = report.findings.some((f) => f.id === "disturbed-machine");
  return { report, verdict, disturbed };
}

/** Repeats a measurement that others disturbed; the last attempt counts and is marked. */
async function undisturbed(job, home, counts, fixed) {
  for (let k = 1; ; k++) {
    const found = await measure(job, home, counts, fixed);
    if (!found.disturbed || k >= attempts) return found;
  }
}

/** The gain that the finding promises, and the time after the fix. */
async function promiseOf(job, home, finding, runs) {
  const p = finding?.predicted;
  if (
    p == null ||
    p.to === null ||
    p.interval === null ||
    p.metric !== "epochSeconds" ||
    !["torch", "more"].includes(job.framework)
  )
    return null;
  const after = await undisturbed(job, home, [2], true);
  const measured = after.report.runs.find((r) => r.devices === 2)?.epochSeconds?.mean;
  if (measured === undefined || runs.length === 0) return null;
  return {
    finding: finding.id,
    from: p.from,
    to: p.to,
    interval: p.interval,
    noise: p.noise ?? null,
    measured,
    disturbed: after.disturbed,
  };
}

async function run(job) {
  const home = mkdtempSync(join(tmpdir(), "weft-scalefault-"));
  const began = Date.now();
  try {
    const { report, verdict, disturbed } = await undisturbed(job, home, [1, 2], false);
    const causes = causesOf(report.findings, 2);
    const top = causes[0] ?? null;
    const steps = verdict.view.runs.find((r) => r.run.devices === 2)?.steps ?? null;
    const facts = verdict.view.runs.find((r) => r.run.devices === 2)?.run.ranks[0]?.facts ?? {};
    const comm = facts.ddpCommUs !== undefined && steps !== null ? facts.ddpCommUs / steps.durationUs.mean : null;
    const named = causes.find((f) => job.wanted.includes(f.id));
    // An open question names two readings and the command that separates them: it accuses nobody, and is counted by itself.
    const alarms = causes.filter((f) => !symptoms.has(f.id) && f.severity !== "unresolved");
    const alarm = report.status === "not valid" || alarms.length > 0;
    return {
      job: job.name,
      framework: job.framework,
      fault: job.fault,
      disturbed,
      status: report.status,
      speedup: report.scaling.at(-1)?.speedup ?? null,
      top: top?.id ?? null,
      found: causes.map((f) => `${f.id} (${f.severity})`),
      right: job.fault === null ? null : job.wanted.includes(top?.id ?? ""),
      listed: job.fault === null ? null : named !== undefined,
      alarm: job.fault === null ? alarm : null,
      question: job.fault === null ? causes.some((f) => f.severity === "unresolved") : null,
      promise: job.fault === null ? null : await promiseOf(job, home, named, report.runs),
      peers: { tensorboard: tensorboardSays({ dataShare: steps?.dataShare ?? null, commShare: comm }) },
      seconds: (Date.now() - began) / 1000,
    };
  } finally {
    if (process.env.SCALEFAULT_KEEP === undefined) rmSync(home, { recursive: true, force: true });
  }
}

const done = new Map();
if (!partial && existsSync(state))
  for (const line of readFileSync(state, "utf8").split("\n"))
    if (line.trim() !== "") {
      const row = JSON.parse(line);
      done.set(row.job, row);
    }

const list = chosen();
for (const [k, job] of list.entries()) {
  if (done.has(job.name)) continue;
  const row = await run(job);
  done.set(job.name, row);
  if (!partial) appendFileSync(state, `${JSON.stringify(row)}\n`);
  const gain =
    row.promise === null
      ? ""
      : `, promised ${row.promise.to.toFixed(3)} [${row.promise.interval.map((x) => x.toFixed(3))}], measured ${row.promise.measured.toFixed(3)}`;
  const verdict = row.right === false ? " WRONG" : row.alarm ? " FALSE ALARM" : "";
  process.stderr.write(
    `${k + 1}/${list.length} ${row.job}: ${row.status}, ${row.top ?? "nothing"} (${row.seconds.toFixed(0)} s${row.disturbed ? ", disturbed" : ""})${gain}${verdict}${verdict === "" ? "" : ` ${row.found.join(", ")}`}\n`,
  );
}
const results = list.map((job) => done.get(job.name));
const version = (name) =>
  execFileSync(python, ["-c", `import ${name}; print(${name}.__version__)`], { encoding: "utf8" }).trim();
const summary = {
  what: "ScaleFault: small jobs of PyTorch (DDP over gloo), JAX and Weft's trainer on CPU with one injected fault each, measured at one and two devices and judged by the lab; promised gains compared with a run after the fix",
  torch: version("torch"),
  jax: version("jax"),
  cores: cpus().length,
  seconds: Math.round(results.reduce((a, r) => a + r.seconds, 0)),
  ...score(results),
};
console.log(JSON.stringify(summary, null, 1));
if (!partial)
  writeFileSync(
    join(root, `bench/results/scalefault${more ? "-more" : ""}.json`),
    `${JSON.stringify({ ...summary, results }, null, 1)}\n`,
  );
else if (results.some((r) => r.alarm)) process.exitCode = 1;
if (process.argv.includes("--calibrate") && !partial && !more && summary.calibration.outcomes > 0) {
  const file = join(here, "../src/predict/effect-constants.ts");
  const { low, high, outcomes } = summary.calibration;
  const text = readFileSync(file, "utf8").replace(
    /\{\n {2}low: .*\n {2}high: .*\n {2}outcomes: .*\n\}/,
    `{\n  low: ${low.toFixed(3)},\n  high: ${high.toFixed(3)},\n  outcomes: ${outcomes},\n}`,
  );
  writeFileSync(file, text);
}
