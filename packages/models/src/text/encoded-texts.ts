// Texts as token ids, encoded once: the ids of many texts are kept in the cache folder, named by a hash of texts and tokenizer.
import { createHash, randomBytes } from "node:crypto";
import { existsSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { io } from "@weft/core";
import { cacheRoot, makeFolder } from "@weft/core/internal/device";
import type { TextTokenizer } from "./tokenizer.js";

/** Ids of texts: those of text i are ids[offsets[i]] to ids[offsets[i + 1]]. */
interface EncodedTexts {
  ids: Int32Array;
  offsets: Int32Array;
}

/** Texts with fewer characters are encoded each time. */
const leastCharacters = 2 ** 20;

/** Whether the content of a file can be the token ids of this number of texts. */
function isSound({ ids, offsets }: EncodedTexts, texts: number, vocabulary: number): boolean {
  if (offsets.length !== texts + 1 || offsets[0] !== 0 || offsets[texts] !== ids.length) return false;
  for (let i = 0; i < texts; i++) if (offsets[i] > offsets[i + 1]) return false;
  return ids.every((id) => id >= 0 && id < vocabulary);
}

async function readIds(path: string, texts: number, vocabulary: number): Promise<EncodedTexts | null> {
  if (!existsSync(path)) return null;
  try {
    const { ids, offsets } = await io.readSafetensors(path);
    const found = { ids: ids.data as Int32Array, offsets: offsets.data as Int32Array };
    if (ids.dtype === "int32" && offsets.dtype === "int32" && isSound(found, texts, vocabulary)) return found;
  } catch {
    // A damaged file is written anew from the texts.
  }
  return null;
}

/** Encodes texts, without a limit of their lengths. */
export async function encodeTexts(tokenizer: TextTokenizer, texts: readonly string[]): Promise<EncodedTexts> {
  const hash = createHash("sha256").update(tokenizer.identity);
  let characters = 0;
  for (const text of texts) {
    hash.update(`${text.length}|`).update(text);
    characters += text.length;
  }
  const folder = join(cacheRoot(), "tokens");
  const path = join(folder, `${hash.digest("hex").slice(0, 32)}.safetensors`);
  const isLarge = characters >= leastCharacters;
  const known = isLarge ? await readIds(path, texts.length, tokenizer.vocabulary) : null;
  if (known !== null) return known;
  const rows = texts.map((text) => Int32Array.from(tokenizer.encode(text).ids));
  const offsets = new Int32Array(texts.length + 1);
  rows.forEach((row, i) => {
    offsets[i + 1] = offsets[i] + row.length;
  });
  const ids = new Int32Array(offsets[texts.length]);
  rows.forEach((row, i) => {
    ids.set(row, offsets[i]);
  });
  if (isLarge) {
    const temporary = join(folder, `.${randomBytes(6).toString("hex")}`);
    try {
      makeFolder(folder);
      const array = (data: Int32Array) => ({ shape: [data.length], dtype: "int32" as const, data });
      await io.writeSafetensors(temporary, { ids: array(ids), offsets: array(offsets) });
      renameSync(temporary, path);
    } catch {
      // Without a place for it, the next run encodes again.
      rmSync(temporary, { force: true });
    }
  }
  return { ids, offsets };
}

/** Number of tokens that a tokenizer puts before and after a text. */
export function frameOf(tokenizer: TextTokenizer): { before: number; after: number } {
  const [framed, plain] = [true, false].map((specialTokens) => tokenizer.encode("a", { specialTokens }).ids);
  const before = framed.findIndex((_, i) => plain.every((id, k) => framed[i + k] === id));
  return { before: Math.max(0, before), after: Math.max(0, framed.length - plain.length - Math.max(0, before)) };
}
