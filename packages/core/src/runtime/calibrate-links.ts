// Measures how fast a group of processes exchanges data: what a small message costs, and how many bytes per second arrive
// in larger ones of several sizes. All ranks measure together and get the same numbers.

import type { Link, Rates } from "../cost/index.js";
import type { Device, ProcessGroup } from "../device/index.js";
import {
  bareCollective,
  type CollectiveKind,
  collectiveKinds,
  type Node,
  numel,
  type OpAttrs,
  range,
  type Shape,
} from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { measureDevice, rounded } from "./calibrate.js";
import { upperMedian } from "./calibrate-cpu.js";

const emptyAttrs = { ...bareCollective, splitAxis: 1, dtype: "float32" } as const;

/** A collective of each kind on a square of n x n float32, with the operand's shape and the bytes that a rank receives. */
export function collectiveProbe(
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

type Probe = ReturnType<typeof collectiveProbe>;

/** Seconds of collectives through the group alone, as devices use it that stage their data. */
function timeByHost(group: ProcessGroup, probes: readonly Probe[], repeats: number): number[][] {
  return probes.map((probe) => {
    const input = new Uint8Array(4 * numel(probe.operand));
    const output = new Uint8Array(4 * numel(probe.attrs.shape));
    return range(repeats).map(() => {
      group.barrier();
      const start = performance.now();
      group.collective(probe.attrs, input, output, probe.operand);
      return (performance.now() - start) / 1e3;
    });
  });
}

/** The same inside one program, one after the other: operands were just written, in memory that all members can read. */
function timeInProgram(group: ProcessGroup, device: Device, probes: readonly Probe[], repeats: number): number[][] {
  const params = probes.map(({ operand }) => build.input(operand, "float32"));
  const outputs: Node[] = [];
  let before = build.constant(0, "float32");
  probes.forEach(({ attrs, operand }, i) => {
    const written = build.add(params[i], build.expandTo(build.reshape(before, []), operand));
    const moved = make("collective", [written], { ...attrs, sequence: i });
    before = build.slice(moved, [0, 0], [1, 1]);
    outputs.push(before);
  });
  const was = device.timing;
  device.timing = true;
  const executable = device.compile({ params, outputs }, {});
  const buffers = params.map(({ shape }) => {
    const buffer = device.allocate(4 * numel(shape));
    device.upload(buffer, new Uint8Array(buffer.bytes));
    return buffer;
  });
  const steps = executable.kernels.flatMap(({ kind }, i) => (kind === "collective" ? [i] : []));
  const runs = range(repeats).map(() => {
    group.barrier();
    for (const result of executable.run(buffers)) device.free(result);
    return steps.map((step) => executable.lastTimes![step]);
  });
  for (const buffer of buffers) device.free(buffer);
  device.timing = was;
  return probes.map((_, i) => runs.map((times) => times[i]));
}

/** The mean of every number over all ranks, because the last rank to arrive does not wait. */
function meanOverRanks(group: ProcessGroup, list: readonly number[]): number[] {
  const { rank, size } = group;
  const mine = Float64Array.from(list);
  const all = new Float64Array(list.length);
  const attrs = {
    ...emptyAttrs,
    kind: "allReduce",
    dtype: "float64",
    groups: [range(size)],
    rank,
    shape: [list.length],
  } as const;
  group.collective(attrs, new Uint8Array(mine.buffer), new Uint8Array(all.buffer), [list.length]);
  return Array.from(all, (sum) => sum / size);
}

/** Whether all ranks say yes. */
export const allAgree = (group: ProcessGroup, yes: boolean): boolean => meanOverRanks(group, [yes ? 1 : 0])[0] === 1;

/** Sides of the squares of numbers that are exchanged, after the smallest: 64 KiB, 1 MiB and 16 MiB. */
const sides = [128, 512, 2048];

/**
 * All ranks of a group call this together; each gets the same numbers. With a device of the group, collectives are
 * measured where programs issue them.
 */
export function measureLinks(group: ProcessGroup, device?: Device): Rates["links"] {
  const { rank, size } = group;
  const counts = range(size + 1).filter((n) => n > 1 && size % n === 0);
  const links = Object.fromEntries(collectiveKinds.map((kind) => [kind, [] as Link[]])) as Record<
    CollectiveKind,
    Link[]
  >;
  for (const members of counts) {
    const groups = range(size / members).map((g) => range(members).map((i) => g * members + i));
    const unit = members * 4;
    const sizes = [unit, ...sides.map((side) => Math.ceil(side / unit) * unit)];
    const probes = collectiveKinds.flatMap((kind) => sizes.map((n) => collectiveProbe(kind, groups, rank, n)));
    const times = device === undefined ? timeByHost(group, probes, 7) : timeInProgram(group, device, probes, 9);
    const mean = meanOverRanks(group, times.flat());
    const repeats = times[0].length;
    // The first runs load code and memory.
    const seconds = probes.map((_, i) => upperMedian(mean.slice(i * repeats + 2, (i + 1) * repeats)));
    collectiveKinds.forEach((kind, k) => {
      const [latency, ...larger] = seconds.slice(k * sizes.length, (k + 1) * sizes.length);
      const curve = larger.map((time, i): [number, number] => {
        const { bytes } = probes[k * sizes.length + i + 1];
        return [bytes, Math.max(1e6, bytes / Math.max(time / 8, time - latency))];
      });
      links[kind].push({ members, latency, bandwidth: curve[curve.length - 1][1], curve });
    });
  }
  return rounded(links);
}

/** The numbers of a tree in its order, and the tree with other numbers. */
function numbersOf(tree: unknown): number[] {
  if (typeof tree === "number") return [tree];
  return typeof tree === "object" && tree !== null ? Object.values(tree).flatMap(numbersOf) : [];
}

function withNumbers<T>(tree: T, numbers: Iterator<number>): T {
  if (typeof tree === "number") return numbers.next().value;
  if (Array.isArray(tree)) return tree.map((item) => withNumbers(item, numbers)) as T;
  if (typeof tree !== "object" || tree === null) return tree;
  return Object.fromEntries(Object.entries(tree).map(([key, item]) => [key, withNumbers(item, numbers)])) as T;
}

/** The rates of the slowest rank, on all ranks: the others wait for it wherever they exchange data. */
export function slowestRates<T extends Pick<Rates, "products" | "matmul">>(group: ProcessGroup, mine: T): T {
  const numbers = numbersOf(mine);
  // Every rank measured the same things; if one could not, every rank uses its own.
  if (!allAgree(group, meanOverRanks(group, [numbers.length])[0] === numbers.length)) return mine;
  const table = mine.products?.float32?.nn ?? [];
  const score = table.reduce((n, seconds) => n + Math.log(seconds), 0);
  const scores = range(group.size).map((rank) => (rank === group.rank ? score * group.size : 0));
  const all = meanOverRanks(group, scores);
  const slowest = all.indexOf(Math.max(...all));
  const ofSlowest = meanOverRanks(
    group,
    numbers.map((x) => (slowest === group.rank ? x * group.size : 0)),
  );
  return rounded(withNumbers(mine, ofSlowest[Symbol.iterator]()));
}

/**
 * All ranks of a group call this together, and rank 0 gets what was measured: a device alone, the slowest of all at the
 * same time, and the links between them. The others get null.
 */
export function measureGroup(group: ProcessGroup, device: Device, options: { quick?: boolean } = {}): Rates | null {
  const alone = group.rank === 0 ? measureDevice(device, options) : null;
  group.barrier();
  const { links: _, disturbed, ...crowded } = measureDevice(device, { ...options, together: () => group.barrier() });
  const isQuiet = allAgree(group, disturbed !== true);
  const rates = { ...slowestRates(group, crowded), ...(isQuiet ? {} : { disturbed: true }) };
  const links = measureLinks(group, device);
  return alone === null ? null : { ...alone, links, crowded: { members: group.size, rates } };
}
