// Predicts the time of a partitioned function from the kernels that each worker will compile. Unlike the planner's
// estimate by operations, it does not guess about fusion. Nothing is compiled or run.

import { predictKernels, type Rates, ratesAt } from "@weft/core/internal/cost";
import { CpuDevice } from "@weft/core/internal/device";
import type { GraphFn } from "@weft/core/internal/graph";
import type { Partitioned } from "@weft/core/internal/shard";
import { inlineCustom } from "@weft/core/internal/transform";
import { scaledDevice } from "./rates.js";

/** Predicted time of one call. */
export interface CallPrediction {
  /** Time of the slowest device. */
  seconds: number;
  /** Name of the rates, measured or assumed. */
  rates: string;
  assumed: boolean;
}

/** Predicts a function that is not partitioned. */
export const predictWhole = (fn: GraphFn, rates: Rates): CallPrediction => predictParts({ functions: [fn] }, rates);

/**
 * Predicts the time of a partitioned function: that of its slowest device.
 *
 * @param speeds How many times faster than the rates each device computes; all alike by default.
 */
export function predictParts(
  { functions }: Pick<Partitioned, "functions">,
  rates: Rates,
  speeds: readonly number[] = [],
): CallPrediction {
  const here = ratesAt(rates, functions.length);
  // Shards of equal shape on devices of equal speed are predicted once.
  const texts = new Map(
    functions.map((fn, i) => {
      const speed = speeds[i] ?? 1;
      return [`${speed}/${fn.params.map(({ shape }) => shape.join("x")).join()}`, { fn, speed }];
    }),
  );
  const seconds = [...texts.values()].map(({ fn, speed }) =>
    predictKernels(
      CpuDevice.kernelsOf(inlineCustom(fn)).flatMap(({ work }) => (work === undefined ? [] : [work])),
      speed === 1 ? here : scaledDevice(here, speed, speed),
    ),
  );
  return { seconds: Math.max(...seconds), rates: rates.name, assumed: rates.assumed };
}
