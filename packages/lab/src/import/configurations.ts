// Reads configurations of three kinds of parallelism from CSV: the columns of vTrain's measured files. A row without a time asks
// for a prediction.
import type { ParallelConfiguration } from "../model/index.js";
import { ImportError, readCsvFile } from "./lines.js";

const largestCsv = 64 << 20;
const mostRows = 100_000;

/** A row of a file of configurations. */
export interface ConfigurationRow extends ParallelConfiguration {
  /** Measured iteration time; null where it is asked for. */
  milliseconds: number | null;
  line: number;
}

const columns: Record<string, Exclude<keyof ConfigurationRow, "line">> = {
  "# gpus": "devices",
  "global batch": "globalBatch",
  "micro batch": "microBatch",
  "hidden size": "hidden",
  "attention heads": "heads",
  "# layers": "layers",
  "sequence length": "sequence",
  "tensor parallelism": "tensor",
  "data parallelism": "data",
  "pipeline parallelism": "pipeline",
  "iteration time (ms)": "milliseconds",
};

/** Reads a CSV file of configurations; columns that are not known are ignored. */
export function readConfigurations(path: string): ConfigurationRow[] {
  const [header, ...lines] = readCsvFile(path, largestCsv);
  const at = new Map(
    (header?.fields ?? []).map((name, i) => [
      columns[
        name
          .replace(/^\uFEFF/, "")
          .trim()
          .toLowerCase()
      ],
      i,
    ]),
  );
  const missing = Object.entries(columns).filter(([, field]) => !at.has(field) && field !== "milliseconds");
  if (missing.length > 0)
    throw new ImportError(`${path}: no column ${missing.map(([name]) => `"${name}"`).join(", ")}`);
  if (lines.length > mostRows) throw new ImportError(`${path}: more than ${mostRows} rows`);
  return lines
    .filter(({ fields }) => fields.some((f) => f.trim() !== ""))
    .map(({ fields, line }) => {
      const number = (field: Exclude<keyof ConfigurationRow, "line">): number => {
        const text = fields[at.get(field)!] ?? "";
        const value = Number(text);
        if (text.trim() === "" || !Number.isFinite(value) || value <= 0 || (field !== "milliseconds" && value > 1e7))
          throw new ImportError(
            `${path}:${line}: ${field} must be a positive number of at most 1e7, got "${text.slice(0, 40)}"`,
          );
        return value;
      };
      const time = at.has("milliseconds") ? (fields[at.get("milliseconds")!] ?? "").trim() : "";
      const row: ConfigurationRow = {
        devices: number("devices"),
        globalBatch: number("globalBatch"),
        microBatch: number("microBatch"),
        hidden: number("hidden"),
        heads: number("heads"),
        layers: number("layers"),
        sequence: number("sequence"),
        tensor: number("tensor"),
        data: number("data"),
        pipeline: number("pipeline"),
        milliseconds: time === "" ? null : number("milliseconds"),
        line,
      };
      if (row.tensor * row.data * row.pipeline !== row.devices)
        throw new ImportError(
          `${path}:${line}: ${row.tensor} x ${row.data} x ${row.pipeline} (tensor x data x pipeline) is not ${row.devices} devices`,
        );
      return row;
    });
}
