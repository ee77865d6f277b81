// Options are checked by name: a misspelled one, or another library's word for it, must not be ignored in silence.
import { dtypes, isDType } from "./dtype.js";
import { DTypeError, WeftError } from "./errors.js";

/** Words of NumPy, PyTorch and JAX for options that have another name here. */
const otherWords: Readonly<Record<string, string>> = {
  argnum: "argument",
  argnums: "argument",
  attnmask: "mask",
  badwordsids: "badWords",
  ddof: "correction",
  unbiased: "correction",
  eostokenid: "eosTokens",
  eps: "epsilon",
  iscausal: "causal",
  keepdim: "keepDims",
  kernelsize: "kernel",
  loraalpha: "alpha",
  lr: "learningRate",
  norepeatngramsize: "noRepeatNgram",
  nesterovmomentum: "nesterov",
  normalizedshape: "axes",
  numlabels: "labels",
  pad: "padding",
  r: "rank",
  reverse: "descending",
  rng: "key",
  scalefactor: "scale",
  strides: "stride",
  targetmodules: "targets",
  torchdtype: "dtype",
  wd: "weightDecay",
};

const plain = (word: string): string => word.replaceAll("_", "").toLowerCase();

/** What the value of an option has to be. */
interface OptionRule {
  expected: string;
  accepts(value: unknown): boolean;
  error?: typeof WeftError;
}

const numbers = (expected: string, accepts: (x: number) => boolean): OptionRule => ({
  expected,
  accepts: (x) => typeof x === "number" && accepts(x),
});
const words = (...list: string[]): OptionRule => ({
  expected: `"${list.slice(0, -1).join('", "')}" or "${list[list.length - 1]}"`,
  accepts: (x) => list.includes(x as string),
});
const flag: OptionRule = { expected: "true or false", accepts: (x) => typeof x === "boolean" };
const finite = numbers("a finite number", Number.isFinite);
const notNegative = numbers("a finite number of at least 0", (x) => x >= 0 && x < Infinity);
const whole = numbers("a whole number", Number.isSafeInteger);
const count = numbers("a whole number of at least 0", (x) => Number.isSafeInteger(x) && x >= 0);
const size = numbers("a whole number of at least 1", (x) => Number.isSafeInteger(x) && x >= 1);
const share = numbers("a number from 0 to 1", (x) => x >= 0 && x <= 1);
const tensor: OptionRule = {
  expected: "a tensor",
  accepts: (x) => typeof x === "object" && x !== null && "dtype" in x && "shape" in x,
};
const tensorOrNull: OptionRule = { expected: "a tensor or null", accepts: (x) => x === null || tensor.accepts(x) };
const isNumber = (x: unknown): boolean => typeof x === "number";
const list: OptionRule = {
  expected: "a number or a list of numbers",
  accepts: (x) => x === null || isNumber(x) || (Array.isArray(x) && x.every(isNumber)),
};
const pair: OptionRule = {
  expected: "two numbers",
  accepts: (x) => Array.isArray(x) && x.length === 2 && x.every(isNumber),
};
const call: OptionRule = { expected: "a function", accepts: (x) => typeof x === "function" };

const all = (rule: OptionRule, names: string): [string, OptionRule][] => names.split(" ").map((name) => [name, rule]);

/**
 * Rules of options by name: an option means the same in every function that has it. Options that are missing here have several forms;
 * the functions check them.
 */
const rules: ReadonlyMap<string, OptionRule> = new Map([
  ...all(
    flag,
    "adjoint alignCorners amsgrad approximate causal ceilMode centered channelsLast compress countIncludePad decoupled descending endpoint equalNaN finalNorm " +
      "full fullMatrices graphs hasAux includeInitial increasing invert keepDims logInput logTarget lower nesterov replace reverse rows shared staircase swap training unit upper zeroInfinity",
  ),
  ...all(finite, "base correction loc low high mean margin discontinuity"),
  ...all(notNegative, "atol beta rtol epsilon std totalSteps warmupSteps"),
  ...all(
    numbers("a finite number greater than 0", (x) => x > 0 && x < Infinity),
    "delta period",
  ),
  ...all(whole, "axis ignoreIndex k paddingIndex seed"),
  ...all(count, "blank columns length maxBytes"),
  ...all(size, "interval maxLength"),
  ...all(share, "labelSmoothing momentum minRatio"),
  ...all(
    numbers("a number", () => true),
    "nan neginf posinf value",
  ),
  ...all(list, "axes dilation kernel outputPadding size sizes stride"),
  ...all(pair, "betas range xRange yRange"),
  ...all(tensor, "append mask memory p prepend sorter tokens weight weights"),
  ["key", tensorOrNull],
  ...all(call, "keep while"),
  ["dtype", { expected: `one of ${dtypes.join(", ")}`, accepts: isDType, error: DTypeError }],
  ["reduction", words("mean", "sum", "none")],
  ["indexing", words("xy", "ij")],
  ["side", words("left", "right")],
]);

/** Throws at an option that a function does not have, and at a value that the option cannot have. Undefined means not given. */
export function checkOptions<O extends object>(op: string, options: O, known: readonly (keyof O & string)[]): O {
  checkOptionNames(op, options, known);
  for (const name in options) {
    const [value, rule]: [unknown, OptionRule | undefined] = [options[name], rules.get(name)];
    if (value === undefined || rule === undefined || rule.accepts(value)) continue;
    throw new (rule.error ?? WeftError)(`${op}: ${name} is ${rule.expected}, got ${showValue(value)}`);
  }
  return options;
}

/** Throws at an option that a function does not have. For functions whose options have meanings of their own. */
export function checkOptionNames<O extends object>(op: string, options: O, known: readonly (keyof O & string)[]): void {
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

/** A value in a message: short, and safe for everything that a caller may pass. */
export const showValue = (value: unknown): string =>
  typeof value === "string"
    ? JSON.stringify(value)
    : typeof value === "object" && value !== null
      ? showObject(value)
      : String(value);

function showObject(value: object): string {
  if (Array.isArray(value)) return `[${value.slice(0, 8).map(showValue).join(", ")}${value.length > 8 ? ", ..." : ""}]`;
  if (ArrayBuffer.isView(value)) return `a ${value.constructor.name} of ${(value as Uint8Array).length} elements`;
  if ("dtype" in value && "shape" in value) return `a tensor of shape [${value.shape}]`;
  if (value instanceof Promise) return "a Promise; await it first";
  const keys = Object.keys(value).slice(0, 8).join(", ");
  return keys === "" ? `a ${value.constructor?.name ?? "value"} without keys` : `an object with keys ${keys}`;
}
