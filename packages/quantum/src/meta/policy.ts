// Policy network: a multilayer perceptron from task features to a pulse.
import { WeftError } from "@weft/core/internal/graph";
import {
  gelu,
  type Key,
  matmul,
  qr,
  randn,
  relu,
  silu,
  splitKey,
  type Tensor,
  tanh,
  zeros,
} from "@weft/core/internal/tensor";

const activations = { tanh, relu, silu, gelu } satisfies Record<string, (x: Tensor) => Tensor>;
/** Activation function of the policy. */
type PolicyActivation = keyof typeof activations;

/** Architecture of a policy. @inline */
export interface PolicyOptions {
  /** Number of input features. Default: 3. */
  features?: number;
  /** Width of the hidden layers. */
  width?: number;
  /** Number of hidden width x width layers after the first layer. */
  hidden?: number;
  /** Number of segments of the pulse. */
  segments: number;
  /** Number of controls per segment. */
  controls: number;
  /** Activation of the hidden layers; default: tanh. */
  activation?: PolicyActivation;
  /** Factor of the output. */
  outputScale?: number;
  /** Gain of the orthogonal initialization. */
  gain?: number;
}

/** Weights and biases of a policy. */
export interface PolicyParameters {
  /** Weights and biases, from the input to the output. */
  layers: { weight: Tensor; bias: Tensor }[];
}

const sizesOf = ({ features = 3, width = 128, hidden = 2, segments, controls }: PolicyOptions): number[] => [
  features,
  ...new Array<number>(hidden + 1).fill(width),
  segments * controls,
];

/** Matrix with orthonormal rows or columns, whichever are fewer, times gain. */
function orthogonal(rows: number, columns: number, gain: number, key: Key): Tensor {
  const [long, short] = [Math.max(rows, columns), Math.min(rows, columns)];
  const { q } = qr(randn([long, short], { key, dtype: "float64" }));
  return (rows >= columns ? q : q.transpose()).mul(gain).cast("float32");
}

function check(options: PolicyOptions): void {
  const { activation = "tanh" } = options;
  if (!Object.hasOwn(activations, activation))
    throw new WeftError(
      `policy: there is no activation "${activation}"; known: ${Object.keys(activations).join(", ")}`,
    );
  for (const name of ["features", "width", "segments", "controls"] as const) {
    const value = options[name];
    if (value !== undefined && !(Number.isInteger(value) && value > 0))
      throw new WeftError(`policy: ${name} must be a whole number above 0, got ${value}`);
  }
  if (options.hidden !== undefined && !(Number.isInteger(options.hidden) && options.hidden >= 0))
    throw new WeftError(`policy: hidden must be a whole number >= 0, got ${options.hidden}`);
}

/** Policy network: `init`, `apply` and the number of parameters. */
export const policy = {
  /** Initial parameters: orthogonal weights and zero biases, float32. */
  init(options: PolicyOptions, key: Key): PolicyParameters {
    check(options);
    const sizes = sizesOf(options);
    const keys = splitKey(key, sizes.length - 1);
    return {
      layers: sizes
        .slice(1)
        .map((out, i) => ({
          weight: orthogonal(out, sizes[i], options.gain ?? 0.5, keys.index(i)),
          bias: zeros([out]),
        })),
    };
  },

  /** The pulse [segments, controls] for features [n]. */
  apply(params: PolicyParameters, features: Tensor, options: PolicyOptions): Tensor {
    const act = activations[options.activation ?? "tanh"];
    const last = params.layers.length - 1;
    let x = features.cast(params.layers[0].weight.dtype);
    params.layers.forEach(({ weight, bias }, i) => {
      const sum = matmul(weight, x).add(bias);
      x = i === last ? sum : act(sum);
    });
    const scaled = options.outputScale === undefined || options.outputScale === 1 ? x : x.mul(options.outputScale);
    return scaled.reshape([options.segments, options.controls]);
  },

  /** Number of parameters. */
  parameters(options: PolicyOptions): number {
    const sizes = sizesOf(options);
    return sizes.slice(1).reduce((sum, out, i) => sum + out * sizes[i] + out, 0);
  },
};
