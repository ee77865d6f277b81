// Lines of the user's program, where its files are on this machine.
import { readFileSync, statSync } from "node:fs";
import type { Call, Site } from "./evidence.js";

const largestFile = 4e6;

/** The text of a source line, with its indentation; null where the file is not a Python file of this machine. */
export function sourceLine(site: Site): string | null {
  try {
    if (!site.file.endsWith(".py") || statSync(site.file).size > largestFile) return null;
    return readFileSync(site.file, "utf8").split("\n")[site.line - 1] ?? null;
  } catch {
    return null;
  }
}

function indentation(site: Site | undefined): number | null {
  const line = site === undefined ? null : sourceLine(site);
  return line === null || line.trim() === "" ? null : line.replaceAll("\t", "        ").search(/\S/);
}

/**
 * Whether a call stands inside the block of others in the same function, such as the body of a loop, and not behind it: its line
 * is indented at least as far. Null where the lines are not known.
 */
export function isInsideBlock(call: Call, others: readonly Call[]): boolean | null {
  const [first] = others;
  const isThere = (frame: Site): boolean => frame.file === first.site?.file && frame.name === first.site.name;
  const own = indentation(call.frames.find(isThere));
  const block = others.map((other) => indentation(other.frames.find(isThere)));
  if (own === null || block.some((one) => one === null)) return null;
  return own >= Math.min(...(block as number[]));
}

/**
 * Whether a call stands in a branch or loop of its own (deeper in the same function) while another one is issued in every round:
 * nothing between them jumps over the other. Such a call is rather one too many than the other one left out.
 */
export function isOptional(call: Call, regular: Call): boolean {
  const [own, other] = [call.site, regular.site];
  if (own === null || other === null || own.file !== other.file || own.name !== other.name) return false;
  const [depth, usual] = [indentation(own), indentation(other)];
  if (depth === null || usual === null || depth <= usual) return false;
  const [from, to] = [Math.min(own.line, other.line), Math.max(own.line, other.line)];
  for (let line = from; line <= to; line++)
    if (/^\s*(?:continue|break|return|raise|try)\b/.test(sourceLine({ ...own, line }) ?? "")) return false;
  return true;
}
