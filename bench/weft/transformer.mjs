// The transformer training step, for the row that times it and for the cold start.
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import * as data from "../lib/data.mjs";

export function transformerStep() {
  const { heads, batch, length, ...shape } = data.transformer;
  const fresh = nn.textClassifier.init({ heads, ...shape }, weft.key(0));
  const named = nn.stateDict(fresh);
  const dict = Object.fromEntries(
    Object.keys(named)
      .sort()
      .map((name, i) => [
        name,
        weft.tensor(data.transformerParameter(name, named[name].shape, i), { shape: named[name].shape }),
      ]),
  );
  const params = nn.loadStateDict(fresh, dict);
  const optimizer = optim.adam({ learningRate: 1e-3 });
  const { ids, labels } = data.transformerBatch();
  const step = weft.jit(
    (params, state, x, y) => {
      const loss = (p) => weft.crossEntropy(nn.textClassifier.apply(p, x, { heads }), y);
      const [value, grads] = weft.valueAndGrad(loss)(params);
      return [...optimizer.update(params, grads, state), value];
    },
    { donate: [0, 1] },
  );
  return {
    step,
    params,
    state: weft.treeMap((t) => weft.tensor(zeros(t), { shape: t.shape }), optimizer.init(params)),
    batch: [weft.tensor(ids, { shape: [batch, length] }), weft.tensor(labels, { shape: [batch] })],
  };
}

/** Zeros from the host: nothing needs to be compiled before the step itself. */
const zeros = (t) => (t.dtype === "int32" ? new Int32Array(t.size) : new Float32Array(t.size));
