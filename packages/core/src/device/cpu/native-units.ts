// The translation units of the CPU device's libraries.
import { nativeSource } from "../native-source.js";

export const runtimeUnits = (): string[] => [nativeSource("cpu/native/runtime.c")];

/** The forms of the built-in linear algebra: real and complex, one matrix at a time and one in each lane of a vector. */
const forms = [
  { form: "r1", complex: 0, lanes: "1" },
  { form: "rw", complex: 0, lanes: "WL_WIDE" },
  { form: "c1", complex: 1, lanes: "1" },
  { form: "cw", complex: 1, lanes: "WL_WIDE" },
];

export const linalgUnits = (): string[] => [
  nativeSource("cpu/native/linalg.c"),
  ...forms.map(
    ({ form, complex, lanes }) =>
      `#define WX_FORM ${form}\n#define WX_COMPLEX ${complex}\n#define WX_LANES ${lanes}\n${nativeSource("cpu/native/linalg-lanes.c")}`,
  ),
];
