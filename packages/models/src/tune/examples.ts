// Training examples of language models: packed sequences, and masked tokens.
import { full, type Key, rand, randint, splitKey, type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { ModelError } from "../config/index.js";
import { ignoredLabel } from "../model/index.js";

/** Rows of packed sequences. */
export interface Packed {
  /** Token ids [rows, length], int32. */
  inputIds: Tensor;
  /** Number of the sequence within its row, from 1; 0 is padding. */
  segmentIds: Tensor;
  /** The ids, -100 for padding. */
  labels: Tensor;
}

/** Rows that the next sequence may go into; older ones are nearly full. */
const openRows = 64;

/** Packs sequences into rows of one length, first fit; longer ones are cut. Tokens attend only within their sequence. */
export function packSequences(sequences: readonly (readonly number[])[], length: number, padToken = 0): Packed {
  if (!Number.isInteger(length) || length < 1) throw new ModelError(`packSequences: length is positive, got ${length}`);
  const rows: { ids: number[]; segments: number[]; count: number }[] = [];
  const open: typeof rows = [];
  for (const given of sequences) {
    const sequence = given.slice(0, length);
    if (sequence.length === 0) continue;
    let row = open.find(({ ids }) => ids.length + sequence.length <= length);
    if (row === undefined) {
      rows.push((row = { ids: [], segments: [], count: 0 }));
      if (open.push(row) > openRows) open.shift();
    }
    row.count += 1;
    for (const id of sequence) {
      row.ids.push(id);
      row.segments.push(row.count);
    }
  }
  if (rows.length === 0) throw new ModelError("packSequences: all sequences are empty; give at least one token");
  const table = (part: (row: (typeof rows)[number]) => number[], fill: number): Tensor => {
    const all = new Int32Array(rows.length * length).fill(fill);
    rows.forEach((row, i) => {
      all.set(part(row), i * length);
    });
    return tensor(all, { shape: [rows.length, length] });
  };
  return {
    inputIds: table((row) => row.ids, padToken),
    segmentIds: table((row) => row.segments, 0),
    labels: table((row) => row.ids, ignoredLabel),
  };
}

/** Options of {@link maskTokens}. @inline */
interface MaskOptions {
  /** Id of the mask. */
  maskToken: number;
  /** Number of ids, for random tokens. */
  vocabulary: number;
  /** Ids that are never masked. */
  specialIds?: Iterable<number>;
  /** Share of the tokens that are predicted; 0.15 by default. */
  share?: number;
}

/**
 * Masked language modeling as BERT does it, inside the program: of the chosen tokens 80% become the mask, 10% a random token and
 * 10% stay. Labels are -100 elsewhere.
 */
export function maskTokens(
  ids: Tensor,
  attentionMask: Tensor | undefined,
  key: Key,
  options: MaskOptions,
): { inputIds: Tensor; labels: Tensor } {
  checkOptions("maskTokens", options, ["maskToken", "vocabulary", "specialIds", "share"]);
  const { maskToken, vocabulary, specialIds = [], share = 0.15 } = options;
  if (!(share > 0 && share < 1)) throw new ModelError(`maskTokens: share is between 0 and 1, got ${share}`);
  const [forChoice, forKind, forToken] = splitKey(key, 3);
  const shape = [...ids.shape];
  let chosen = rand(shape, { key: forChoice }).less(share);
  if (attentionMask !== undefined) chosen = chosen.logicalAnd(attentionMask.cast("bool"));
  for (const special of specialIds) chosen = chosen.logicalAnd(ids.notEqual(special));
  const kind = rand(shape, { key: forKind });
  const random = randint(0, vocabulary, shape, { key: forToken });
  const replaced = full(shape, maskToken, { dtype: "int32" }).where(kind.less(0.8), random.where(kind.less(0.9), ids));
  return { inputIds: replaced.where(chosen, ids).cast("int32"), labels: ids.where(chosen, ignoredLabel).cast("int32") };
}
