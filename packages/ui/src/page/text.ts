// Numbers, times and dates as the page shows them.
export { formatBytes, formatMicroseconds } from "@weft/formats/text";

/** Seconds as 4 s, 2:05 min, 3:20 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (value: number): string => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)} h`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** How long ago a time was, in words. */
export function ago(t: number | undefined): string {
  if (t === undefined) return "–";
  const seconds = Date.now() / 1000 - t;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(t * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
}

/** A date and time. */
export const dateTime = (t: number | undefined): string =>
  t === undefined ? "–" : new Date(t * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Time of day. */
export const clock = (t: number | undefined): string =>
  t === undefined ? "" : new Date(t * 1000).toLocaleTimeString(undefined, { hour12: false });

/** A share as a percentage. */
export const formatShare = (share: number | null | undefined, digits = 0): string =>
  share === null || share === undefined ? "–" : `${(share * 100).toFixed(digits)}%`;

/** A number with thousands separated. */
export const formatCount = (value: number): string => Math.round(value).toLocaleString("en-US");

/** A rate such as samples per second. */
export function rate(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return "–";
  return value >= 100 ? formatCount(value) : value.toPrecision(3);
}

/** A loss or another figure without a unit. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return size >= 100 ? value.toFixed(1) : value.toPrecision(4);
}
