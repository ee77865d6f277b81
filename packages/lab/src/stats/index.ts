// The public face of the statistics.
export {
  ascending,
  type Description,
  describe,
  halfWidth95,
  mean,
  median,
  quantile,
  quantileSorted,
  sum,
} from "./describe.js";
export { bootstrapInterval, resample, seededRandom } from "./random.js";
