// Quantum workloads, each checked before it is timed: W4 fluxonium chain with its gradient, W5 batched two-level systems, W6
// coupled cavities with decay, W7 GRAPE. Peers run in the same run where they are installed; figures that others published
// stand beside ours with their hardware and are not compared as ratios. Writes results/quantum.json.
// node bench/quantum.mjs [--device cpu] [--rows w4-2,w5] [--repeats 20] [--chunks 1,8] [--out FILE]
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as weft from "@weft/core";
import { adam } from "@weft/core/optim";
import * as quantum from "@weft/quantum";
import { allowedCores } from "./lib/contestant.mjs";
import { hardware } from "./lib/hardware.mjs";
import { chainLoss, chainParameters } from "./programs/chain.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    device: { type: "string", default: "cpu" },
    rows: { type: "string" },
    repeats: { type: "string", default: "20" },
    chunks: { type: "string", default: "1,8" },
    steps: { type: "string", default: "4999" },
    out: { type: "string" },
  },
});
weft.setDevice(options.device);
const onGpu = options.device.startsWith("cuda");
const repeats = Number(options.repeats);
const f64 = { dtype: "float64" };
const median = (xs) => [...xs].sort((a, b) => a - b)[Math.floor((xs.length - 1) / 2)];

/** A call's result and how long it took: the first one has the compilation in it. */
function first(call) {
  const start = performance.now();
  const result = call();
  for (const leaf of weft.treeLeaves(result)) leaf.realize();
  return [result, performance.now() - start];
}

/** Calls after the first one, at most five seconds of them. */
function timed(call) {
  const wait = () => {
    const leaves = weft.treeLeaves(call());
    for (const leaf of leaves) leaf.realize();
    leaves.at(-1).dataSync();
  };
  wait();
  const samples = [];
  const end = performance.now() + 5e3;
  while (samples.length < repeats && (samples.length < 3 || performance.now() < end)) {
    const t = performance.now();
    wait();
    samples.push(performance.now() - t);
  }
  return { ms: median(samples), samples };
}

function check(name, got, want, tolerance) {
  if (!(Math.abs(got - want) <= tolerance)) throw new Error(`${name}: ${got}, wanted ${want} +- ${tolerance}`);
  return { value: got, wanted: want, error: Math.abs(got - want) };
}

// Losses of the stand-in chain at 4,999 steps from an independent method (trotter4 at the same steps agrees to 1e-8).
const chainValues = { 2: null, 4: 0.014200098361, 6: 0.021495009821 };

function chain(n) {
  return () => {
    const steps = Number(options.steps);
    const p = chainParameters(n);
    const tries = options.chunks.split(",").map((chunks) => {
      const value = weft.jit((x) => chainLoss(n, { steps, chunks: Number(chunks) })(x));
      const both = weft.jit((x) => weft.valueAndGrad(chainLoss(n, { steps, chunks: Number(chunks) }))(x));
      const [[made], firstMs] = first(() => both(p));
      const loss = made.itemSync();
      if (chainValues[n] !== null && steps === 4999) check(`chain of ${n}`, loss, chainValues[n], 1e-9);
      return {
        chunks: Number(chunks),
        loss,
        firstMs,
        value: timed(() => value(p)),
        valueAndGradient: timed(() => both(p)),
      };
    });
    const best = tries.reduce((a, b) => (a.valueAndGradient.ms <= b.valueAndGradient.ms ? a : b));
    return {
      work: `chain n=${n}, ${steps} steps, complex128, value and gradient`,
      ms: best.valueAndGradient.ms,
      firstMs: best.firstMs,
      tries,
      peer: chainPeer(n, steps),
    };
  };
}

/** The most bytes that a value with its gradient holds, on a device of its own: for few steps and for ten times as many. */
function chainMemory() {
  const device = weft.session().device;
  const bytes = (n, steps, angles) => {
    const own = new weft.CpuDevice();
    weft.useDevice(own);
    const both = weft.jit((x) => weft.valueAndGrad(chainLoss(n, { steps, chunks: 1, angles }))(x));
    both(chainParameters(n))[0].itemSync();
    return own.memory().peakBytes;
  };
  try {
    const start = performance.now();
    const held = [2, 4, 6].map((n) => ({
      qubits: n,
      statesBytes: 3 * 16 * 4 ** n,
      steps499: bytes(n, 499),
      steps4999: bytes(n, 4999),
      tables4999: bytes(n, 4999, "tables"),
    }));
    for (const { qubits, steps499, steps4999 } of held) check(`bytes of ${qubits} qubits`, steps4999, steps499, 0);
    return {
      work: "memory of W4, value and gradient (the time is that of measuring it)",
      held,
      ms: performance.now() - start,
      firstMs: 0,
    };
  } finally {
    weft.useDevice(device);
  }
}

/** JAX where it is installed: a scan over the same steps. */
function chainPeer(n, steps) {
  const { stdout, status } = spawnSync("python3", [join(here, "peers/jax_chain.py"), String(n), String(steps)], {
    encoding: "utf8",
    timeout: 300e3,
  });
  if (status !== 0) return { absent: "JAX is not installed for python3" };
  return JSON.parse(stdout.trim().split("\n").at(-1));
}

function twoLevel() {
  const psi = quantum.basisState(2, 0);
  const run = (omega, eps) => {
    const h = quantum.hamiltonian({
      static: quantum.sigmaZ.scale(0),
      drives: [quantum.sigmaZ, quantum.sigmaX],
      amplitudes: weft.stack([omega, eps]).unsqueeze(0),
    });
    return quantum.schrodinger(h, psi, { duration: 1, steps: 100, saves: 50, method: "rk4", dtype: "complex64" })
      .states;
  };
  const all = weft.jit((omegas, epsilons) => weft.vmap((o) => weft.vmap((e) => run(o, e))(epsilons))(omegas));
  const omegas = weft.linspace(0, 10, 100);
  const epsilons = weft.linspace(0, 1, 30);
  const [states, firstMs] = first(() => all(omegas, epsilons));
  // <z> at the end of the last one: precession about (eps, 0, omega).
  const w = Math.hypot(10, 1);
  const exact = 1 - 2 * (1 / w) ** 2 * Math.sin(w) ** 2;
  const last = states.index(99, 29, 49).abs().square();
  const z = last.index(0).sub(last.index(1)).itemSync();
  return {
    work: "3,000 two-level systems, 50 saves",
    check: check("z", z, exact, 2e-4),
    firstMs,
    ...timed(() => all(omegas, epsilons)),
    published: { ms: 44.1, by: "dynamiqs' documentation (CPU, batched)" },
  };
}

function cavities(m, batch) {
  return () => {
    const d = 3;
    const dims = Array.from({ length: m }, () => d);
    const n = quantum.numberOperator(d);
    const [chi, kappa, gamma] = [2 * Math.PI * 0.2, 2 * Math.PI * 0.1, 0.01];
    const one = n
      .mul(n.sub(quantum.identityOperator(d)))
      .scale(chi)
      .add(n.scale(kappa));
    const D = d ** m;
    const jumps = dims.map((_, k) => ({ operator: quantum.destroy(d), sites: [k], rate: gamma }));
    const h = { dims, static: dims.map((_, k) => ({ sites: [k], matrix: one })), drives: [], amplitudes: null };
    const top = quantum.densityOf(quantum.basisState(D, D - 1)).tensor();
    const run = (scale) =>
      quantum.lindblad({ hamiltonian: h, jumps }, top.mul(scale), { duration: 1, steps: 100, gradient: "stored" })
        .final;
    const all = weft.jit((scales) => weft.vmap(run)(scales));
    const scales = weft.ones([batch], { dtype: "complex128" });
    // All cavities start with two photons: each level decays by itself.
    const [made, firstMs] = first(() => all(scales));
    const value = made
      .index(0, D - 1, D - 1)
      .real()
      .itemSync();
    const published = { 2: { actionMs: 0.38, batch: 256 }, 4: { actionMs: 8.05, batch: 256 } }[m];
    return {
      work: `${m} cavities (D=${D}), 100 RK4 steps, batch ${batch}`,
      check: check("top level", value, Math.exp(-2 * m * gamma), 1e-9),
      firstMs,
      ...timed(() => all(scales)),
      published: {
        ...published,
        by: "harmoniqs, cuDensityMat on an A100: one action of the Lindbladian; RK4 needs 400",
      },
    };
  };
}

function grape(tasks) {
  return () => {
    const jumps = (gd, gr) => [
      { operator: quantum.sigmaMinus, rate: gr },
      { operator: quantum.sigmaZ.scale(Math.SQRT1_2), rate: gd },
    ];
    const loss = (u, gd, gr) => {
      const h = quantum.hamiltonian({
        static: quantum.sigmaZ.scale(0),
        drives: [quantum.sigmaX, quantum.sigmaY],
        amplitudes: u,
      });
      return quantum
        .lindblad({ hamiltonian: h, jumps: jumps(gd, gr) }, quantum.densityOf(quantum.basisState(2, 0)), {
          duration: 1,
          steps: 60,
        })
        .final.index(0, 0)
        .real();
    };
    const optimizer = adam({ learningRate: 0.1 });
    const step = weft.jit((u, state, gd, gr) => {
      const [values, grads] = weft.vmap(weft.valueAndGrad(loss))(u, gd, gr);
      const [next, after] = optimizer.update(u, grads, state);
      return [next, after, values.mean()];
    });
    const gd = weft.rand([tasks], { seed: 1, low: 0.02, high: 0.15, ...f64 });
    const gr = weft.rand([tasks], { seed: 2, low: 0.01, high: 0.08, ...f64 });
    const train = () => {
      let u = weft.randn([tasks, 60, 2], { seed: 3, std: 0.1, ...f64 });
      let state = optimizer.init(u);
      let value = null;
      for (let k = 0; k < 200; k++) [u, state, value] = step(u, state, gd, gr);
      return value;
    };
    const [trained, firstMs] = first(train);
    const infidelity = trained.itemSync();
    if (!(infidelity < 0.05)) throw new Error(`GRAPE ended at ${infidelity}`);
    return {
      work: `GRAPE, ${tasks} tasks, 200 Adam steps`,
      fidelity: 1 - infidelity,
      firstMs,
      ...timed(train),
      published: { fidelity: 0.9754, by: "metaqctrl, 150 iterations from scratch" },
    };
  };
}

const rows = {
  "w4-2": chain(2),
  "w4-4": chain(4),
  "w4-6": chain(6),
  ...(onGpu ? {} : { "w4-memory": chainMemory }),
  w5: twoLevel,
  "w6-2": cavities(2, 256),
  "w6-4": cavities(4, onGpu ? 256 : 1),
  "w7-15": grape(15),
  ...(onGpu ? { "w7-65536": grape(65536) } : {}),
};
const wanted = options.rows?.split(",") ?? Object.keys(rows);
const results = {};
for (const id of wanted) {
  if (!(id in rows)) throw new Error(`there is no row ${id}; known: ${Object.keys(rows).join(", ")}`);
  try {
    results[id] = rows[id]();
    const { work, ms, firstMs, published } = results[id];
    console.log(
      `${id.padEnd(9)} ${work}: ${ms.toPrecision(4)} ms (first call ${(firstMs / 1e3).toPrecision(3)} s)${published === undefined ? "" : `; published: ${JSON.stringify(published)}`}`,
    );
  } catch (error) {
    results[id] = { failed: String(error?.message ?? error) };
    console.log(`${id.padEnd(9)} FAILED: ${results[id].failed}`);
    process.exitCode = 1;
  }
}
const out =
  options.out ?? (options.rows === undefined ? join(here, `results/quantum${onGpu ? "-gpu" : ""}.json`) : null);
if (out !== null)
  writeFileSync(
    out,
    `${JSON.stringify({ device: options.device, hardware: hardware(allowedCores()), date: new Date().toISOString(), rows: results }, null, 1)}\n`,
  );
