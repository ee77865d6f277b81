// Results on standard output: reports are broken to the width of the terminal and get colors by the rules below; JSON and lines for
// other programs are written as they are. Every command prints through these functions, so that a pipe never sees an escape code.
import { plainText } from "@weft/formats/text";
import { paint, wrapped } from "./paint.js";
import { makeRoom } from "./progress.js";

type Style = keyof typeof paint;

/** Texts that have a meaning, wherever a report prints them. The first rule that matches at a place wins. */
const rules: readonly (readonly [RegExp, Style])[] = [
  // The verdict on a study is a line of its own.
  [/^[^\n:]{1,200}: valid, .*/, "good"],
  [/^[^\n:]{1,200}: NOT VALID .*/, "bad"],
  [/^[^\n:]{1,200}: UNDECIDED .*/, "warning"],
  [/\[(?:invalid|high)\]/, "bad"],
  [/\[(?:unresolved|moderate)\]/, "warning"],
  [/\[(?:low|info)\]/, "dim"],
  [/(?<=^|: )error:/, "bad"],
  [/(?<=^|: )warning:/, "warning"],
  [/(?<=^|: )(?:info|note):/, "dim"],
  [/\b(?:NOT VALID|not valid|FAILED|WRONG|SLOW|failed|missed)\b/, "bad"],
  [/\b(?:does not scale|gets slower|is slower|is worse)\b/, "bad"],
  [/\b(?:[Cc]annot say|UNDECIDED|undecided)\b/, "warning"],
  [/\b(?:is faster|is better|Nothing is missing|Nothing is slow|No findings|self-test passed|verified)\b/, "good"],
  // Classes of efficiency: in a column, or behind a speedup.
  [/(?<=\s\s|x |, |\d%\) )(?:super-linear|near-perfect|good|held|better)(?=$|[,;\s])/, "good"],
  [/(?<=\s\s|x |, |\d%\) )partial(?=$|[,;\s])/, "warning"],
  [/(?<=\s\s|x |, |\d%\) )(?:poor|negative|worse)(?=$|[,;\s])/, "bad"],
  [/(?<=^\s+)(?:fix|predicted)(?=:|\s\s)/, "strong"],
  [/(?<=^\s+)refuted by(?=\s\s)/, "dim"],
];

const any = new RegExp(rules.map(([rule]) => `(${rule.source})`).join("|"), "g");
/** The line below the head of a table. */
const ruler = /^-{2,}[-\s]*$/;

/** Colors of a report: verdicts by the rules, the heads of tables in bold. */
function highlight(text: string): string {
  const lines = text.split("\n");
  return lines
    .map((line, i) => {
      if (ruler.test(line)) return paint.dim(line);
      if (i + 1 < lines.length && ruler.test(lines[i + 1])) return paint.strong(line);
      return line.replaceAll(any, (found, ...groups: (string | undefined)[]) => {
        const style = rules[groups.findIndex((group) => group !== undefined)][1];
        return paint[style](found);
      });
    })
    .join("\n");
}

/** Prints a report for people. Control characters of text from outside are replaced; a line break ends it. */
export function printText(text: string): void {
  const whole = text.endsWith("\n") ? text : `${text}\n`;
  makeRoom();
  process.stdout.write(highlight(wrapped(plainText(whole))));
}

/** Prints a value for programs. */
export function printJson(value: unknown, indent = 2): void {
  makeRoom();
  process.stdout.write(`${JSON.stringify(value, null, indent)}\n`);
}

/** Prints lines for programs: neither broken nor colored. */
export function printLines(text: string): void {
  makeRoom();
  process.stdout.write(text.endsWith("\n") ? text : `${text}\n`);
}
