// How long a function will take that was cut for CPU workers, by the kernels that each of them will compile: what the
// planner says while it searches, priced once more without guessing about fusion. Nothing is compiled and nothing runs.

import { predictKernels, type Rates, ratesAt } from "@weft/core/internal/cost";
import { CpuDevice } from "@weft/core/internal/device";
import type { GraphFn } from "@weft/core/internal/graph";
import type { Partitioned } from "@weft/core/internal/shard";
import { inlineCustom } from "@weft/core/internal/transform";

export interface CallPrediction {
  /** Of the device that has most to do. */
  seconds: number;
  /** What the rates are: measured or assumed. */
  rates: string;
  assumed: boolean;
}

/** The same for a function that stays whole. */
export const predictWhole = (fn: GraphFn, rates: Rates): CallPrediction => predictParts({ functions: [fn] }, rates);

export function predictParts({ functions }: Pick<Partitioned, "functions">, rates: Rates): CallPrediction {
  const here = ratesAt(rates, functions.length);
  // Uneven parts differ; equal ones are priced once.
  const texts = new Map(functions.map((fn) => [fn.params.map(({ shape }) => shape.join("x")).join(), fn]));
  const seconds = [...texts.values()].map((fn) =>
    predictKernels(
      CpuDevice.kernelsOf(inlineCustom(fn)).flatMap(({ work }) => (work === undefined ? [] : [work])),
      here,
    ),
  );
  return { seconds: Math.max(...seconds), rates: rates.name, assumed: rates.assumed };
}
