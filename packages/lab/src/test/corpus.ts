// For tests: a corpus of generated studies, half of them honest (honest failures included) and half with one fault.
import { amdahl, type CorpusJob, type CsvRun, ddp, epochs, same, sums, writeCsv, writeJob } from "./corpus-files.js";

/** One study of the corpus. */
export interface CorpusStudy {
  name: string;
  /** The rule that must find the fault; null for an honest study, against which nothing may be said. */
  fault: string | null;
  /** Whether the files count what each rank did; otherwise the fault can only be inferred. */
  counted: boolean;
  write: (folder: string) => void;
}

type Entry = [name: string, write: (folder: string) => void, options?: { counted?: boolean }];
const scale = (name: string, job: CorpusJob, counted = true): Entry => [
  name,
  (folder) => writeJob(folder, job),
  { counted },
];
const csv = (name: string, study: Record<string, unknown>, runs: CsvRun[]): Entry => [
  name,
  (folder) => writeCsv(folder, study, runs),
  { counted: false },
];

/** Studies against which nothing may be said, whether they scale or not. */
const honest: Entry[] = [
  scale("near-perfect scaling", { seconds: amdahl(10, 0.02) }),
  scale("poor scaling", { seconds: amdahl(10, 0.6) }),
  scale("negative scaling, work counted", { seconds: (n) => 10 * (1 + 0.3 * Math.log2(n)) }),
  scale("very negative scaling of a tiny model", { seconds: (n) => 2 * n, facts: () => ddp }),
  scale("super-linear scaling", { seconds: (n) => 10 / n ** 1.1 }),
  scale("epochs without counts, good scaling", { seconds: amdahl(8, 0.05), records: "epochs" }, false),
  csv("0.76x with a rising loss", { samples: 25000, batch_per_rank: 32 }, [
    { devices: 1, seconds: epochs(10), losses: [0.61, 0.5, 0.45, 0.4, 0.38, 0.36] },
    { devices: 4, seconds: epochs(13.2), losses: [0.69, 0.6, 0.5, 0.45, 0.42, 0.4] },
  ]),
  csv("0.9x on two devices with a rising loss", { samples: 8000, batch_per_rank: 16 }, [
    { devices: 1, seconds: epochs(5), losses: [1.1, 0.9, 0.8, 0.7, 0.65, 0.6] },
    { devices: 2, seconds: epochs(5.6), losses: [1.3, 1.1, 0.95, 0.9, 0.8, 0.75] },
  ]),
  csv("slower without losses", { samples: 8000, batch_per_rank: 16 }, [
    { devices: 1, seconds: epochs(5) },
    { devices: 2, seconds: epochs(6) },
  ]),
  csv("bare times, good scaling", {}, [
    { devices: 1, seconds: epochs(20) },
    { devices: 8, seconds: epochs(3) },
  ]),
  scale(
    "a command that sleeps longer with each device",
    { seconds: (n) => 0.1 * n + 1, records: "run", command: ["bash", "-c", "sleep 1.{n}"] },
    false,
  ),
  scale(
    "a whole command that gets faster",
    { seconds: amdahl(9, 0.1), records: "run", command: ["mpirun", "-n", "{n}", "sim"] },
    false,
  ),
  scale("subsets per rank", {
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({
      samplerSharded: false,
      samplerClass: "RandomSampler",
      localSamples: Math.ceil(4096 / n),
      indexHash: `i${rank}`,
      contentHash: `c${rank}`,
    }),
  }),
  scale("a file of its own for each rank, same indices", {
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({
      datasetSamples: Math.ceil(4096 / n),
      samplerSharded: false,
      samplerClass: "RandomSampler",
      indexHash: "same",
      contentHash: `c${rank}`,
    }),
  }),
  scale("own files, and no hash of the values", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({
      datasetSamples: Math.ceil(4096 / n),
      samplerSharded: false,
      samplerClass: "SequentialSampler",
      indexHash: "same",
    }),
  }),
  scale("one process drives all devices (JAX)", {
    seconds: amdahl(10, 0.1),
    ranks: () => 1,
    facts: () => ({ framework: "jax", parallelism: "sharding", deviceCount: 4 }),
  }),
  scale("DataParallel: one process, several devices", {
    seconds: amdahl(10, 0.3),
    ranks: () => 1,
    device: () => "cuda:0",
    facts: (n) => ({ parallelism: n > 1 ? "dp" : "none", deviceCount: 4 }),
  }),
  scale("gradient accumulation keeps the global batch", {
    seconds: amdahl(10, 0.05),
    facts: (n) => ({ accumulation: 4 / n }),
  }),
  scale("fixed global batch", { seconds: amdahl(10, 0.1), batch: (n) => 128 / n }),
  scale("global batch of 100 over three ranks", {
    counts: [1, 3],
    seconds: amdahl(10, 0.1),
    batch: (n) => Math.ceil(100 / n),
  }),
  scale("declared weak scaling", {
    seconds: (n) => 10 * (1 + 0.02 * Math.log2(n)),
    workload: (n) => ({ scaling: "weak", datasetSamples: 4096 * n }),
    share: () => 4096,
    facts: (n) => ({ datasetSamples: 4096 * n }),
  }),
  scale("weak scaling that nobody declared", {
    seconds: (n) => 10 * (1 + 0.02 * Math.log2(n)),
    share: () => 4096,
    facts: (n) => ({ datasetSamples: 4096 * n }),
  }),
  scale("perfect weak scaling: all times are equal", {
    seconds: () => 10,
    share: () => 4096,
    facts: (n) => ({ datasetSamples: 4096 * n }),
  }),
  scale("weak scaling with a data set of its own on every rank", {
    seconds: (n) => 10 * (1 + 0.05 * Math.log2(n)),
    share: () => 4096,
    facts: (_, rank) => ({ samplerSharded: false, contentHash: `c${rank}`, datasetHash: `d${rank}` }),
  }),
  scale("two models, of which the wrapper counts the other one", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ parameters: n > 1 ? 13056 : 6650, optimizerParameters: 6650 }),
  }),
  scale("a rank whose optimizer holds a part of the parameters", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ parameters: 6650, optimizerParameters: Math.ceil(6650 / n) }),
  }),
  scale("a padded tiny data set", {
    counts: [1, 4],
    samples: 10,
    batch: () => 2,
    seconds: amdahl(1, 0.2),
    share: (n) => Math.ceil(10 / n),
  }),
  scale("fully sharded parameters", {
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({
      parallelism: n > 1 ? "fsdp" : "none",
      parameters: Math.ceil(1e6 / n),
      parameterSums: sums((s) => [rank + s]),
    }),
  }),
  scale("expert parallelism: some parameters differ", {
    seconds: amdahl(10, 0.1),
    facts: (n, rank) => ({ ...same(n, ddp), parameterSums: sums((s) => [s, s + 1, n > 1 ? rank + s : s]) }),
  }),
  scale("local SGD averages now and then", {
    seconds: amdahl(10, 0.02),
    facts: (_, rank) => ({ parameterSums: sums((s) => (s === 8 ? [1, 2] : [1 + rank, 2 + rank])) }),
  }),
  scale("each rank sees its own device as cuda:0", {
    seconds: amdahl(10, 0.05),
    device: () => "cuda:0",
    facts: (_, rank) => ({ ...ddp, visibleDevices: [String(rank)], deviceCount: 1 }),
  }),
  scale("two nodes, cuda:0 on both", {
    counts: [1, 2, 4],
    seconds: amdahl(10, 0.1),
    device: (n, rank) => `cuda:${n === 4 ? rank % 2 : rank}`,
    host: (n, rank) => (n === 4 && rank >= 2 ? "b" : "a"),
    nodes: (n) => (n === 4 ? 2 : 1),
    facts: () => ({ ...ddp, deviceCount: 2 }),
  }),
  scale("precision under two names", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ precision: n === 1 ? "torch.bfloat16" : "bf16" }),
  }),
  scale("other users' load in the run queue", {
    seconds: amdahl(10, 0.2),
    cores: 4,
    facts: () => ({ loaderWorkers: 2 }),
    sample: () => ({ runQueue: 20, foreignCpuPercent: 70 }),
  }),
  csv("a job that was resumed", { samples: 5000, batch_per_rank: 50 }, [
    { devices: 1, seconds: epochs(10) },
    { devices: 4, seconds: [], rows: [1, 2, 3, 4, 3, 4, 5, 6].map((e): [number, number] => [e, 3 + 0.01 * e]) },
  ]),
  scale("repeats with noise", { repeats: 3, noise: 0.04, seconds: amdahl(10, 0.1) }),
  scale("flat times, no speedup at all", { seconds: () => 10, noise: 0.002 }),
  scale("a stream without a length, the same number of steps on every rank", {
    seconds: (n) => 10 * (1 + 0.03 * Math.log2(n)),
    share: () => 4096,
    facts: (_, rank) => ({ ...ddp, datasetSamples: undefined, samplerSharded: false, contentHash: `c${rank}` }),
  }),
  scale(
    "a stream without a length whose values were not seen",
    {
      seconds: (n) => 10 * (1 + 0.03 * Math.log2(n)),
      share: () => 4096,
      facts: () => ({ ...ddp, datasetSamples: undefined, samplerSharded: false }),
    },
    false,
  ),
  scale("stages of a pipeline hold different parameters", {
    seconds: amdahl(10, 0.2),
    facts: (n, rank) => ({ ...same(n, { pointToPoint: true }), parameterSums: sums((s) => [rank + s, 2 * rank + s]) }),
  }),
  scale("uneven ends: ranks differ by a batch", {
    counts: [1, 3],
    samples: 1000,
    seconds: amdahl(10, 0.1),
    share: (n, rank) => Math.floor(1000 / n) + (rank < 1000 % n ? 1 : 0),
  }),
  scale("drop_last with large batches", {
    counts: [1, 4],
    samples: 1000,
    batch: () => 64,
    seconds: amdahl(10, 0.1),
    share: (n) => 64 * Math.floor(1000 / n / 64),
    facts: () => ({ ...ddp, dropLast: true }),
  }),
  scale("a learning rate and an optimizer that follow the batch", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ ...ddp, learningRate: 0.1 * n, optimizer: n > 1 ? "LARS" : "SGD" }),
  }),
  scale("loaders, evaluation and messages that cost little", {
    seconds: amdahl(10, 0.1),
    facts: () => ({ ...ddp, evaluationSeconds: 0.1, loggingSeconds: 0.05, gcSeconds: 0.02, saveSeconds: 0.1 }),
  }),
  scale("two losses with a backward pass each", {
    seconds: amdahl(10, 0.1),
    facts: () => ({ ...ddp, backwardPasses: 300, gradientSyncs: 300, updates: 200 }),
  }),
  scale("wrapped model with another class name", {
    seconds: amdahl(10, 0.1),
    facts: (n) => ({ model: n === 1 ? "Net" : "OptimizedModule", parameters: 1000 }),
  }),
];

const undivided: Partial<CorpusJob> = { share: () => 4096 };

/** Studies with one fault each, and the rule that must find it. */
const faulty: [fault: string, entry: Entry][] = [
  [
    "work-not-divided",
    scale("every rank reads the same stream", {
      seconds: (n) => 10 * (1 + 0.03 * Math.log2(n)),
      share: () => 4096,
      facts: () => ({ ...ddp, datasetSamples: undefined, samplerSharded: false, contentHash: "same" }),
    }),
  ],
  ["work-not-divided", scale("no sampler, random order", { seconds: (n) => 10 + n, ...undivided })],
  [
    "work-not-divided",
    scale("no sampler, another order of the same data set on every rank", {
      seconds: (n) => 10 + n,
      ...undivided,
      facts: (_, rank) => ({ samplerSharded: false, contentHash: `c${rank}`, datasetHash: "same" }),
    }),
  ],
  ["work-not-divided", scale("no sampler, and still faster", { seconds: amdahl(10, 0.5), ...undivided })],
  ["work-not-divided", scale("no sampler, epochs counted only", { seconds: (n) => 10 + n, ...undivided, epochs: 4 })],
  [
    "work-not-divided",
    scale("half of the data repeated", { seconds: amdahl(10, 0.3), share: (n) => (n === 1 ? 4096 : (4096 / n) * 1.5) }),
  ],
  [
    "work-not-divided",
    scale("same seed: every rank draws the same share", {
      seconds: amdahl(10, 0.1),
      facts: (n) => ({
        samplerSharded: false,
        samplerClass: "RandomSampler",
        indexHash: "x",
        ...same(n, { contentHash: "y" }),
      }),
    }),
  ],
  [
    "work-not-divided",
    scale("undivided only in one repeat", {
      repeats: 2,
      seconds: amdahl(10, 0.2),
      share: (n, _, r) => (r === 1 ? 4096 : Math.ceil(4096 / n)),
    }),
  ],
  [
    "work-not-divided",
    scale("sampler lengths say it", {
      seconds: (n) => 10 + n,
      records: "epochs",
      facts: () => ({ samplerLength: 4096, samplerClass: "RandomSampler", samplerSharded: false }),
    }),
  ],
  [
    "work-not-divided",
    scale("steps per epoch say it", {
      seconds: (n) => 10 + n,
      records: "epochs",
      facts: () => ({ stepsPerEpoch: 128 }),
    }),
  ],
  [
    "work-not-divided",
    csv("published: slower, and the loss falls", { samples: 120000, batch_per_rank: 32 }, [
      { devices: 1, seconds: epochs(19.5), losses: [0.57, 0.4, 0.35, 0.3, 0.28, 0.25] },
      { devices: 4, seconds: epochs(42), losses: [0.42, 0.33, 0.3, 0.27, 0.25, 0.23] },
    ]),
  ],
  [
    "work-not-divided",
    csv("published: slower on two, loss falls", { samples: 50000, batch_per_rank: 64 }, [
      { devices: 1, seconds: epochs(30), losses: [1.5, 1.2, 1.1, 1, 0.9, 0.85] },
      { devices: 2, seconds: epochs(34), losses: [1.3, 1.1, 1, 0.9, 0.85, 0.8] },
    ]),
  ],
  ["work-left-out", scale("divided twice", { seconds: (n) => 10 / n ** 2, share: (n) => Math.ceil(4096 / n ** 2) })],
  [
    "work-left-out",
    scale("epoch ended by a limit", {
      seconds: (n) => (n === 4 ? 1 : 10 / n),
      share: (n) => (n === 4 ? 512 : 4096 / n),
    }),
  ],
  [
    "ranks-train-different-models",
    scale("no DDP wrapper, other seeds", {
      seconds: amdahl(10, 0.01),
      facts: (n, rank) => ({
        parallelism: "none",
        parameterSums: sums((s) => (n > 1 ? [s + rank, 2 * s - rank * 0.3] : [s, 2 * s])),
      }),
    }),
  ],
  [
    "ranks-train-different-models",
    scale("no DDP wrapper, same seed", {
      seconds: amdahl(10, 0.01),
      facts: (_, rank) => ({
        parallelism: "none",
        parameterSums: sums((s) => [1 + s * 0.01 * (1 + rank * 0.1), 2 - 0.02 * s * (1 + rank * 0.1)]),
      }),
    }),
  ],
  [
    "ranks-train-different-models",
    scale("no_sync around every step", {
      seconds: amdahl(10, 0.01),
      facts: (n, rank) => ({ ...same(n, ddp), parameterSums: sums((s) => [s * (1 + rank)]) }),
    }),
  ],
  [
    "same-order-every-epoch",
    scale("set_epoch forgotten", {
      seconds: amdahl(10, 0.1),
      facts: (n) => ({ ...same(n, ddp), shuffle: true, epochIndexHashes: ["a", "a", "a"] }),
    }),
  ],
  [
    "baseline-mismatch",
    scale("baseline in fp32, others in bf16", {
      seconds: (n) => 6 / n + (n === 1 ? 4 : 0),
      facts: (n) => ({ precision: n === 1 ? "fp32" : "bf16" }),
    }),
  ],
  [
    "baseline-mismatch",
    scale("another sequence length", {
      seconds: amdahl(10, 0.1),
      facts: (n) => ({ sequenceLength: n === 1 ? 512 : 128 }),
    }),
  ],
  [
    "baseline-mismatch",
    scale("a smaller model on more devices", {
      seconds: amdahl(10, 0.1),
      facts: (n) => ({ parameters: n === 1 ? 1e6 : 5e5 }),
    }),
  ],
  [
    "baseline-mismatch",
    scale("another device", { seconds: amdahl(10, 0.1), facts: (n) => ({ deviceName: n === 1 ? "T4" : "H100" }) }),
  ],
  [
    "baseline-mismatch",
    scale("batches that are neither fixed nor divided", {
      seconds: amdahl(10, 0.1),
      batch: (n) => [0, 32, 100, 0, 64][n]!,
    }),
  ],
  [
    "baseline-mismatch",
    csv("published: two data sets", {}, [
      { devices: 1, seconds: epochs(10), fields: { samples: 25000 } },
      { devices: 4, seconds: epochs(3), fields: { samples: 20000 } },
    ]),
  ],
  [
    "baseline-mismatch",
    csv("published: tf32 against fp32", {}, [
      { devices: 1, seconds: epochs(10), fields: { precision: "fp32" } },
      { devices: 2, seconds: epochs(3), fields: { precision: "tf32" } },
    ]),
  ],
  [
    "two-jobs-in-one-file",
    csv("two jobs, interleaved", { samples: 5000, batch_per_rank: 50 }, [
      { devices: 1, seconds: epochs(10) },
      { devices: 4, seconds: [], rows: [1, 2, 1, 3, 2, 4, 3, 5, 4, 5].map((e): [number, number] => [e, 3 + 0.01 * e]) },
    ]),
  ],
  [
    "two-jobs-in-one-file",
    csv("two jobs, one started late", { samples: 5000, batch_per_rank: 50 }, [
      { devices: 1, seconds: epochs(10) },
      { devices: 2, seconds: [], rows: [1, 2, 3, 1, 4, 2, 5, 3, 6, 4].map((e): [number, number] => [e, 5 + 0.01 * e]) },
    ]),
  ],
  [
    "wrong-launch",
    scale("16 processes for 4 devices", { counts: [1, 4], ranks: (n) => n * n, seconds: amdahl(10, 0.5) }),
  ],
  [
    "wrong-launch",
    scale("one process where four devices were asked for", {
      counts: [1, 4],
      ranks: () => 1,
      worldSize: () => undefined,
      seconds: () => 10,
      noise: 0.003,
      facts: () => ({ parallelism: "none" }),
    }),
  ],
  [
    "wrong-launch",
    scale("two ranks on one device", {
      seconds: amdahl(10, 0.4),
      device: (n, rank) => (n === 1 ? "cuda:0" : `cuda:${rank % 2}`),
      facts: () => ({ ...ddp, deviceCount: 4 }),
      counts: [1, 4],
    }),
  ],
  [
    "wrong-launch",
    scale("world size of another job", {
      counts: [1, 2],
      seconds: amdahl(10, 0.1),
      worldSize: (n) => (n === 2 ? 4 : 1),
    }),
  ],
  [
    "cpu-oversubscription",
    scale("loaders fill the cores", {
      counts: [1, 4],
      cores: 4,
      seconds: amdahl(10, 0.6),
      facts: () => ({ loaderWorkers: 4 }),
      sample: (n) => ({ runQueue: n === 4 ? 18 : 3 }),
    }),
  ],
  [
    "cpu-oversubscription",
    scale("more ranks than cores", {
      counts: [1, 8],
      cores: 2,
      seconds: amdahl(10, 0.7),
      facts: () => ({ ompThreads: 2 }),
      sample: (n) => ({ runQueue: n === 8 ? 15 : 1 }),
    }),
  ],
  [
    "not-distinguishable",
    scale("noise hides the difference", { counts: [1, 2], seconds: (n) => 10 - 0.05 * n, noise: 0.2 }),
  ],
];

/** The corpus: every study writes its files into a folder of its own. */
export const corpus: CorpusStudy[] = [
  ...honest.map(([name, write, options]) => ({ name, fault: null, counted: options?.counted ?? true, write })),
  ...faulty.map(([fault, [name, write, options]]) => ({ name, fault, counted: options?.counted ?? true, write })),
];
