// `node bench/train-choose.mjs --data DIR`: settings of the small AG News model, the shipped ones and one change at a time, judged by the
// rows held out of the training split; of the test split one row is read. Minutes on a GPU. Writes results/train-choose.json.
// Options: --device cuda  --seconds 120 (no new setting after that)  --steps N (for a try)  --out FILE
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as weft from "@weft/core";
import * as trainer from "@weft/train";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    data: { type: "string", default: join(process.env.WEFT_SHARED ?? join(here, "../../shared"), "data/ag_news") },
    device: { type: "string", default: "cuda" },
    seconds: { type: "string", default: "120" },
    steps: { type: "string" },
    out: { type: "string", default: join(here, "results/train-choose.json") },
  },
});
if (!existsSync(options.data)) throw new Error(`--data ${options.data}: there is no such folder`);
const scratch = mkdtempSync(join(tmpdir(), "weft-choose-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
process.env.WEFT_DATA ??= join(scratch, "home");
const device = weft.setDevice(options.device);

/** As in configs/ag_news_small.yaml. */
const shipped = { dropout: 0.4, std: 0.1, decay: 0.3, smoothing: 0.1, rate: 5e-4, seed: 42 };
const settings = [
  ["shipped", {}],
  ["dropout 0.2", { dropout: 0.2 }],
  ["weight decay 0.05", { decay: 0.05 }],
  ["no label smoothing", { smoothing: 0 }],
  ["learning rate 1e-3", { rate: 1e-3 }],
  ["learning rate 3e-4", { rate: 3e-4 }],
  ["PyTorch's defaults", { dropout: 0.1, std: 1, decay: 0.01, smoothing: 0, rate: 3e-4 }],
  ["embedding_std 0.05", { std: 0.05 }],
  ["another seed", { seed: 7 }],
];

function configOf(name, s) {
  const raw = {
    name: "choose",
    device: options.device,
    seed: s.seed,
    model: {
      vocab_size: 20000,
      d_model: 128,
      n_heads: 4,
      num_layers: 2,
      dim_feedforward: 256,
      max_seq_len: 128,
      dropout: s.dropout,
      embedding_std: s.std,
    },
    data: { dataset: "ag_news", path: options.data, length_buckets: [64, 128], validation: 0.1, test_limit: 1 },
    training: {
      epochs: 5,
      batch_per_rank: 32,
      gradient_clip: 1,
      label_smoothing: s.smoothing,
      ...(options.steps !== undefined && { max_steps: Number(options.steps) }),
    },
    optimizer: { learning_rate: s.rate, weight_decay: s.decay, schedule: "cosine", warmup_steps: 200 },
  };
  return trainer.resolveConfig(trainer.checkConfig(raw, name), { output: join(scratch, name) });
}

const began = performance.now();
const rows = [];
for (const [name, change] of settings) {
  if (performance.now() - began > 1e3 * Number(options.seconds)) break;
  const setting = { ...shipped, ...change };
  const { epochs } = await trainer.train(configOf(name.replaceAll(/\W+/g, "-"), setting));
  rows.push({ name, setting, validation: epochs.map(({ valAccuracy }) => valAccuracy) });
  console.log(JSON.stringify(rows.at(-1)));
}
const report = {
  benchmark: "settings of ag_news_small on rows held out",
  at: new Date().toISOString(),
  hardware: { device: device.context?.name ?? device.name },
  versions: { node: process.version },
  share: 0.1,
  rows,
};
writeFileSync(options.out, `${JSON.stringify(report, null, 1)}\n`);
process.exit(0);
