// docs/quantum-peers.md: errors and times of quantum problems beside QuTiP and dynamiqs.
import type { PeerRow } from "../quantum-peers.js";
import type { SolverRow } from "../quantum-peers-solvers.js";
import type { RecordHead } from "../record.js";
import { markdownTable, showMs } from "./table.js";

const shownError = (x: number | null): string => (x === null ? "-" : x < 1e-15 ? "< 1e-15" : x.toExponential(1));
const shownMs = (x: number | null): string => (x === null ? "-" : showMs(x));

/** The page, or null without results. */
export function quantumPeersPage(
  record: (RecordHead & { rows: PeerRow[]; solvers?: SolverRow[] }) | undefined,
): string[] | null {
  if (record === undefined) return null;
  const { rows, versions, hardware, at, absent } = record;
  const compared = rows.filter(({ qutipMs }) => qutipMs !== null);
  const faster = compared.filter(({ weftMs, qutipMs }) => weftMs < qutipMs!);
  const nearer = compared.filter(({ weftError, qutipError }) => weftError! <= qutipError!);
  const shared = rows.filter(({ dynamiqsMs }) => typeof dynamiqsMs === "number");
  const fasterThanSecond = shared.filter(({ weftMs, dynamiqsMs }) => weftMs < dynamiqsMs!);
  const worst = compared.reduce((most, { weftError }) => Math.max(most, weftError ?? 0), 0);
  return [
    "# Accuracy and times beside QuTiP",
    "",
    "Problems of the documentation and the tests of QuTiP and dynamiqs, solved with `@weft/quantum/qutip` and with QuTiP, both at a relative",
    "tolerance of 1e-8. The error is the largest difference of all expectation values (or matrix elements) from QuTiP at a tolerance of 1e-11.",
    "Times are the shortest of whole calls on the CPU; the first call of Weft includes its compiler, where it needs one: small problems are solved on",
    "the host. Times of Weft and QuTiP include building the operators; those of dynamiqs, which solves the problems of several sizes, do not, nor",
    "its compiler. This page is written by `npm run bench:report` from `bench/results/quantum-peers.json`;",
    "`npm run bench -- quantum-peers` measures again.",
    "",
    `QuTiP ${String(versions.qutip ?? "-")}, dynamiqs ${String(versions.dynamiqs ?? "-")}, NumPy ${String(versions.numpy ?? "-")}, ${hardware.processor}, ${at.slice(0, 10)}. The machine was shared with other work.` +
      Object.entries(absent)
        .map(([name, reason]) => ` Not measured: ${name} (${reason}).`)
        .join(""),
    "",
    `The largest error of Weft is ${shownError(worst)}. Weft has the smaller error in ${nearer.length} of ${compared.length} problems. QuTiP's call is shorter ` +
      `in ${compared.length - faster.length} of ${compared.length}, that of dynamiqs in ${shared.length - fasterThanSecond.length} of ${shared.length}. Batches, gradients and larger systems are in \`docs/performance.md\`.`,
    "",
    ...markdownTable(
      ["problem", "error of Weft", "error of QuTiP", "Weft", "first call", "QuTiP", "dynamiqs"],
      rows.map((row) => [
        row.id,
        shownError(row.weftError),
        shownError(row.qutipError),
        shownMs(row.weftMs),
        shownMs(row.weftFirstMs),
        shownMs(row.qutipMs),
        shownMs(row.dynamiqsMs ?? null),
      ]),
      "---:",
    ),
    ...solverTable(record.solvers ?? []),
  ];
}

/** Errors of every solver, and deviations of trajectories. */
function solverTable(solvers: readonly SolverRow[]): string[] {
  if (solvers.length === 0) return [];
  return [
    "",
    "## Every solver",
    "",
    "The problems `cosine-drive` (Schrödinger) and `driven-qubit` (Lindblad) with every method. Methods of fixed steps take the given number of",
    "steps; adaptive ones use their default tolerances. Averages of 4,000 trajectories are compared in units of their standard errors; the",
    "table has the largest deviation of 24 averages.",
    "",
    ...markdownTable(
      ["solver", "problem", "steps", "error", "standard errors"],
      solvers.map(({ solver, problem, steps, error, deviation }) => [
        solver,
        problem,
        steps === null ? "-" : String(steps),
        shownError(error),
        deviation === null ? "-" : deviation.toFixed(1),
      ]),
      "---:",
    ),
  ];
}
