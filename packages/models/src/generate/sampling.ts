// The choice of the next token from its scores: penalties, filters and sampling, inside the program.
import { argmax, cumsum, type Key, oneHot, rand, softmax, sort, splitKey, type Tensor, topk } from "@weft/core";
import { ModelError } from "../config/index.js";

/** How tokens are chosen. @inline */
export interface SamplingOptions {
  /** 0 (default) chooses the most probable token; above 0, scores are divided by it and a token is drawn. */
  temperature?: number;
  /** Draws among the k most probable tokens. */
  topK?: number;
  /** Draws among the fewest most probable tokens whose probabilities add up to p. */
  topP?: number;
  /** Draws among tokens with at least this share of the largest probability. */
  minP?: number;
  /** Above 1, tokens that occurred already become less probable. */
  repetitionPenalty?: number;
}

/** Checked options; a filter without effect is null. */
export interface Sampling {
  temperature: number;
  topK: number | null;
  topP: number | null;
  minP: number | null;
  penalty: number | null;
}

function between(name: string, value: number | undefined, low: number, high: number): number | null {
  if (value === undefined) return null;
  if (typeof value !== "number" || !(value >= low && value <= high))
    throw new ModelError(`generate: ${name} is a number from ${low} to ${high}, got ${String(value)}`);
  return value;
}

/** Checks the options. */
export function checkTokenSampling(options: SamplingOptions): Sampling {
  const temperature = between("temperature", options.temperature, 0, 1e4) ?? 0;
  const topK = between("topK", options.topK, 1, 2 ** 24);
  if (topK !== null && !Number.isInteger(topK)) throw new ModelError(`generate: topK is a whole number, got ${topK}`);
  const topP = between("topP", options.topP, 0, 1);
  const minP = between("minP", options.minP, 0, 1);
  const penalty = between("repetitionPenalty", options.repetitionPenalty, 1e-3, 1e3);
  if (temperature === 0 && (topK !== null || topP !== null || minP !== null))
    throw new ModelError("generate: topK, topP and minP filter what is drawn; set temperature above 0");
  return {
    temperature,
    topK,
    topP: topP === 1 ? null : topP,
    minP: minP === 0 ? null : minP,
    penalty: penalty === 1 ? null : penalty,
  };
}

const closed = -1e30;

/** Scores [rows, vocabulary] in which filtered tokens cannot be drawn. */
function filtered(scores: Tensor, { topK, topP, minP }: Sampling): Tensor {
  let left = scores;
  const vocabulary = scores.shape[1];
  if (topK !== null && topK < vocabulary) {
    const least = topk(left, topK).values.index(":", `${topK - 1}:${topK}`);
    left = left.where(left.greaterEqual(least), closed);
  }
  if (topP !== null) {
    const ordered = sort(left, -1, { descending: true });
    const shares = softmax(ordered, -1);
    // A token stays if those before it do not reach p; the first one always stays.
    const before = cumsum(shares, -1).sub(shares);
    const stays = before.less(topP);
    const least = ordered.where(stays, Number.POSITIVE_INFINITY).min(-1, { keepDims: true });
    left = left.where(left.greaterEqual(least.minimum(ordered.index(":", "0:1"))), closed);
  }
  if (minP !== null) {
    const shares = softmax(left, -1);
    left = left.where(shares.greaterEqual(shares.max(-1, { keepDims: true }).mul(minP)), closed);
  }
  return left;
}

/**
 * Scores in float32, lower where a token occurred.
 *
 * @param logits - [rows, vocabulary]
 * @param seen - Tokens that occurred, bool [rows, vocabulary]; needed with a penalty.
 */
export function penalize(logits: Tensor, { penalty }: Sampling, seen: Tensor | null): Tensor {
  const scores = logits.cast("float32");
  if (penalty === null || seen === null) return scores;
  return scores.div(penalty).where(scores.greater(0), scores.mul(penalty)).where(seen, scores);
}

/**
 * Chooses one token per row.
 *
 * @param scores - [rows, vocabulary]
 * @param key - Each row draws with a key of its own, so that it does not depend on the other rows.
 */
export function chooseToken(scores: Tensor, sampling: Sampling, key: Key): Tensor {
  const { temperature } = sampling;
  if (temperature === 0) return argmax(scores, -1).cast("int32");
  // Divided by a tiny temperature, scores would overflow, or fall below those of filtered tokens; the largest one becomes 0.
  const shifted = temperature < 1e-3 ? scores.sub(scores.max(-1, { keepDims: true })) : scores;
  const left = filtered(shifted.div(Math.max(temperature, 1e-30)), sampling);
  const keys = splitKey(key, scores.shape[0]);
  const uniform = rand([scores.shape[1]], { key: keys });
  // The maximum of scores plus Gumbel noise is a draw from their softmax.
  const noise = uniform.add(1e-20).log().neg().add(1e-20).log().neg();
  return argmax(left.add(noise), -1).cast("int32");
}

/** The tokens that occurred, with one more per row. */
export const withToken = (seen: Tensor, token: Tensor): Tensor =>
  seen.logicalOr(oneHot(token, seen.shape[1], { dtype: "bool" }));
