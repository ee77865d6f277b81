// The rows of the quantum suite: what Weft computes, how it is checked, and the peers. The suite's process and the one
// that serves Weft build the same table.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { adam, clipByGlobalNorm } from "@weft/core/optim";
import { median } from "@weft/formats/stats";
import * as quantum from "@weft/quantum";
import type { Answers, ContestRow } from "./contest.js";
import type { PreparedRow } from "./contestant.js";
import * as programs from "./quantum-programs.js";

interface QuantumRow extends ContestRow {
  make(): PreparedRow;
}

/** Fidelity of the published test pulse, the first task of every ensemble. */
const publishedFidelity = 0.9778427990483176;
const f64 = { dtype: "float64" } as const;
const item = (t: Tensor): number => Number(t.itemSync());
const numbers = (t: Tensor): number[] => Array.from(t.dataSync() as ArrayLike<number>, Number);

/** Every number that a peer reports has to be Weft's. */
function agree(answers: Answers): string | null {
  const { weft: own, ...peers } = answers;
  const near = (a: number, b: number): boolean => Math.abs(a - b) <= 2e-3 * Math.max(Math.abs(a), Math.abs(b), 1e-6);
  for (const [name, theirs] of Object.entries(peers)) {
    const bad = theirs.findIndex((x, i) => !near(x, own[i]));
    if (bad >= 0) return `${name}: number ${bad} is ${theirs[bad]}, Weft has ${own[bad]}`;
  }
  return null;
}

/** Weft's first number is the expected one, and the peers agree with Weft: their discretization may be another one. */
const expectValue =
  (what: string, expected: number, tolerance: number) =>
  (answers: Answers): string | null => {
    const [value] = answers.weft;
    return Math.abs(value - expected) <= tolerance ? agree(answers) : `${what} is ${value}, expected ${expected}`;
  };

/** Value and gradients of every task. The check is the first value, the mean, the norm and the mean rate gradients. */
function ensemble(
  infidelity: (pulse: Tensor, rates: Tensor) => Tensor,
  { pulses, rates }: { pulses: Tensor; rates: Tensor },
): PreparedRow {
  const fidelity = (u: Tensor, g: Tensor): Tensor => weft.sub(1, infidelity(u, g));
  const each = weft.vmap(weft.valueAndGrad(fidelity, { argument: [0, 1] }));
  const program = weft.jit((u: Tensor, g: Tensor) => each(u, g) as [Tensor, [Tensor, Tensor]]);
  const [values, [du, dg]] = program(pulses, rates);
  return {
    check: [numbers(values)[0], item(values.mean()), item(du.square().sum().sqrt()), ...numbers(dg.mean(0))],
    info: { kernels: program.kernels(pulses, rates) },
    call() {
      const [value, gradients] = program(pulses, rates);
      // On a GPU the call returns before the work is done: reading one number waits for it.
      item(value.index(0));
      for (const t of [value, ...gradients]) t.dispose();
    },
  };
}

/** One iteration of MAML with Adam; the losses of the first ten iterations are the check. */
function maml(n: number, order: 1 | 2): PreparedRow {
  const optimizer = adam({ learningRate: 1e-3 });
  type State = ReturnType<typeof optimizer.init>;
  const step = weft.jit(
    (params: quantum.PolicyParameters, state: State, tasks: programs.TaskTensors) => {
      const { grads, loss } = programs.adaptationGradient(params, tasks, order);
      const [clipped] = clipByGlobalNorm(grads, 1);
      const [next, after] = optimizer.update(params, clipped, state);
      return [next, after, loss] as [quantum.PolicyParameters, State, Tensor];
    },
    { donate: [0, 1] },
  );
  let params = programs.policyParameters();
  let state = optimizer.init(params);
  const batches = Array.from({ length: 10 }, (_, i) => programs.taskBatch(n, i));
  let at = 0;
  const call = (): number => {
    let mean: Tensor;
    [params, state, mean] = step(params, state, batches[at++ % batches.length]);
    return item(mean);
  };
  const check = batches.map(call);
  return { call, check, info: { kernels: step.kernels(params, state, batches[0]).length } };
}

/** The Pauli chain with one piece of time and with eight; the faster one is timed. */
function pauliChain(n: number, steps: number, pieces: number[]): PreparedRow {
  const p = programs.chainParameters(n);
  const tries = pieces.map((chunks) => {
    const loss = programs.pauliChainLoss(n, { steps, chunks });
    const program = weft.jit((x: programs.ChainParameters) => weft.valueAndGrad(loss)(x));
    const value = item(program(p)[0]);
    const call = (): void => {
      for (const leaf of weft.treeLeaves(program(p))) leaf.realize().dataSync();
    };
    const samples = Array.from({ length: 3 }, () => {
      const start = performance.now();
      call();
      return performance.now() - start;
    });
    return { chunks, value, ms: median(samples), call };
  });
  const best = tries.reduce((a, b) => (a.ms <= b.ms ? a : b));
  return {
    check: [best.value],
    call: best.call,
    info: { tries: tries.map(({ chunks, value, ms }) => ({ chunks, value, ms })) },
  };
}

/** The fluxonium chain; the check is the infidelity and two of its slopes. */
function fluxonium(n: number, steps: number): PreparedRow {
  const p = programs.fluxoniumChain(n).parameters();
  const program = weft.jit((x: quantum.DeviceParameters) => weft.valueAndGrad(programs.fluxoniumLoss(n, steps))(x));
  const [value, slopes] = program(p);
  return {
    check: [value, slopes["q0.el"], slopes["q0.x.amplitude"]].map(item),
    call: () => {
      for (const leaf of weft.treeLeaves(program(p))) leaf.realize().dataSync();
    },
    info: { parameters: weft.treeLeaves(p).length },
  };
}

/** Two-level systems on a grid of frequencies and drives; the check is <z> of the last one at the end. */
function twoLevel(grid: [number, number]): PreparedRow {
  const psi = quantum.basisState(2, 0);
  const run = (omega: Tensor, eps: Tensor): Tensor => {
    const h = quantum.hamiltonian({
      static: quantum.sigmaZ.scale(0),
      drives: [quantum.sigmaZ, quantum.sigmaX],
      amplitudes: weft.stack([omega, eps]).unsqueeze(0),
    });
    const options = { duration: 1, steps: 100, saves: 50, method: "rk4", dtype: "complex64" } as const;
    return quantum.schrodinger(h, psi, options).states!;
  };
  const all = weft.jit((omegas: Tensor, epsilons: Tensor) =>
    weft.vmap((o: Tensor) => weft.vmap((e: Tensor) => run(o, e))(epsilons))(omegas),
  );
  const args = [weft.linspace(0, 10, grid[0]), weft.linspace(0, 1, grid[1])] as const;
  const last = all(...args)
    .index(grid[0] - 1, grid[1] - 1, 49)
    .abs()
    .square();
  const call = (): void => {
    const states = all(...args);
    item(states.index(0, 0, 0, 0).real());
    states.dispose();
  };
  return { check: [item(last.index(0).sub(last.index(1)))], call };
}

/** Cavities with decay; the check is the population of the highest level, which decays on its own. */
function cavities(m: number, batch: number): PreparedRow {
  const d = 3;
  const dims = Array.from({ length: m }, () => d);
  const n = quantum.numberOperator(d);
  const kerr = n.mul(n.sub(quantum.identityOperator(d))).scale(2 * Math.PI * 0.2);
  const one = kerr.add(n.scale(2 * Math.PI * 0.1));
  const D = d ** m;
  const jumps = dims.map((_, k) => ({ operator: quantum.destroy(d), sites: [k], rate: cavityRate }));
  const h = { dims, static: dims.map((_, k) => ({ sites: [k], matrix: one })), drives: [], amplitudes: null };
  const top = quantum.densityOf(quantum.basisState(D, D - 1)).tensor();
  const run = (scale: Tensor): Tensor =>
    quantum.lindblad({ hamiltonian: h, jumps }, top.mul(scale), { duration: 1, steps: 100, gradient: "stored" }).final;
  const all = weft.jit((scales: Tensor) => weft.vmap(run)(scales));
  const scales = weft.ones([batch], { dtype: "complex128" });
  const read = (t: Tensor): number => item(t.index(0, D - 1, D - 1).real());
  const call = (): void => {
    const states = all(scales);
    read(states);
    states.dispose();
  };
  return { check: [read(all(scales))], call };
}
const cavityRate = 0.01;

/** GRAPE from scratch on many tasks; the check is the infidelity at the end. */
function grape(tasks: number, iterations: number): PreparedRow {
  const loss = (u: Tensor, dephasing: Tensor, relaxation: Tensor): Tensor => {
    const h = quantum.hamiltonian({
      static: quantum.sigmaZ.scale(0),
      drives: [quantum.sigmaX, quantum.sigmaY],
      amplitudes: u,
    });
    const jumps = [
      { operator: quantum.sigmaMinus, rate: relaxation },
      { operator: quantum.sigmaZ.scale(Math.SQRT1_2), rate: dephasing },
    ];
    const start = quantum.densityOf(quantum.basisState(2, 0));
    return quantum.lindblad({ hamiltonian: h, jumps }, start, { duration: 1, steps: 60 }).final.index(0, 0).real();
  };
  const optimizer = adam({ learningRate: 0.1 });
  type State = ReturnType<typeof optimizer.init>;
  const step = weft.jit((u: Tensor, state: State, gd: Tensor, gr: Tensor) => {
    const [values, grads] = weft.vmap(weft.valueAndGrad(loss))(u, gd, gr) as [Tensor, Tensor];
    const [next, after] = optimizer.update(u, grads, state);
    return [next, after, values.mean()] as [Tensor, State, Tensor];
  });
  const gd = weft.rand([tasks], { seed: 1, low: 0.02, high: 0.15, ...f64 });
  const gr = weft.rand([tasks], { seed: 2, low: 0.01, high: 0.08, ...f64 });
  const call = (): number => {
    let u = weft.randn([tasks, 60, 2], { seed: 3, std: 0.1, ...f64 });
    let state = optimizer.init(u);
    let value = u;
    for (let k = 0; k < iterations; k++) [u, state, value] = step(u, state, gd, gr);
    return item(value);
  };
  const infidelity = call();
  return { check: [infidelity], call, info: { fidelity: 1 - infidelity } };
}

const ensembleTitle = (b: number): string => `one-qubit Lindblad ensemble, ${b} tasks, value and gradient`;
const harmoniqs = "harmoniqs, cuDensityMat on an A100: one action of the Lindbladian; RK4 needs 400";

/** Losses of the Pauli chain at 4,999 steps from an independent method (a fourth-order Trotter formula). */
const chainValues: Record<number, number> = { 4: 0.014200098361, 6: 0.021495009821 };

/** All rows for a device; `quick` has one tiny row of each kind. */
export function quantumTable(device: string, quick: boolean): QuantumRow[] {
  const gpu = device !== "cpu";
  const steps = quick ? 20 : 4999;
  const pick = <T>(tiny: T[], cpu: T[], cuda: T[]): T[] => (quick ? tiny : gpu ? cuda : cpu);
  const torchPeers = gpu ? { torch: null, "torch-tree": null } : { torch: 50, "torch-tree": null, qutip: 100 };
  const mamlPeers = gpu
    ? { torch: 100, "torch-graph": null, "torch-tree": null, "torch-tree-graph": 100 }
    : { torch: null, "torch-tree": null };
  const grid: [number, number] = quick ? [3, 2] : [100, 30];
  return [
    ...pick([2], [16, 4096], [1, 16, 256, 4096, 65536, 1048576]).map((b) => ({
      id: `lindblad-ensemble-${b}`,
      title: ensembleTitle(b),
      peers: torchPeers,
      check: expectValue("fidelity of the test pulse", publishedFidelity, 1e-5),
      make: () => ensemble(programs.flipInfidelity(), programs.ensembleInputs(b)),
    })),
    ...pick([2], [32], [32, 200, 4096]).map((n) => ({
      id: `maml-${n}`,
      title: `first-order MAML iteration, ${n} tasks, 5 steps, 49,016 parameters`,
      peers: n === 32 ? mamlPeers : {},
      check: agree,
      make: () => maml(n, 1),
    })),
    ...pick<number>([], [32], [32]).map((n) => ({
      id: `maml-${n}-second-order`,
      title: "the same of second order",
      make: () => maml(n, 2),
    })),
    ...pick([2], [16], [16, 4096]).map((b) => ({
      id: `controlled-z-${b}`,
      title: `controlled-Z, ${b} tasks of 12 states, value and gradient`,
      peers: { torch: null },
      check: agree,
      make: () => ensemble(programs.controlledZInfidelity(), programs.controlledZInputs(b)),
    })),
    ...pick([2], [2, 4, 6], [2, 4, 6]).map((n) => ({
      id: `pauli-chain-${n}`,
      title: `Pauli chain n=${n}, ${steps} steps, complex128, value and gradient`,
      peers: { jax: gpu ? 50 : null },
      names: { jax: `pauli-chain-${n}-${steps}` },
      check: chainValues[n] === undefined || quick ? agree : expectValue("loss", chainValues[n], 1e-9),
      make: () => pauliChain(n, steps, quick ? [1] : [1, 8]),
    })),
    ...pick<number>([], [2, 3], [3, 5]).map((n) => ({
      id: `fluxonium-${n}`,
      title: `fluxonium chain n=${n}, ${steps} steps, complex128, value and gradient in all parameters`,
      peers: { jax: null, "jax-tree": null },
      names: { jax: `fluxonium-${n}-${steps}`, "jax-tree": `fluxonium-${n}-${steps}-tree` },
      check: agree,
      make: () => fluxonium(n, steps),
    })),
    {
      id: "two-level",
      title: `${(grid[0] * grid[1]).toLocaleString("en-US")} two-level systems, 50 saves`,
      // Precession about (eps, 0, omega) with both at the end of their ranges.
      check: expectValue("<z>", 1 - (2 / 101) * Math.sin(Math.sqrt(101)) ** 2, 2e-4),
      published: { ms: 44.1, by: "dynamiqs' documentation (CPU, batched)" },
      make: () => twoLevel(grid),
    },
    ...pick<[number, number, number]>(
      [[2, 2, 0.38]],
      [
        [2, 256, 0.38],
        [4, 1, 8.05],
      ],
      [
        [2, 256, 0.38],
        [4, 256, 8.05],
      ],
    ).map(([m, batch, actionMs]) => ({
      id: `cavities-${m}`,
      title: `${m} cavities (D=${3 ** m}), 100 RK4 steps, batch ${batch}`,
      check: expectValue("population of the highest level", Math.exp(-2 * m * cavityRate), 1e-9),
      published: { actionMs, batch: 256, by: harmoniqs },
      make: () => cavities(m, batch),
    })),
    ...pick([2], [15], [15, 65536]).map((tasks) => ({
      id: `grape-${tasks}`,
      title: `GRAPE, ${tasks} tasks, ${quick ? 3 : 200} Adam steps`,
      check: ({ weft: [infidelity] }: Answers) =>
        infidelity < (quick ? 1 : 0.05) ? null : `GRAPE ended at an infidelity of ${infidelity}`,
      published: { fidelity: 0.9754, by: "metaqctrl, 150 iterations from scratch" },
      make: () => grape(tasks, quick ? 3 : 200),
    })),
  ];
}
