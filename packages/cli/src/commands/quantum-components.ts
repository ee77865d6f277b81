// Timed components of a gate on the current device, for `weft quantum profile`. A pattern names the axis along which devices shard
// the evolution; "automatic" leaves the choice to the sharding planner.
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum/internal";

/** Sharding patterns of the evolution. */
export const patterns = ["states", "time", "tasks", "both", "automatic"] as const;
export type Pattern = (typeof patterns)[number];

/** Times of one component. */
export interface ComponentTime {
  /** First call in milliseconds: tracing, compilation and run. */
  firstMs: number;
  /** Later calls in milliseconds. */
  steadyMs: number[];
  /** Size of the results. */
  bytes: number;
}

/** Components in the order in which they are measured. */
export const componentNames = [
  "system build",
  "eigen-solve",
  "evolution forward",
  "evolution and gradient",
  "fidelity",
  "transfers",
] as const;

/** Settings of one measurement. */
interface ProfileSettings {
  pattern: Pattern;
  devices: number;
  tasks: number;
  repeats: number;
  /** Waits until these tensors are computed. */
  settle(tensors: readonly weft.Tensor[]): Promise<void>;
  /** Sets the mesh of the next programs. */
  mesh(axes: Record<string, number> | undefined): void;
  /** Called before each component of `componentNames`. */
  onComponent(name: string): void;
  /** Called after the evolution with its gradient, to read its sharding plan. */
  onEvolution(): void;
}

/** Columns and pieces of time of the pattern "both": the most square factorization. */
function gridOf(count: number): [number, number] {
  let columns = Math.floor(Math.sqrt(count));
  while (count % columns !== 0) columns--;
  return [columns, count / columns];
}

interface Division {
  mesh: Record<string, number> | undefined;
  chunks: number | undefined;
  divide: quantum.PropagatorOptions["divide"];
}

function divisionOf(pattern: Pattern, devices: number): Division {
  const [columns, pieces] = gridOf(devices);
  const ways: Record<Pattern, Division> = {
    states: { mesh: { states: devices }, chunks: 1, divide: { columns: "states" } },
    time: { mesh: { pieces: devices }, chunks: devices, divide: { pieces: "pieces" } },
    both: {
      mesh: { pieces, states: columns },
      chunks: pieces,
      divide: pieces === 1 ? { columns: "states" } : { columns: "states", pieces: "pieces" },
    },
    tasks: { mesh: { tasks: devices }, chunks: 1, divide: undefined },
    automatic: { mesh: undefined, chunks: undefined, divide: undefined },
  };
  return ways[pattern];
}

const bytesOf = (tree: unknown): number =>
  weft.treeLeaves(tree).reduce((sum, t) => sum + t.size * (t.dtype === "complex128" ? 16 : 8), 0);

/** The evolution of a gate or an ensemble of gates, and a scalar that depends on all of it. */
function evolutionOf(
  problem: quantum.GateProblem,
  levels: Record<string, quantum.PartLevels>,
  settings: ProfileSettings,
) {
  const { pattern, devices } = settings;
  const { chunks, divide } = divisionOf(pattern, devices);
  const { evolution } = problem.spec;
  const bound = problem.bind();
  const D = bound.dims.reduce((a, b) => a * b, 1);
  const states = quantum.computationalStates(bound);
  // Pieces of time need the whole propagator; otherwise only the computational states are evolved.
  const some = states.length < D && (chunks === 1 || pattern === "automatic");
  const run = (p: quantum.DeviceParameters): weft.Tensor => {
    const own = problem.bind(p);
    own.useLevels(levels);
    const columns = some ? { columns: quantum.identityOperator(D).tensor().take(states, 0) } : { chunks };
    const { steps, method } = evolution;
    return quantum.propagator(own.hamiltonian(), { duration: own.duration(), steps, method, divide, ...columns }).final;
  };
  const loss = (p: quantum.DeviceParameters): weft.Tensor => run(p).sum().abs().square();
  if (pattern !== "tasks") return { run, loss };
  const scaled = (p: quantum.DeviceParameters, scale: weft.Tensor): quantum.DeviceParameters =>
    Object.fromEntries(Object.entries(p).map(([key, x]) => [key, key.endsWith(".amplitude") ? x.mul(scale) : x]));
  const scales = (): weft.Tensor =>
    weft.shard(weft.linspace(1, 1.01, settings.tasks, { dtype: "float64" }), { 0: "tasks" });
  return {
    run: (p: quantum.DeviceParameters) => weft.vmap((s: weft.Tensor) => run(scaled(p, s)))(scales()) as weft.Tensor,
    loss: (p: quantum.DeviceParameters) =>
      (weft.vmap((s: weft.Tensor) => loss(scaled(p, s)))(scales()) as weft.Tensor).sum(),
  };
}

function pulsesOf(problem: quantum.GateProblem): quantum.DeviceParameters {
  const keys = problem.spec.device.drives.flatMap((d) =>
    Object.keys(d.pulse.parameters).map((k) => `${d.on}.${d.name}.${k}`),
  );
  return Object.fromEntries(Object.entries(problem.parameters()).filter(([key]) => keys.includes(key)));
}

/** Times every component: the first call with compilation, then steady state. */
export async function measureComponents(
  problem: quantum.GateProblem,
  settings: ProfileSettings,
): Promise<Record<string, ComponentTime>> {
  const components: Record<string, ComponentTime> = {};
  const once = async (call: () => unknown): Promise<[number, number]> => {
    const start = performance.now();
    const leaves = weft.treeLeaves(call());
    for (const leaf of leaves) leaf.realize();
    await settings.settle(leaves.slice(-1));
    const ms = performance.now() - start;
    const bytes = bytesOf(leaves);
    for (const leaf of leaves) leaf.dispose();
    return [ms, bytes];
  };
  const timed = async (name: (typeof componentNames)[number], call: () => unknown): Promise<void> => {
    settings.onComponent(name);
    const [firstMs, bytes] = await once(call);
    // The second call assigns argument slots, so it is not measured either.
    await once(call);
    const steadyMs: number[] = [];
    for (let k = 0; k < settings.repeats; k++) steadyMs.push((await once(call))[0]);
    components[name] = { firstMs, steadyMs, bytes };
  };
  settings.mesh(undefined);
  const own = problem.spec.device.values();
  const all = Object.fromEntries(Object.entries(problem.parameters()).filter(([key]) => key in own));
  const levels = problem.spec.device.with(all).levels();
  for (const leaf of weft.treeLeaves(levels)) leaf.realize();
  const p = pulsesOf(problem);
  settings.onComponent("system build");
  const build = (): number => {
    const start = performance.now();
    const bound = problem.bind();
    bound.useLevels(levels);
    bound.hamiltonian();
    return performance.now() - start;
  };
  components["system build"] = {
    firstMs: build(),
    steadyMs: Array.from({ length: settings.repeats }, build),
    bytes: 0,
  };
  const solve = weft.jit((given: quantum.DeviceParameters) => problem.spec.device.with(given).levels());
  await timed("eigen-solve", () => solve(all));
  const { run, loss } = evolutionOf(problem, levels, settings);
  settings.mesh(divisionOf(settings.pattern, settings.devices).mesh);
  const forward = weft.jit(run);
  await timed("evolution forward", () => forward(p));
  const both = weft.jit((x: quantum.DeviceParameters) => weft.valueAndGrad(loss)(x));
  await timed("evolution and gradient", () => both(p));
  settings.onEvolution();
  const n = quantum.computationalStates(problem.bind()).length;
  settings.mesh(undefined);
  const fidelity = weft.jit((x: weft.Tensor) => quantum.averageGateInfidelity(x, quantum.identityOperator(n)));
  const square = weft.eye(n, { dtype: "complex128" });
  await timed("fidelity", () => fidelity(square));
  settings.onComponent("transfers");
  components.transfers = await transfers(forward(p), settings.repeats);
  return components;
}

/** Times downloads of the propagator. */
async function transfers(u: weft.Tensor, repeats: number): Promise<ComponentTime> {
  const times: number[] = [];
  for (let k = 0; k <= repeats; k++) {
    const start = performance.now();
    await u.data();
    times.push(performance.now() - start);
  }
  return { firstMs: times[0], steadyMs: times.slice(1), bytes: bytesOf([u]) };
}
