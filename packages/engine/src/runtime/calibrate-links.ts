// Measures how fast a group of processes exchanges data: what a small message costs, and how many bytes a second arrive
// in larger ones of several sizes. All ranks measure together and get the same numbers.
import type { ProcessGroup } from "../device/index.js";
import { type CollectiveKind, collectiveKinds, numel, type OpAttrs, range, type Shape } from "../graph/index.js";
import type { Link, Rates } from "../shard/index.js";

const emptyAttrs = {
  fn: "sum",
  sequence: 0,
  axis: 0,
  splitAxis: 1,
  sizes: [],
  splitSizes: [],
  sends: [],
  receives: [],
  dtype: "float32",
} as const;

/** A collective of each kind on a square of n x n float32, with the operand's shape and the bytes that a rank receives. */
function probeOf(
  kind: CollectiveKind,
  groups: number[][],
  rank: number,
  n: number,
): { attrs: OpAttrs["collective"]; operand: Shape; bytes: number } {
  const group = groups.find((list) => list.includes(rank))!;
  const members = group.length;
  const part = n / members;
  const even = group.map(() => part);
  const next = group[(group.indexOf(rank) + 1) % members];
  const before = group[(group.indexOf(rank) + members - 1) % members];
  const box = (other: number) => ({ rank: other, start: [0, 0], stop: [n, n] });
  const whole = 4 * n * n;
  const table: { [K in CollectiveKind]: [Partial<OpAttrs["collective"]> & { shape: Shape }, Shape, number] } = {
    allReduce: [{ shape: [n, n] }, [n, n], (2 * whole * (members - 1)) / members],
    allGather: [{ shape: [n, n], sizes: even }, [part, n], (whole * (members - 1)) / members],
    reduceScatter: [{ shape: [part, n], sizes: even }, [n, n], (whole * (members - 1)) / members],
    allToAll: [
      { shape: [n, part], sizes: even, splitSizes: even },
      [part, n],
      (whole * (members - 1)) / members / members,
    ],
    exchange: [{ shape: [n, n], sends: [box(next)], receives: [box(before)] }, [n, n], whole],
  };
  const [attrs, operand, bytes] = table[kind];
  return { attrs: { ...emptyAttrs, kind, groups, rank, ...attrs }, operand, bytes };
}

/** Seconds of a collective in which all ranks start together. */
function timeCollective(group: ProcessGroup, probe: ReturnType<typeof probeOf>, repeats: number): number {
  const input = new Uint8Array(4 * numel(probe.operand));
  const output = new Uint8Array(4 * numel(probe.attrs.shape));
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < repeats; i++) {
    group.barrier();
    const start = performance.now();
    group.collective(probe.attrs, input, output, probe.operand);
    if (i > 0) least = Math.min(least, (performance.now() - start) / 1e3);
  }
  return least;
}

/** All ranks of a group call this together; each gets the same numbers, those of the slowest rank. */
export function measureLinks(group: ProcessGroup): Rates["links"] {
  const { rank, size } = group;
  const slowest = (seconds: number): number => {
    const mine = Float64Array.of(seconds);
    const all = new Float64Array(1);
    const attrs = {
      ...emptyAttrs,
      kind: "allReduce",
      fn: "max",
      dtype: "float64",
      groups: [range(size)],
      rank,
      shape: [1],
    } as const;
    group.collective(attrs, new Uint8Array(mine.buffer), new Uint8Array(all.buffer), [1]);
    return all[0];
  };
  const counts = range(size + 1).filter((n) => n > 1 && size % n === 0);
  const links = Object.fromEntries(collectiveKinds.map((kind) => [kind, [] as Link[]])) as Record<
    CollectiveKind,
    Link[]
  >;
  for (const members of counts) {
    const groups = range(size / members).map((g) => range(members).map((i) => g * members + i));
    for (const kind of collectiveKinds) {
      const unit = members * 4;
      const small = probeOf(kind, groups, rank, unit);
      const large = probeOf(kind, groups, rank, Math.ceil(1024 / unit) * unit);
      const latency = slowest(timeCollective(group, small, 12));
      const seconds = slowest(timeCollective(group, large, 6));
      const bandwidth = Math.max(1e6, (large.bytes - small.bytes) / Math.max(1e-9, seconds - latency));
      links[kind].push({ members, latency, bandwidth });
    }
  }
  return links;
}
