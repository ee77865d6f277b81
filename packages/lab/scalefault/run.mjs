// ScaleFault: small real jobs, each with one injected fault or none, measured and judged by the lab. Writes
// bench/results/scalefault.json with the scores.
//   node packages/lab/scalefault/run.mjs [--subset] [--only FAULT,KIND]
// --subset: one job per fault and four healthy ones, as in CI; neither it nor --only writes the result.
// Needs the virtual environment of the lab's tests (PyTorch on the CPU).
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { analyzeStudy, runStudy, studyFromScaleDirectory } from "../dist/internal.js";

const here = dirname(fileURLToPath(import.meta.url));
const python = join(process.env.WEFT_VENVS ?? join(homedir(), ".cache/weft/venvs"), "torch/bin/python");

/** Fault -> the rule that names it. */
const faults = {
  "no-sampler": ["work-not-divided"],
  "same-seed": ["work-not-divided"],
  "divided-twice": ["work-left-out"],
  "no-wrapper": ["ranks-train-different-models"],
  "no-set-epoch": ["same-order-every-epoch"],
  "other-precision": ["baseline-mismatch"],
  "other-batch": ["baseline-mismatch"],
  "other-model": ["baseline-mismatch"],
  "slow-loader": ["input-bound", "slow-loader"],
  straggler: ["straggler", "load-imbalance"],
  "one-process": ["wrong-launch"],
  "sync-batch-norm": ["many-sync-batch-norms"],
  oversubscribed: ["cpu-oversubscription"],
};
const variants = [[], ["--batch", "16"], ["--width", "128"], ["--samples", "1280", "--batch", "64"]];
const healthy = ["sampler", "subset", "own-data", "drop-last", "accumulation"];
const subset = process.argv.includes("--subset");
const only = process.argv.includes("--only") ? process.argv[process.argv.indexOf("--only") + 1].split(",") : null;

const all = [
  ...Object.keys(faults).flatMap((fault) =>
    variants
      .slice(0, subset ? 1 : variants.length)
      .map((extra) => ({ fault, args: ["--fault", fault, ...extra], extra })),
  ),
  ...healthy
    .slice(0, subset ? 4 : healthy.length)
    .flatMap((kind) =>
      variants
        .slice(0, subset ? 1 : variants.length)
        .map((extra) => ({ fault: null, args: ["--healthy", kind, ...extra], extra, kind })),
    ),
];

const cases = all.filter((c) => only === null || only.includes(c.fault ?? c.kind));

/** Findings that say what a machine or a tiny job is like, not what is wrong with it. */
const symptoms = new Set([
  "disturbed-machine",
  "noisy",
  "not-distinguishable",
  "past-the-peak",
  "serial-initialization",
  "cheap-switches",
  "dirty-data",
  "count-failed",
]);

const home = mkdtempSync(join(tmpdir(), "weft-scalefault-"));
const results = [];
const began = Date.now();
try {
  for (const [k, c] of cases.entries()) {
    const { folder } = await runStudy({
      command: ["bash", join(here, "launch.sh"), "{n}", python, join(here, "job.py"), ...c.args],
      counts: [1, 2],
      repeats: 1,
      launcher: "local",
      parent: home,
      name: `job${k}`,
      cwd: home,
      env: { ...process.env, ...(c.fault === "one-process" && { SCALEFAULT_ONE_PROCESS: "1" }) },
      site: {},
      warmupRuns: 0,
      sampleSeconds: 0.5,
      probe: true,
      timeLimit: 60,
    });
    const { report } = analyzeStudy(studyFromScaleDirectory(folder));
    // What holds back scaling is found at the scaled count; the baseline of a tiny job has troubles of its own.
    const causes = report.findings.filter((f) => !symptoms.has(f.id) && (f.devices === undefined || f.devices > 1));
    // Faults of a measurement come first; of the rest, the most severe.
    const top = causes[0]?.id ?? null;
    const wanted = c.fault === null ? [] : faults[c.fault];
    results.push({
      job: c.args.join(" "),
      fault: c.fault,
      status: report.status,
      top,
      found: causes.map((f) => `${f.id} (${f.severity})`),
      right: c.fault === null ? null : wanted.includes(top ?? ""),
      listed: c.fault === null ? null : causes.some((f) => wanted.includes(f.id)),
      accused: c.fault === null ? report.status === "not valid" : null,
    });
    const last = results.at(-1);
    process.stderr.write(
      `${k + 1}/${cases.length} ${last.job}: ${last.status}, ${last.top ?? "nothing"} ${last.right === false ? "WRONG" : last.accused ? "FALSE ALARM" : ""}\n`,
    );
    rmSync(folder, { recursive: true, force: true });
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
const share = (list, key) => list.filter((r) => r[key]).length / list.length;
const faulty = results.filter((r) => r.fault !== null);
const fine = results.filter((r) => r.fault === null);
const summary = {
  what: "ScaleFault: small PyTorch DDP jobs on CPU with one injected fault each, measured at one and two ranks and judged by the lab",
  torch: execFileSync(python, ["-c", "import torch; print(torch.__version__)"], { encoding: "utf8" }).trim(),
  jobs: results.length,
  seconds: Math.round((Date.now() - began) / 1000),
  faulty: faulty.length,
  topCause: share(faulty, "right"),
  listed: share(faulty, "listed"),
  healthy: fine.length,
  falseAlarms: share(fine, "accused"),
  byFault: Object.fromEntries(
    Object.keys(faults).map((fault) => {
      const own = faulty.filter((r) => r.fault === fault);
      return [fault, { jobs: own.length, topCause: share(own, "right"), listed: share(own, "listed") }];
    }),
  ),
};
console.log(JSON.stringify(summary, null, 1));
if (!subset && only === null)
  writeFileSync(
    join(here, "../../../bench/results/scalefault.json"),
    `${JSON.stringify({ ...summary, results }, null, 1)}\n`,
  );
else if (summary.falseAlarms > 0) process.exitCode = 1;
