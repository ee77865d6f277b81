// Memory of gradients by reversal: independent of the number of steps, with the same values as stored tables.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { pauli, sigmaX, sigmaZ } from "../operators/index.js";
import { type Hamiltonian, type PropagatorOptions, propagator } from "./index.js";
import { extractStepAngles } from "./step-angles.js";

const skip = weft.CpuDevice.available() ? false : "needs a compiler";
const f64 = { dtype: "float64" } as const;
type Values = Record<"amplitude" | "omega" | "length" | "jc", Tensor>;

const pair = ({ amplitude, omega, jc, length }: Values): Hamiltonian => ({
  dims: [2, 2],
  static: [
    ...[0, 1].map((i) => ({ sites: [i], matrix: sigmaZ.scale(-1.5 - 0.2 * i) })),
    { sites: [0, 1], matrix: pauli("YY").tensor("complex128").mul(jc) },
  ],
  drives: [0, 1].map((i) => ({ sites: [i], matrix: sigmaX })),
  amplitudes: (t) => {
    const envelope = t
      .div(length)
      .mul(2 * Math.PI)
      .cos()
      .neg()
      .add(1)
      .mul(0.5);
    return envelope.unsqueeze(1).mul(amplitude).mul(t.unsqueeze(1).mul(omega).cos());
  },
});

const loss = (options: Omit<PropagatorOptions, "duration">) => (p: Values) => {
  const { final } = propagator(pair(p), { duration: p.length, ...options });
  return pauli("XX").tensor("complex128").mul(final).sum().abs().square().div(-16).add(1);
};

const values = (): Values => ({
  amplitude: weft.tensor([0.5, 0.6], f64),
  omega: weft.tensor([3, 3.4], f64),
  length: weft.tensor(6, f64),
  jc: weft.tensor(0.2, f64),
});

/** Value, gradient and peak memory on a new device. */
function measured(options: Omit<PropagatorOptions, "duration">) {
  const before = weft.session().device;
  const device = new weft.CpuDevice({ threads: 1 });
  weft.useDevice(device);
  try {
    const run = weft.jit((p: Values) => weft.valueAndGrad(loss(options))(p));
    const [value, gradient] = run(values());
    const numbers = [value, ...Object.values(gradient)].flatMap((t) =>
      Array.from(t.dataSync() as ArrayLike<number>, Number),
    );
    return { numbers, peak: device.memory().peakBytes };
  } finally {
    weft.useDevice(before);
  }
}

const cases = [
  { strategy: "gates", chunks: 1, steps: 500 },
  { strategy: "dense", chunks: 4, steps: 80 },
  // A block is 16 steps of each piece; the short and the long run have the same remainder.
  { strategy: "gates", chunks: 128, steps: 128 * 36, times: 5, angles: "blocks" },
  { strategy: "gates", chunks: 1, steps: 2048 + 500, times: 1 + 4096 / 2548, angles: "blocks" },
] as const;
for (const { strategy, chunks, steps, ...more } of cases)
  test(`${strategy}, ${chunks} pieces of time: peak memory does not grow with the number of steps`, { skip }, () => {
    const { times = 10, angles } = more as { times?: number; angles?: "blocks" };
    const few = measured({ steps, chunks, strategy, angles });
    const many = measured({ steps: Math.round(times * steps), chunks, strategy, angles });
    // Blocks differ from tables only if there are several.
    const [own, length] = angles === undefined ? [few, steps] : [many, Math.round(times * steps)];
    const tables = measured({ steps: length, chunks, strategy, angles: "tables" });
    assert.equal(many.peak, few.peak);
    assert.ok(tables.peak > 1.2 * own.peak, `peak with tables ${tables.peak} bytes, without ${own.peak}`);
    own.numbers.forEach((x, i) => {
      assert.ok(Math.abs(x - tables.numbers[i]) < 1e-11, `${i}: ${x}, ${tables.numbers[i]}`);
    });
    assert.ok(
      few.numbers.every((x) => Math.abs(x) > 1e-4),
      `a value is zero: ${few.numbers}`,
    );
  });

test("angles with many parameters keep their table; unknown values of `angles` are errors", { skip }, () => {
  const sampled = (count: number) => extractStepAngles((k) => [weft.ones([count], f64).realize().mul(k)]);
  assert.equal(sampled(65), null);
  const few = sampled(3)!;
  assert.deepEqual(
    few.params.map(({ size }) => size),
    [3],
  );
  assert.deepEqual(few.angles(weft.tensor(2, f64), [weft.tensor([1, 2, 3], f64)])[0].arraySync(), [2, 4, 6]);
  assert.throws(
    () => propagator(pair(values()), { duration: 6, steps: 10, angles: "both" as never }),
    /angles must be one of steps, blocks, tables, got both/,
  );
});

test("constants have a gradient without jit", { skip }, () => {
  // full() is a constant of the graph, not a buffer.
  const written = (): Values => ({
    amplitude: weft.full([2], 0.5, f64),
    omega: weft.full([2], 3, f64),
    length: weft.full([], 6, f64),
    jc: weft.full([], 0.2, f64),
  });
  const of = (options: object) =>
    Object.entries(weft.grad(loss({ steps: 40, chunks: 1, strategy: "gates", ...options }))(written())).map(
      ([key, t]) => [key, Array.from(t.dataSync() as ArrayLike<number>, Number)] as const,
    );
  const stored = of({ gradient: "stored" });
  for (const angles of ["steps", "tables"] as const)
    of({ angles }).forEach(([key, numbers], k) => {
      numbers.forEach((x, i) => {
        const want = stored[k][1][i];
        assert.ok(Math.abs(x - want) < 1e-11 && Math.abs(want) > 1e-4, `${angles}: ${key} ${x}, ${want}`);
      });
    });
});
