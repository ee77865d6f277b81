// For tests: studies that nobody should be accused for although they look odd, damaged files, and a few faults that hide behind
// oddities. `analyzeStudy` must neither accuse an honest study nor fail on a damaged one.
import { appendFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProbeFacts } from "@weft/formats/internal";
import { amdahl, type CorpusJob, ddp, same, sums, writeJob } from "./corpus-files.js";

/** One odd study. */
export interface OddStudy {
  name: string;
  /** Nothing may be said against it; or the rule that must find its fault; or the error that refuses it. */
  expect: "honest" | { finds: string } | { refused: RegExp };
  /** The reader must tell about what it left out. */
  reports?: RegExp;
  /** The speedup of the largest count. */
  speedup?: number;
  write: (folder: string) => void;
}

const honest = (name: string, job: CorpusJob, reports?: RegExp): OddStudy => ({
  name,
  expect: "honest",
  ...(reports !== undefined && { reports }),
  write: (folder) => writeJob(folder, job),
});
const faulty = (name: string, finds: string, job: CorpusJob): OddStudy => ({
  name,
  expect: { finds },
  write: (folder) => writeJob(folder, job),
});
/** A usual study whose files are changed afterward. */
const changed = (
  name: string,
  change: (folder: string) => void,
  options: { reports?: RegExp; job?: CorpusJob; expect?: OddStudy["expect"] } = {},
): OddStudy => ({
  name,
  expect: options.expect ?? "honest",
  ...(options.reports !== undefined && { reports: options.reports }),
  write: (folder) => {
    writeJob(folder, options.job ?? { counts: [1, 2], seconds: amdahl(10, 0.1), facts: (n) => same(n, ddp) });
    change(folder);
  },
});
export const text = (
  name: string,
  files: Record<string, string>,
  expect: OddStudy["expect"],
  reports?: RegExp,
): OddStudy => ({
  name,
  expect,
  ...(reports !== undefined && { reports }),
  write: (folder) => {
    for (const [file, content] of Object.entries(files)) {
      mkdirSync(join(folder, file, ".."), { recursive: true });
      writeFileSync(join(folder, file), content);
    }
  },
});

const rankFile = (folder: string, devices: number, rank: number): string =>
  join(folder, `runs/n${devices}-r0/rank${rank}.jsonl`);
const edit = (path: string, change: (line: string, index: number) => string): void =>
  writeFileSync(path, readFileSync(path, "utf8").split("\n").map(change).join("\n"));
const append = (path: string, ...lines: string[]): void => appendFileSync(path, `${lines.join("\n")}\n`);
export const two = (a: string, b: string) => ({ "a/metrics.csv": a, "b/metrics.csv": b });
export const yaml = (fields = "", one: unknown = 1, four: unknown = 4): string =>
  `studies: [{name: s, ${fields} runs: [{dir: a, devices: ${one}}, {dir: b, devices: ${four}}]}]`;
const rows = (seconds: (string | number)[], first = 1): string =>
  `epoch,train_time\n${seconds.map((s, i) => `${i + first},${s}\n`).join("")}`;
const good = [10.4, 10, 10.1, 9.9, 10];
const fast = [3.1, 3, 3.02, 2.98, 3];

/** A machine whose speed wanders by itself, without a trend. */
function wander(seed: number): (step: number) => number {
  let [state, x] = [seed * 7919 + 1, 0];
  const noise = Array.from({ length: 4000 }, () => {
    state = (state * 48271) % 2147483647;
    x = 0.95 * x + 0.05 * (state / 2147483647 - 0.5);
    return 1 + x;
  });
  return (step) => noise[step % 4000]!;
}

export const oddStudies: OddStudy[] = [
  // Missing, double and foreign records.
  changed("records of one rank are missing", (f) => rmSync(rankFile(f, 2, 1)), { reports: /no records of rank 1/ }),
  changed(
    "only rank 0 writes records",
    (f) => {
      for (const r of [1, 2, 3]) rmSync(rankFile(f, 4, r));
    },
    { job: { counts: [1, 4], seconds: amdahl(10, 0.1) }, reports: /no records of rank 1, 2, 3/ },
  ),
  changed("an empty file of a rank", (f) => writeFileSync(rankFile(f, 2, 1), "")),
  changed("a run that was copied under another name", (f) =>
    cpSync(join(f, "runs/n2-r0"), join(f, "runs/n2-r1"), { recursive: true }),
  ),
  changed("a second process of a rank wrote a file of its own", (f) =>
    cpSync(rankFile(f, 2, 1), join(f, "runs/n2-r0/rank1.4711.jsonl")),
  ),
  changed("lines in another order", (f) => {
    const [head, ...rest] = readFileSync(rankFile(f, 2, 0), "utf8")
      .trimEnd()
      .split("\n");
    writeFileSync(rankFile(f, 2, 0), `${[head, ...rest.reverse()].join("\n")}\n`);
  }),
  changed("a file that was cut in the middle of a line", (f) => {
    const path = rankFile(f, 2, 1);
    writeFileSync(path, readFileSync(path, "utf8").slice(0, -40));
  }),
  changed("binary garbage between the lines", (f) => append(rankFile(f, 2, 0), "\u0000\u0001\u0002{{{", "[]", "null"), {
    reports: /left out|not a record|JSON/,
  }),
  changed("a line of two megabytes", (f) =>
    append(rankFile(f, 2, 0), JSON.stringify({ v: 1, type: "event", name: "x", message: "y".repeat(2 << 20) })),
  ),
  changed("deeply nested JSON", (f) => append(rankFile(f, 2, 0), `${"[".repeat(50_000)}${"]".repeat(50_000)}`)),
  changed("records of a later version", (f) => append(rankFile(f, 2, 0), '{"v":99,"type":"epoch","epoch":9}')),
  changed("a folder where a file should be", (f) => mkdirSync(join(f, "runs/n2-r0/rank7.jsonl"))),
  // Clocks and values.
  changed("the clock of a rank jumps by eleven days", (f) =>
    edit(rankFile(f, 2, 1), (line, i) => (i === 40 ? line.replace(/"durationUs":[\d.]+/, '"durationUs":1e12') : line)),
  ),
  changed("negative and zero durations", (f) =>
    edit(rankFile(f, 2, 1), (line, i) =>
      i === 40 || i === 41 ? line.replace(/"durationUs":[\d.]+/, `"durationUs":${40 - i}`) : line,
    ),
  ),
  changed("invalid numbers", (f) =>
    edit(rankFile(f, 2, 1), (line, i) => (i === 50 ? line.replace(/"durationUs":[\d.]+/, '"durationUs":NaN') : line)),
  ),
  changed("facts that are no facts", (f) =>
    append(
      rankFile(f, 2, 0),
      '{"v":1,"type":"facts","facts":{"batchPerRank":"many","datasetSamples":-4,"worldSize":null,"parameterSums":[{"step":1}]}}',
    ),
  ),
  honest("sums that overflow", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({ ...same(n, ddp), parameterSums: sums(() => [1e308 * (rank + 1), -1e308]) }),
  }),
  honest("a loss that diverges", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    loss: (_, e) => (e > 2 ? Number.NaN : 0.5),
  }),
  honest("other seeds: the loss falls a little faster", {
    counts: [1, 4],
    seconds: amdahl(10, 0.3),
    loss: (n, e) => 0.7 / e - 0.004 * n,
  }),
  honest("epochs without samples", { counts: [1, 2], seconds: amdahl(10, 0.1), samples: 0, records: "epochs" }),
  honest("a trillion samples", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    records: "epochs",
    workload: () => ({ datasetSamples: 1e12 }),
  }),
  // Device counts.
  honest("one device only, three repeats", { counts: [1], repeats: 3, seconds: () => 10 }),
  honest("four devices only", { counts: [4], seconds: () => 10 }),
  honest("1, 3, 5 and 7 devices", { counts: [1, 3, 5, 7], samples: 1000, batch: () => 13, seconds: amdahl(10, 0.1) }),
  honest("6, 12 and 18 devices", { counts: [6, 12, 18], samples: 4608, seconds: amdahl(60, 0.02) }),
  honest("more devices than batches", {
    counts: [1, 48],
    samples: 96,
    batch: () => 2,
    epochs: 3,
    seconds: amdahl(10, 0.05),
  }),
  honest("super-linear: the data fit the caches", { seconds: (n) => 10 / n ** 1.3, facts: (n) => same(n, ddp) }),
  honest("slower on seven devices than on one", {
    counts: [1, 7],
    seconds: (n) => 5 + n,
    samples: 4200,
    facts: (n) => same(n, ddp),
  }),
  honest("identical times in every repeat", { counts: [1, 2], repeats: 3, noise: 0, seconds: (n) => 10 / n }),
  // Honest loops.
  honest("the first epoch fills a cache", {
    counts: [1, 2],
    seconds: amdahl(10, 0.05),
    step: (n, _, s, all) => (s < all / 5 ? { durationUs: 4e6 / n } : {}),
  }),
  honest("accumulation with no_sync", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    facts: (n) => ({
      ...same(n, ddp),
      accumulation: 4 / n,
      backwardPasses: 160 / n,
      gradientSyncs: n > 1 ? 40 : 0,
      updates: 40,
    }),
  }),
  honest("two passes over one batch per update", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ ...same(n, ddp), backwardPasses: 160 / n, gradientSyncs: n > 1 ? 80 : 0, updates: 80 / n }),
  }),
  honest("threads of two ranks on two cores, short run", {
    counts: [1, 2],
    cores: 2,
    seconds: amdahl(1, 0.1),
    facts: () => ({ framework: "weft", ompThreads: 2 }),
  }),
  honest("sleeping loaders", {
    counts: [1, 4],
    cores: 8,
    seconds: amdahl(10, 0.1),
    facts: () => ({ loaderWorkers: 8 }),
    sample: () => ({ runQueue: 5 }),
  }),
  honest("a full queue of other users", {
    counts: [1, 4],
    cores: 4,
    seconds: amdahl(10, 0.1),
    sample: () => ({ runQueue: 30, foreignCpuPercent: 80 }),
  }),
  honest("local averages between the steps that are looked at", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({
      worldSize: n,
      parameterSums: sums((s) => (n > 1 ? [s + rank * 0.1 * s, 2 * s - rank] : [s, 2 * s])).map((sum) => ({
        ...sum,
        collectives: n > 1 ? 6 + Math.floor(sum.step / 3) : 0,
      })),
    }),
  }),
  honest("replicas that differ by rounding", {
    counts: [1, 2],
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({ ...same(n, ddp), parameterSums: sums((s) => [s * (1 + 1e-9 * rank), 3 * s]) }),
  }),
  honest("two kinds of hosts with the same devices", {
    counts: [1, 4],
    seconds: amdahl(10, 0.1),
    host: (_, rank) => (rank < 2 ? "node-a" : "node-b.example.org"),
    nodes: (n) => (n > 1 ? 2 : 1),
    device: (_, rank) => `cuda:${rank % 2}`,
    facts: () => ({ deviceName: "NVIDIA A100-SXM4-80GB" }),
  }),
  ...[1, 2, 3].map((seed) =>
    honest(`a machine whose speed wanders (${seed})`, {
      counts: [1, 2],
      seconds: amdahl(2, 0.1),
      noise: 0.02,
      step: (n, rank, s) => ({ durationUs: (3e4 / n) * wander(10 * seed + n + rank)(s) }),
    }),
  ),
  // Tables of others.
  text(
    "byte order mark and carriage returns",
    { "study.yaml": yaml(), ...two(`\ufeff${rows(good).replaceAll("\n", "\r\n")}`, rows(fast)) },
    "honest",
  ),
  text("epochs that count from zero", { "study.yaml": yaml(), ...two(rows(good, 0), rows(fast, 0)) }, "honest"),
  text(
    "a resumed job repeats an epoch",
    { "study.yaml": yaml(), ...two(rows(good), "epoch,train_time\n1,3.1\n2,3\n3,3.02\n3,2.98\n4,3\n5,3\n") },
    "honest",
  ),
  text(
    "decimal commas",
    { "study.yaml": yaml(), ...two(rows(good), rows(['"3,1"', '"3,0"', '"3,0"', '"3,1"'])) },
    "honest",
    /3,[01]/,
  ),
  text(
    "infinite and empty times",
    { "study.yaml": yaml(), ...two(rows([10.4, "inf", 10, "", 10.1]), rows(fast)) },
    "honest",
    /inf|train_time/,
  ),
  text(
    "milliseconds in one of the files",
    { "study.yaml": yaml(), ...two(rows(good), rows(fast.map((s) => 1000 * s))) },
    "honest",
  ),
  text(
    "names in other scripts",
    {
      "study.yaml": `studies: [{name: "研究 🚀 دراسة e\u0301", runs: [{dir: "ü 学", devices: 1}, {dir: b, devices: 4}]}]`,
      "ü 学/metrics.csv": rows(good),
      "b/metrics.csv": rows(fast),
    },
    "honest",
  ),
  text("a file without rows", { "study.yaml": yaml(), ...two(rows(good), "epoch,train_time\n") }, "honest"),
  text("half a device", { "study.yaml": yaml("", 1, 4.5), ...two(rows(good), rows(fast)) }, { refused: /devices/ }),
  text("a negative count", { "study.yaml": yaml("", -1), ...two(rows(good), rows(fast)) }, { refused: /devices/ }),
  text("a study without runs", { "study.yaml": "studies: [{name: s, runs: []}]" }, "honest"),
  text("not YAML", { "study.yaml": "studies: [{name: s, runs: [" }, { refused: /YAML|study\.yaml/ }),
  text(
    "a folder that is not there",
    {
      "study.yaml": "studies: [{name: s, runs: [{dir: nowhere, devices: 1}, {dir: b, devices: 4}]}]",
      "b/metrics.csv": rows(fast),
    },
    "honest",
    /nowhere/,
  ),
  // Faults behind oddities.
  faulty("ranks without an exchange, and rows of an embedding that nothing uses", "ranks-train-different-models", {
    counts: [1, 2],
    seconds: amdahl(10, 0.02),
    facts: (n, rank) => ({ parameterSums: sums((s) => (n > 1 ? [7, s + rank * 0.01 * s, 2 * s + rank] : [7, s, s])) }),
  }),
  faulty("ranks without an exchange at a small learning rate", "ranks-train-different-models", {
    counts: [1, 2],
    seconds: amdahl(10, 0.02),
    facts: (n, rank) => ({
      parameterSums: sums((s) => (n > 1 ? [100 + s * 1e-3 * (1 + rank), 50 - s * 2e-3 * (1 + rank)] : [100, 50])),
    }),
  }),
  faulty("the baseline ran on another kind of device", "baseline-mismatch", {
    counts: [1, 4],
    seconds: amdahl(10, 0.1),
    facts: (n): ProbeFacts => ({ deviceName: n === 1 ? "NVIDIA V100-SXM2-16GB" : "NVIDIA H100 80GB HBM3" }),
    device: (_, rank) => `cuda:${rank}`,
  }),
  faulty("the baseline saw half of the data set", "baseline-mismatch", {
    counts: [1, 2],
    seconds: (n) => (n === 1 ? 5 : 5.5),
    share: (n) => (n === 1 ? 2048 : 2048),
    facts: (n) => ({ ...same(n, ddp), datasetSamples: 4096 }),
  }),
];
