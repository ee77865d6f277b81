// Tables of results: formats of times, Markdown tables, and the table that a suite prints.
import type { ContestRecord, RowResult } from "../record.js";

const escaped = (cell: unknown): string => String(cell ?? "").replaceAll("|", "\\|");
const markdownLine = (cells: readonly unknown[]): string => `| ${cells.map(escaped).join(" | ")} |`;

/** A Markdown table as lines; `align` is the separator of every column. */
export const markdownTable = (columns: readonly string[], rows: readonly unknown[][], align = "---"): string[] => [
  markdownLine(columns),
  markdownLine(columns.map((_, i) => (align !== "---" && i === 0 ? "---" : align))),
  ...rows.map(markdownLine),
];

/** A time in milliseconds with three digits. */
export function showMs(ms: number): string {
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 0.1 ? `${ms.toPrecision(3)} ms` : `${(ms * 1000).toPrecision(3)} us`;
}

export const showVerdict = (met: boolean | null | undefined): string =>
  met === true ? "met" : met === false ? "MISSED" : "";

function showRate(row: RowResult, ms: number): string {
  if (row.flops !== undefined) return `${(row.flops / ms / 1e6).toFixed(1)} GFLOP/s`;
  return row.bytes === undefined ? "" : `${(row.bytes / ms / 1e6).toFixed(1)} GB/s`;
}

/** Columns of a comparison. */
interface ComparisonLine {
  work: string;
  weft: string;
  quartiles: string;
  rate: string;
  against: string;
  time: string;
  ratio: string;
  range: string;
  wanted: string;
  verdict: string;
}

/** One line per comparison, limit and missing peer of a record. */
export function comparisonLines(record: Pick<ContestRecord, "rows">): ComparisonLine[] {
  return record.rows.flatMap((row) => {
    const own = row.times?.weft;
    const base: ComparisonLine = {
      work: row.title,
      weft: own === undefined ? "-" : showMs(own.ms),
      quartiles: own?.spread === undefined ? "" : `${showMs(own.spread.lower)} to ${showMs(own.spread.upper)}`,
      rate: own === undefined ? "" : showRate(row, own.ms),
      against: "",
      time: "",
      ratio: "",
      range: "",
      wanted: "",
      verdict: "",
    };
    const failed = row.wrong ?? row.problems?.weft;
    if (failed) return [{ ...base, verdict: `FAILED: ${failed.split("\n")[0]}` }];
    const peers = Object.entries(row.ratios).map(([name, ratio]) => ({
      ...base,
      against: ratio.name,
      time: showMs(row.times[name].ms),
      ratio: ratio.ratio.toPrecision(3),
      range: ratio.min === undefined ? "" : `${ratio.min.toPrecision(3)} to ${ratio.max!.toPrecision(3)}`,
      wanted: ratio.wanted === null ? "" : String(ratio.wanted),
      verdict: showVerdict(ratio.met),
    }));
    const missing = Object.entries(row.problems ?? {}).map(([name, why]) => ({
      ...base,
      against: name,
      verdict: `not run: ${why.split("\n")[0].slice(0, 80)}`,
    }));
    const limit =
      row.limit === undefined
        ? []
        : [{ ...base, wanted: `under ${showMs(row.limit.ms)}`, verdict: showVerdict(row.limit.met) }];
    const all = [...limit, ...peers, ...missing];
    return all.length > 0 ? all : [base];
  });
}

/** Prints a record for the terminal. */
export function printTable(record: ContestRecord): void {
  const columns = ["work", "weft", "rate", "against", "time", "ratio", "range", "wanted", "verdict"] as const;
  const short = (text: string): string => (text.length > 46 ? `${text.slice(0, 45)}…` : text);
  const lines = comparisonLines(record).map((line) => columns.map((c) => (c === "work" ? short(line[c]) : line[c])));
  const widths = columns.map((c, i) => Math.max(c.length, ...lines.map((line) => line[i].length)));
  const print = (cells: readonly string[]): void =>
    console.log(
      cells
        .map((cell, i) => cell.padEnd(widths[i]))
        .join("  ")
        .trimEnd(),
    );
  const { processor, cores, gpu } = record.hardware;
  console.log(`\n${gpu ?? `${processor}, ${cores} cores`}; ratio = peer's time / Weft's, median over rounds (range)`);
  print(columns);
  for (const line of lines) print(line);
}
