// The translation units of the CPU device's libraries.
import type { OpName } from "../../graph/index.js";
import { factorizationOps } from "../../ops/index.js";
import { nativeSource } from "../native-source.js";

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

/** Element types of typed units, and the suffixes of their functions. */
const types = { s: "float", d: "double", c: "float complex", z: "double complex" };

const typed = (path: string, suffixes: readonly (keyof typeof types)[]): string[] =>
  suffixes.map((suffix) => `#define T ${types[suffix]}\n#define TYPED(name) name##_${suffix}\n${nativeSource(path)}`);

const convUnits = (): string[] => [
  nativeSource("cpu/native/conv.c"),
  ...typed("cpu/native/conv-typed.c", ["s", "d", "c", "z"]),
];

const fftUnits = (): string[] => [nativeSource("cpu/native/fft.c"), ...typed("cpu/native/fft-typed.c", ["s", "d"])];

/** Libraries of rarer ops, and the ops that need them. */
const extensionUnits = { linalg: linalgUnits, conv: convUnits, fft: fftUnits };
export type Extension = keyof typeof extensionUnits;
export const extensions = Object.keys(extensionUnits) as readonly Extension[];
export const unitsOf = (extension: Extension): string[] => extensionUnits[extension]();

/** The library that an op needs beside the runtime; null if none. */
export const extensionOf = (op: OpName): Extension | null =>
  op === "conv" || op === "fft" ? op : factorizationOps.has(op) ? "linalg" : null;
