// Reads a points file as throughput per device count. Invalid points are reported and left out; repeats are kept separately so
// that their spread is known.
import { type PointMetric, pointsSchema } from "@weft/formats";
import { mean } from "@weft/formats/stats";

export interface CountSample {
  devices: number;
  /** Throughput of each repeat; reciprocal seconds when the metric is seconds. */
  values: number[];
  mean: number;
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

/** `where` names the file in messages. */
export function readPoints(value: unknown, where = "points"): ReadPoints {
  if (!isObject(value))
    throw new PointsError(`${where}: expected an object {"metric": "throughput", "points": [[1, 100], [2, 190]]}`);
  const metric = pointsSchema.shape.metric.safeParse(value.metric).data;
  if (metric === undefined)
    throw new PointsError(`${where}: metric is ${JSON.stringify(value.metric)}; it must be "throughput" or "seconds"`);
  const { points, devicesPerNode: perNode } = value;
  if (!Array.isArray(points)) throw new PointsError(`${where}: points must be a list of [devices, value]`);
  const devicesPerNode = pointsSchema.shape.devicesPerNode.safeParse(perNode);
  if (!devicesPerNode.success)
    throw new PointsError(`${where}: devicesPerNode must be a positive integer, is ${JSON.stringify(perNode)}`);
  const byCount = new Map<number, number[]>();
  const problems: string[] = [];
  points.forEach((point: unknown, i: number) => {
    const [devices, measured] = Array.isArray(point) ? point : [];
    if (!Number.isInteger(devices) || devices < 1)
      problems.push(`${where}: point ${i} left out: ${JSON.stringify(devices ?? null)} is not a device count`);
    else if (typeof measured !== "number" || !Number.isFinite(measured) || measured <= 0)
      problems.push(
        `${where}: point ${i} (${devices} devices) left out: ${JSON.stringify(measured)} is not a ${metric}`,
      );
    else {
      const list = byCount.get(devices) ?? [];
      list.push(metric === "seconds" ? 1 / measured : measured);
      byCount.set(devices, list);
    }
  });
  const samples = [...byCount]
    .map(([devices, values]) => ({ devices, values, mean: mean(values) }))
    .sort((a, b) => a.devices - b.devices);
  return { metric, devicesPerNode: devicesPerNode.data ?? null, samples, problems };
}
