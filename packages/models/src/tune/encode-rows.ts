// Texts of a fine-tuning as token ids: cut, packed and padded.
import { type Tensor, tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import { ignoredLabel, type Model } from "../model/index.js";
import { encodeBatch, encodeTexts, frameOf, padRows, type TextTokenizer } from "../text/index.js";
import { packSequences } from "./examples.js";
import type { LabeledText } from "./rows.js";

/** A text, or a pair of texts. */
export type TextInput = string | readonly [string, string];

/** Texts as tensors with one row per text, or several texts per row. */
export interface TuningBatch {
  /** Token ids [rows, length], int32. */
  inputIds: Tensor;
  /** Absent for packed rows. */
  attentionMask?: Tensor;
  /** Pairs of texts only: 0 for the first text, 1 for the second. */
  tokenTypeIds?: Tensor;
  /** Packed rows only. */
  segmentIds?: Tensor;
  /** Class per row, or label per token (-100 is ignored); in float32 numbers of a regression, or 0 and 1 by label. */
  labels: Tensor;
}

/** Pieces of at most `length` tokens, each between the tokens that the tokenizer puts around a text. */
function pieces(ids: Int32Array, { before, after }: ReturnType<typeof frameOf>, length: number): number[][] {
  const end = ids.length - after;
  const [start, close] = [ids.subarray(0, before), ids.subarray(end)];
  const room = length - before - after;
  const all: number[][] = [];
  for (let at = before; at < end || all.length === 0; at += room)
    all.push([...start, ...ids.subarray(at, Math.min(at + room, end)), ...close]);
  return all;
}

/** Texts or pairs of texts as the inputs of a model: of pairs, some have the number of the text that a token belongs to. */
export function encodeInputs(
  { type, config }: Pick<Model, "type" | "config">,
  tokenizer: TextTokenizer,
  texts: readonly TextInput[],
  length: number,
): Omit<TuningBatch, "labels"> {
  const { inputIds, attentionMask, tokenTypeIds } = encodeBatch(tokenizer, texts, {
    padTo: length,
    side: "right",
    ...(config.padToken !== null && { padToken: config.padToken }),
  });
  const isTyped = type === "bert" && tokenizer.usesTypes && texts.some((text) => typeof text !== "string");
  return { inputIds, attentionMask, ...(isTyped && { tokenTypeIds }) };
}

/** The texts of pairs. */
function pairsOf(rows: readonly LabeledText[]): TextInput[] {
  const alone = rows.findIndex(({ pair }) => pair === undefined);
  if (alone >= 0) throw new ModelError(`fineTuning: text ${alone + 1} has no second text, and others have one`);
  return rows.map(({ text, pair }) => [text, pair as string]);
}

/** Texts as rows of token ids; without `labels` the labels are the ids. */
export async function encodeRows(
  model: Pick<Model, "type" | "config">,
  rows: readonly LabeledText[],
  tokenizer: TextTokenizer,
  length: number,
  labels: Tensor | null,
  packed: boolean,
  padToken: number,
): Promise<TuningBatch> {
  if (labels !== null && rows.some(({ pair }) => pair !== undefined))
    return { ...encodeInputs(model, tokenizer, pairsOf(rows), length), labels };
  const { ids: all, offsets } = await encodeTexts(
    tokenizer,
    rows.map(({ text }) => text),
  );
  const frame = frameOf(tokenizer);
  if (length <= frame.before + frame.after)
    throw new ModelError(
      `fineTuning: maxLength is ${length}; the tokens around a text alone are ${frame.before + frame.after}`,
    );
  const cut = rows.map((_, i) => pieces(all.subarray(offsets[i], offsets[i + 1]), frame, length));
  if (packed) return packSequences(cut.flat(), length, padToken);
  // A text that is too long loses its end, or its beginning if the tokenizer cuts there.
  const encoded = cut.map(([first], i) => {
    if (cut[i].length === 1 || tokenizer.truncationSide === "right") return first;
    const own = all.subarray(offsets[i], offsets[i + 1]);
    return [...own.subarray(0, frame.before), ...own.subarray(own.length - length + frame.before)];
  });
  const shape = [rows.length, length];
  const ids = padRows(encoded, length, padToken);
  const mask = padRows(
    encoded.map((row) => row.map(() => 1)),
    length,
    0,
  );
  return {
    inputIds: tensor(ids, { shape }),
    attentionMask: tensor(mask, { shape }),
    labels: labels ?? tensor(padRows(encoded, length, ignoredLabel), { shape }),
  };
}

/**
 * Texts with a tag per word: the first token of a word has its tag, the others have no loss, as `transformers` aligns them. Words that
 * do not fit are left out.
 */
export function encodeWords(
  rows: readonly LabeledText[],
  tokenizer: TextTokenizer,
  length: number,
  names: readonly string[],
  padToken: number,
): TuningBatch {
  const frame = frameOf(tokenizer);
  const around = tokenizer.encode("").ids;
  const [start, close] = [around.slice(0, frame.before), around.slice(around.length - frame.after)];
  const room = length - start.length - close.length;
  if (room < 1) throw new ModelError(`fineTuning: maxLength is ${length}; the tokens around a text alone are as many`);
  const numbers = new Map(names.map((name, i) => [name, i]));
  const encoded = rows.map(({ words = [], tags = [] }) => {
    const [ids, labels]: [number[], number[]] = [[], []];
    words.forEach((word, k) => {
      // The space is what stands before a word in a text.
      tokenizer.encode(` ${word}`, { specialTokens: false }).ids.forEach((id, at) => {
        ids.push(id);
        labels.push(at === 0 ? (numbers.get(tags[k]) as number) : ignoredLabel);
      });
    });
    const kept = (list: readonly number[]): number[] =>
      tokenizer.truncationSide === "right" ? list.slice(0, room) : list.slice(-room);
    const blank = (list: readonly number[]): number[] => list.map(() => ignoredLabel);
    return { ids: [...start, ...kept(ids), ...close], labels: [...blank(start), ...kept(labels), ...blank(close)] };
  });
  const shape = [rows.length, length];
  const table = (lists: number[][], fill: number): Tensor => tensor(padRows(lists, length, fill), { shape });
  return {
    inputIds: table(
      encoded.map(({ ids }) => ids),
      padToken,
    ),
    attentionMask: table(
      encoded.map(({ ids }) => ids.map(() => 1)),
      0,
    ),
    labels: table(
      encoded.map(({ labels }) => labels),
      ignoredLabel,
    ),
  };
}
