// Statistics shared by the lab, the benchmarks and the command line.
export { type Distribution, distribution, roundHalfEven } from "./distribution.js";
export { bootstrapInterval, resample, seededRandom } from "./random.js";
export {
  halfWidth95,
  mean,
  median,
  medianOrNull,
  quantile,
  type Summary,
  sum,
  summarize,
  summarizeWeighted,
  type Weighted,
  weightedMean,
  weightedMedian,
} from "./summary.js";
