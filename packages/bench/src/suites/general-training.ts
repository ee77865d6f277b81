// Training steps as rows of the general suite: parameters from the same numbers as those of the peers (peers/torch_common.py), a step of an
// optimizer, and the comparison of the first losses.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import { type GeneralRow, numbers, type Sizer } from "./general-row.js";

export type Weights = Record<string, Tensor>;

export type Shapes = Record<string, readonly number[]>;

/** Parameters of a given range; gains of norms are 1 and biases 0. */
export function parameters(shapes: Shapes, range = 0.035): Weights {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape], i) => {
      const fill = name.endsWith("gain") ? 1 : name.endsWith("bias") ? 0 : null;
      if (fill !== null) return [name, weft.full([...shape], fill).realize()];
      return [
        name,
        weft
          .jit((x: Tensor) => x.mul(range))(numbers(shape, i + 1))
          .realize(),
      ];
    }),
  );
}

/**
 * A training step, with AdamW by default; the numbers to compare are the losses of the first three steps. The rate is one at which losses fall: at
 * ten times this rate the second loss of GPT-2 rises by half, and rounding decides the third.
 */
export function trainingRow(
  params: Weights,
  loss: (p: Weights) => Tensor,
  precision: "bf16" | "tf32" | "float32",
  optimizer: optim.Optimizer<unknown> = optim.adamW({ learningRate: 1e-5 }),
) {
  const cast = (p: Weights): Weights => (precision === "bf16" ? nn.castParameters(p, "bfloat16") : p);
  const step = weft.jit(
    (p: Weights, s: unknown) =>
      weft.withPrecision(precision, () => {
        const [value, grads] = weft.valueAndGrad((q: Weights) => loss(cast(q)))(p);
        return [...optimizer.update(p, grads as Weights, s), value] as const;
      }),
    { donate: [0, 1] },
  );
  let [p, s] = [params, optimizer.init(params)];
  let value: Tensor | null = null;
  const call = (): void => {
    value?.dispose();
    [p, s, value] = step(p, s as never) as [Weights, unknown, Tensor];
  };
  const check = [1, 2, 3].map(() => {
    call();
    return Number(value!.dataSync()[0]);
  });
  const release = (): void => {
    for (const leaf of weft.treeLeaves([p, s, value] as never)) (leaf as Tensor).dispose();
  };
  return { check, call, finish: () => weft.session().device.synchronize(), release };
}

export const closeLosses =
  (tolerance: number): GeneralRow["check"] =>
  ({ weft: own, ...peers }) => {
    for (const [name, other] of Object.entries(peers))
      for (let i = 0; i < own.length; i++)
        if (!(Math.abs(own[i] - other[i]) <= tolerance * Math.max(1, Math.abs(other[i]))))
          return `loss ${i + 1} is ${own[i]}, ${name} has ${other[i]}`;
    return null;
  };

/** Layers that several models have; a linear layer or convolution without "bias" among the parameters has none. */
export const layers = {
  linear: (h: Tensor, p: Weights, name: string): Tensor => {
    const to = h.matmul(p[name].transpose());
    return p[`${name}.bias`] === undefined ? to : to.add(p[`${name}.bias`]);
  },
  norm: (h: Tensor, p: Weights, name: string): Tensor =>
    weft.layerNorm(h).mul(p[`${name}.gain`]).add(p[`${name}.bias`]),
  rms: (h: Tensor, p: Weights, name: string): Tensor => {
    const wide = h.cast("float32");
    return wide
      .mul(wide.square().mean(-1, { keepDims: true }).add(1e-6).rsqrt())
      .cast(h.dtype)
      .mul(p[`${name}.gain`]);
  },
};

/** Shapes of a layer with a bias, and of a norm. */
export const shapesOf = {
  layer: (name: string, shape: readonly number[], to = shape[0]): Shapes => ({ [name]: shape, [`${name}.bias`]: [to] }),
  norm: (name: string, width: number): Shapes => ({ [`${name}.gain`]: [width], [`${name}.bias`]: [width] }),
};

/** A number that shrinks with the sizes of a run though it is below the floor, such as a batch of images. */
export const few = (s: Sizer, n: number): number => Math.max(1, Math.floor(s(64 * n) / 64));

interface Net {
  shapes: Shapes;
  loss(p: Weights): Tensor;
  precision: "bf16" | "tf32" | "float32";
  /** Range of the parameters. */
  range?: number;
  /** The rate of SGD; AdamW by default. */
  sgd?: number;
}

interface NetOptions {
  tolerance?: number;
  peers?: GeneralRow["peers"];
}

/** The training step of a model as a row. */
export function netRow(id: string, title: string, options: NetOptions, make: () => Net): GeneralRow {
  const { tolerance = 0.01, peers = { "torch.compile": 1, torch: null } } = options;
  return {
    id,
    title,
    peers,
    check: closeLosses(tolerance),
    make() {
      const { shapes, loss, precision, range, sgd } = make();
      const optimizer = sgd === undefined ? undefined : optim.sgd({ learningRate: sgd });
      return trainingRow(parameters(shapes, range), loss, precision, optimizer as optim.Optimizer<unknown>);
    },
  };
}
