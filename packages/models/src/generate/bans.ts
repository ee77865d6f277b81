// Tokens that may not be chosen next: those that would repeat a sequence of tokens or complete a listed one, listed tokens, and the
// end of a text that is too short. The history of a row is part of the state of the program, so that no token needs another one.
import { dynamicSlice, scatterAdd, type Tensor, tensor, where, zeros } from "@weft/core";
import { ModelError } from "../config/index.js";

/** Which tokens are excluded. @inline */
export interface BanOptions {
  /** No sequence of this number of tokens occurs twice in a text, prompt included; 0 (default): no limit. */
  noRepeatNgram?: number;
  /** Sequences of ids that are not generated: the last id of one is excluded where the others have just occurred. */
  badWords?: readonly (readonly number[])[];
  /** Ids that are not generated. */
  suppressTokens?: readonly number[];
  /** Number of new tokens before a text may end; 0 by default. */
  minNewTokens?: number;
}

/** Checked options. */
export interface Bans {
  /** 0 for no limit. */
  readonly ngram: number;
  /** Ids that are never chosen. */
  readonly tokens: readonly number[];
  /** Sequences of at least two ids. */
  readonly words: readonly (readonly number[])[];
  /** Ids that end a text; empty if texts may be of any length. */
  readonly ends: readonly number[];
  /** Tokens before the next one that decide about it. */
  readonly reach: number;
}

const mostWords = 4096;
const mostLength = 64;

/** Checks the options. `ends` are the ids that end a text: they are never bad words of their own. */
export function checkBans(options: BanOptions, ends: readonly number[], vocabulary: number): Bans {
  const { noRepeatNgram: ngram = 0, badWords = [], suppressTokens = [], minNewTokens = 0 } = options;
  const isId = (id: unknown): boolean => Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabulary;
  const shown = (value: unknown): string => String(JSON.stringify(value)).slice(0, 80);
  if (!Number.isInteger(ngram) || ngram < 0 || ngram > mostLength)
    throw new ModelError(`generate: noRepeatNgram is a whole number from 0 to ${mostLength}, got ${shown(ngram)}`);
  if (!Number.isInteger(minNewTokens) || minNewTokens < 0)
    throw new ModelError(`generate: minNewTokens is a whole number from 0 on, got ${shown(minNewTokens)}`);
  if (!Array.isArray(suppressTokens) || !suppressTokens.every(isId))
    throw new ModelError(
      `generate: suppressTokens is a list of ids from 0 to ${vocabulary - 1}, got ${shown(suppressTokens)}`,
    );
  const isWord = (word: unknown): boolean =>
    Array.isArray(word) && word.length > 0 && word.length <= mostLength && word.every(isId);
  if (!Array.isArray(badWords) || badWords.length > mostWords || !badWords.every(isWord))
    throw new ModelError(
      `generate: badWords is a list of at most ${mostWords} lists of 1 to ${mostLength} ids from 0 to ${vocabulary - 1}, ` +
        `got ${shown(badWords)}`,
    );
  const single = badWords.filter((word) => word.length === 1 && !ends.includes(word[0])).map(([id]) => id);
  const words = badWords.filter((word) => word.length > 1).map((word) => [...word]);
  return {
    ngram,
    tokens: [...new Set([...suppressTokens, ...single])].sort((a, b) => a - b),
    words,
    ends: minNewTokens > 0 ? [...ends] : [],
    reach: Math.max(ngram, ...words.map((word) => word.length), 1) - 1,
  };
}

/** Whether the choice depends on earlier tokens. */
export const needsHistory = ({ ngram, words }: Bans): boolean => ngram > 0 || words.length > 0;

/** What the choice depends on besides scores. */
interface BanState {
  /** Tokens of each row after `reach` empty places, -1 where there is none [rows, reach + slots]; absent without need. */
  history?: Tensor;
  /** Number of new tokens before each row may end [rows]; absent without a minimum. */
  missing?: Tensor;
}

/** Counts of ids per row [rows, vocabulary]; ids of -1 are left out. */
function countIds(ids: Tensor, vocabulary: number): Tensor {
  const [rows] = ids.shape;
  const places = where(ids.less(0), vocabulary, ids).cast("int32");
  const counts = scatterAdd(zeros([rows, vocabulary + 1]), places, zeros(ids.shape).add(1), -1);
  return counts.index(":", `:${vocabulary}`);
}

/** Ids of -1 except where a condition holds. */
const onlyWhere = (condition: Tensor, ids: Tensor): Tensor => where(condition, ids, -1).cast("int32");

/** Listed tokens as a mask [1, vocabulary]. */
function maskOf(tokens: readonly number[], vocabulary: number): Tensor {
  const mask = new Uint8Array(vocabulary);
  for (const id of tokens) mask[id] = 1;
  return tensor(mask, { shape: [1, vocabulary] }).notEqual(0);
}

/** The tokens that complete a sequence of `ngram` tokens that occurred, -1 elsewhere. */
function repeated(history: Tensor, last: Tensor, ngram: number): Tensor {
  const width = history.shape[1];
  let found = history.index(":", `${ngram - 1}:`);
  for (let k = 0; k < ngram - 1; k++) {
    const own = last.index(":", `${k}:${k + 1}`);
    const same = history
      .index(":", `${k}:${width - ngram + 1 + k}`)
      .equal(own)
      .logicalAnd(own.greaterEqual(0));
    found = onlyWhere(same, found);
  }
  return found;
}

/** The last ids of the words of one length whose other ids have just occurred, -1 elsewhere. */
function completed(words: readonly (readonly number[])[], last: Tensor): Tensor {
  const [length, rows] = [words[0].length, last.shape[0]];
  let found = tensor(
    Int32Array.from(words, (word) => word[length - 1]),
    { shape: [1, words.length] },
  ).expand([rows, words.length]);
  for (let k = 0; k < length - 1; k++) {
    const own = tensor(
      Int32Array.from(words, (word) => word[k]),
      { shape: [1, words.length] },
    );
    found = onlyWhere(last.index(":", `${k}:${k + 1}`).equal(own), found);
  }
  return found;
}

/**
 * Scores in which excluded tokens are -Infinity.
 *
 * @param scores - [rows, vocabulary]
 * @param slot - The slot of the token that is chosen.
 */
export function excludeTokens(scores: Tensor, bans: Bans, { history, missing }: BanState, slot: Tensor): Tensor {
  const [rows, vocabulary] = scores.shape;
  const excluded: Tensor[] = [];
  if (bans.tokens.length > 0) excluded.push(maskOf(bans.tokens, vocabulary));
  if (missing !== undefined) excluded.push(maskOf(bans.ends, vocabulary).logicalAnd(missing.greater(0).unsqueeze(1)));
  if (history !== undefined) {
    /** The last tokens; the place of the token that is chosen is `reach` after its slot. */
    const last = (count: number): Tensor => dynamicSlice(history, [0, slot.add(bans.reach - count)], [rows, count]);
    const { ngram, words } = bans;
    const found: Tensor[] = [];
    if (ngram > 0) found.push(repeated(history, ngram === 1 ? history : last(ngram - 1), ngram));
    for (const length of new Set(words.map((word) => word.length)))
      found.push(
        completed(
          words.filter((word) => word.length === length),
          last(length - 1),
        ),
      );
    for (const ids of found) excluded.push(countIds(ids, vocabulary).greater(0));
  }
  return excluded.reduce((left, mask) => where(mask, Number.NEGATIVE_INFINITY, left), scores);
}
