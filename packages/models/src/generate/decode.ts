// Token generation: prompts and options are checked, programs run ahead of the host where they can, and tokens are read in order.
import { setImmediate } from "node:timers/promises";
import { full, key, session, type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import type { Params } from "../architectures/index.js";
import { ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";
import { padRows } from "../text/index.js";
import { type BanOptions, checkBans } from "./bans.js";
import { PromptLookup } from "./lookup.js";
import { firstLeaf, notANumber, positionLimit, programs, roundUp, type State } from "./programs.js";
import { checkTokenSampling, type SamplingOptions } from "./sampling.js";

/** Options of {@link generateTokens}. @inline */
export interface TokenOptions extends SamplingOptions, BanOptions {
  /** Maximum number of new tokens; 50 by default. */
  maxNewTokens?: number;
  /** Ids that end a sequence; those of the configuration by default. */
  eosTokens?: readonly number[];
  /**
   * Number of tokens that are proposed from repetitions in the text and checked by one pass (prompt lookup decoding); 0 by default. The
   * tokens are those of one pass per token. For one prompt, whose most probable tokens are chosen.
   */
  promptLookup?: number;
  /** Seed of the draws. */
  seed?: number;
  /** Ends the generation. */
  signal?: AbortSignal;
  /** Generates although generation_config.json of the model has options that are not supported, without them. */
  ignoreUnsupported?: boolean;
}

/** The options with what generation_config.json says where they say nothing. */
function withDefaults(model: Model, options: TokenOptions): TokenOptions {
  const { generation } = model;
  if (generation === undefined) return options;
  if (generation.unsupported.length > 0 && options.ignoreUnsupported !== true)
    throw new ModelError(
      `generate: generation_config.json of the model has ${generation.unsupported.join(", ")}, which is not supported; ` +
        "generate without it by ignoreUnsupported: true",
    );
  return { ...generation.choice, ...options };
}

/** Names of {@link TokenOptions}. */
export const tokenNames = [
  ...(["temperature", "topK", "topP", "minP", "repetitionPenalty", "ignoreUnsupported"] as const),
  ...(["noRepeatNgram", "badWords", "suppressTokens", "minNewTokens"] as const),
  ...(["promptLookup", "maxNewTokens", "eosTokens", "seed", "signal"] as const),
];

/** Ids that end a sequence: those of generation_config.json, or else of the configuration. */
export function eosOf(model: Model): number[] {
  const given = model.generation?.eosTokens ?? model.json["eos_token_id"];
  const list = Array.isArray(given) ? given : [given];
  return list.filter((id): id is number => Number.isInteger(id));
}

/** Throws unless ids that end a sequence are a list of ids. */
export function checkEos(given: readonly number[]): void {
  if (!Array.isArray(given) || !given.every(Number.isInteger))
    throw new ModelError(`generate: eosTokens is a list of ids, got ${String(JSON.stringify(given)).slice(0, 80)}`);
}

/** Steps that are started before the token of the first of them is read: the device computes while the host reads. */
const ahead = 4;

function checkPrompts(model: Model, prompts: readonly (readonly number[])[]): number {
  const { vocabulary } = model.config;
  const maxPositions = positionLimit(model);
  if (!Array.isArray(prompts) || prompts.some((prompt) => typeof prompt !== "object"))
    throw new ModelError("generate: prompts is a list with a list of token ids for each prompt, such as [[5, 6, 7]]");
  if (prompts.length === 0) throw new ModelError("generate: prompts is empty; give at least one list of token ids");
  prompts.forEach((prompt, i) => {
    if (prompt.length === 0) {
      const { bos_token_id: bos } = model.json;
      const remedy = typeof bos === "number" ? `; begin it with the token ${bos} (bos_token_id)` : "";
      throw new ModelError(`generate: prompt ${i} has no token${remedy}`);
    }
    const wrong = prompt.find((id: number) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (wrong !== undefined)
      throw new ModelError(`generate: prompt ${i} has the id ${wrong}; the model has ids from 0 to ${vocabulary - 1}`);
  });
  const longest = Math.max(...prompts.map((p) => p.length));
  if (longest >= maxPositions)
    throw new ModelError(`generate: a prompt of ${longest} tokens leaves no position of ${maxPositions}; shorten it`);
  return longest;
}

const mostProposed = 64;

/** Number of tokens that are proposed at once. */
function proposedAtOnce(model: Model, rows: number, { promptLookup: count = 0, ...options }: TokenOptions): number {
  if (!Number.isInteger(count) || count < 0 || count > mostProposed)
    throw new ModelError(`generate: promptLookup is a whole number from 0 to ${mostProposed}, got ${String(count)}`);
  if (count === 0) return 0;
  if (rows > 1) throw new ModelError(`generate: promptLookup is for one prompt, got ${rows}`);
  const { temperature = 0, repetitionPenalty = 1, noRepeatNgram = 0, minNewTokens = 0 } = options;
  const { badWords = [], suppressTokens = [] } = options;
  const others = {
    temperature,
    noRepeatNgram,
    minNewTokens,
    badWords: badWords.length,
    suppressTokens: suppressTokens.length,
  };
  const set = [
    ...Object.entries(others).filter(([, value]) => value !== 0),
    ...(repetitionPenalty === 1 ? [] : [["repetitionPenalty"]]),
  ];
  if (set.length > 0)
    throw new ModelError(
      `generate: promptLookup chooses the most probable token and cannot be combined with ${set.map(([name]) => name).join(", ")}`,
    );
  // Rotations that depend on the length of the text differ within one pass.
  return model.config.cache?.positions === undefined ? count : 0;
}

/**
 * Generates tokens for several prompts at once, of any lengths. Yields one list per step: the next token of every row, null for
 * rows that have ended.
 *
 * @param prompts - Token ids of each prompt.
 */
export async function* generateTokens(
  model: Model,
  params: Params,
  prompts: readonly (readonly number[])[],
  options: TokenOptions = {},
): AsyncGenerator<(number | null)[], void, void> {
  checkOptions("generateTokens", options, tokenNames);
  const { maxNewTokens = 50, seed = 0, eosTokens = eosOf(model), signal } = options;
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1)
    throw new ModelError(`generate: maxNewTokens is a positive whole number, got ${maxNewTokens}`);
  checkEos(eosTokens);
  const chosen = withDefaults(model, options);
  const rules = { sampling: checkTokenSampling(chosen), bans: checkBans(chosen, eosTokens, model.config.vocabulary) };
  const { prompt, next, check } = programs(model);
  const longest = checkPrompts(model, prompts);
  if ((options.minNewTokens ?? 0) > maxNewTokens)
    throw new ModelError(`generate: minNewTokens is ${options.minNewTokens}, more than maxNewTokens, ${maxNewTokens}`);
  // Every row has the positions of the model for itself, whatever the lengths of the others.
  const room = prompts.map((p) => Math.min(maxNewTokens, positionLimit(model) - p.length));
  const count = Math.max(...room);
  const length = Math.min(roundUp(longest), positionLimit(model));
  const proposed = proposedAtOnce(model, prompts.length, chosen);
  const lookup = proposed === 0 ? null : new PromptLookup(prompts[0], proposed);
  const slots = roundUp(length + count + proposed);
  const ids = tensor(padRows(prompts, length, 0, "left"), { shape: [prompts.length, length] });
  const pads = tensor(Int32Array.from(prompts, (p) => length - p.length));
  const ends = new Set(eosTokens);
  const done = prompts.map(() => false);
  const pending: { guess: number[] | null; tokens: Promise<ArrayLike<number>> }[] = [];
  const start = key(seed);
  const { minNewTokens = 0 } = chosen;
  const missing = minNewTokens > 0 ? full([prompts.length], minNewTokens, { dtype: "int32" }) : undefined;
  const inputs = { ids, pads, ...(missing && { missing }) };
  let step = prompt(params, inputs, start, slots, rules);
  const read = (emitted: Tensor): Promise<ArrayLike<number>> =>
    emitted.data().then((values) => {
      emitted.dispose();
      return values as ArrayLike<number>;
    });
  const send = (guess: number[] | null): void => {
    pending.push({ guess, tokens: read(step.emitted) });
  };
  let made = 1;
  const advance = (): void => {
    const guess = lookup?.propose() ?? null;
    if (guess === null) step = next(params, step.state, rules);
    else {
      const given = tensor(Int32Array.from(guess), { shape: [1, guess.length] });
      step = check(params, step.state, given);
      given.dispose();
    }
    send(guess);
    made++;
  };
  send(null);
  // What is proposed depends on the tokens that were read.
  const depth = session().device.traits.usesHostCores || lookup !== null ? 1 : ahead;
  let paused = performance.now();
  try {
    for (let first = pending.shift(); first !== undefined; first = pending.shift()) {
      while (made < count && pending.length + 1 < depth && signal?.aborted !== true) advance();
      const values = await first.tokens;
      const steps =
        first.guess === null || lookup === null ? [values] : lookup.accept(first.guess, values).map((t) => [t]);
      for (const tokens of steps) {
        if (signal?.aborted) return;
        lookup?.add(Number(tokens[0]));
        yield prompts.map((_, row) => {
          if (done[row]) return null;
          const token = Number(tokens[row]);
          if (token === notANumber)
            throw new ModelError(
              `generate: the scores of prompt ${row} are not numbers (NaN); are weights of the model damaged${firstLeaf(params).dtype === "float16" ? ", or do values overflow in float16? Load it in bfloat16" : "?"}`,
            );
          done[row] = ends.has(token) || --room[row] === 0;
          return token;
        });
        if (done.every(Boolean)) return;
      }
      // Devices that compute on this thread resolve at once: without a pause no signal and no timer would run.
      if (performance.now() - paused > 5) {
        await setImmediate();
        paused = performance.now();
      }
      // With a depth of 1 the next step starts only now.
      if (pending.length === 0 && made < count && !signal?.aborted) advance();
    }
  } finally {
    await Promise.allSettled(pending.map(({ tokens }) => tokens));
    for (const tensor of [...Object.values(inputs), start, ...stateTensors(step.state)]) tensor.dispose();
  }
}

const stateTensors = ({ cache, ...rest }: State): Tensor[] => [
  ...cache.keys,
  ...cache.values,
  ...Object.values(rest).filter((t) => t !== undefined),
];
