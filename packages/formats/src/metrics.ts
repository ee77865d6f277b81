// The columns of metrics.csv: one row per epoch. The trainer writes the canonical names; the lab also reads the aliases that
// such files carry elsewhere.
import { z } from "zod";
import { formatCsv } from "./csv.js";
import { countSchema } from "./facts.js";

/** Schema of one row of metrics.csv. */
export const metricsRowSchema = z.object({
  epoch: countSchema,
  seconds: z.number(),
  trainLoss: z.number().optional(),
  valLoss: z.number().optional(),
  valAccuracy: z.number().optional(),
  samples: z.number().optional(),
  steps: z.number().optional(),
});
/** One row of metrics.csv. */
export type MetricsRow = z.infer<typeof metricsRowSchema>;
/** A column of metrics.csv, by its field name. */
export type MetricsColumn = keyof MetricsRow;

/** The names of each column: the first is written, all are read. */
export const metricsColumns: Record<MetricsColumn, readonly [string, ...string[]]> = {
  epoch: ["epoch"],
  trainLoss: ["train_loss", "train_loss_epoch", "training_loss", "loss"],
  seconds: ["train_time", "epoch_time", "time", "seconds"],
  valLoss: ["val_loss", "valid_loss", "validation_loss", "eval_loss"],
  valAccuracy: ["val_acc", "val_accuracy", "valid_accuracy", "validation_accuracy", "eval_accuracy", "accuracy"],
  samples: ["samples"],
  steps: ["steps"],
};

const columnOf = new Map(
  Object.entries(metricsColumns).flatMap(([column, names]) => names.map((name) => [name, column as MetricsColumn])),
);

/** The column that a header cell names, or undefined: also `val/loss`, and `my-run - val_loss` as W&B exports it. */
export const metricsColumn = (name: string): MetricsColumn | undefined =>
  columnOf.get(
    name
      .trim()
      .toLowerCase()
      .replace(/^.* - /, "")
      .replaceAll("/", "_"),
  );

const written = ["epoch", "trainLoss", "seconds", "valLoss", "valAccuracy"] as const;

/** The header line of a metrics.csv that Weft writes. */
export const metricsHeader: readonly string[] = written.map((column) => metricsColumns[column][0]);

/** Formats metrics.csv; a missing or `null` value becomes an empty cell. */
export function formatMetrics(rows: readonly { [K in (typeof written)[number]]?: number | null }[]): string {
  return formatCsv(
    metricsHeader,
    rows.map((row) => written.map((column) => row[column] ?? null)),
  );
}
