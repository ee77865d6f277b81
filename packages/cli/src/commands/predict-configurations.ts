// weft predict FILE.csv: iteration times of configurations of tensor, data and pipeline parallelism, from those that were measured.
import { existsSync } from "node:fs";
import { plainText, shortNumber } from "@weft/formats/text";
import { type ConfigurationRow, readConfigurations } from "@weft/lab/internal/import";
import { fitParallelLaw, type MeasuredConfiguration } from "@weft/lab/internal/predict";
import { CommandError, csv, printJson, printText, table, writeFiles } from "../terminal/index.js";
import { labWork } from "./lab-work.js";

/** Fewer measured rows cannot determine the law's constants at all. */
const leastMeasured = 8;

/** Configurations of one job: they compete with each other. */
const jobOf = (row: ConfigurationRow): string =>
  [row.devices, row.globalBatch, row.hidden, row.heads, row.layers, row.sequence].join(" ");

const jobText = (row: ConfigurationRow): string =>
  `${row.devices} devices, ${row.layers} layers of ${row.hidden}, batch ${row.globalBatch}`;

export async function predictConfigurations(path: string, options: { json?: boolean; out?: string }): Promise<void> {
  if (!existsSync(path)) throw new CommandError(`${path} does not exist`);
  const rows = await labWork(() => readConfigurations(path));
  const measured = rows.filter((row): row is ConfigurationRow & MeasuredConfiguration => row.milliseconds !== null);
  if (measured.length < leastMeasured)
    throw new CommandError(
      `${path}: ${measured.length} rows have an iteration time; a prediction needs at least ${leastMeasured}`,
    );
  const law = await labWork(() => fitParallelLaw(measured));
  const predictions = rows.filter((row) => row.milliseconds === null).map((row) => ({ row, ...law(row) }));
  const best = new Map<string, { row: ConfigurationRow; milliseconds: number; known: "measured" | "predicted" }>();
  for (const entry of [
    ...measured.map((row) => ({
      row: row as ConfigurationRow,
      milliseconds: row.milliseconds,
      known: "measured" as const,
    })),
    ...predictions.map(({ row, milliseconds }) => ({ row, milliseconds, known: "predicted" as const })),
  ]) {
    const now = best.get(jobOf(entry.row));
    if (now === undefined || entry.milliseconds < now.milliseconds) best.set(jobOf(entry.row), entry);
  }
  const head = ["devices", "tensor", "data", "pipeline", "micro batch"];
  const settings = (row: ConfigurationRow): number[] => [
    row.devices,
    row.tensor,
    row.data,
    row.pipeline,
    row.microBatch,
  ];
  if (options.out !== undefined)
    writeFiles(options.out, {
      "configurations.csv": csv(
        [...head, "milliseconds", "low_80", "high_80"],
        predictions.map((p) => [...settings(p.row), p.milliseconds, ...p.interval]),
      ),
    });
  if (options.json) {
    const plain = (row: ConfigurationRow): Omit<ConfigurationRow, "line" | "milliseconds"> => {
      const { line: _line, milliseconds: _time, ...rest } = row;
      return rest;
    };
    printJson({
      measured: measured.length,
      predictions: predictions.map(({ row, ...p }) => ({ ...plain(row), ...p })),
      best: [...best.values()].map(({ row, ...b }) => ({ ...plain(row), ...b })),
    });
    return;
  }
  const lines = [
    ...(predictions.length === 0
      ? ["No row asks for a prediction: leave the iteration time empty."]
      : [
          table(
            [...head, "ms", "80% interval"],
            predictions.map((p) => [
              ...settings(p.row).map(String),
              shortNumber(p.milliseconds),
              p.interval.map((x) => shortNumber(x)).join(" to "),
            ]),
          ),
        ]),
    `Fitted on ${measured.length} measured rows (counted); predictions are inferred, and the typical constants of A100s are assumed where the rows do not determine one.`,
    `Fastest configuration of each job:\n${[...best.values()]
      .slice(0, 40)
      .map(
        ({ row, milliseconds, known }) =>
          `  ${jobText(row)}: tensor ${row.tensor}, data ${row.data}, pipeline ${row.pipeline}, micro batch ${row.microBatch} (${shortNumber(milliseconds)} ms, ${known})`,
      )
      .join("\n")}`,
  ];
  printText(`${plainText(lines.join("\n\n"))}\n`);
}
