// Keys of files that users write: other programs' names for them, values from the command line (--set), and what an
// unknown one probably stands for. It knows parsed values, not YAML.
import { closestName, lettersOf } from "./text.js";

type Mapping = Record<string, unknown>;

const isMapping = (value: unknown): value is Mapping =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The value at a dotted key; undefined if it is absent. */
export function valueOf(file: unknown, key: string): unknown {
  let here = file;
  for (const part of key.split(".")) here = isMapping(here) && Object.hasOwn(here, part) ? here[part] : undefined;
  return here;
}

/** Sets the value at a dotted key; sections that are missing are made. */
export function setValue(file: Mapping, key: string, value: unknown): void {
  const path = key.split(".");
  const last = path.pop() as string;
  let here = file;
  for (const part of path) {
    // Entries of a list are named by their number, from 0.
    const isContainer = Object.hasOwn(here, part) && (isMapping(here[part]) || Array.isArray(here[part]));
    if (!isContainer) define(here, part, {});
    here = here[part] as Mapping;
  }
  define(here, last, value);
}

/** Own property whatever the name: "__proto__" must not become the prototype. */
const define = (object: Mapping, name: string, value: unknown): void =>
  void Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });

function removeValue(file: Mapping, key: string): void {
  const at = key.lastIndexOf(".");
  const parent = at < 0 ? file : valueOf(file, key.slice(0, at));
  if (!isMapping(parent)) return;
  delete parent[key.slice(at + 1)];
  if (at >= 0 && Object.keys(parent).length === 0) removeValue(file, key.slice(0, at));
}

/** A key of another program and ours. */
export interface ForeignKey {
  /** Its names: dotted, or a last part that may be in any section. */
  names: readonly string[];
  /** Our key, or null if there is nothing to set because Weft always works this way. */
  key: string | null;
  /** Our value, by default the same. undefined: nothing is set. `file` is the whole file as it was given. */
  value?: (given: unknown, file: unknown) => unknown;
  /** Why the translation is this one, for the message. */
  why?: string;
}

/** A file in Weft's keys, and one line per key that was translated. */
export interface Translated {
  /** The file in Weft's own words. */
  file: unknown;
  /** What was translated or assumed, one sentence each. */
  lines: string[];
}

const show = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
};

function leavesOf(value: Mapping, prefix: string, depth: number): string[] {
  return Object.entries(value).flatMap(([name, part]) => {
    const key = prefix === "" ? name : `${prefix}.${name}`;
    return isMapping(part) && depth > 0 ? [key, ...leavesOf(part, key, depth - 1)] : [key];
  });
}

/** Replaces keys of other programs. Keys that are `known`, and our keys that are set already, stay as they are. */
export function translateKeys(
  given: unknown,
  rules: readonly ForeignKey[],
  known: (key: string) => boolean,
): Translated {
  if (!isMapping(given)) return { file: given, lines: [] };
  const file = structuredClone(given);
  const lines: string[] = [];
  for (const from of leavesOf(given, "", 3)) {
    if (known(from)) continue;
    const leaf = from.slice(from.lastIndexOf(".") + 1);
    const isNamed = (key: string) => (rule: ForeignKey) =>
      rule.names.some((name) => lettersOf(name) === lettersOf(key));
    const rule = rules.find(({ names }) => names.includes(from)) ?? rules.find(isNamed(leaf));
    const old = valueOf(given, from);
    if (rule === undefined || old === undefined) continue;
    const { key, why } = rule;
    const value = rule.value === undefined ? old : rule.value(old, given);
    if (key !== null && value !== undefined && valueOf(given, key) !== undefined && key !== from) continue;
    removeValue(file, from);
    if (key !== null && value !== undefined) setValue(file, key, value);
    const result = key === null || value === undefined ? "not needed" : `${key}: ${show(value)}`;
    lines.push(`${from}: ${show(old)} -> ${result}${why === undefined ? "" : ` (${why})`}`);
  }
  return { file, lines };
}

/** What an unknown key probably stands for, or the keys that there are: the end of an error message. */
export function suggestKey(wrong: string, known: readonly string[], rules: readonly ForeignKey[] = []): string {
  const leaf = wrong.slice(wrong.lastIndexOf(".") + 1);
  const rule = rules.find(({ names }) => names.includes(wrong)) ?? rules.find(({ names }) => names.includes(leaf));
  if (rule?.key != null) return `; it is called ${rule.key}`;
  const leafOf = (key: string): string => key.slice(key.lastIndexOf(".") + 1);
  const moved = known.find((key) => leafOf(key) === leaf && key !== wrong);
  if (moved !== undefined) return `; it is called ${moved}`;
  const section = wrong.slice(0, wrong.lastIndexOf(".") + 1);
  const inSection = known.filter((key) => key.startsWith(section)).map((key) => key.slice(section.length));
  // A misspelled section is compared with the names of sections, too.
  const beside = [...new Set(inSection.map((key) => key.split(".")[0]))];
  const near = closestName(leaf, [...beside, ...inSection]);
  if (near !== null) return `; did you mean ${section}${near}?`;
  const elsewhere = closestName(leaf, known.map(leafOf));
  const whole = known.find((key) => leafOf(key) === elsewhere) ?? null;
  if (whole !== null) return `; did you mean ${whole}?`;
  return `; known ${section === "" ? "keys" : `keys of ${section.slice(0, -1)}`}: ${beside.join(", ")}`;
}

/** The value of `key=value`: true, false, null, a number, JSON, or text. */
function scalar(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : text;
  }
}

/** Splits `key=value` of --set; null if it is not of that form. */
export function readSetting(text: string): { key: string; value: unknown } | null {
  const at = text.indexOf("=");
  const key = text.slice(0, Math.max(0, at)).trim();
  return at < 1 || !/^[\w*-]+(\.[\w*-]+)*$/.test(key) ? null : { key, value: scalar(text.slice(at + 1).trim()) };
}

/** A copy of a file with the values of --set. Returns the entry that is not `key=value` instead, as `wrong`. */
export function withSettings(given: unknown, entries: readonly string[]): { file: unknown; wrong?: string } {
  if (entries.length === 0) return { file: given };
  const file = isMapping(given) ? structuredClone(given) : {};
  for (const entry of entries) {
    const setting = readSetting(entry);
    if (setting === null) return { file: given, wrong: entry };
    if (setting.value === null) removeValue(file, setting.key);
    else setValue(file, setting.key, setting.value);
  }
  return { file };
}
