// Numbers for people: a unit that fits, and no more digits than mean something. Knows no command.

const timeUnits: [number, string][] = [
  [3600e6, "h"],
  [60e6, "min"],
  [1e6, "s"],
  [1e3, "ms"],
  [1, "us"],
];

/** Microseconds with a unit that fits: 643612 -> "643.6 ms". */
export function time(us: number | null | undefined): string {
  if (us === null || us === undefined || !Number.isFinite(us)) return "-";
  if (us === 0) return "0";
  const [scale, unit] = timeUnits.find(([scale]) => Math.abs(us) >= scale) ?? [1, "us"];
  return `${significant(us / scale)} ${unit}`;
}

const sizeUnits: [number, string][] = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];

/** Bytes in units of 1000, as bandwidths are given. */
export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "-";
  const [scale, unit] = sizeUnits.find(([scale]) => bytes >= scale) ?? [1, "B"];
  return `${significant(bytes / scale)} ${unit}`;
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "-" : `${value.toFixed(1)}%`;
}

/** Four digits at most. */
export function significant(value: number): string {
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : magnitude >= 10 ? 2 : 3).replace(/\.0+$/, "");
}

/** A name cut in the middle, so that its beginning and its end can be seen. */
export function shorten(name: string, width: number): string {
  if (name.length <= width) return name;
  const head = Math.ceil((width - 1) * 0.7);
  return `${name.slice(0, head)}…${name.slice(name.length - (width - 1 - head))}`;
}
