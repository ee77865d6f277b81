// One worker of `weft quantum profile`: a process with one core that runs its share of a gate, component by component, when
// all others are ready too. It talks to its parent by messages and to nobody else.
import { availableParallelism } from "node:os";
import * as weft from "weft";
import * as quantum from "weft/quantum";
import { loadProblem } from "./quantum-run.js";

export type Pattern = "states" | "time" | "tasks" | "both";

export interface Job {
  file: string;
  device: string;
  pattern: Pattern;
  index: number;
  count: number;
  tasks: number;
  repeats: number;
}

export interface ComponentTime {
  /** The first call: tracing, compilation and the run. Milliseconds. */
  firstMs: number;
  /** Calls after it. */
  steadyMs: number[];
  /** Of results. */
  bytes: number;
}

export interface WorkerResult {
  components: Record<string, ComponentTime>;
  /** Bytes that are held when all is done. */
  heldBytes: number;
}

/** Equal shares of n among `count`, the first ones larger where it does not divide. */
export function share(n: number, index: number, count: number): [number, number] {
  return [Math.floor((n * index) / count), Math.floor((n * (index + 1)) / count)];
}

/** Columns x pieces of time for "both": the most square split. */
export function gridOf(count: number): [number, number] {
  let columns = Math.floor(Math.sqrt(count));
  while (count % columns !== 0) columns--;
  return [columns, count / columns];
}

const bytesOf = (tree: unknown): number =>
  weft
    .treeLeaves(tree)
    .reduce((sum, t) => sum + t.size * (t.dtype === "complex128" ? 16 : t.dtype === "complex64" ? 8 : 8), 0);

function timed(name: string, job: Job, into: Record<string, ComponentTime>, call: () => unknown): void {
  const once = (): [number, number] => {
    const start = performance.now();
    const leaves = weft.treeLeaves(call());
    for (const leaf of leaves) leaf.realize();
    // Reading the last one waits for a device that runs behind.
    leaves.at(-1)?.dataSync();
    return [performance.now() - start, bytesOf(leaves)];
  };
  const [firstMs, bytes] = once();
  into[name] = { firstMs, steadyMs: Array.from({ length: job.repeats }, () => once()[0]), bytes };
}

/** The evolution that this worker has to do, as a loss of the pulses' parameters. */
function shareOf(job: Job, problem: quantum.GateProblem, levels: Record<string, quantum.Levels>) {
  const { spec } = problem;
  const { dims } = problem.bind();
  const D = dims.reduce((a, b) => a * b, 1);
  const states = quantum.computationalStates(problem.bind());
  const steps = spec.evolution.steps;
  const [columnCount, timeCount] =
    job.pattern === "states"
      ? [job.count, 1]
      : job.pattern === "time"
        ? [1, job.count]
        : job.pattern === "both"
          ? gridOf(job.count)
          : [1, 1];
  const [c0, c1] = share(states.length, job.index % columnCount, columnCount);
  const [t0, t1] = share(steps, Math.floor(job.index / columnCount) % timeCount, timeCount);
  const [k0, k1] = job.pattern === "tasks" ? share(job.tasks, job.index, job.count) : [0, 1];
  const rows = quantum.identity(D).tensor().take(states.slice(c0, c1), 0);
  const run = (p: quantum.Parameters): weft.Tensor => {
    const bound = problem.bind(p);
    bound.useLevels(levels);
    const h = bound.hamiltonian();
    const total = bound.duration();
    const from = total.mul(t0 / steps);
    const { amplitudes } = h;
    const shifted =
      typeof amplitudes === "function" ? { ...h, amplitudes: (t: weft.Tensor) => amplitudes(t.add(from)) } : h;
    const options = {
      duration: total.mul((t1 - t0) / steps),
      steps: t1 - t0,
      method: spec.evolution.method,
      columns: rows,
    };
    return quantum.propagator(shifted, options).final;
  };
  // Every entry has its own weight: the cost is that of the gate's loss, whatever part of it is here.
  const loss = (p: quantum.Parameters): weft.Tensor => run(p).sum().abs().square();
  if (job.pattern !== "tasks") return { run, loss, columns: c1 - c0 };
  const scales = weft.tensor(
    Array.from({ length: Math.max(k1 - k0, 1) }, (_, k) => 1 + 0.001 * (k0 + k)),
    { dtype: "float64" },
  );
  const scaled = (p: quantum.Parameters, scale: weft.Tensor): quantum.Parameters =>
    Object.fromEntries(Object.entries(p).map(([key, x]) => [key, key.endsWith(".amplitude") ? x.mul(scale) : x]));
  return {
    run: (p: quantum.Parameters) => weft.vmap((s: weft.Tensor) => run(scaled(p, s)))(scales),
    loss: (p: quantum.Parameters) =>
      weft
        .vmap((s: weft.Tensor) => loss(scaled(p, s)))(scales)
        .sum(),
    columns: states.length,
  };
}

function pulsesOf(problem: quantum.GateProblem): quantum.Parameters {
  const all = problem.parameters();
  const keys = problem.spec.device.drives.flatMap((d) =>
    Object.keys(d.pulse.parameters).map((k) => `${d.on}.${d.name}.${k}`),
  );
  return Object.fromEntries(Object.entries(all).filter(([key]) => keys.includes(key)));
}

async function work(job: Job, allReady: () => Promise<void>): Promise<WorkerResult> {
  if (job.device === "cpu") weft.useDevice(new weft.CpuDevice({ cores: [job.index % availableParallelism()] }));
  else weft.setDevice(job.device);
  const components: Record<string, ComponentTime> = {};
  const problem = loadProblem(job.file);
  const p = pulsesOf(problem);
  const levels = problem.bind().levels();
  /** Everything on the host but the levels: terms, gates, time dependence. */
  const build = (): number => {
    const start = performance.now();
    const bound = problem.bind();
    bound.useLevels(levels);
    bound.hamiltonian();
    return performance.now() - start;
  };
  components["system build"] = { firstMs: build(), steadyMs: [], bytes: 0 };
  // Parts are solved where they are needed first: each worker has its share of them.
  const { device } = problem.spec;
  const [from, to] = share(device.names.length, job.index, job.count);
  const mine = device.names.slice(from, Math.max(to, from + 1));
  const solve = weft.jit((all: quantum.Parameters) => {
    const bound = problem.bind(all);
    return mine.map((name) =>
      device.parts[name].solve(
        Object.fromEntries(Object.keys(device.parts[name].parameters).map((k) => [k, bound.parameter(`${name}.${k}`)])),
      ),
    );
  });
  for (const leaf of weft.treeLeaves(solve(problem.parameters()))) leaf.realize();
  const { run, loss } = shareOf(job, problem, levels);
  const forward = weft.jit(run);
  const both = weft.jit((x: quantum.Parameters) => weft.valueAndGrad(loss)(x));
  // Compiled before the clock starts: what is timed is timed while all workers run.
  const firstForward = performance.now();
  forward(p).dataSync();
  const firstBoth = performance.now();
  both(p)[0].dataSync();
  const compiled = performance.now();
  await allReady();
  components["system build"].steadyMs = Array.from({ length: job.repeats }, build);
  timed("eigen-solve", job, components, () => solve(problem.parameters()));
  timed("evolution forward", job, components, () => forward(p));
  timed("evolution and gradient", job, components, () => both(p));
  components["evolution forward"].firstMs = firstBoth - firstForward;
  components["evolution and gradient"].firstMs = compiled - firstBoth;
  const u = forward(p).realize();
  const n = quantum.computationalStates(problem.bind()).length;
  const square = weft.eye(n, { dtype: "complex128" });
  const fidelity = weft.jit((x: weft.Tensor) => quantum.averageGateInfidelity(x, quantum.identity(n)));
  timed("fidelity", job, components, () => fidelity(square));
  const start = performance.now();
  const host = u.dataSync();
  const there = performance.now() - start;
  components.transfers = { firstMs: there, steadyMs: [], bytes: host.byteLength };
  for (let k = 0; k < job.repeats; k++) {
    const again = performance.now();
    u.dataSync();
    components.transfers.steadyMs.push(performance.now() - again);
  }
  return { components, heldBytes: weft.memory().bytes };
}

if (process.send !== undefined) {
  let go: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    go = resolve;
  });
  process.on("message", (message: { job?: Job; go?: boolean }) => {
    if (message.go) go();
    if (message.job === undefined) return;
    const answer = (reply: object): void => void process.send!(reply, () => process.disconnect());
    work(message.job, () => {
      process.send!({ ready: true });
      return ready;
    }).then(
      (result) => answer({ result }),
      (error: Error) => answer({ error: error.message }),
    );
  });
}
