// Quantum problems of other libraries' documentation: errors and times beside QuTiP and, for those of several sizes, dynamiqs, at the
// same tolerance. The reference is QuTiP at a tolerance of 1e-11. Nobody's time includes the other's; the first call of Weft includes its
// compiler. Times of Weft and QuTiP include building the operators, those of dynamiqs neither that nor its compiler.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { pythonWith } from "@weft/testing/python";
import type { Suite } from "./context.js";
import { largestDifference, problems, sized } from "./quantum-peers-problems.js";
import { type SolverRow, solverRows } from "./quantum-peers-solvers.js";
import { peerFolder } from "./record.js";

/** One problem: errors against the reference and times in milliseconds. */
export interface PeerRow {
  id: string;
  /** Largest difference from the reference. */
  weftError: number | null;
  qutipError: number | null;
  /** First call with what it compiles, and the shortest of later ones: other work on the machine only adds to a call. */
  weftFirstMs: number;
  weftMs: number;
  qutipMs: number | null;
  dynamiqsError: number | null;
  dynamiqsMs: number | null;
}

/** Results of the peer by problem. */
export interface PeerAnswer {
  exact: number[];
  values: number[];
  ms: number[];
}

/** Runs problems with a peer. */
function runPeer<T extends { id: string }>(
  name: string,
  [python, script]: readonly [string, string],
  request: { ids: readonly string[]; repeats: number },
): { versions: Record<string, string>; answers: Map<string, T> } {
  const done = spawnSync(python, [join(peerFolder, script)], {
    input: JSON.stringify(request),
    encoding: "utf8",
    timeout: 900_000,
    maxBuffer: 1 << 28,
    env: { ...process.env, OMP_NUM_THREADS: "2", OPENBLAS_NUM_THREADS: "2" },
  });
  if (done.status !== 0) throw new Error(`${name} failed: ${done.stderr.trim().split("\n").at(-1)}`);
  const [versions, ...lines] = done.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  return { versions, answers: new Map(lines.map((line) => [line.id, line])) };
}

/** Runs problems with QuTiP. */
export const runQutip = (python: string, ids: readonly string[], repeats: number) =>
  runPeer<PeerAnswer & { id: string }>("QuTiP", [python, "quantum_peers.py"], { ids, repeats });

/** Duration in milliseconds, and maximum number, of the repeated calls of every library. The scripts of the peers have the same limits. */
const shortestTotal = 300;
const mostRepeats = 300;

const suite: Suite = {
  defaults: { rounds: "5" },
  async run(context) {
    const all = { ...problems, ...sized };
    const rows = context.choose(Object.keys(all).map((id) => ({ id })));
    const chosen = context.quick ? rows.slice(0, 2) : rows;
    const { record, save } = context.open("quantum-peers", { rows: [] as PeerRow[], solvers: [] as SolverRow[] });
    const find = (name: "qutip" | "dynamiqs") => (context.peers ? pythonWith(name) : { reason: "not requested" });
    const [found, second] = [find("qutip"), find("dynamiqs")];
    const repeats = context.number("rounds");
    if ("reason" in found) record.absent.qutip = found.reason;
    if ("reason" in second) record.absent.dynamiqs = second.reason;
    const peer =
      "python" in found
        ? runQutip(
            found.python,
            chosen.map(({ id }) => id),
            repeats,
          )
        : null;
    const ids = chosen.map(({ id }) => id);
    const other =
      "python" in second
        ? runPeer<Omit<PeerAnswer, "exact"> & { id: string }>("dynamiqs", [second.python, "dynamiqs_peers.py"], {
            ids,
            repeats,
          })
        : null;
    record.versions = { ...record.versions, ...peer?.versions, ...other?.versions };
    for (const { id } of chosen) {
      const timed = (): { values: number[]; ms: number } => {
        const start = performance.now();
        return { values: all[id](), ms: performance.now() - start };
      };
      const first = timed();
      const later: number[] = [];
      const total = (): number => later.reduce((sum, ms) => sum + ms, 0);
      do later.push(timed().ms);
      while (later.length < repeats || (total() < shortestTotal && later.length < mostRepeats));
      const answer = peer?.answers.get(id);
      const compiled = other?.answers.get(id);
      const row: PeerRow = {
        id,
        weftError: answer === undefined ? null : largestDifference(first.values, answer.exact),
        qutipError: answer === undefined ? null : largestDifference(answer.values, answer.exact),
        weftFirstMs: first.ms,
        weftMs: Math.min(...later),
        qutipMs: answer === undefined ? null : Math.min(...answer.ms),
        dynamiqsError:
          answer === undefined || compiled === undefined ? null : largestDifference(compiled.values, answer.exact),
        dynamiqsMs: compiled === undefined ? null : Math.min(...compiled.ms),
      };
      record.rows.push(row);
      save();
      const shown = (x: number | null): string => (x === null ? "-" : x < 0.01 ? x.toExponential(1) : x.toFixed(1));
      context.log(
        `${id.padEnd(22)} error ${shown(row.weftError)} (QuTiP ${shown(row.qutipError)}), ${shown(row.weftMs)} ms ` +
          `(first ${shown(row.weftFirstMs)}, QuTiP ${shown(row.qutipMs)}, dynamiqs ${shown(row.dynamiqsMs)})`,
      );
    }
    if (context.quick || context.rows !== undefined) return;
    for (const row of solverRows((id) => peer?.answers.get(id)?.exact, 4000)) {
      record.solvers.push(row);
      save();
      const found =
        row.deviation === null ? `error ${row.error?.toExponential(1)}` : `${row.deviation.toFixed(1)} standard errors`;
      context.log(`${row.solver.padEnd(24)} ${row.problem.padEnd(14)} ${found}`);
    }
  },
};
export default suite;
