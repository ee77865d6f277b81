// Runs of `weft train` for the training suites: generated texts, configurations, the command, and the steps that a run
// recorded. Works in a checkout and in a folder that only holds the packages.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hash } from "./inputs.js";
import { repository } from "./record.js";

export const weftCommand =
  [join(repository, "packages/cli/bin/weft.js")].find(existsSync) ??
  join(repository, "node_modules/@weft/cli/bin/weft.js");

export type ModelSize = "small" | "larger" | "tiny";

const shape = { vocab_size: 20000, dropout: 0.1 };
export const trainModels = {
  small: { ...shape, d_model: 128, n_heads: 4, num_layers: 2, dim_feedforward: 256, max_seq_len: 128 },
  larger: { ...shape, d_model: 256, n_heads: 8, num_layers: 4, dim_feedforward: 1024, max_seq_len: 256 },
  tiny: { ...shape, vocab_size: 100, d_model: 16, n_heads: 2, num_layers: 1, dim_feedforward: 16, max_seq_len: 8 },
};
export const trainBatches: Record<ModelSize, number> = { small: 32, larger: 128, tiny: 4 };

/** A temporary folder that is removed when the process ends. */
export function temporaryFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `weft-bench-${name}-`));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Texts as long as the model reads, so that both sides work on every position; train and test split in one folder. */
export function makeTexts(folder: string, length: number, rows: number): string {
  const path = join(folder, `texts-${length}-${rows}`);
  if (existsSync(path)) return path;
  mkdirSync(path);
  const word = (i: number): string => `w${Math.floor((hash(i, 12345) / 2 ** 32) ** 2 * 30000)}`;
  const text = (row: number): string => Array.from({ length }, (_, i) => word(row * length + i)).join(" ");
  const lines = Array.from({ length: rows }, (_, row) => JSON.stringify({ label: row % 2, text: text(row) }));
  for (const split of ["train", "test"]) writeFileSync(join(path, `${split}.jsonl`), `${lines.join("\n")}\n`);
  return path;
}

/** Configuration of `weft train` on generated texts. */
export const textConfig = (folder: string, size: ModelSize, rows: number, more: object = {}): object => ({
  name: size,
  model: trainModels[size],
  data: { dataset: "imdb", path: makeTexts(folder, trainModels[size].max_seq_len, rows) },
  training: { epochs: 1000, batch_per_rank: trainBatches[size], gradient_clip: 1, evaluate: false },
  optimizer: { learning_rate: 3e-4 },
  ...more,
});

/** Environment of a run: its own data folder, and threads as the run chooses them. */
export function runEnvironment(folder: string): NodeJS.ProcessEnv {
  const { WEFT_THREADS: _, ...rest } = process.env;
  return { ...rest, WEFT_DATASETS: join(folder, "home"), OMP_NUM_THREADS: "1" };
}

/** One step as a rank records it; times in microseconds. */
interface StepRecord {
  type: string;
  epoch: number;
  loss: number;
  compile?: boolean;
  durationUs: number;
  computeUs?: number;
  cpuUs: number;
  exposedCommUs: number;
  dataWaitUs: number;
}

/** Steps of every rank of a run. */
export function recordedSteps(output: string): StepRecord[][] {
  const files = readdirSync(output).filter((name) => /^rank\d+\.jsonl$/.test(name));
  return files.sort().map((name) =>
    readFileSync(join(output, name), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as StepRecord)
      .filter(({ type }) => type === "step"),
  );
}
