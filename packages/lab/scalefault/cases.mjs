// The jobs of ScaleFault: faults with the findings that name them, the variants of their sizes, and healthy jobs.

/** Fault -> the findings that name it, how many variants run, and what the launcher must do. */
const torchFaults = {
  "no-sampler": { wanted: ["work-not-divided"], variants: 3 },
  "same-seed": { wanted: ["work-not-divided"], variants: 2 },
  "divided-twice": { wanted: ["work-left-out"], variants: 2 },
  "no-wrapper": { wanted: ["ranks-train-different-models"], variants: 2 },
  "no-set-epoch": { wanted: ["same-order-every-epoch"], variants: 2 },
  "other-precision": { wanted: ["baseline-mismatch"], variants: 2 },
  "other-batch": { wanted: ["baseline-mismatch"], variants: 2 },
  "other-model": { wanted: ["baseline-mismatch"], variants: 2 },
  "one-process": { wanted: ["wrong-launch"], variants: 2, launch: "one-process" },
  "slow-loader": { wanted: ["input-bound", "slow-loader"], variants: 3 },
  "too-many-loaders": { wanted: ["cpu-oversubscription"], variants: 2 },
  "loaders-recreated": { wanted: ["loaders-restarted"], variants: 2 },
  "gc-pauses": { wanted: ["garbage-collection"], variants: 3 },
  logging: { wanted: ["logging-in-loop"], variants: 3 },
  "checkpoint-in-loop": { wanted: ["checkpoint-in-loop"], variants: 2 },
  "evaluation-in-loop": { wanted: ["evaluation-in-loop"], variants: 3 },
  oversubscribed: { wanted: ["cpu-oversubscription"], variants: 2 },
  "forgotten-no-sync": { wanted: ["forgotten-no-sync"], variants: 2 },
  "small-buckets": { wanted: ["small-buckets"], variants: 2 },
  "slow-link": { wanted: ["slow-link"], variants: 3, launch: "slow-link" },
  straggler: { wanted: ["straggler", "load-imbalance"], variants: 3 },
  "moving-straggler": { wanted: ["moving-straggler"], variants: 2 },
  throttled: { wanted: ["straggler", "load-imbalance"], variants: 2 },
  thermal: { wanted: ["slowing-down"], variants: 2 },
  "sync-batch-norm": { wanted: ["many-sync-batch-norms"], variants: 2 },
};
const torchVariants = [[], ["--batch", "32", "--samples", "768"], ["--channels", "48"], ["--samples", "1024"]];

const jaxFaults = {
  recompilation: { wanted: ["compile-in-window"], variants: 2 },
  "gc-pauses": { wanted: ["garbage-collection"], variants: 1 },
  logging: { wanted: ["logging-in-loop"], variants: 1 },
  "warm-up-counted": { wanted: ["compile-in-window"], variants: 1, warmup: 0 },
};
const jaxVariants = [[], ["--width", "512"]];

/** Faults of the trainer's own jobs: what the configuration of one device says differently. */
const weftFaults = {
  "other-batch": { wanted: ["baseline-mismatch"], change: { training: { epochs: 3, global_batch: 24 } } },
  "other-model": { wanted: ["baseline-mismatch"], change: { model: { dim_feedforward: 256 } } },
};

/**
 * Jobs of another family (more_job.py), written after the rules and kept out of their thresholds: they estimate how the lab
 * does on jobs that it does not know.
 */
const moreFaults = {
  "same-half": ["work-not-divided"],
  "wrong-replicas": ["work-not-divided"],
  "half-baseline": ["baseline-mismatch"],
  "inner-model": ["ranks-train-different-models"],
  "no-wrapper-adam": ["ranks-train-different-models"],
  "forgotten-set-epoch-persistent": ["same-order-every-epoch"],
  "slow-tokenizer": ["input-bound"],
  "rank0-metrics": ["straggler"],
  "rank0-saves": ["checkpoint-in-loop", "straggler"],
  "rank0-evaluates": ["evaluation-in-loop", "straggler"],
  "slow-disk-on-one": ["straggler"],
  cycles: ["garbage-collection"],
  "flushed-messages": ["logging-in-loop"],
  history: ["slowing-down", "work-after-update"],
  "four-threads": ["cpu-oversubscription"],
};
/** Faults of gpu_suite.py and the findings that name them. */
export const gpuFaults = {
  "unpinned-copies": ["trace-copies", "transfer-bound"],
  "launch-bound": ["trace-small-kernels", "launch-bound"],
  "item-every-step": ["trace-synchronization"],
  "no-tensor-cores": ["trace-no-tensor-cores", "tensor-cores-idle"],
  "slow-loader": ["trace-data-wait", "input-bound"],
  "host-work": ["trace-host-bound", "work-after-update"],
  "optimizer-per-tensor": ["trace-small-kernels", "launch-bound"],
  "copy-back": ["trace-copies", "trace-synchronization"],
  "empty-cache": ["trace-allocation"],
  recompilation: ["trace-recompilation", "compile-in-window"],
};
const moreHealthy = [
  "plain",
  "gru",
  "adamw-schedule",
  "seed-per-rank",
  "manual-average",
  "local-sgd",
  "persistent-loaders",
  "stream-loaders",
  "weighted",
  "evaluate-and-save",
  "ragged",
  "curriculum",
  "autocast",
  "checkpointing",
  "ema",
  "frozen",
  "lbfgs",
  "sam",
  "two-optimizers",
  "ddp-of-one",
  "batch-norm",
  "bucket-view",
  "accumulation-strong",
  "small-batch-strong",
  "cached",
  "progress",
  "no-data-loader-average",
  "drop-last",
];

/** The jobs of `--more`. */
export function moreJobs() {
  const job = (kind, fault, wanted) => ({
    framework: "more",
    kind,
    fault,
    wanted,
    args: ["--kind", kind],
    name: `more ${fault === null ? "healthy " : ""}${kind}`,
  });
  return [
    ...Object.entries(moreFaults).map(([kind, wanted]) => job(kind, kind, wanted)),
    ...moreHealthy.map((kind) => job(kind, null, [])),
  ];
}

const torchHealthy = [
  ["sampler", torchVariants[0]],
  ["sampler", torchVariants[1]],
  ["sampler", torchVariants[2]],
  ["sampler", torchVariants[3]],
  ["subset", []],
  ["own-data", []],
  ["loaders", []],
  ["drop-last", []],
  ["accumulation", []],
  ["global-batch", []],
  ["iterable", []],
  ["uneven", []],
  ["resumed", []],
  ["evaluation", []],
  ["clipping", []],
  ["light-logging", []],
  ["large-gradient", []],
];

const base = {
  model: { vocab_size: 1000, d_model: 64, n_heads: 4, num_layers: 2, dim_feedforward: 128, max_seq_len: 32 },
  data: { dataset: "synthetic" },
  training: { epochs: 3, global_batch: 32 },
  optimizer: { learning_rate: 0.003 },
};
const yaml = (config, name) =>
  `name: ${name}\n${Object.entries(config)
    .map(
      ([section, fields]) =>
        `${section}:\n${Object.entries(fields)
          .map(([k, v]) => `  ${k}: ${v}\n`)
          .join("")}`,
    )
    .join("")}`;

/** Two configurations of the trainer, for one and two devices. */
const weftFiles = (change, name) => ({
  "weft-1.yaml": yaml(
    { ...base, ...Object.fromEntries(Object.entries(change).map(([k, v]) => [k, { ...base[k], ...v }])) },
    name,
  ),
  "weft-2.yaml": yaml(base, name),
});

const take = (row, variants) => variants.slice(0, row.variants);

/** All jobs: { name, framework, fault | null, wanted, args, launch, warmup, files }. */
export function jobs() {
  const list = [];
  for (const [fault, row] of Object.entries(torchFaults))
    for (const extra of take(row, torchVariants))
      list.push({ framework: "torch", fault, ...row, args: ["--fault", fault, ...extra] });
  for (const [fault, row] of Object.entries(jaxFaults))
    for (const extra of take(row, jaxVariants))
      list.push({ framework: "jax", fault, ...row, args: ["--fault", fault, ...extra] });
  for (const [fault, row] of Object.entries(weftFaults))
    list.push({ framework: "weft", fault, ...row, args: [], files: weftFiles(row.change, fault) });
  for (const [kind, extra] of torchHealthy)
    list.push({ framework: "torch", fault: null, kind, wanted: [], args: ["--healthy", kind, ...extra] });
  for (const extra of jaxVariants) list.push({ framework: "jax", fault: null, kind: "jax", wanted: [], args: extra });
  list.push({ framework: "weft", fault: null, kind: "weft", wanted: [], args: [], files: weftFiles({}, "healthy") });
  const larger = { model: { d_model: 128 } };
  const files = weftFiles(larger, "healthy-larger");
  list.push({
    framework: "weft",
    fault: null,
    kind: "weft-larger",
    wanted: [],
    args: [],
    files: { ...files, "weft-2.yaml": files["weft-1.yaml"] },
  });
  return list.map((job) => ({
    ...job,
    name: [
      job.framework,
      job.fault ?? `healthy ${job.kind}`,
      ...job.args.slice(job.framework === "torch" || job.fault ? 2 : 0),
    ].join(" "),
  }));
}
