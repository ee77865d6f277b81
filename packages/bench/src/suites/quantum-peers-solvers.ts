// Every solver on a problem of QuTiP's documentation: errors of the methods of both equations, and averages of trajectories in units of
// their standard errors.
import { diffusive, hamiltonian, methodNames } from "@weft/quantum/internal";
import * as q from "@weft/quantum/qutip";
import { largestDifference } from "./quantum-peers-problems.js";

/** One solver: its error, or for trajectories its largest deviation in standard errors. */
export interface SolverRow {
  solver: string;
  problem: string;
  /** Fixed steps over the whole time, or null if the solver chooses them. */
  steps: number | null;
  error: number | null;
  deviation: number | null;
}

type Method = NonNullable<q.SolverOptions["method"]>;

/** Steps of the methods of fixed steps, by equation. A method that is not listed does not solve it, or (euler) not to 1e-6 of the norm. */
const steps: Record<string, { closed?: number | null; open?: number | null }> = {
  trotter2: { closed: 2000 },
  trotter4: { closed: 500 },
  pwcExpm: { closed: 2000, open: 480 },
  krylov: { closed: 200, open: 240 },
  tsit5: { closed: null, open: null },
  dopri8: { closed: null, open: null },
  sdirk4: { open: null },
  rk4: { closed: 1000, open: 960 },
  cptp2: { open: 960 },
  rouchon1: { open: 9600 },
  rouchon2: { open: 960 },
  rouchon3: { open: 480 },
};

const grid = (end: number, count: number): number[] => Array.from({ length: count }, (_, k) => (end * k) / (count - 1));
const [sx, sy, sz] = [q.sigmax(), q.sigmay(), q.sigmaz()];
const up = q.basis(2, 0);
const decay = q.sigmam().scale(Math.sqrt(0.2));
const numbers = (lists: readonly (readonly unknown[])[]): number[] => lists.flat().map(Number);

/** The problems, by the ids of the other table. */
const closed = (method: Method, count: number | undefined): number[] =>
  numbers(
    q.sesolve([sz.scale(0.5), [sx.scale(0.3), (t) => t.mul(1.1).cos()]], up, grid(10, 11), {
      eOps: [sz],
      method,
      steps: count,
    }).expect,
  );
const open = (method: Method, count: number | undefined): number[] =>
  numbers(q.mesolve(sx.scale(0.4), up, grid(12, 13), [decay], { eOps: [sz, sy], method, steps: count }).expect);

/** Trajectories of the open problem: averages and standard errors at all times after the first. */
const sampled: Record<string, (count: number) => { expect: number[][]; errors: number[][] }> = {
  "mcsolve (quantum jumps)": (ntraj) =>
    q.mcsolve(sx.scale(0.4), up, grid(12, 13), [decay], { eOps: [sz, sy], ntraj, substeps: 40 }),
  "smesolve (rouchon)": (ntraj) =>
    q.smesolve(sx.scale(0.4), up, grid(12, 13), [], [decay], { eOps: [sz, sy], ntraj, substeps: 200 }),
  ...Object.fromEntries(
    (["milstein", "euler"] as const).map((method) => [
      `diffusive (${method})`,
      (trajectories: number) => {
        const system = { hamiltonian: hamiltonian({ static: sx.scale(0.4) }), jumps: [{ operator: decay }] };
        const observables = { z: sz, y: sy };
        const run = diffusive(system, up, { duration: 12, steps: 2400, saves: 12, trajectories, observables, method });
        const lists = (kind: "mean" | "error"): number[][] =>
          Object.values(run.averages).map((average) => [
            kind === "mean" ? Number.NaN : 0,
            ...Array.from(average[kind].dataSync() as Float64Array, Number),
          ]);
        return { expect: lists("mean"), errors: lists("error") };
      },
    ]),
  ),
};

/** Solves with every solver; `exact` holds the reference of both problems. */
export function* solverRows(exact: (id: string) => number[] | undefined, trajectories: number): Generator<SolverRow> {
  const equations = [
    ["closed", "cosine-drive", closed],
    ["open", "driven-qubit", open],
  ] as const;
  for (const [equation, problem, run] of equations)
    for (const solver of methodNames) {
      const count = steps[solver]?.[equation];
      if (count === undefined) continue;
      const values = run(solver, count ?? undefined);
      const wanted = exact(problem);
      const error = wanted === undefined ? null : largestDifference(values, wanted);
      yield { solver, problem, steps: count, error, deviation: null };
    }
  const wanted = exact("driven-qubit");
  for (const [solver, run] of Object.entries(sampled)) {
    const { expect, errors } = run(trajectories);
    const sizes = errors.flat();
    const off = expect
      .flat()
      .map((x, k) => (sizes[k] === 0 || wanted === undefined ? 0 : Math.abs(x - wanted[k]) / sizes[k]));
    const deviation = wanted === undefined ? null : Math.max(...off);
    yield { solver, problem: "driven-qubit", steps: null, error: null, deviation };
  }
}
