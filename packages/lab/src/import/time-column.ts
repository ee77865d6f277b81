// What the time column of a table means. Programs write the time of an epoch, the time since the start, or the time of day, in
// seconds, milliseconds or minutes, and often under the same name: the name decides where it is clear, the values otherwise.
import { median } from "@weft/formats/stats";

/** How a column of times is read. `time`: only its values tell. */
type TimeKind = "duration" | "elapsed" | "clock" | "time";

/** A column of times: what it counts, in which unit; `rank` prefers the clearer of several. */
export interface TimeColumn {
  kind: TimeKind;
  secondsPerUnit: number;
  rank: number;
}

const kinds: readonly [RegExp, TimeKind][] = [
  [
    /^(?:train_time|epoch_time|train_epoch_time|time_per_epoch|epoch_seconds|epoch_duration|seconds|duration)$/,
    "duration",
  ],
  [
    /^(?:elapsed|elapsed_time|time_elapsed|total_time|_runtime|runtime|relative|relative_time|cumulative_time|train_runtime)$/,
    "elapsed",
  ],
  [/^(?:wall_time|walltime|wall_clock|timestamp|_timestamp|datetime|date|time_of_day)$/, "clock"],
  [/^time$/, "time"],
];

const units: readonly [RegExp, number][] = [
  [/[_ ]?(?:\((?:ms|msec|milliseconds)\)|_(?:ms|msec|milliseconds|millis))$/, 1e-3],
  [/[_ ]?(?:\((?:us|microseconds)\)|_(?:us|microseconds))$/, 1e-6],
  [/[_ ]?(?:\((?:s|sec|seconds)\)|_(?:s|sec|secs|seconds))$/, 1],
  [/[_ ]?(?:\((?:min|minutes)\)|_(?:min|mins|minutes))$/, 60],
];

/** The column that a header cell names, or null: `epoch_time_ms`, `Wall time`, `my-run - epoch_time`, `perf/epoch_time`. */
export function timeColumn(header: string): TimeColumn | null {
  const whole = header
    .trim()
    .toLowerCase()
    .replace(/^.* - /, "")
    .replace(/^.*\//, "");
  const direct = kinds.findIndex(([name]) => name.test(whole.replaceAll(" ", "_")));
  if (direct >= 0) return { kind: kinds[direct]![1], secondsPerUnit: 1, rank: direct };
  for (const [unit, secondsPerUnit] of units) {
    if (!unit.test(whole)) continue;
    const name = whole.replace(unit, "").trim().replaceAll(" ", "_");
    const found = kinds.findIndex(
      ([pattern]) => pattern.test(name) || (name === "epoch" && pattern.test("epoch_time")),
    );
    if (found >= 0) return { kind: kinds[found]![1], secondsPerUnit, rank: found };
  }
  return null;
}

/** A cell as a number of the column's unit: a number, `mm:ss` or `h:mm:ss` (in seconds), a date (in seconds since 1970). */
export function timeValue(text: string, { secondsPerUnit }: TimeColumn): number | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const plain = Number(trimmed);
  if (!Number.isNaN(plain)) return Number.isFinite(plain) ? plain : undefined;
  const parts = /^(?:(\d+):)?(\d{1,3}):(\d{2}(?:\.\d+)?)$/.exec(trimmed);
  if (parts !== null) return (Number(parts[1] ?? 0) * 3600 + Number(parts[2]) * 60 + Number(parts[3])) / secondsPerUnit;
  if (!/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(trimmed)) return undefined;
  const date = Date.parse(trimmed);
  return Number.isFinite(date) ? date / 1000 / secondsPerUnit : undefined;
}

/** Seconds since 1970 (2001 to 2286), in seconds or milliseconds: no training takes as long. */
const isDate = (value: number): boolean => (value > 1e9 && value < 1e10) || (value > 1e12 && value < 1e13);
const leastRows = 4;
/** How much the rows of a sum may differ from each other. */
const alike = 1.5;

/** Whether values are sums: each row adds about as much as the first one has. */
function isSum(values: readonly number[]): boolean {
  const steps = values.slice(1).map((value, i) => value - values[i]!);
  if (values.length < leastRows || steps.some((step) => step <= 0)) return false;
  const usual = median(steps);
  const near = (value: number): boolean => value > usual / alike && value < usual * alike;
  return steps.every(near) && values[0]! > usual / alike && values[0]! < usual * 2 * alike;
}

/** One row of the table: its epoch, and the value of its time column. */
interface TimedRow {
  epoch: number;
  value: number;
}

/** The seconds of each row (null where there is nothing to subtract), and what was assumed; null where nothing was. */
export function secondsOf(
  rows: readonly TimedRow[],
  column: TimeColumn,
): { seconds: (number | null)[]; note: string | null } {
  const values = rows.map((row) => row.value);
  const dates = values.length > 0 && values.every(isDate);
  const kind =
    column.kind === "clock" || dates ? "clock" : column.kind === "elapsed" || isSum(values) ? "elapsed" : "duration";
  // Dates in milliseconds, where the name says nothing.
  const unit = dates && values[0]! > 1e12 ? 1e-3 : column.secondsPerUnit;
  if (kind === "duration") return { seconds: values.map((value) => value * unit), note: null };
  const seconds = values.map((value, i) => {
    const before = i > 0 && rows[i]!.epoch > rows[i - 1]!.epoch ? values[i - 1]! : null;
    if (before === null) return kind === "clock" || i > 0 ? null : value * unit;
    return (value - before) * unit;
  });
  const what = kind === "clock" ? "the time of day" : "the time since the start";
  return { seconds, note: column.kind === kind ? null : `read as ${what}: an epoch takes the difference of two rows` };
}
