// The curves of a run on the page: the first picture from the server, then the points that arrive.
import { type SeriesField, type SeriesPart, type SeriesValues, seriesFields } from "../wire/index.js";

/** Above this number of points the curves are asked for again, reduced. */
const mostPoints = 6000;

/** Whether the curves have become longer than a screen can show. */
export const isLong = (curves: SeriesPart): boolean => curves.step.length > mostPoints;

/** Joins new points to the curves: they replace what starts at or after their first step. */
export function joinPoints(curves: SeriesPart, added: SeriesPart): SeriesPart {
  if (added.generation !== curves.generation || curves.read < 1 || added.read < 1) return added;
  const first = added.step[0];
  if (first === undefined) return curves;
  let keep = curves.step.length;
  while (keep > 0 && curves.step[keep - 1] >= first) keep--;
  const join = <T>(before: readonly T[], after: readonly T[]): T[] => [...before.slice(0, keep), ...after];
  const values: SeriesPart["values"] = {};
  for (const field of seriesFields) {
    const joined = joinField(field, curves, added, keep);
    if (joined !== null) values[field] = joined;
  }
  return { ...added, step: join(curves.step, added.step), t: join(curves.t, added.t), values };
}

function joinField(field: SeriesField, curves: SeriesPart, added: SeriesPart, keep: number): SeriesValues | null {
  const [before, after] = [curves.values[field], added.values[field]];
  if (before === undefined && after === undefined) return null;
  const gap = (length: number): null[] => new Array<null>(length).fill(null);
  const column = (name: "mean" | "low" | "high"): (number | null)[] => [
    ...(before?.[name] ?? before?.mean ?? gap(curves.step.length)).slice(0, keep),
    ...(after?.[name] ?? after?.mean ?? gap(added.step.length)),
  ];
  const isReduced = before?.low !== undefined || after?.low !== undefined;
  return { mean: column("mean"), ...(isReduced && { low: column("low"), high: column("high") }) };
}

/** Exponential moving average; 0 leaves the values as they are. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight === 0) return [...values];
  let [average, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    average = weight * average + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return average / total;
  });
}

/** Places values of epochs at the points where the epochs ended. */
export function atSteps(
  steps: readonly number[],
  marks: readonly { step: number; value: number | undefined }[],
): (number | null)[] {
  const placed = new Array<number | null>(steps.length).fill(null);
  let at = 0;
  for (const { step, value } of marks) {
    if (value === undefined) continue;
    while (at < steps.length - 1 && steps[at + 1] <= step) at++;
    if (steps.length > 0) placed[at] = value;
  }
  return placed;
}
