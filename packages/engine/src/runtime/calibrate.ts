// Measures what the planner's prices are made of: how fast a device multiplies, streams, computes and looks up, and how
// fast a group of processes exchanges data. Short (about a second), and kept on disk for each machine and device.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { cpus, homedir } from "node:os";
import { join } from "node:path";
import type { Device, ProcessGroup } from "../device/index.js";
import {
  type CollectiveKind,
  collectiveKinds,
  type DType,
  type GraphFn,
  type Node,
  numel,
  type OpAttrs,
  range,
  type Shape,
} from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { type Curve, type Link, parseRates, type Rates, sameLinks } from "../shard/index.js";

const version = 3;

/** Least seconds of several runs of a function on zeros; stops after `budget` seconds. */
function timeOf(device: Device, fn: GraphFn, budget = 0.025): number {
  const executable = device.compile(fn, {});
  const buffers = fn.params.map((param) => {
    const bytes = numel(param.shape) * bytesPer(param.dtype);
    const buffer = device.allocate(bytes);
    device.upload(buffer, filler(param.dtype, bytes));
    return buffer;
  });
  let least = Number.POSITIVE_INFINITY;
  const end = performance.now() + budget * 1e3;
  for (let i = 0; i < 3 || performance.now() < end; i++) {
    const start = performance.now();
    const results = executable.run(buffers);
    device.synchronize();
    // The first runs load code and memory.
    if (i > 0) least = Math.min(least, (performance.now() - start) / 1e3);
    for (const result of results) device.free(result);
  }
  for (const buffer of buffers) device.free(buffer);
  return least;
}

const bytesPer = (dtype: DType): number => (dtype === "float64" ? 8 : 4);

/** Numbers that no shortcut of the hardware speeds up; indices stay small. */
function filler(dtype: DType, bytes: number): Uint8Array {
  const count = bytes / bytesPer(dtype);
  const numbers =
    dtype === "int32"
      ? Int32Array.from({ length: count }, (_, i) => (i * 7919) % 65536)
      : dtype === "float64"
        ? Float64Array.from({ length: count }, (_, i) => 0.5 + (i % 97) / 200)
        : Float32Array.from({ length: count }, (_, i) => 0.5 + (i % 97) / 200);
  return new Uint8Array(numbers.buffer);
}

const fnOf = (params: Node[], ...outputs: Node[]): GraphFn => ({ params, outputs });

function product(n: number, dtype: DType): GraphFn {
  const [a, b] = [build.input([n, n], dtype), build.input([n, n], dtype)];
  return fnOf([a, b], build.matmul(a, b));
}

/** `count` times `step` on a vector: arithmetic without traffic. */
function chain(size: number, count: number, step: (x: Node, y: Node) => Node): GraphFn {
  const [x, y] = [build.input([size], "float32"), build.input([size], "float32")];
  let at = x;
  for (let i = 0; i < count; i++) at = step(at, y);
  return fnOf([x, y], at);
}

/** Five operations of the kinds that real kernels are made of. */
const mixed = (x: Node, y: Node): Node =>
  build.where(build.lt(x, y), build.div(build.add(x, y), y), build.binary("max", build.mul(x, y), y));

function sum(elements: number): GraphFn {
  const [x, y] = [build.input([elements], "float32"), build.input([elements], "float32")];
  return fnOf([x, y], build.add(x, y));
}

/** Seconds of a device beyond those of a call that does next to nothing. */
class Probe {
  readonly call: number;

  constructor(
    readonly device: Device,
    readonly quick: boolean,
  ) {
    this.call = timeOf(device, sum(16), 0.02);
  }

  beyondCall(fn: GraphFn): number {
    return Math.max(1e-9, timeOf(this.device, fn, this.quick ? 0.005 : 0.025) - this.call);
  }

  matmul(dtype: DType, sizes: readonly number[]): Curve {
    return sizes.map((n) => [n, (2 * n ** 3) / this.beyondCall(product(n, dtype))]);
  }

  bandwidth(): Curve {
    return [1 << 13, 1 << 17, 1 << 20, 1 << 22].map((elements) => [
      12 * elements,
      (12 * elements) / this.beyondCall(sum(elements)),
    ]);
  }

  /** A product that is so small that it is all call, many times over. */
  kernel(): number {
    const x = build.input([8, 8], "float32");
    let at = x;
    for (let i = 0; i < 64; i++) at = build.matmul(at, x);
    return this.beyondCall(fnOf([x], at)) / 64;
  }

  lookup(): number {
    const count = 1 << 16;
    const [table, indices] = [build.input([count], "float32"), build.input([count], "int32")];
    return count / this.beyondCall(fnOf([table, indices], build.gather(table, indices, 0, 0)));
  }

  random(): number {
    const count = 1 << 16;
    const key = build.input([2], "int32");
    return (
      count / this.beyondCall(fnOf([key], make("random", [key], { kind: "normal", shape: [count], dtype: "float32" })))
    );
  }

  linalg(): number {
    const n = 96;
    const a = build.input([n, n], "float32");
    const dominant = build.add(a, build.scale(build.identityLike(n, "float32"), n));
    return ((2 / 3) * n ** 3) / this.beyondCall(fnOf([a], make("det", [dominant], {})));
  }
}

/** What a device can do by itself. `links` stays that of one device alone until a group measures it. */
export function measureDevice(device: Device, options: { quick?: boolean } = {}): Rates {
  const probe = new Probe(device, options.quick ?? false);
  const large = device.kind === "cuda" ? [128, 512, 2048, 4096] : [32, 96, 256, 640];
  const elements = device.kind === "cuda" ? 1 << 20 : 1 << 13;
  return parseRates({
    name: `${device.name} (measured)`,
    assumed: false,
    matmul: { float32: probe.matmul("float32", large), float64: probe.matmul("float64", large.slice(1, 3)) },
    linalg: probe.linalg(),
    bandwidth: probe.bandwidth(),
    simple: (40 * elements) / probe.beyondCall(chain(elements, 8, mixed)),
    special: (16 * elements) / probe.beyondCall(chain(elements, 16, (x) => build.unary("exp", build.neg(x)))),
    lookup: probe.lookup(),
    random: probe.random(),
    kernel: probe.kernel(),
    call: probe.call,
    links: sameLinks([{ members: 1, latency: 0, bandwidth: 1e15 }]),
  });
}

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

function cacheFile(device: Device): string {
  const root = process.env.WEFT_CACHE_DIR ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "weft");
  const threads = (device as { threads?: number }).threads ?? 0;
  const about = [version, device.kind, device.name, threads, cpus()[0]?.model, cpus().length].join("|");
  return join(root, "rates", `${createHash("sha256").update(about).digest("hex").slice(0, 16)}.json`);
}

/** What was measured on this machine before; null where nothing was. */
export function knownRates(device: Device): Rates | null {
  const file = cacheFile(device);
  if (!existsSync(file)) return null;
  try {
    return parseRates(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    // Half-written, or from another version: measure again.
    return null;
  }
}

/** The rates of a device, from disk where this machine was measured before. `fresh` measures again. */
export function ratesOf(device: Device, options: { fresh?: boolean } = {}): Rates {
  const known = options.fresh ? null : knownRates(device);
  if (known !== null) return known;
  const rates = measureDevice(device);
  saveRates(device, rates);
  return rates;
}

/** Keeps rates for the next time; a disk that cannot be written is no error. */
export function saveRates(device: Device, rates: Rates): void {
  const file = cacheFile(device);
  try {
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(`${file}.${process.pid}`, JSON.stringify(rates, null, 1));
    renameSync(`${file}.${process.pid}`, file);
  } catch {
    // The next process measures again.
  }
}
