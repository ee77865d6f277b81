// What the tests of kernel forms share: tensors of small whole numbers, whose sums are exact in every dtype, and their values.
import * as weft from "../../index.js";
import { CpuDevice } from "./index.js";

export const skip = CpuDevice.available() ? false : "no C compiler";
export const numbers = async (t: weft.Tensor): Promise<number[]> => Array.from(await t.cast("float64").data(), Number);
export const numberAt = (i: number): number => ((i * 7919) % 23) - 11;
export const make = (shape: readonly number[], dtype: weft.DType, values: readonly number[]): weft.Tensor =>
  weft.tensor(values, { shape, dtype });
