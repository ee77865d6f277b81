// Token generation: one program for the prompts and one per token, both for fixed shapes. Rows are padded at the left, so that all
// rows write to the same slot of the cache; lengths are rounded up, so that other prompts need no other program.

import { setImmediate } from "node:timers/promises";
import {
  arange,
  argmax,
  concat,
  cumprod,
  dynamicUpdateSlice,
  full,
  gather,
  type Jitted,
  jit,
  type Key,
  key,
  oneHot,
  session,
  splitKey,
  type Tensor,
  tensor,
  where,
  zeros,
} from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import type { KeyValueCache, Params } from "../architectures/index.js";
import { ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";
import { padRows } from "../text/index.js";
import { type BanOptions, type Bans, checkBans, excludeTokens, needsHistory } from "./bans.js";
import { PromptLookup } from "./lookup.js";
import {
  checkTokenSampling,
  chooseToken,
  penalize,
  type Sampling,
  type SamplingOptions,
  withToken,
} from "./sampling.js";

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

/** What a program hands to the next one. Its memory is reused. */
interface State {
  cache: KeyValueCache;
  /** The token to be read next [rows]. */
  token: Tensor;
  /** The slot that it is written to. */
  slot: Tensor;
  /** Number of slots of padding per row [rows]. */
  pads: Tensor;
  /** Tokens that occurred [rows, vocabulary]; absent without a penalty. */
  seen?: Tensor;
  /** Tokens of each row and slot, see {@link excludeTokens}; absent if no choice depends on them. */
  history?: Tensor;
  /** Number of new tokens before each row may end [rows]; absent without a minimum. */
  missing?: Tensor;
  key: Key;
}

/** How tokens are chosen; part of the programs. */
interface Rules {
  sampling: Sampling;
  bans: Bans;
}

/** The chosen tokens in memory of their own, and the state of the next step. */
type Step = { emitted: Tensor; state: State };

/** What the first program reads. */
interface Prompts {
  /** [rows, length] */
  ids: Tensor;
  /** Number of slots of padding per row [rows]. */
  pads: Tensor;
  /** See {@link State.missing}. */
  missing?: Tensor;
}

interface Programs {
  prompt: Jitted<(params: Params, prompts: Prompts, key: Key, slots: number, rules: Rules) => Step>;
  next: Jitted<(params: Params, state: State, rules: Rules) => Step>;
  check: Jitted<(params: Params, state: State, proposed: Tensor) => Step>;
}

/** The next size of 16, 24, 32, 48, 64, 96, 128, ...: at most half of it is unused, and there are few of them. */
export function roundUp(count: number): number {
  let size = 16;
  while (size < count) size = Number.isInteger(Math.log2(size)) ? size * 1.5 : (size / 3) * 4;
  return size;
}

/** Positions that a generated text may have. */
const positionsOf = ({ config }: Model): number => config.cache?.positions ?? config.maxPositions;

/** Positions of slots. Rows that have ended may run beyond the last one while others go on. */
const positionsFrom = (slots: Tensor, pads: Tensor, most: number): Tensor =>
  slots
    .sub(pads.unsqueeze(1))
    .maximum(0)
    .minimum(most - 1)
    .cast("int32");

/** What is emitted for a token whose score is NaN. */
const notANumber = -1;

/** Tokens as the host reads them. A score that is not a number compares with nothing: the choice would be any token. */
function emit(tokens: Tensor, logits: Tensor): Tensor {
  const scores = gather(logits, tokens.unsqueeze(-1), -1).squeeze(-1);
  return tokens.where(scores.isNaN().logicalNot(), notANumber).cast("int32");
}

function choose(logits: Tensor, state: Omit<State, "token" | "slot">, slot: Tensor, { sampling, bans }: Rules): Step {
  const [rest, mine] = splitKey(state.key, 2);
  const scores = excludeTokens(penalize(logits, sampling, state.seen ?? null), bans, state, slot);
  const token = chooseToken(scores, sampling, mine);
  const { seen, history, missing } = state;
  const next = {
    ...(seen && { seen: withToken(seen, token) }),
    ...(history && { history: dynamicUpdateSlice(history, token.unsqueeze(1), [0, slot.add(bans.reach)]) }),
    ...(missing && { missing: missing.sub(1).maximum(0).cast("int32") }),
  };
  return { emitted: emit(token, logits), state: { ...state, ...next, token: token.add(0), slot, key: rest } };
}

/** The history of prompts: their tokens behind `reach` empty places, and room for what follows. */
function historyOf(ids: Tensor, real: Tensor, slots: number, reach: number): Tensor {
  const [rows, length] = ids.shape;
  const empty = (width: number): Tensor[] => (width === 0 ? [] : [full([rows, width], -1, { dtype: "int32" })]);
  return concat([...empty(reach), where(real, ids, -1).cast("int32"), ...empty(slots - length)], 1);
}

function makePrograms(model: Model): Programs {
  const { cache: shape, vocabulary } = model.config;
  const maxPositions = positionsOf(model);
  if (shape === null || model.task !== "causal-lm")
    throw new ModelError(
      `generate: needs a causal language model, got ${model.type} with the task ${model.task}; load it with task: "causal-lm"`,
    );
  const prompt = (params: Params, given: Prompts, own: Key, slots: number, rules: Rules): Step => {
    const { ids, pads, missing } = given;
    const { sampling, bans } = rules;
    const [rows, length] = ids.shape;
    const index = arange(0, length, 1, { dtype: "int32" });
    const real = index.greaterEqual(pads.unsqueeze(1));
    const size = [rows, shape.heads, slots, shape.size];
    const dtype = firstLeaf(params).dtype;
    const layers = Array.from({ length: model.config.layers });
    const outputs = model.apply(
      params,
      { inputIds: ids, attentionMask: real, positionIds: positionsFrom(index, pads, maxPositions) },
      {
        lastOnly: true,
        cached: {
          cache: { keys: layers.map(() => zeros(size, { dtype })), values: layers.map(() => zeros(size, { dtype })) },
          slot: 0,
          visible: real,
        },
      },
    );
    const seen =
      sampling.penalty === null
        ? {}
        : { seen: oneHot(ids, vocabulary, { dtype: "bool" }).logicalAnd(real.unsqueeze(-1)).any(1) };
    const more = {
      ...seen,
      ...(needsHistory(bans) && { history: historyOf(ids, real, slots, bans.reach) }),
      ...(missing && { missing }),
    };
    const slot = tensor(length, { dtype: "int32" });
    const state = { cache: outputs.cache!, pads: pads.add(0), key: own, ...more };
    return choose(lastLogits(outputs.logits), state, slot, rules);
  };
  const next = (params: Params, state: State, rules: Rules): Step => {
    const { token, slot, pads, cache, ...rest } = state;
    const index = arange(0, cache.keys[0].shape[2], 1, { dtype: "int32" });
    const visible = index.greaterEqual(pads.unsqueeze(1)).logicalAnd(index.lessEqual(slot));
    const outputs = model.apply(
      params,
      { inputIds: token.unsqueeze(1), positionIds: positionsFrom(slot.reshape([1, 1]), pads, maxPositions) },
      { cached: { cache, slot, visible } },
    );
    const kept = { ...rest, cache: outputs.cache!, pads: pads.add(0) };
    return choose(lastLogits(outputs.logits), kept, slot.add(1).cast("int32"), rules);
  };
  /** Reads the last token of one row and proposed ones [1, count]; those after the first wrong one have no effect. */
  const check = (params: Params, state: State, proposed: Tensor): Step => {
    const { token, slot, pads, cache, ...rest } = state;
    const inputIds = concat([token.unsqueeze(1), proposed], 1);
    const [, count] = inputIds.shape;
    const slots = slot.add(arange(0, count, 1, { dtype: "int32" })).reshape([1, count]);
    const index = arange(0, cache.keys[0].shape[2], 1, { dtype: "int32" });
    const visible = index.greaterEqual(pads.unsqueeze(1));
    const positionIds = positionsFrom(slots, pads, maxPositions);
    const outputs = model.apply(params, { inputIds, positionIds }, { cached: { cache, slot, visible } });
    const logits = outputs.logits as Tensor;
    const chosen = argmax(logits.cast("float32"), -1).cast("int32");
    const isRight = proposed.equal(chosen.index(":", `:${count - 1}`)).cast("int32");
    const right = cumprod(isRight, -1).sum(-1).cast("int32");
    return {
      emitted: emit(chosen, logits).reshape([count]),
      state: {
        ...rest,
        cache: outputs.cache!,
        pads: pads.add(0),
        token: gather(chosen, right.unsqueeze(1), 1).squeeze(1),
        slot: slot.add(right.squeeze(0)).add(1).cast("int32"),
      },
    };
  };
  return { prompt: jit(prompt), next: jit(next, { donate: [1] }), check: jit(check, { donate: [1] }) };
}

const lastLogits = (logits: Tensor | undefined): Tensor => (logits as Tensor).index(":", 0);

function firstLeaf(params: Params): Tensor {
  let at: unknown = params;
  while (typeof at === "object" && at !== null && !("dtype" in at)) at = Object.values(at)[0];
  return at as Tensor;
}

const programsOf = new WeakMap<object, Programs>();

function programs(model: Model): Programs {
  // Copies of a model (with other parameters) share the function apply.
  let found = programsOf.get(model.apply);
  if (found === undefined) programsOf.set(model.apply, (found = makePrograms(model)));
  return found;
}

/** Number of compiled programs of a model's generation on the current device. */
export const generationPrograms = (model: Model): number => {
  const { prompt, next, check } = programs(model);
  return prompt.programs + next.programs + check.programs;
};

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
  const maxPositions = positionsOf(model);
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
  const room = prompts.map((p) => Math.min(maxNewTokens, positionsOf(model) - p.length));
  const count = Math.max(...room);
  const length = Math.min(roundUp(longest), positionsOf(model));
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
