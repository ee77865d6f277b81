// Plain-text tables: the first columns left-aligned, the others right-aligned.

import { plainText } from "@weft/formats/text";

/** Formats a table; cells come from files, so that control characters are replaced. */
export function table(header: readonly string[], rows: readonly (readonly string[])[], left = 1): string {
  const widths = header.map((title, i) => Math.max(title.length, ...rows.map((row) => (row[i] ?? "").length)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => (i < left ? cell.padEnd(widths[i]) : cell.padStart(widths[i])))
      .join("  ")
      .trimEnd();
  const text = [line(header), widths.map((width) => "-".repeat(width)).join("  "), ...rows.map(line)];
  return plainText(text.join("\n"));
}
