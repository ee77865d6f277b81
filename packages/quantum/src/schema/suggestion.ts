// Error messages about unknown names, with the nearest known one.
import { closestName } from "@weft/formats/text";

/** `; did you mean "..."?`, or nothing if no known name is near. */
export function suggestion(wrong: string, known: readonly string[]): string {
  const near = closestName(wrong, known);
  return near === null ? "" : `; did you mean "${near}"?`;
}

/** The message about a name that is not in a list: what it was, the nearest one, and the list. */
export const unknownName = (what: string, wrong: string, known: readonly string[]): string =>
  `there is no ${what}"${wrong.length > 60 ? `${wrong.slice(0, 57)}...` : wrong}"${suggestion(wrong, known)} (known: ${known.join(", ")})`;
