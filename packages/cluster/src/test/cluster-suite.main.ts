// The sharding suite as a command: `node dist/test/cluster-suite.main.js`. Variables: WEFT_SHARD_TEST_DEVICE (cpu,
// reference, or cuda:0 for all workers on one GPU), _WORKERS (count), _CLUSTERS (number of clusters that divide the
// jobs), _EVERY (every n-th job). Prints one line per cluster and a summary; exits with 1 on failure.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { runClusterSuite, type SuiteOptions, type SuiteReport } from "./cluster-suite.js";

const number = (name: string, otherwise: number): number =>
  Number(process.env[`WEFT_SHARD_TEST_${name}`] ?? "") || otherwise;

/** Several workers on the first GPU by default; `cuda` would need one GPU per worker. */
const deviceFromEnvironment = (): string => {
  const device = process.env.WEFT_SHARD_TEST_DEVICE ?? "cpu";
  return device === "cuda" ? "cuda:0" : device;
};

const partOf = (options: SuiteOptions): Promise<SuiteReport> =>
  new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(options)], { stdio: ["ignore", 1, 2, "ipc"] });
    let report: SuiteReport | null = null;
    child.on("message", (message) => {
      report = message as SuiteReport;
    });
    child.on("exit", (code) =>
      report === null ? reject(new Error(`part ${options.part} ended with ${code}`)) : resolve(report),
    );
  });

const sum = (reports: readonly SuiteReport[], pick: (report: SuiteReport) => number): number =>
  reports.reduce((n, report) => n + pick(report), 0);

async function main(): Promise<void> {
  const clusters = number("CLUSTERS", 1);
  const shared = {
    devices: number("WORKERS", 2),
    device: deviceFromEnvironment(),
    every: number("EVERY", 1),
    perProgram: number("PER_PROGRAM", 16),
    timeout: 90,
  };
  const parts = Array.from({ length: clusters }, (_, k) => ({ ...shared, part: [k, clusters] as [number, number] }));
  const settled = await Promise.allSettled(parts.map(partOf));
  const reports = settled.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const broken = settled.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : []));
  for (const { failed, ...report } of reports) {
    console.log(JSON.stringify({ ...report, failed: failed.length }));
    for (const line of failed.slice(0, 20)) console.log(JSON.stringify({ failed: line.slice(0, 600) }));
  }
  const passed = sum(reports, (r) => sum([r], () => r.passed.following + r.passed.random + r.passed.gradient));
  const failed = sum(reports, (r) => r.failed.length);
  const [expected, moved] = [sum(reports, (r) => r.expectedBytes), sum(reports, (r) => r.movedBytes)];
  const ok = failed === 0 && broken.length === 0 && expected === moved && passed > 0;
  const summary = {
    suite: "sharding",
    device: shared.device,
    workers: shared.devices,
    clusters,
    ok,
    passed,
    failed,
    following: sum(reports, (r) => r.passed.following),
    random: sum(reports, (r) => r.passed.random),
    gradients: sum(reports, (r) => r.passed.gradient),
    cut: sum(reports, (r) => r.cut),
    cuttable: sum(reports, (r) => r.cuttable),
    expectedBytes: expected,
    movedBytes: moved,
    differingTwins: sum(reports, (r) => r.differingTwins),
    seconds: Math.max(0, ...reports.map((r) => r.seconds)),
    broken,
  };
  console.log(JSON.stringify(summary));
  process.exit(ok ? 0 : 1);
}

if (process.argv[2] === undefined) await main();
else {
  const report = await runClusterSuite(JSON.parse(process.argv[2]) as SuiteOptions);
  process.send!(report, () => process.exit(0));
}
