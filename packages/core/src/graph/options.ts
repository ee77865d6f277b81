// Options are checked by name: a misspelled one, or another library's word for it, must not be ignored in silence.
import { WeftError } from "./errors.js";

/** Words of NumPy, PyTorch and JAX for options that have another name here. */
const otherWords: Readonly<Record<string, string>> = {
  argnum: "argument",
  argnums: "argument",
  attnmask: "mask",
  ddof: "correction",
  unbiased: "correction",
  eps: "epsilon",
  iscausal: "causal",
  keepdim: "keepDims",
  kernelsize: "kernel",
  lr: "learningRate",
  nesterovmomentum: "nesterov",
  normalizedshape: "axes",
  pad: "padding",
  reverse: "descending",
  rng: "key",
  scalefactor: "scale",
  strides: "stride",
  wd: "weightDecay",
};

const plain = (word: string): string => word.replaceAll("_", "").toLowerCase();

/** Throws at an option that a function does not have. */
export function checkOptions<O extends object>(op: string, options: O, known: readonly (keyof O & string)[]): void {
  if (typeof options !== "object" || options === null)
    throw new WeftError(`${op}: options are an object such as { ${known[0]}: ... }, got ${String(options)}`);
  for (const name in options) {
    if (known.includes(name)) continue;
    const word = plain(name);
    const meant = known.find((k) => plain(k) === word) ?? known.find((k) => k === otherWords[word]);
    throw new WeftError(
      `${op}: there is no option "${name}"; ${meant === undefined ? `it has ${known.join(", ")}` : `did you mean "${meant}"?`}`,
    );
  }
}
