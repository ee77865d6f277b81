// Parts that both dialects print in the same way: initial values of reductions, loop variables from a linear index, stores.
import { type DType, numel } from "../graph/index.js";
import type { LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { type CValue, literal, storeText } from "./scalar.js";

const lowest: Record<DType, string> = {
  bool: "0",
  uint8: "0",
  int32: "INT32_MIN",
  int64: "INT64_MIN",
  float16: "-w_inf_f()",
  bfloat16: "-w_inf_f()",
  float32: "-w_inf_f()",
  float64: "-w_inf_d()",
  complex64: "0",
  complex128: "0",
};
const highest: Record<DType, string> = {
  ...lowest,
  bool: "1",
  uint8: "255",
  int32: "INT32_MAX",
  int64: "INT64_MAX",
  float16: "w_inf_f()",
  bfloat16: "w_inf_f()",
  float32: "w_inf_f()",
  float64: "w_inf_d()",
};

export const initial = (fn: Reduction["fn"], dtype: DType): string =>
  fn === "sum"
    ? literal(0, dtype)
    : fn === "prod"
      ? literal(1, dtype)
      : fn === "max" || fn === "argmax"
        ? lowest[dtype]
        : highest[dtype];

export const isArg = (r: Reduction): boolean => r.fn === "argmax" || r.fn === "argmin";
/** Statements that compute the outer variables from one linear index. */
export function unpackIndex(variables: readonly LoopVariable[], from: string): string[] {
  const lines: string[] = [];
  let below = numel(variables.map((v) => v.size));
  variables.forEach((v, i) => {
    below /= v.size;
    const divided = below === 1 ? from : `${from} / ${below}`;
    lines.push(`const long ${v.name} = ${i === 0 ? divided : `(${divided}) % ${v.size}`};`);
  });
  return lines;
}

export const writeText = (kernel: LoopKernel, s: Store, value: CValue): string[] =>
  storeText(`p${s.buffer}`, s.address.print(), kernel.buffers[s.buffer].dtype, value);

export const mentionsAny = (address: { mentions(name: string): boolean }, names: ReadonlySet<string>): boolean =>
  [...names].some((name) => address.mentions(name));
