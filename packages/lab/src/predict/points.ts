// Reads a points file as throughput per device count and batch. Points are pairs [devices, value] or objects. Invalid points
// are reported and left out; repeats are kept separately so that their spread is known.
import { mostDevices, type PointMetric, pointsSchema } from "@weft/formats/internal";
import { mean } from "@weft/formats/stats";

export interface CountSample {
  devices: number;
  /** Samples per step over all devices; null where the file does not say. */
  globalBatch: number | null;
  /** Throughput of each repeat; reciprocal seconds when the metric is seconds. */
  values: number[];
  mean: number;
  /** Mean power per device in watts, where the file says. */
  watts: number | null;
}

/** The points of a file by device count, and the problems found. */
export interface ReadPoints {
  metric: PointMetric;
  devicesPerNode: number | null;
  samples: CountSample[];
  problems: string[];
}

/** A points file that cannot be used. */
export class PointsError extends Error {}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const shown = (value: unknown): string => (JSON.stringify(value) ?? "undefined").slice(0, 60);
const isCount = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= mostDevices;
/** No measurement is outside of these; products of larger ones overflow. */
const isPositive = (value: unknown): value is number => typeof value === "number" && value >= 1e-18 && value <= 1e18;

/** More points are no scaling study, and fits over them take minutes. */
const mostPoints = 10_000;

/** Repeats of one job do not differ by more. */
const mostSpread = 3;

interface RawPoint {
  devices: unknown;
  value: unknown;
  globalBatch?: unknown;
  devicesPerNode?: unknown;
  nodes?: unknown;
  watts?: unknown;
}

const knownKeys = new Set([
  "devices",
  "throughput",
  "seconds",
  "globalBatch",
  "devicesPerNode",
  "nodes",
  "watts",
  "precision",
  "parallelism",
  "linkDomain",
]);

/** What the values measure: stated by the file, or by the first object. */
function metricOf(value: Record<string, unknown>, points: readonly unknown[], where: string): PointMetric {
  const stated = pointsSchema.shape.metric.safeParse(value.metric).data;
  if (stated !== undefined) return stated;
  const first = points.find(isObject);
  if (value.metric === undefined && first !== undefined) return "seconds" in first ? "seconds" : "throughput";
  throw new PointsError(`${where}: metric is ${shown(value.metric)}; it must be "throughput" or "seconds"`);
}

function rawPoint(point: unknown, metric: PointMetric): RawPoint {
  if (Array.isArray(point)) return { devices: point[0], value: point[1] };
  if (!isObject(point)) return { devices: undefined, value: undefined };
  return { ...point, devices: point.devices, value: point[metric] };
}

/** `where` names the file in messages. */
export function readPoints(value: unknown, where = "points"): ReadPoints {
  if (Array.isArray(value)) return readPoints({ points: value }, where);
  if (!isObject(value))
    throw new PointsError(`${where}: expected an object {"metric": "throughput", "points": [[1, 100], [2, 190]]}`);
  const { points, devicesPerNode: perNode } = value;
  if (points !== undefined && !Array.isArray(points))
    throw new PointsError(
      `${where}: points must be a list of [devices, value] or objects {devices, throughput, globalBatch}`,
    );
  const metric = metricOf(value, points ?? [], where);
  if (points === undefined) throw new PointsError(`${where}: points must be a list of [devices, value]`);
  if (points.length > mostPoints)
    throw new PointsError(`${where}: ${points.length} points; at most ${mostPoints} are read`);
  const stated = pointsSchema.shape.devicesPerNode.safeParse(perNode);
  if (!stated.success)
    throw new PointsError(`${where}: devicesPerNode must be a positive integer, is ${shown(perNode)}`);
  let devicesPerNode = stated.data ?? null;
  const byCount = new Map<string, CountSample & { allWatts: number[] }>();
  const problems: string[] = [];
  const unknown = new Set<string>();
  points.forEach((point: unknown, i: number) => {
    const raw = rawPoint(point, metric);
    const { devices, value: measured, globalBatch, watts } = raw;
    const problem = !isCount(devices)
      ? `left out: ${shown(devices ?? null)} is not a device count`
      : !isPositive(measured)
        ? `(${devices} devices) left out: ${measured === undefined ? `it has no ${metric}, which the other points have` : `${shown(measured)} is not a ${metric}`}`
        : globalBatch !== undefined && globalBatch !== null && !isPositive(globalBatch)
          ? `left out: globalBatch ${shown(globalBatch)} is not a batch`
          : null;
    if (problem !== null || !isCount(devices) || !isPositive(measured)) {
      problems.push(`${where}: point ${i} ${problem}`);
      return;
    }
    for (const key of isObject(point) ? Object.keys(point) : []) if (!knownKeys.has(key)) unknown.add(key);
    // A point that says on how many nodes it ran says how many devices a node has.
    const own = isCount(raw.devicesPerNode)
      ? raw.devicesPerNode
      : isCount(raw.nodes) && raw.nodes > 1
        ? devices / raw.nodes
        : null;
    if (isCount(raw.nodes) && devices % raw.nodes !== 0)
      problems.push(`${where}: point ${i}: ${devices} devices on ${raw.nodes} nodes; the nodes are not used`);
    if (own !== null && Number.isInteger(own) && stated.data === undefined)
      devicesPerNode = Math.max(devicesPerNode ?? 0, own);
    const key = `${devices}:${globalBatch ?? ""}`;
    let sample = byCount.get(key);
    if (sample === undefined) {
      sample = {
        devices,
        globalBatch: (globalBatch as number | undefined | null) ?? null,
        values: [],
        mean: 0,
        watts: null,
        allWatts: [],
      };
      byCount.set(key, sample);
    }
    sample.values.push(metric === "seconds" ? 1 / measured : measured);
    if (isPositive(watts)) sample.allWatts.push(watts);
  });
  for (const { devices, values } of byCount.values()) {
    const spread = Math.max(...values) / Math.min(...values);
    if (spread > mostSpread)
      problems.push(
        `${where}: ${values.length} measurements of ${devices} devices differ by a factor of ${spread.toPrecision(2)}; their mean is used, but one of them is of another job`,
      );
  }
  if (unknown.size > 0) problems.push(`${where}: ${[...unknown].slice(0, 8).join(", ")} of the points are not used`);
  const samples = [...byCount.values()]
    .map(({ allWatts, ...s }) => ({ ...s, mean: mean(s.values), watts: allWatts.length > 0 ? mean(allWatts) : null }))
    .sort((a, b) => a.devices - b.devices || (a.globalBatch ?? 0) - (b.globalBatch ?? 0));
  return { metric, devicesPerNode, samples, problems };
}
