// Translates configurations with the key names of other trainers (PyTorch scripts, Hugging Face, the DDP guide) to Weft's keys, and adds what
// such files leave out. The translation is printed, so that nothing is assumed silently.
import { basename } from "node:path";
import { type ForeignKey, setValue, type Translated, translateKeys, valueOf } from "@weft/formats/internal";
import { datasetNames } from "../data/index.js";

const accumulationNames = ["accumulation_steps", "gradient_accumulation_steps", "grad_accum_steps"];

/** Micro-steps of one optimizer step, however the file calls them. */
function accumulationOf(file: unknown): number {
  const places = accumulationNames.flatMap((name) => [name, `training.${name}`]);
  const found = ["training.accumulation", ...places].map((key) => valueOf(file, key)).find((v) => v !== undefined);
  return typeof found === "number" && found >= 1 ? found : 1;
}

const half = (type: string) => (given: unknown) => (given === true ? type : undefined);

/** Keys of other trainers. */
export const foreignKeys: readonly ForeignKey[] = [
  {
    names: ["batch_size", "global_batch_size", "train_batch_size"],
    key: "training.global_batch",
    value: (given, file) => (typeof given === "number" ? given * accumulationOf(file) : given),
    why: "the batch of one optimizer step over all devices; batch_per_rank is the batch of one",
  },
  {
    names: ["per_device_train_batch_size", "per_gpu_batch_size", "batch_size_per_gpu", "local_batch_size"],
    key: "training.batch_per_rank",
  },
  { names: accumulationNames, key: "training.accumulation" },
  { names: ["num_workers", "dataloader_num_workers"], key: "data.loaders", why: "per rank" },
  { names: ["prefetch_factor"], key: "data.prefetch" },
  { names: ["lr", "learning_rate", "base_lr"], key: "optimizer.learning_rate" },
  { names: ["weight_decay", "wd"], key: "optimizer.weight_decay" },
  { names: ["warmup", "warmup_iters", "num_warmup_steps", "warmup_steps"], key: "optimizer.warmup_steps" },
  { names: ["lr_scheduler", "lr_scheduler_type", "scheduler"], key: "optimizer.schedule" },
  { names: ["num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "epochs"], key: "training.epochs" },
  { names: ["max_grad_norm", "grad_clip", "clip_grad_norm", "gradient_clip_val"], key: "training.gradient_clip" },
  { names: ["early_stopping_patience", "patience", "early_stopping"], key: "training.patience" },
  {
    names: ["metric_for_best_model", "monitor"],
    key: "training.best",
    value: (given) => (/acc/.test(String(given)) ? "accuracy" : "loss"),
  },
  { names: ["load_best_model_at_end"], key: "training.best", value: (given) => (given === true ? "loss" : undefined) },
  { names: ["experiment_name", "run_name", "project"], key: "name" },
  { names: ["output_dir", "save_dir", "checkpoint_dir"], key: "output" },
  { names: ["random_seed"], key: "seed" },
  { names: ["heads", "num_heads", "nhead", "num_attention_heads"], key: "model.n_heads" },
  { names: ["hidden_size", "embed_dim", "emb_dim"], key: "model.d_model" },
  { names: ["n_layers", "num_hidden_layers", "layers", "depth"], key: "model.num_layers" },
  {
    names: ["ffn_dim", "intermediate_size", "d_ff", "feed_forward", "ff_dim", "ffn_hidden_size", "mlp_dim"],
    key: "model.dim_feedforward",
  },
  { names: ["max_length", "max_len", "seq_len", "sequence_length"], key: "model.max_seq_len" },
  { names: ["vocab"], key: "model.vocab_size" },
  { names: ["dataset_name"], key: "data.dataset" },
  { names: ["data_dir", "data_path"], key: "data.path" },
  { names: ["bf16"], key: "precision.compute", value: half("bfloat16") },
  { names: ["fp16", "use_amp", "amp", "mixed_precision"], key: "precision.compute", value: half("float16") },
  { names: ["bucket_cap_mb"], key: "distributed.bucket_mb" },
  { names: ["world_size", "num_gpus", "n_gpus", "gpus", "nproc_per_node"], key: "distributed.devices" },
  { names: ["use_ddp", "ddp", "distributed.enabled"], key: null, why: "--devices N trains on N devices" },
  {
    names: ["static_graph", "persistent_workers", "pin_memory", "cudnn_benchmark", "gradient_as_bucket_view"],
    key: null,
    why: "Weft always works this way",
  },
];

/** What such files leave out: a key, and its value by the name of the file. */
const assumed: [key: string, value: (name: string) => unknown][] = [
  ["name", (name) => name],
  ["model.vocab_size", () => 20000],
  [
    "data.dataset",
    (name) => datasetNames.find((dataset) => name.replaceAll(/[-_]/g, "").includes(dataset.replace("_", ""))),
  ],
  ["training.epochs", (name) => Number(/(?:^|_)(\d{1,4})ep(?:ochs?)?(?=_|$)/.exec(name)?.[1] ?? 5)],
  ["optimizer.learning_rate", () => 0.0005],
];

/** Sections that a model of the user's own or a pretrained one defines itself. */
const ownSections = ["model.", "data.", "options.", "lora."];

/** A configuration in our keys. `known`: our keys. Lines describe what was translated and assumed. */
export function translateConfig(given: unknown, path: string, known: ReadonlySet<string>): Translated {
  const isOwn =
    typeof valueOf(given, "model") === "string" ||
    ["model.from", "model.config"].some((key) => valueOf(given, key) !== undefined);
  const { file, lines } = translateKeys(
    given,
    foreignKeys,
    (key) => known.has(key) || (isOwn && ownSections.some((section) => key.startsWith(section))),
  );
  // Only a file in other words is completed: in ours, a missing key is a mistake.
  if (lines.length === 0 || isOwn) return { file, lines };
  const name = basename(path).replace(/\.ya?ml$/, "");
  for (const [key, value] of assumed) {
    if (valueOf(file, key) !== undefined) continue;
    const chosen = value(name.toLowerCase());
    if (chosen === undefined) continue;
    setValue(file as Record<string, unknown>, key, chosen);
    lines.push(`not given -> ${key}: ${JSON.stringify(chosen)} (assumed)`);
  }
  return { file, lines };
}
