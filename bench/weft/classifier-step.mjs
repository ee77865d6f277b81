// The training step of the text classifier at the two sizes of the GPU table, as a jitted function with its arguments.
// Weights are drawn by Weft itself; only their sizes matter to the time.
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";

export const sizes = {
  small: { vocabulary: 20000, width: 128, heads: 4, layers: 2, feedForward: 256, classes: 4, length: 128, batch: 32 },
  large: { vocabulary: 20000, width: 256, heads: 8, layers: 4, feedForward: 1024, classes: 4, length: 256, batch: 128 },
};

/** `precision`: "float32" and "tf32" say how products are computed, "bf16" keeps activations in bfloat16 too. */
export function classifierStep(size, { dropout = 0.1, seed = 0, precision = "float32" } = {}) {
  const { heads, batch, length, ...shape } = size;
  const params = nn.textClassifier.init({ heads, ...shape }, weft.key(seed));
  const optimizer = optim.adam({ learningRate: 3e-4 });
  const x = weft.randint(0, size.vocabulary, [batch, length], { seed: 1 }).realize();
  const y = weft.randint(0, size.classes, [batch], { seed: 2 }).realize();
  const forward = (p, ids, key) =>
    nn.textClassifier.apply(precision === "bf16" ? nn.castParameters(p, "bfloat16") : p, ids, { heads, dropout, key });
  const step = weft.jit(
    (params, state, x, y, key) =>
      weft.withPrecision(precision, () => {
        const [value, grads] = weft.valueAndGrad((p) => weft.crossEntropy(forward(p, x, key), y))(params);
        return [...optimizer.update(params, grads, state), value];
      }),
    { donate: [0, 1] },
  );
  return { step, params, state: optimizer.init(params), x, y };
}
