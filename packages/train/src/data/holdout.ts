// Holds out a share of the training rows for choosing settings, so that the test split is evaluated once. The seed
// decides which rows; both parts are token files.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { shuffled } from "./epoch.js";
import { DataError } from "./table.js";
import { readTokens, type TokenSet, writeTokens } from "./tokens.js";

const forHoldout = 0x686f6c64;

/** Training rows divided into two parts. */
export interface HeldOut {
  /** The remaining training rows. */
  train: TokenSet;
  /** The held-out rows. */
  held: TokenSet;
}

/** Holds out `share` of the rows, at least one; both parts keep the file order. */
export function holdOut(set: TokenSet, share: number, seed: number): HeldOut {
  const count = Math.max(1, Math.round(set.rows * share));
  if (count >= set.rows)
    throw new DataError(
      `data.validation ${share} of ${set.rows} rows leaves none to train on; make it smaller, or 0 to hold nothing out`,
    );
  const order = shuffled(set.rows, seed, 0, forHoldout);
  const part = (name: string, rows: Uint32Array): TokenSet => ({
    ...partOf(set, `${name}|${share}|${seed}`, rows.sort()),
    classes: set.classes,
  });
  return { train: part("train", order.slice(count)), held: part("held", order.slice(0, count)) };
}

function partOf(set: TokenSet, name: string, rows: Uint32Array): TokenSet {
  const key = createHash("sha256").update(`${set.key}|${set.rows}|${name}`).digest("hex").slice(0, 32);
  const file = set.file.replace(/-[0-9a-f]{32}\.tok$/, `-${key}.tok`);
  const known = existsSync(file) ? readTokens(file) : null;
  if (known !== null && known.key === key) return known;
  const offsets = new Uint32Array(rows.length + 1);
  rows.forEach((row, i) => {
    offsets[i + 1] = offsets[i] + set.offsets[row + 1] - set.offsets[row];
  });
  const ids = new Int32Array(offsets[rows.length]);
  rows.forEach((row, i) => {
    ids.set(set.ids.subarray(set.offsets[row], set.offsets[row + 1]), offsets[i]);
  });
  const labels = Int32Array.from(rows, (row) => set.labels[row]);
  const { dataset, vocabulary } = set;
  writeTokens(file, { dataset, rows: rows.length, tokens: ids.length, vocabulary, key }, [labels, offsets, ids]);
  const made = readTokens(file);
  if (made === null) throw new DataError(`${file}: could not be read back after it was written; is the disk in order?`);
  return made;
}
