// The translation units of the CPU device's libraries.
import type { OpName } from "../../graph/index.js";
import { factorizationOps } from "../../ops/index.js";
import { nativeSource } from "../native-source.js";

/** Headers that only some kernels need, and what their functions are called: reading them takes compilers a few milliseconds each. */
const preludeParts = [
  {
    file: "cpu/native/prelude-complex.h",
    calls: /\bw_(?!cos_|cosh_|ceil_|copysign_)(?:c[a-z0-9]+|hypot|scale|larger|finite|infinite)_[df]\b/,
  },
  { file: "cpu/native/prelude-transpose.h", calls: /\bw_transpose_/ },
  { file: "cpu/native/prelude-half.h", calls: /\bw_(?:from_half|to_half|half_of|round_half|widen_h|narrow_h)\(/ },
  { file: "cpu/native/prelude-random.h", calls: /\bw_(?:uniform|normal|dropout|bits\b)/ },
];

/** A unit of generated kernels with the headers that they need. */
export const withPrelude = (text: string): string => {
  const parts = preludeParts.filter(({ calls }) => calls.test(text)).map(({ file }) => file);
  return `${nativeSource("cpu/native/program.h", ...parts)}\n${text}`;
};

/** All headers of generated kernels. */
export const wholePrelude = (): string => nativeSource("cpu/native/program.h", ...preludeParts.map(({ file }) => file));

export const runtimeUnits = (): string[] => [nativeSource("cpu/native/runtime.c")];

/** The forms of the built-in linear algebra: real and complex, one matrix at a time and one in each lane of a vector. */
const forms = [
  { form: "r1", complex: 0, lanes: "1" },
  { form: "rw", complex: 0, lanes: "WL_WIDE" },
  { form: "c1", complex: 1, lanes: "1" },
  { form: "cw", complex: 1, lanes: "WL_WIDE" },
];

const linalgUnits = (): string[] => [
  nativeSource("cpu/native/linalg.c"),
  ...forms.map(
    ({ form, complex, lanes }) =>
      `#define WX_FORM ${form}\n#define WX_COMPLEX ${complex}\n#define WX_LANES ${lanes}\n${nativeSource("cpu/native/linalg-lanes.c")}`,
  ),
];

/** Functions of the prelude that have vector forms. Some functions of floats need none: compilers vectorize them. */
const vectorFunctions: { names: string[]; operands: number; suffixes: string }[] = [
  { names: ["exp", "log", "tanh", "expm1", "log1p", "atan", "erf", "erfc"], operands: 1, suffixes: "d" },
  {
    names: ["sin", "cos", "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"],
    operands: 1,
    suffixes: "[df]",
  },
  { names: ["atan2", "pow"], operands: 2, suffixes: "[df]" },
  { names: ["fmod"], operands: 2, suffixes: "f" },
];
/** The cosine is the sine one quarter turn later. */
const quarterTurns: Record<string, number> = { sin: 0, cos: 1 };
const callable = vectorFunctions.map(({ names, suffixes }) => `(?:${names.join("|")})_${suffixes}`);
/** Functions of the prelude that call one of them. */
const callers = ["c[a-z0-9]+_[df]", "(?:widen|widened|narrow|narrowed)_h", "(?:mod|floordiv)_f"];
const vectorCalls = new RegExp(`\\bw_(?:${[...callable, ...callers].join("|")})\\(`);

/** Whether C text may call a function that has vector forms: by name, or through a complex function. */
export const callsVectorMath = (text: string): boolean => vectorCalls.test(text);

/** The instruction sets of the x86 vector ABI: their letters, and how many doubles a vector holds. */
const instructionSets = [
  { tag: "b", lanes: 2, present: "1" },
  { tag: "c", lanes: 4, present: "defined(__AVX__) && !defined(__AVX2__)" },
  { tag: "d", lanes: 4, present: "defined(__AVX2__)" },
  { tag: "e", lanes: 8, present: "defined(__AVX512F__)" },
];

/** One unit per function, so that a linker takes only those that a program calls. */
export const vectorMathUnits = (): string[] => [
  ...vectorFunctions.flatMap(({ names, operands, suffixes }) =>
    names.map((name) => vectorMathUnit(name, operands, suffixes.includes("d"))),
  ),
  nativeSource("cpu/native/vector-half.c"),
];

function vectorMathUnit(name: string, operands: number, doubles: boolean): string {
  const forms = instructionSets.map(
    ({ tag, lanes, present }) =>
      `#if ${present}\n#define W_TAG ${tag}\n#define W_LANES ${lanes}\n${nativeSource("cpu/native/vector-math.c")}#endif\n`,
  );
  const quarters = quarterTurns[name] === undefined ? "" : `#define W_QUARTERS ${quarterTurns[name]}\n`;
  const exact = name === "pow" ? "#define W_OF_DOUBLES _exact\n" : "#define W_OF_DOUBLES _v\n";
  return `${exact}#define W_FUNCTION ${name}\n#define W_OPERANDS ${operands}\n#define W_DOUBLES ${Number(doubles)}\n${quarters}${forms.join("")}`;
}

/** Element types of typed units, their sizes, and the suffixes of their functions. */
const types = {
  s: { name: "float", bytes: 4 },
  d: { name: "double", bytes: 8 },
  c: { name: "float complex", bytes: 8 },
  z: { name: "double complex", bytes: 16 },
  /** Halves, which are only moved. */
  h: { name: "uint16_t", bytes: 2 },
};

const typed = (path: string, suffixes: readonly (keyof typeof types)[]): string[] =>
  suffixes.map((suffix) => {
    const { name, bytes } = types[suffix];
    const real = Number(name === "float" || name === "double");
    const moves = Number(suffix === "h");
    return `#define T ${name}\n#define BYTES ${bytes}\n#define REAL ${real}\n#define MOVES_ONLY ${moves}\n#define TYPED(name) name##_${suffix}\n${nativeSource(path)}`;
  });

const convUnits = (): string[] => [
  nativeSource("cpu/native/conv.c"),
  ...typed("cpu/native/conv-typed.c", ["s", "d", "c", "z", "h"]),
];

const fftUnits = (): string[] => [nativeSource("cpu/native/fft.c"), ...typed("cpu/native/fft-typed.c", ["s", "d"])];

const attentionUnits = (): string[] => [nativeSource("cpu/native/attention.c")];

/** Libraries of rarer ops, and the ops that need them. */
const extensionUnits = { linalg: linalgUnits, conv: convUnits, fft: fftUnits, attention: attentionUnits };
export type Extension = keyof typeof extensionUnits;
export const extensions = Object.keys(extensionUnits) as readonly Extension[];
export const unitsOf = (extension: Extension): string[] => extensionUnits[extension]();

/** The library that an op needs beside the runtime; null if none. */
export function extensionOf(op: OpName): Extension | null {
  if (op === "custom") return "attention";
  return op === "conv" || op === "fft" ? op : factorizationOps.has(op) ? "linalg" : null;
}
