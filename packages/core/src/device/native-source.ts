// C and CUDA sources that lie beside the compiled JavaScript and are compiled at run time. A source is one text with its own
// headers written into it: what is compiled depends only on the text, so that it serves as the key of the kernel cache, and NVRTC
// needs no files.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));
const files = new Map<string, string>();

function read(path: string): string {
  let text = files.get(path);
  if (text === undefined) {
    text = readFileSync(path, "utf8").replace("#pragma once\n", "");
    files.set(path, text);
  }
  return text;
}

function expand(path: string, included: Set<string>): string {
  if (included.has(path)) return "";
  included.add(path);
  return read(path).replace(/^#include "(.*)"\n/gm, (_, name: string) => expand(join(dirname(path), name), included));
}

/** The text of these files (paths from `device/` on), with every header that they include in quotes once. */
export function nativeSource(...paths: string[]): string {
  const included = new Set<string>();
  return paths.map((path) => expand(join(folder, path), included)).join("");
}
