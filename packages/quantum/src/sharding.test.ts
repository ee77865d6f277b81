// Automatic sharding of quantum programs: tasks, ensembles, columns of a propagator and pieces of time are sharded, only gradients
// and propagators of pieces are communicated, and results equal those of one device.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect } from "@weft/cluster";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type Rates, sameLinks } from "@weft/core/internal/cost";
import { range } from "@weft/core/internal/graph";
import { type Partitioned, partitionFunction, planSharding } from "@weft/core/internal/shard";
import { simplify } from "@weft/core/internal/transform";
import { shardedProblems } from "@weft/testing/sharded";
import { type Traced, trace } from "@weft/testing/traced";
import { controlInfidelity, prepareProblem, qubitFlip } from "./control/index.js";
import { metaGradient, policy } from "./meta/index.js";
import { pauli, sigmaX, sigmaZ } from "./operators/index.js";
import { type Hamiltonian, type PropagatorOptions, propagator } from "./solvers/index.js";
import { piecesFor } from "./solvers/schrodinger.js";
import { Fluxonium } from "./systems/index.js";

/** Slow arithmetic and fast links, so that sharding always pays. */
const machine: Rates = {
  name: "slow devices, fast links",
  assumed: true,
  matmul: { float32: [[1, 1e7]], complex128: [[1, 1e7]] },
  linalg: 1e9,
  bandwidth: [[1, 1e9]],
  simple: 1e7,
  special: 1e7,
  lookup: 1e7,
  random: 1e7,
  kernel: 1e-7,
  call: 1e-6,
  links: sameLinks([{ members: 8, latency: 1e-5, bandwidth: 1e9 }]),
};

const f64 = { dtype: "float64" } as const;
const segments = 6;
const steps = { method: "rk4", perSegment: 1 } as const;
const flip = () => prepareProblem(qubitFlip({ segments }));
const pulses = (shape: number[]): Tensor => weft.rand(shape, { seed: 1, low: -2, high: 2 }).realize();
const randomRates = (tasks: number): Tensor => weft.rand([tasks, 2], { seed: 2, low: 0.02, high: 0.15 }).realize();

/** Traces, plans and partitions a function; communication as [kind, bytes of the tensors]. */
function divide(fn: (...x: Tensor[]) => Tensor[], args: Tensor[], devices: number, rates = machine) {
  const traced: Traced = trace(fn, args);
  const simple = simplify(traced.fn);
  const made = planSharding(simple, { ranks: range(devices), rates, params: simple.params.map(() => null) });
  const { mesh, params, strategy, results } = made;
  const parts = partitionFunction(simple, { mesh, params, strategy, results });
  const factor = { allReduce: (2 * (devices - 1)) / devices } as Record<string, number>;
  const moves = parts.moves.map(({ kind, bytes }) => [kind, Math.round(bytes / (factor[kind] ?? 1))] as const);
  const { problems, run } = shardedProblems("quantum", simple, traced.args, parts, 50);
  return { made, parts, moves, problems, run };
}

const places = ({ params, results }: Partitioned, last: number): string =>
  `${params.slice(-last).join(" ")} => ${results.join(" ")}`;

const chain = (n: number, [amplitude, jc]: readonly Tensor[]): Hamiltonian => ({
  dims: range(n).map(() => 2),
  static: [
    ...range(n).map((i) => ({ sites: [i], matrix: sigmaZ.scale(-1.5 - 0.2 * i) })),
    ...range(n - 1).map((i) => ({ sites: [i, i + 1], matrix: pauli("YY").tensor("complex128").mul(jc) })),
  ],
  drives: range(n).map((i) => ({ sites: [i], matrix: sigmaX })),
  amplitudes: (t) => t.mul(3).cos().unsqueeze(1).mul(amplitude),
});

/** 1 - |tr(X U)|^2 / 4^n and its gradient in the amplitudes and the coupling. */
const gateGradient =
  (n: number, options: Omit<PropagatorOptions, "duration">) =>
  (amplitude: Tensor, jc: Tensor): Tensor[] => {
    const [value, gradient] = weft.valueAndGrad((p: { amplitude: Tensor; jc: Tensor }) => {
      const { final } = propagator(chain(n, [p.amplitude, p.jc]), { duration: 2, ...options });
      return pauli("X".repeat(n))
        .tensor("complex128")
        .mul(final)
        .sum()
        .abs()
        .square()
        .div(-(4 ** n))
        .add(1);
    })({ amplitude, jc });
    return [value, gradient.amplitude, gradient.jc];
  };
const gateArguments = (n: number): Tensor[] => [weft.full([n], 0.8, f64), weft.tensor(0.3, f64)];

describe("automatic sharding", () => {
  let device: weft.Device;
  before(() => {
    device = weft.session().device;
    weft.setDevice("reference");
  });
  after(() => weft.useDevice(device));

  for (const devices of [2, 3]) {
    test(`tasks over ${devices} devices need no communication`, () => {
      const each = weft.vmap(
        weft.valueAndGrad((u: Tensor, g: Tensor) => controlInfidelity(flip(), steps, u, g), { argument: [0, 1] }),
      );
      const { made, parts, moves, problems } = divide(
        (u, g) => {
          const [value, [du, dg]] = each(u, g) as unknown as [Tensor, [Tensor, Tensor]];
          return [value, du, dg];
        },
        [pulses([13, segments, 2]), randomRates(13)],
        devices,
      );
      assert.equal(String(made.mesh), `d=${devices}`);
      assert.equal(places(parts, 2), "[d, -, -] [d, -] => [d] [d, -, -] [d, -]");
      assert.deepEqual(moves, []);
      assert.deepEqual(problems, []);
    });

    test(`one pulse for an ensemble over ${devices} devices needs one all-reduce of value and gradient`, () => {
      const { parts, moves, problems } = divide(
        (u, g) =>
          weft.valueAndGrad((pulse: Tensor) =>
            (weft.vmap((rates: Tensor) => controlInfidelity(flip(), steps, pulse, rates))(g) as Tensor).mean(),
          )(u) as unknown as Tensor[],
        [pulses([segments, 2]), randomRates(13)],
        devices,
      );
      assert.equal(places(parts, 2), "[-, -] [d, -] => [] [-, -]");
      assert.deepEqual(moves, [["allReduce", 4 * (1 + 2 * segments)]]);
      assert.deepEqual(problems, []);
    });

    test(`a meta-batch over ${devices} devices needs one all-reduce of loss and gradient`, () => {
      const options = { width: 8, hidden: 1, segments, controls: 2 };
      const params = policy.init({ ...options, features: 3 }, weft.key(4));
      const leaves = weft.treeLeaves(params).map((leaf) => leaf.realize() as Tensor);
      const weights = leaves.reduce((n, leaf) => n + leaf.size, 0);
      const { parts, moves, problems } = divide(
        (rates, features, ...given) => {
          let next = 0;
          const start = weft.treeMap(() => given[next++], params);
          const { grads, loss } = metaGradient(
            (p: typeof params, task: { rates: Tensor; features: Tensor }) =>
              controlInfidelity(flip(), steps, policy.apply(p, task.features, options), task.rates),
            start,
            { rates, features },
            { steps: 2, rate: 0.01, order: 1 },
          );
          return [loss, ...weft.treeLeaves(grads)];
        },
        [randomRates(12), weft.rand([12, 3], { seed: 5 }).realize() as Tensor, ...leaves],
        devices,
      );
      assert.ok(parts.params.slice(-2 - leaves.length, -leaves.length).every((p) => String(p) === "[d, -]"));
      assert.ok(parts.params.slice(-leaves.length).every((p) => p.isReplicated));
      assert.deepEqual(moves, [["allReduce", 4 * (weights + 1)]]);
      assert.deepEqual(problems, []);
    });

    test(`the eigenproblems of seven parts over ${devices} devices need no communication`, () => {
      const part = new Fluxonium({ ec: 1, ej: 4, el: 1, phiExt: Math.PI, levels: 3, points: 40, range: 4 * Math.PI });
      const given = Object.fromEntries(
        Object.entries(part.parameters).map(([key, x]) => [key, weft.full([7], x, f64).realize() as Tensor]),
      );
      given.el = weft.linspace(0.8, 1.2, 7, f64).realize() as Tensor;
      const keys = Object.keys(given);
      const { made, parts, moves, problems } = divide(
        (...values) => {
          const each = Object.fromEntries(keys.map((key, i) => [key, values[i]]));
          return weft.treeLeaves(weft.vmap((one: typeof each) => part.solve(one))(each));
        },
        Object.values(given),
        devices,
        // Expensive eigensolvers, as for the 400 points of a real part.
        { ...machine, linalg: 1e6 },
      );
      assert.equal(made.mesh.size, devices);
      assert.ok(
        parts.results.every((placement) => String(placement).startsWith("[d")),
        `${parts.results}`,
      );
      assert.deepEqual(moves, []);
      assert.deepEqual(problems, []);
    });

    test(`columns of a propagator over ${devices} devices need all-reduces of the overlap and the gradient`, () => {
      const run = gateGradient(devices, { steps: 96, chunks: 1, strategy: "gates" });
      const { made, moves, problems } = divide(run, gateArguments(devices), devices);
      assert.equal(made.mesh.size, devices);
      // The trace, complex128; then the amplitudes and a coupling, float64.
      assert.deepEqual(moves, [
        ["allReduce", 16],
        ["allReduce", 8 * (devices + 1)],
      ]);
      assert.deepEqual(problems, []);
    });

    test(`pieces of time over ${devices} devices are gathered once, and so are their cotangents`, () => {
      const pieces = 2 * devices;
      const run = gateGradient(2, { steps: 24 * pieces, chunks: pieces, strategy: "gates" });
      const { made, parts, moves, problems } = divide(run, gateArguments(2), devices);
      assert.equal(made.mesh.size, devices);
      const gathers = moves.filter(([kind]) => kind === "allGather");
      // Propagators and cotangents of the pieces: 4 x 4 complex numbers each.
      const others = (16 * 16 * pieces * (devices - 1)) / devices;
      assert.deepEqual(
        gathers.map(([, bytes]) => bytes),
        [others, others],
      );
      for (const [kind] of moves) assert.ok(kind === "allGather" || kind === "allReduce", kind);
      assert.ok(moves.length <= 5, `${moves.map(String)}`);
      assert.equal(parts.functions.length, devices);
      assert.deepEqual(problems, []);
    });
  }
});

test("the default number of pieces is equal on all workers, and 1 if columns suffice", () => {
  const on = (workers: number, gpu = false) => ({ workers, gpu });
  // Four columns in four pieces fill sixteen lanes; dense matrices on one device need no pieces.
  assert.deepEqual([piecesFor(5000, 4, "gates", on(1)), piecesFor(5000, 64, "dense", on(1))], [4, 1]);
  // 64 columns on eight workers: four pieces would leave four workers idle.
  assert.deepEqual([piecesFor(1000, 64, "dense", on(8)), piecesFor(1000, 64, "dense", on(3))], [8, 3]);
  assert.deepEqual([piecesFor(1000, 1024, "dense", on(8)), piecesFor(5000, 16, "gates", on(8))], [1, 8]);
  assert.deepEqual([piecesFor(700, 2, "gates", on(8)), piecesFor(100, 16, "gates", on(8))], [16, 3]);
  assert.equal(piecesFor(5000, 16, "gates", on(1, true)), 128);
});

describe("on workers", { skip: weft.CpuDevice.available() ? false : "needs a compiler" }, () => {
  test("propagator columns and tasks with captured operators give the results of one device", async () => {
    const run = weft.jit((a: Tensor, jc: Tensor) => gateGradient(2, { steps: 64, chunks: 1 })(a, jc));
    const ensemble = weft.jit((u: Tensor, g: Tensor) =>
      weft.vmap(weft.valueAndGrad((x: Tensor, y: Tensor) => controlInfidelity(flip(), steps, x, y)))(u, g),
    );
    const numbers = async (all: unknown): Promise<number[][]> =>
      Promise.all(weft.treeLeaves(all).map(async (t) => Array.from((await t.data()) as ArrayLike<number>, Number)));
    const expected = [
      await numbers(run(gateArguments(2)[0], gateArguments(2)[1])),
      await numbers(ensemble(pulses([5, segments, 2]), randomRates(5))),
    ];
    process.env.WEFT_FORCE_SHARD = "1";
    const cluster = await connect({ devices: 2, cores: 1 });
    try {
      const [amplitude, jc] = gateArguments(2);
      const found = [
        await numbers(run(amplitude, jc)),
        await numbers(ensemble(pulses([5, segments, 2]), randomRates(5))),
      ];
      assert.ok(cluster.device.counts.sharded >= 2, `${cluster.device.counts.sharded} sharded runs`);
      found.forEach((list, k) => {
        list.forEach((values, i) => {
          values.forEach((value, j) => {
            const want = expected[k][i][j];
            assert.ok(
              Math.abs(value - want) <= 1e-5 * Math.max(1, Math.abs(want)),
              `${k}.${i}.${j}: ${value}, ${want}`,
            );
          });
        });
      });
    } finally {
      delete process.env.WEFT_FORCE_SHARD;
      await cluster.close();
    }
  });
});
