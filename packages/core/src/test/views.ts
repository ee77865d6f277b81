// Inputs with other memory layouts (transposed, flipped, strided), and the views that restore them inside the program.
import type { Tensor } from "../index.js";
import type { Host } from "./cases/index.js";
import { isComplexDType } from "./compare.js";
import type { Job } from "./jobs.js";

export const viewKinds = ["transposed", "flipped", "strided"] as const;
export type ViewKind = (typeof viewKinds)[number];

interface View {
  stored: Host;
  restore: (t: Tensor) => Tensor;
}

/** Elements of a host array in the order of another shape, each taken from `source(index)`; null gives the filler. */
function rearranged(
  host: Host,
  shape: readonly number[],
  source: (index: readonly number[]) => readonly number[] | null,
  filler: number,
): Host {
  const parts = isComplexDType(host.dtype) ? 2 : 1;
  const total = shape.reduce((n, d) => n * d, 1);
  const data: number[] = [];
  for (let linear = 0; linear < total; linear++) {
    const index = new Array<number>(shape.length);
    let rest = linear;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis] = rest % shape[axis];
      rest = Math.floor(rest / shape[axis]);
    }
    const from = source(index);
    const at = from === null ? null : from.reduce((n, i, axis) => n * host.shape[axis] + i, 0);
    for (let part = 0; part < parts; part++) data.push(at === null ? filler : host.data[at * parts + part]);
  }
  return { shape, dtype: host.dtype, data };
}

function transposed(host: Host): View {
  const order = host.shape.map((_, i) => host.shape.length - 1 - i);
  const stored = rearranged(host, [...host.shape].reverse(), (index) => [...index].reverse(), 0);
  return { stored, restore: (t) => t.permute(order) };
}

function flipped(host: Host): View {
  const stored = rearranged(host, host.shape, (index) => index.map((i, axis) => host.shape[axis] - 1 - i), 0);
  return { stored, restore: (t) => t.flip() };
}

/** Every second element of the last axis; the gaps hold a number that must not leak. */
function strided(host: Host): View {
  const filler = host.dtype === "bool" ? 1 : 77;
  if (host.shape.length === 0)
    return { stored: rearranged(host, [3], ([i]) => (i === 1 ? [] : null), filler), restore: (t) => t.index(1) };
  const last = host.shape.length - 1;
  const shape = host.shape.map((d, i) => (i === last ? 2 * d + 1 : d));
  const stored = rearranged(
    host,
    shape,
    (index) => (index[last] % 2 === 1 ? index.map((i, axis) => (axis === last ? (i - 1) / 2 : i)) : null),
    filler,
  );
  return { stored, restore: (t) => t.index("...", "1::2") };
}

const makers: Record<ViewKind, (host: Host) => View> = { transposed, flipped, strided };

/** The job with all its inputs stored in this way; same results. */
export function viewed(job: Job, kind: ViewKind): Job {
  const views = job.inputs.map(makers[kind]);
  return {
    ...job,
    name: `${job.name}, inputs ${kind}`,
    inputs: views.map((v) => v.stored),
    fn: (...stored) => job.fn(...stored.map((t, i) => views[i].restore(t))),
  };
}
