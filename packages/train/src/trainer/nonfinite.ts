// Diagnoses a non-finite loss: recomputes the step value by value and names the first non-finite tensor. The state is
// that before the step, because such a step changes nothing.

import { type Tensor, valueAndGrad } from "@weft/core/internal/tensor";
import * as nn from "@weft/core/nn";
import { unpackBatch } from "./model.js";

const bad = (t: Tensor): number => t.isFinite().logicalNot().cast("int32").sum().itemSync() as number;

/** Describes the first tensor with NaN or infinity: parameters, then activations in order, then gradients. */
export function firstNonFiniteTensor(
  loss: (params: nn.TextClassifier) => Tensor,
  params: nn.TextClassifier,
  packed: Tensor,
  heads: number,
): string {
  const batch = unpackBatch(packed);
  return firstNonFinite(loss, params, () => firstNonFiniteActivation(params, batch.ids, batch.mask, heads));
}

/** The same for any model, whose activations are not known unless `inside` looks at them. */
export function firstNonFinite<P>(
  loss: (params: P) => Tensor,
  params: P,
  inside: () => string | null = () => null,
): string {
  for (const [name, t] of Object.entries(nn.stateDict(params))) {
    const count = bad(t);
    if (count > 0) return say(`parameter ${name}`, t, count);
  }
  const found = inside();
  if (found !== null) return found;
  const [value, grads] = valueAndGrad(loss)(params);
  if (bad(value) > 0) return say("the loss itself", value, 1);
  for (const [name, t] of Object.entries(nn.stateDict(grads)).reverse()) {
    const count = bad(t);
    if (count > 0) return say(`gradient of ${name}`, t, count);
  }
  return "every tensor of this rank is finite when the step is computed again; the sum of the gradients overflowed, or another rank has the bad one";
}

function firstNonFiniteActivation(params: nn.TextClassifier, ids: Tensor, mask: Tensor, heads: number): string | null {
  const table = params.embedding.weight;
  const length = ids.shape[1];
  const where =
    params.positions?.weight.index(`0:${length}`) ?? nn.positions(length, table.shape[1], { dtype: table.dtype });
  let state = nn.embedding.apply(params.embedding, ids);
  let count = bad(state);
  if (count > 0) return say("the embeddings", state, count);
  state = state.add(where);
  const looked = mask.unsqueeze(-2).unsqueeze(-3);
  for (const [i, layer] of params.encoder.layers.entries()) {
    state = nn.encoderLayer.apply(layer, state, { heads, mask: looked });
    count = bad(state);
    if (count > 0) return say(`the result of encoder layer ${i}`, state, count);
  }
  return null;
}

const say = (what: string, t: Tensor, count: number): string =>
  `the first bad tensor is ${what} (${t.dtype} [${t.shape.join(", ")}], ${count} of ${t.size} values are NaN or infinite)`;
