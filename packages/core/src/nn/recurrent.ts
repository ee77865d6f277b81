// Recurrent layers with PyTorch's parameters and equations: one layer, one direction. The loop over time is a `scan`.
import { checkOptions, type DType, ShapeError, showShape } from "../graph/index.js";
import { type Key, moveAxis, scan, sigmoid, type Tensor, tanh, zeros } from "../tensor/index.js";
import { fanInUniform, keysOf, requireCount, requireFlag, requireWidth } from "./init.js";

/** Parameters of {@link lstm} and {@link gru}, with the names of a first layer in PyTorch. */
export interface Recurrent {
  /** Rows of the gates i, f, g, o of an LSTM, or r, z, n of a GRU: [gates * out, in]. */
  weight_ih_l0: Tensor;
  /** [gates * out, out]. */
  weight_hh_l0: Tensor;
  /** [gates * out]; absent without a bias. */
  bias_ih_l0?: Tensor;
  /** [gates * out]; absent without a bias. */
  bias_hh_l0?: Tensor;
}

/** Initialization options of {@link lstm} and {@link gru}. @inline */
interface RecurrentOptions {
  /** Width of the input. */
  in: number;
  /** Width of the state and of the output. */
  out: number;
  /** Whether the layer adds biases; true by default. */
  bias?: boolean;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** State of {@link lstm}: [..., out] each. */
export interface LstmState {
  /** Output of the last step [batch, out]. */
  hidden: Tensor;
  /** Cell state [batch, out]. */
  cell: Tensor;
}

function init(op: string, gates: number, options: RecurrentOptions, key: Key): Recurrent {
  const optionNames = ["in", "out", "bias", "dtype"] as const;
  const { in: inputs, out, bias = true, dtype = "float32" } = checkOptions(`${op}.init`, options, optionNames);
  requireCount(`${op}.init`, "in", inputs);
  requireCount(`${op}.init`, "out", out);
  requireFlag(`${op}.init`, "bias", bias);
  const keys = keysOf(key, 4);
  const drawn = (shape: number[], k: number): Tensor => fanInUniform(shape, out, keys[k], dtype);
  const weights = { weight_ih_l0: drawn([gates * out, inputs], 0), weight_hh_l0: drawn([gates * out, out], 1) };
  return bias ? { ...weights, bias_ih_l0: drawn([gates * out], 2), bias_hh_l0: drawn([gates * out], 3) } : weights;
}

/** The parts of the input in all gates, time first, and the width of the state. */
function prepare(op: string, params: Recurrent, x: Tensor): { parts: Tensor; out: number; lead: number[] } {
  if (x.rank < 2) throw new ShapeError(`${op}: x ${showShape(x.shape)} must be [..., length, features]`);
  requireWidth(op, x, params.weight_ih_l0.shape[1]);
  const product = x.matmul(params.weight_ih_l0.transpose());
  const parts = params.bias_ih_l0 === undefined ? product : product.add(params.bias_ih_l0);
  return { parts: moveAxis(parts, -2, 0), out: params.weight_hh_l0.shape[1], lead: x.shape.slice(0, -2) };
}

const fromState = (params: Recurrent, hidden: Tensor): Tensor => {
  const product = hidden.matmul(params.weight_hh_l0.transpose());
  return params.bias_hh_l0 === undefined ? product : product.add(params.bias_hh_l0);
};

const gate = (all: Tensor, k: number, out: number): Tensor => all.index("...", `${k * out}:${(k + 1) * out}`);

/**
 * Long short-term memory over sequences [..., length, in], as torch.nn.LSTM with batch_first. `apply` returns the outputs
 * [..., length, out] and the last state; without a state it starts from zeros.
 *
 * @example
 * ```ts
 * import { key, ones } from "@weft/core";
 * import * as nn from "@weft/core/nn";
 *
 * const params = nn.lstm.init({ in: 3, out: 4 }, key(0));
 * const [outputs, { hidden }] = nn.lstm.apply(params, ones([2, 5, 3]));
 * console.log(outputs.shape, hidden.shape); // [2, 5, 4] [2, 4]
 * ```
 */
export const lstm = {
  init: (options: RecurrentOptions, key: Key): Recurrent => init("lstm", 4, options, key),

  apply(params: Recurrent, x: Tensor, state?: LstmState): [Tensor, LstmState] {
    const { parts, out, lead } = prepare("lstm", params, x);
    const zero = (): Tensor => zeros([...lead, out], { dtype: parts.dtype });
    const start = state ?? { hidden: zero(), cell: zero() };
    const [last, outputs] = scan(
      ({ hidden, cell }: LstmState, part: Tensor): [LstmState, Tensor] => {
        const all = part.add(fromState(params, hidden));
        const [i, f, g, o] = [0, 1, 2, 3].map((k) => gate(all, k, out));
        const next = sigmoid(f)
          .mul(cell)
          .add(sigmoid(i).mul(tanh(g)));
        const output = sigmoid(o).mul(tanh(next));
        return [{ hidden: output, cell: next }, output];
      },
      start,
      parts,
    );
    return [moveAxis(outputs, 0, -2), last];
  },
};

/**
 * Gated recurrent unit over sequences [..., length, in], as torch.nn.GRU with batch_first. `apply` returns the outputs
 * [..., length, out] and the last state [..., out]; without a state it starts from zeros.
 */
export const gru = {
  init: (options: RecurrentOptions, key: Key): Recurrent => init("gru", 3, options, key),

  apply(params: Recurrent, x: Tensor, state?: Tensor): [Tensor, Tensor] {
    const { parts, out, lead } = prepare("gru", params, x);
    const [last, outputs] = scan(
      (hidden: Tensor, part: Tensor): [Tensor, Tensor] => {
        const own = fromState(params, hidden);
        const [r, z] = [0, 1].map((k) => sigmoid(gate(part, k, out).add(gate(own, k, out))));
        const candidate = tanh(gate(part, 2, out).add(r.mul(gate(own, 2, out))));
        const next = candidate.add(z.mul(hidden.sub(candidate)));
        return [next, next];
      },
      state ?? zeros([...lead, out], { dtype: parts.dtype }),
      parts,
    );
    return [moveAxis(outputs, 0, -2), last];
  },
};
