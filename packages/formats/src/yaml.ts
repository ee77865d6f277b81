// Reads YAML that may be hostile: bounded in time and memory, and without keys that an object would lose.
import { parse } from "yaml";

/** A text that is not YAML, or more than the reader parses in seconds. The message follows the name of the file and a colon. */
export class YamlError extends Error {
  override name = "YamlError";
}

const most = { characters: 2 ** 20, nesting: 100, keys: 20_000, quotes: 20_000 };

/** Why a text is not read: the YAML parser takes minutes, or all of the stack. Null if it may be parsed. */
export function yamlProblem(text: string): string | null {
  if (text.length > most.characters) return `has ${text.length} characters, more than ${most.characters}`;
  if (text.includes("__proto__")) return 'contains the name "__proto__", which no key can have';
  let [depth, keys, quotes] = [0, 0, 0];
  for (let k = 0; k < text.length; k++) {
    const c = text[k];
    // Brackets inside of comments and strings count too: no file has so many of them.
    if (c === "[" || c === "{") depth++;
    else if (c === "]" || c === "}") depth--;
    else if (c === ":" || c === "?") keys++;
    else if (c === '"' || c === "'") quotes++;
    if (depth > most.nesting) return `has more than ${most.nesting} brackets inside each other`;
  }
  if (keys > most.keys) return `has more than ${most.keys} keys`;
  if (quotes > most.quotes) return `has more than ${most.quotes} quotes`;
  return null;
}

/**
 * The data of a YAML or JSON text.
 *
 * @throws {@link YamlError} with one line.
 *
 * @example
 * ```ts
 * import { parseYaml } from "@weft/formats/yaml";
 * console.log(parseYaml("steps: [1, 2]")); // { steps: [ 1, 2 ] }
 * ```
 */
export function parseYaml(text: string): unknown {
  const problem = yamlProblem(text);
  if (problem !== null) throw new YamlError(problem);
  let value: unknown;
  try {
    value = parse(text, { logLevel: "error", maxAliasCount: 100 });
  } catch (error) {
    throw new YamlError(`is not YAML: ${(error as Error).message.split("\n")[0].replace(/:$/, "")}`);
  }
  try {
    JSON.stringify(value);
  } catch {
    throw new YamlError("an alias refers to a value that contains it");
  }
  return value;
}
