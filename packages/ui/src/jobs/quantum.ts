// Computes a gate for the quantum page. The thread keeps the compiled problem of the specification that is open, so that a moved
// slider costs one call.
import { jit, type Tensor, tensor } from "@weft/core";
import { plainText } from "@weft/formats/text";
import {
  basisState,
  blochSvg,
  type DeviceParameters,
  errorBudget,
  GateProblem,
  Minimizer,
  Operator,
  parseGateSpec,
  phaseSpaceSvg,
  pulseLines,
  schrodinger,
} from "@weft/quantum/internal";
import type { GateParameter, GateView } from "../wire/index.js";

/** What the page asks for. */
export interface GateTask {
  /** Text of the specification. */
  text: string;
  /** Values that differ from the specification. */
  set: Record<string, number | number[]>;
  /** Compute what takes several evolutions, too. */
  full: boolean;
  /** Iterations of the optimization that go on from these values; 0 for none. */
  iterations: number;
}

interface Session {
  text: string;
  problem: GateProblem;
  loss: (p: DeviceParameters) => Tensor;
  minimizer: { at: string; run: Minimizer } | null;
}

const mostIterations = 50;
const saves = 120;
let session: Session | null = null;

function open(text: string): Session {
  if (session?.text === text) return session;
  const problem = new GateProblem(parseGateSpec(text, "specification"));
  session = { text, problem, loss: jit((p: DeviceParameters) => problem.loss(p)), minimizer: null };
  return session;
}

const numbers = (x: Tensor): number | number[] =>
  x.size === 1 && x.rank === 0 ? x.itemSync() : Array.from(x.dataSync() as Float64Array);
const asTensor = (value: number | number[]): Tensor => tensor(value as number[], { dtype: "float64" });

/** The values of the sliders as parameters; unknown keys and wrong lengths are refused. */
function checked(problem: GateProblem, set: GateTask["set"]): DeviceParameters {
  const known = problem.parameters();
  return Object.fromEntries(
    Object.entries(set).map(([key, value]) => {
      if (!Object.hasOwn(known, key)) throw new Error(`there is no parameter "${plainText(key.slice(0, 100))}"`);
      const list = Array.isArray(value) ? value : [value];
      const wanted = known[key].size;
      if (
        list.length !== wanted ||
        Array.isArray(value) !== known[key].rank > 0 ||
        !list.every((x) => Number.isFinite(x))
      )
        throw new Error(`${key}: needs ${wanted === 1 ? "a number" : `${wanted} numbers`}`);
      return [key, asTensor(value)];
    }),
  );
}

function parametersOf({ problem }: Session, p: DeviceParameters): GateParameter[] {
  const learned = problem.learned();
  const { bounds } = problem.spec;
  return Object.entries({ ...problem.parameters(), ...p })
    .slice(0, 200)
    .map(([key, x]) => {
      const value = numbers(x);
      const given = Object.hasOwn(bounds, key) ? bounds[key] : undefined;
      // Around the value of the specification, so that the ends stay where they are while a slider moves.
      const own = numbers(problem.parameters()[key]);
      const center = typeof own === "number" ? own : 0;
      const width = Math.abs(center) > 1e-12 ? Math.abs(center) : 1;
      const [low, high] =
        Array.isArray(given) && given.every((end) => typeof end === "number")
          ? (given as [number, number])
          : [center >= 0 && center !== 0 ? 0 : center - width, center + width];
      return { key, value, low, high, learned: Object.hasOwn(learned, key) };
    });
}

/** The states of a device of one part over the pulse, from its ground state and without decay. */
function statesOf(problem: GateProblem, p: DeviceParameters): { re: number[][]; im: number[][] } | null {
  if (problem.spec.device.names.length !== 1) return null;
  try {
    const bound = problem.bind(p);
    const duration = problem.spec.evolution.duration ?? bound.duration().itemSync();
    const [levels] = bound.dims;
    const segments = Object.values(problem.parameters()).reduce((most, x) => lcm(most, Math.max(1, x.size)), 1);
    const least = saves * segments;
    const steps = Math.ceil((problem.spec.evolution.steps ?? 1000) / least) * least;
    const run = schrodinger(bound.hamiltonian({ duration }), basisState(levels, 0), { duration, steps, saves });
    const rows = (x: Tensor): number[][] => {
      const all = x.dataSync();
      return Array.from({ length: saves }, (_, k) =>
        Array.from({ length: levels }, (_, s) => Number(all[k * levels + s])),
      );
    };
    return { re: rows(run.states!.real()), im: rows(run.states!.imag()) };
  } catch {
    return null; // A method that does not save states: the other pictures remain.
  }
}

/** Rounding may leave a probability slightly outside of 0 to 1. */
const unit = (value: number): number => Math.min(1, Math.max(0, value));
const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
const lcm = (a: number, b: number): number => Math.min(1000, (a * b) / gcd(a, b));

function blochOf({ re, im }: { re: number[][]; im: number[][] }): string {
  const path = re.map((row, k): [number, number, number] => {
    const [a, b, c, d] = [row[0], im[k][0], row[1], im[k][1]];
    return [2 * (a * c + b * d), 2 * (a * d - b * c), a * a + b * b - c * c - d * d];
  });
  return blochSvg(path, "Lowest two levels, from |0>");
}

/** Pictures of the Wigner function over the evolution. */
const wignerFrames = 24;

/** Wigner functions over time of a part with many levels, taken as those of an oscillator. The last frame is the final state. */
async function wignerOf({ re, im }: { re: number[][]; im: number[][] }, duration: number): Promise<GateView["wigner"]> {
  const levels = re[0].length;
  if (levels < 4) return null;
  const { Qobj, wigner } = await import("@weft/quantum/qutip");
  const grid = Array.from({ length: 61 }, (_, k) => -4 + (8 * k) / 60);
  const at = Array.from({ length: wignerFrames }, (_, k) => Math.round(((k + 1) * re.length) / wignerFrames) - 1);
  const values = at.map((k) => {
    const state = new Operator(levels, 1, Float64Array.from(re[k]), Float64Array.from(im[k]));
    return wigner(Qobj.of(state), grid, grid);
  });
  // One scale of colors for all frames; otherwise a state that spreads would seem to keep its height.
  const most = Math.max(...values.flatMap((rows) => rows.map((row) => Math.max(...row.map(Math.abs)))));
  const t = at.map((k) => ((k + 1) * duration) / re.length);
  const frames = values.map((rows, k) =>
    phaseSpaceSvg(rows, grid, grid, `Wigner function at ${t[k].toPrecision(3)} ns`, most),
  );
  return { t, frames };
}

/** Goes on with the optimization from these values; returns the new ones. */
function optimize(own: Session, set: GateTask["set"], p: DeviceParameters, iterations: number): DeviceParameters {
  const { problem } = own;
  const at = JSON.stringify(set);
  if (own.minimizer?.at !== at) {
    const learned = Object.keys(problem.learned());
    const all = { ...problem.parameters(), ...p };
    const start = Object.fromEntries(learned.map((key) => [key, all[key]]));
    const fixed = Object.fromEntries(Object.entries(p).filter(([key]) => !learned.includes(key)));
    const loss = (q: DeviceParameters): Tensor => problem.loss({ ...fixed, ...q });
    own.minimizer = { at, run: new Minimizer(loss, start, { iterations: 10_000, bounds: problem.spec.bounds }) };
  }
  const { run } = own.minimizer;
  for (let k = 0; k < Math.min(iterations, mostIterations) && run.finished() === null; k++) if (!run.step()) break;
  return { ...p, ...run.params };
}

/** The gate of a task. */
export async function viewGate(task: GateTask): Promise<GateView> {
  const own = open(task.text);
  const { problem } = own;
  let p = checked(problem, task.set);
  if (task.iterations > 0) p = optimize(own, task.set, p, task.iterations);
  // Numbers are arguments of one program, so that a moved slider compiles nothing. Only lengths must be known to it: steps end
  // where segments end.
  const isKnown = Object.keys(p).some((key) => /(^|\.)length$/.test(key));
  const all = isKnown ? p : { ...problem.learned(), ...p };
  const evaluate = isKnown ? problem.loss : own.loss;
  evaluate(all).itemSync();
  const start = performance.now();
  const infidelity = unit(evaluate(all).itemSync());
  const seconds = (performance.now() - start) / 1000;
  const { labels, times, weights, from, open: isOpen } = problem.populations(saves, undefined, p);
  const peak = (s: number): number => Math.max(...weights.map((row) => row[s]));
  const shown = labels
    .map((_, s) => s)
    .sort((a, b) => peak(b) - peak(a))
    .slice(0, 6);
  const states = statesOf(problem, p);
  const view: GateView = {
    name: plainText(problem.spec.name),
    target: plainText(problem.spec.target.name),
    duration: times.at(-1) ?? 0,
    parameters: parametersOf(own, p),
    infidelity,
    error: null,
    leaked: null,
    budget: null,
    pulses: pulseLines(problem, p).map(({ name, band, times: t, values: y }) => ({ name, envelope: band, t, y })),
    populations: {
      from,
      open: isOpen,
      labels: shown.map((s) => `|${labels[s]}>`),
      t: times,
      weights: shown.map((s) => weights.map((row) => row[s])),
    },
    bloch: states === null ? null : blochOf(states),
    wigner: states === null || !task.full ? null : await wignerOf(states, times.at(-1) ?? 0),
    seconds,
    optimization: null,
    warning: Number.isFinite(infidelity) ? null : "the infidelity is not a number: a value is out of range",
  };
  if (own.minimizer !== null && task.iterations > 0) {
    const { run } = own.minimizer;
    view.optimization = { values: [...run.values].slice(-2000), done: run.finished() };
    // The page sends these values back, and the optimization goes on.
    own.minimizer.at = JSON.stringify(Object.fromEntries(Object.entries(p).map(([key, x]) => [key, numbers(x)])));
  }
  if (task.full) addReport(view, problem, p);
  return view;
}

/** What takes several evolutions: the checks of the result, and the shares of its error. */
function addReport(view: GateView, problem: GateProblem, p: DeviceParameters): void {
  try {
    const { error, leaked } = problem.report(p);
    Object.assign(view, { error, leaked: leaked === null ? null : unit(leaked), budget: errorBudget(problem, p) });
  } catch (error) {
    view.warning = plainText((error as Error).message);
  }
}
