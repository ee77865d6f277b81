// Measures the rates behind the planner's cost estimates: products, memory bandwidth, arithmetic and lookups of a device, and
// the links between processes. Takes about a second; the results are stored on disk per machine and device.

import { parseRates, type RateCurve, type Rates, sameLinks } from "../cost/index.js";
import type { Device } from "../device/index.js";
import { type DType, type GraphFn, type Node, numel } from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { measureCpu } from "./calibrate-cpu.js";
import { Effort } from "./effort.js";
import { knownRates, saveRates } from "./rates-file.js";

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

/** Random numbers, which no shortcut of the hardware speeds up; indices stay small. */
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

/** Seconds of a function beyond those of a call that does almost nothing. */
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

  matmul(dtype: DType, sizes: readonly number[]): RateCurve {
    return sizes.map((n) => [n, (2 * n ** 3) / this.beyondCall(product(n, dtype))]);
  }

  bandwidth(): RateCurve {
    return [13, 17, 20, 22].map((power) => {
      const bytes = 12 * 2 ** power;
      return [bytes, bytes / this.beyondCall(sum(2 ** power))];
    });
  }

  /** Many products so small that they consist of call overhead. */
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

  all(): Omit<Rates, "kernel" | "call" | "links"> {
    const sizes = [128, 512, 2048, 4096];
    const elements = 1 << 20;
    return {
      name: `${this.device.name} (measured)`,
      assumed: false,
      matmul: { float32: this.matmul("float32", sizes), float64: this.matmul("float64", sizes.slice(1, 3)) },
      linalg: this.linalg(),
      bandwidth: this.bandwidth(),
      simple: (40 * elements) / this.beyondCall(chain(elements, 8, mixed)),
      special: (16 * elements) / this.beyondCall(chain(elements, 16, (x) => build.unary("exp", build.neg(x)))),
      lookup: this.lookup(),
      random: this.random(),
    };
  }

  linalg(): number {
    const n = 96;
    const a = build.input([n, n], "float32");
    const dominant = build.add(a, build.scale(build.identityLike(n, "float32"), n));
    return ((2 / 3) * n ** 3) / this.beyondCall(fnOf([a], make("det", [dominant], {})));
  }
}

/** Four digits exceed the precision of the measurement and keep messages short. */
export const rounded = <T>(value: T): T =>
  JSON.parse(JSON.stringify(value, (_, x) => (typeof x === "number" ? Number(x.toPrecision(4)) : x))) as T;

/** Rates of a single device. `links` stays at its default until a group measures it. */
export function measureDevice(device: Device, options: { quick?: boolean; together?: () => void } = {}): Rates {
  const { quick = false, together } = options;
  const probe = new Probe(device, quick);
  const effort = new Effort();
  const measured = device.traits.sharesHost ? measureCpu(device, { quick, effort, together }) : probe.all();
  return parseRates({
    ...rounded(measured),
    ...(device.traits.sharesHost && effort.isDisturbed ? { disturbed: true } : {}),
    kernel: probe.kernel(),
    call: probe.call,
    links: sameLinks([{ members: 1, latency: 0, bandwidth: 1e15 }]),
  });
}

/** The rates of a device, from disk where this machine was measured before. `fresh` measures again. */
export function ratesOf(device: Device, options: { fresh?: boolean; quick?: boolean } = {}): Rates {
  const stored = options.fresh ? null : knownRates(device);
  if (stored !== null) return stored;
  const rates = measureDevice(device, options);
  saveRates(device, rates);
  return rates;
}
