// JSON files of a model folder. They come from outside: their size, nesting and keys are checked before anything uses them.
import { readFile, realpath, stat } from "node:fs/promises";
import { join, sep } from "node:path";
import { WeftError } from "@weft/core";

/** A model folder cannot be used; the message starts with the file. */
export class ModelError extends WeftError {
  override name = "ModelError";
}

/** A JSON object. */
export type JsonObject = Record<string, unknown>;

/** Nesting of any file that this package reads; deeper ones would overflow the stack of whoever walks them. */
const maxDepth = 64;

/**
 * Path of a file of the folder. Links may lead to other files of the folder, or to the `blobs` folder of a download cache
 * (`snapshots/REVISION/file -> ../../blobs/hash`), and nowhere else. Returns null if there is no such file.
 */
export async function fileOf(folder: string, name: string): Promise<string | null> {
  if (name === "" || name === "." || name === ".." || /[/\\\0]/.test(name))
    throw new ModelError(`${folder}: ${JSON.stringify(name)} is not the name of a file in this folder`);
  const path = join(folder, name);
  let real: string;
  let root: string;
  try {
    [real, root] = await Promise.all([realpath(path), realpath(folder)]);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new ModelError(`${path}: cannot be read: ${(error as Error).message}`);
  }
  const blobs = join(root, "..", "..", "blobs");
  if (!real.startsWith(root + sep) && !real.startsWith(blobs + sep))
    throw new ModelError(`${path}: links to ${real}, which is outside the folder; copy the file into the folder`);
  // A pipe or a device would block or never end.
  if (!(await stat(real)).isFile()) throw new ModelError(`${path}: is not a regular file`);
  return path;
}

/** Throws if the text nests too deep or if an object has the same key twice. */
function checkStructure(path: string, text: string): void {
  const keys: (Set<string> | null)[] = [];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "{" || c === "[") {
      keys.push(c === "{" ? new Set() : null);
      if (keys.length > maxDepth) throw new ModelError(`${path}: is nested more than ${maxDepth} levels deep`);
    } else if (c === "}" || c === "]") keys.pop();
    else if (c === '"') {
      const start = i;
      for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === "\\") i++;
      const set = keys.at(-1);
      if (set === null || set === undefined) continue;
      let next = i + 1;
      while (next < text.length && " \t\r\n".includes(text[next])) next++;
      if (text[next] !== ":") continue;
      const key = text.slice(start, i + 1);
      if (set.has(key)) throw new ModelError(`${path}: has the key ${key.slice(0, 100)} twice in one object`);
      set.add(key);
    }
  }
}

/**
 * Reads a JSON object of the folder; null if there is no such file.
 *
 * @param options - `checked: false` skips the search for keys that occur twice: large files that only a tokenizer reads.
 */
export async function readJson(
  folder: string,
  name: string,
  maxBytes = 2 ** 20,
  { checked = true } = {},
): Promise<JsonObject | null> {
  const path = await fileOf(folder, name);
  if (path === null) return null;
  const { size } = await stat(path);
  if (size > maxBytes) throw new ModelError(`${path}: has ${size} bytes; at most ${maxBytes} are read`);
  const text = await readFile(path, "utf8");
  if (checked) checkStructure(path, text);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw new ModelError(`${path}: is not JSON: ${(error as Error).message.slice(0, 200)}`);
  }
  if (!isJsonObject(parsed)) throw new ModelError(`${path}: is not a JSON object`);
  return parsed;
}

/** Whether a parsed value is an object, not a list or null. */
export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
