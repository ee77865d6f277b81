// Training steps of the text classifier: with the inputs that all contestants share, and at the two sizes of the GPU
// table.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import { hashedIntegers, transformerParameter } from "./inputs.js";

export interface ClassifierSize {
  vocabulary: number;
  width: number;
  heads: number;
  layers: number;
  feedForward: number;
  classes: number;
  length: number;
  batch: number;
}

export const classifierSizes: Record<"small" | "large" | "tiny", ClassifierSize> = {
  small: { vocabulary: 20000, width: 128, heads: 4, layers: 2, feedForward: 256, classes: 4, length: 128, batch: 32 },
  large: { vocabulary: 20000, width: 256, heads: 8, layers: 4, feedForward: 1024, classes: 4, length: 256, batch: 128 },
  tiny: { vocabulary: 50, width: 16, heads: 2, layers: 1, feedForward: 32, classes: 4, length: 8, batch: 4 },
};

type Params = ReturnType<typeof nn.textClassifier.init>;
type Optimizer = ReturnType<typeof optim.adam>;
type State = ReturnType<Optimizer["init"]>;

/** Zeros from the host, so that nothing is compiled before the step itself. */
const hostZeros = (t: Tensor): Tensor =>
  weft.tensor(t.dtype === "int32" ? new Int32Array(t.size) : new Float32Array(t.size), { shape: t.shape });

/** The step whose inputs and parameters all contestants share; without dropout. */
export function sharedClassifierStep({ heads, batch, length, ...shape }: ClassifierSize) {
  const fresh = nn.textClassifier.init({ heads, ...shape }, weft.key(0));
  const named = nn.stateDict(fresh);
  const dict = Object.fromEntries(
    Object.keys(named)
      .sort()
      .map((name, i) => {
        const dims = named[name].shape;
        return [name, weft.tensor(transformerParameter(name, dims, i), { shape: dims })];
      }),
  );
  const params = nn.loadStateDict(fresh, dict);
  const optimizer = optim.adam({ learningRate: 1e-3 });
  const step = weft.jit(
    (p: Params, state: State, x: Tensor, y: Tensor) => {
      const loss = (q: Params): Tensor => weft.crossEntropy(nn.textClassifier.apply(q, x, { heads }), y);
      const [value, grads] = weft.valueAndGrad(loss)(p);
      const [next, after] = optimizer.update(p, grads as Params, state);
      return [next, after, value] as [Params, State, Tensor];
    },
    { donate: [0, 1] },
  );
  const ids = hashedIntegers(batch * length, 3, shape.vocabulary);
  const labels = hashedIntegers(batch, 4, shape.classes);
  return {
    step,
    params,
    state: weft.treeMap(hostZeros, optimizer.init(params)) as State,
    batch: [weft.tensor(ids, { shape: [batch, length] }), weft.tensor(labels, { shape: [batch] })] as [Tensor, Tensor],
  };
}

/** The step of the GPU table, with dropout; "bf16" keeps activations in bfloat16, "tf32" only rounds products. */
export function classifierStep(size: ClassifierSize, precision: "float32" | "tf32" | "bf16") {
  const { heads, batch, length, ...shape } = size;
  const params = nn.textClassifier.init({ heads, ...shape }, weft.key(0));
  const optimizer = optim.adam({ learningRate: 3e-4 });
  const x = weft.randint(0, size.vocabulary, [batch, length], { seed: 1 }).realize();
  const y = weft.randint(0, size.classes, [batch], { seed: 2 }).realize();
  const forward = (p: Params, ids: Tensor, key: Tensor): Tensor =>
    nn.textClassifier.apply(precision === "bf16" ? nn.castParameters(p, "bfloat16") : p, ids, {
      heads,
      dropout: 0.1,
      key,
    });
  const step = weft.jit(
    (p: Params, state: State, ids: Tensor, labels: Tensor, key: Tensor) =>
      weft.withPrecision(precision, () => {
        const [value, grads] = weft.valueAndGrad((q: Params) => weft.crossEntropy(forward(q, ids, key), labels))(p);
        const [next, after] = optimizer.update(p, grads as Params, state);
        return [next, after, value] as [Params, State, Tensor];
      }),
    { donate: [0, 1] },
  );
  return { step, params, state: optimizer.init(params), x, y };
}
