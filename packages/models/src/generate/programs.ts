// The programs of token generation: one for the prompts, one per token, and one that checks proposed tokens, all for fixed shapes. Rows
// are padded at the left, so that all rows write to the same slot of the cache; lengths are rounded up, so that other prompts need no
// other program.
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
  oneHot,
  splitKey,
  type Tensor,
  tensor,
  where,
  zeros,
} from "@weft/core";
import type { KeyValueCache, Params } from "../architectures/index.js";
import { ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";
import { type Bans, excludeTokens, needsHistory } from "./bans.js";
import { chooseToken, penalize, type Sampling, withToken } from "./sampling.js";

/** What a program hands to the next one. Its memory is reused. */
export interface State {
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
export const positionLimit = ({ config }: Model): number => config.cache?.positions ?? config.maxPositions;

/** Positions of slots. Rows that have ended may run beyond the last one while others go on. */
const positionsFrom = (slots: Tensor, pads: Tensor, most: number): Tensor =>
  slots
    .sub(pads.unsqueeze(1))
    .maximum(0)
    .minimum(most - 1)
    .cast("int32");

/** What is emitted for a token whose score is NaN. */
export const notANumber = -1;

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
  const maxPositions = positionLimit(model);
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

/** The first parameter of a tree. */
export function firstLeaf(params: Params): Tensor {
  let at: unknown = params;
  while (typeof at === "object" && at !== null && !("dtype" in at)) at = Object.values(at)[0];
  return at as Tensor;
}

const programsOf = new WeakMap<object, Programs>();

/** The programs of a model, made once. */
export function programs(model: Model): Programs {
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
