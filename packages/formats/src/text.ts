// Formats times, sizes and percentages for tables and reports, and suggests names for misspelled ones.

const timeUnits: [number, string][] = [
  [3600e6, "h"],
  [60e6, "min"],
  [1e6, "s"],
  [1e3, "ms"],
  [1, "us"],
];

/** Formats microseconds with a fitting unit: 643612 -> "643.6 ms"; "-" for a missing value. */
export function formatMicroseconds(us: number | null | undefined): string {
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

/** Formats bytes in decimal units: 9449488 -> "9.449 MB"; "-" for a missing value. */
export function formatBytes(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "-";
  const [scale, unit] = sizeUnits.find(([scale]) => bytes >= scale) ?? [1, "B"];
  return `${significant(bytes / scale)} ${unit}`;
}

/** Formats a percentage with one digit; "-" for a missing value. */
export function formatPercent(value: number | null | undefined): string {
  return value === null || value === undefined ? "-" : `${value.toFixed(1)}%`;
}

/** Formats a number with at most four significant digits. */
export function significant(value: number): string {
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : magnitude >= 10 ? 2 : 3).replace(/\.0+$/, "");
}

/** Shortens a name in the middle, so that its beginning and its end remain. */
export function shorten(name: string, width: number): string {
  if (name.length <= width) return name;
  const head = Math.ceil((width - 1) * 0.7);
  return `${name.slice(0, head)}…${name.slice(name.length - (width - 1 - head))}`;
}

/** Formats a number with four significant digits, without an exponent for common magnitudes. */
export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(3);
  return size >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(4)));
}

/** The first entries of a list and the number of the others: "0, 1, 2 and 97 more". */
export function listSome(list: readonly (string | number)[], most = 8): string {
  const shown = list.slice(0, most).join(", ");
  return list.length > most ? `${shown} and ${list.length - most} more` : shown;
}

/** Control characters except tab and newline, and marks that reverse the order of text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to replace
const unprintable = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const codeOf = (c: string): string => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Replaces terminal escapes and other control characters of text from outside by their codes. */
export const plainText = (text: string): string => text.replaceAll(unprintable, codeOf);

/** Levenshtein distance of two words. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length];
}

/** The longest word that is compared; longer ones are never a misspelling of a key. */
const longestWord = 200;
/** A name without case and separators: `maxLength` and `max_length` are one. */
export const lettersOf = (word: string): string => word.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

/** The known name that a misspelled one most likely stands for, or null: same letters, a small edit, or a common prefix. */
export function closestName(wrong: string, known: readonly string[]): string | null {
  if (wrong.length > longestWord) return null;
  const letters = lettersOf(wrong);
  const same = known.find((name) => lettersOf(name) === letters);
  if (same !== undefined) return same;
  const ranked = known.map((name) => ({ name, distance: editDistance(wrong, name) }));
  const best = ranked.sort((a, b) => a.distance - b.distance)[0];
  const most = Math.min(wrong.length - 1, Math.max(2, wrong.length / 3));
  if (best !== undefined && best.distance <= most) return best.name;
  if (letters.length < 3) return null;
  return known.find((name) => lettersOf(name).startsWith(letters) || letters.startsWith(lettersOf(name))) ?? null;
}
