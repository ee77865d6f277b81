// All cases, in one list.
import { arrayApi } from "./array-api.js";
import type { Case } from "./case.js";
import { convs } from "./conv.js";
import { creation } from "./create.js";
import { elementwise } from "./elementwise.js";
import { ffts } from "./fft.js";
import { images } from "./images.js";
import { indexing } from "./indexing.js";
import { linalg } from "./linalg.js";
import { nn } from "./nn.js";
import { numeric } from "./numeric.js";
import { patches } from "./patches.js";
import { products } from "./products.js";
import { reductions } from "./reduce.js";
import { sequences } from "./sequences.js";
import { shapes } from "./shape.js";
import { specials } from "./special.js";

export type { DType } from "../../index.js";
export * from "./case.js";
export const cases: readonly Case[] = [
  ...creation,
  ...elementwise,
  ...reductions,
  ...shapes,
  ...indexing,
  ...products,
  ...convs,
  ...nn,
  ...ffts,
  ...images,
  ...linalg,
  ...arrayApi,
  ...numeric,
  ...patches,
  ...sequences,
  ...specials,
];
