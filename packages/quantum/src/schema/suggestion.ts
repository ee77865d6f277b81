// "Did you mean": the nearest known name, for error messages about unknown names.

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    row = next;
  }
  return row[b.length];
}

/** `; did you mean "..."?`, or nothing if no known name is near. */
export function suggestion(wrong: string, known: readonly string[]): string {
  // A longer name is not a typing error, and the distance costs the product of both lengths.
  if (wrong.length > 200) return "";
  const [best] = [...known].sort((a, b) => editDistance(wrong, a) - editDistance(wrong, b));
  return best !== undefined && editDistance(wrong, best) <= Math.max(2, wrong.length / 3)
    ? `; did you mean "${best}"?`
    : "";
}

/** The message about a name that is not in a list: what it was, the nearest one, and the list. */
export const unknownName = (what: string, wrong: string, known: readonly string[]): string =>
  `there is no ${what}"${wrong.length > 60 ? `${wrong.slice(0, 57)}...` : wrong}"${suggestion(wrong, known)} (known: ${known.join(", ")})`;
