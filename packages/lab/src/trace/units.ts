// Reports are in microseconds; the tables of a trace are in whole nanoseconds, which add up exactly.

/** Fields that are times: `spanUs`, `us`, and distributions such as `callUs`. */
const isTime = (key: string): boolean => key === "us" || key.endsWith("Us");

/**
 * A report whose times are divided by `ticksPerUs`. A negative time would be a mistake of the analysis: with exact times it
 * is refused, with those of Holistic Trace Analysis (one tick per microsecond) it is that tool's result.
 */
export function inMicroseconds<T>(report: T, ticksPerUs: number): T {
  if (ticksPerUs === 1) return report;
  const convert = (value: unknown, time: boolean, path: string): unknown => {
    if (typeof value === "number") {
      if (!time) return value;
      if (value < 0) throw new Error(`internal: ${path} is ${value} ns, and a time cannot be negative`);
      return value / ticksPerUs;
    }
    if (Array.isArray(value)) return value.map((item, i) => convert(item, time, `${path}[${i}]`));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [
        key,
        convert(inner, key !== "count" && (time || isTime(key)), `${path}.${key}`),
      ]),
    );
  };
  return convert(report, false, "report") as T;
}
