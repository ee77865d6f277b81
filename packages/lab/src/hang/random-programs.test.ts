// Random programs of several ranks, one of which leaves out, adds, swaps or changes a call once or leaves the loop early: they run
// in a simulation of blocking collectives, and the verdict on the dumps is compared with what was done.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { seededRandom } from "@weft/formats/stats";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { judgeHang, readHang } from "./index.js";

interface Step {
  op: string;
  size: number;
  line: number;
  caller?: number;
}
type Fault = "skipped" | "extra" | "order" | "shape" | "uneven";

const faults: readonly Fault[] = ["skipped", "extra", "order", "shape", "uneven"];
const operations = ["all_reduce", "all_gather", "broadcast"];

/** What each rank issues before all are stuck, by rank; the last call of a rank is not complete. */
function simulate(programs: readonly Step[][]): Step[][] {
  let number = 0;
  const agree = (a: Step, b: Step | undefined) => a.op === b?.op && a.size === b.size;
  while (programs.every((steps) => number < steps.length && agree(programs[0][number], steps[number]))) number++;
  return programs.map((steps) => steps.slice(0, number + 1));
}

function dump(steps: readonly Step[]): string {
  const file = "/home/u/train.py";
  const entries = steps.map(({ op, size, line, caller }, i) => ({
    profiling_name: `gloo:${op}`,
    input_sizes: [[size]],
    output_sizes: [[size]],
    input_dtypes: ["Float"],
    output_dtypes: ["Float"],
    frames: [
      { name: caller === undefined ? "train" : "reduce_mean", filename: file, line },
      ...(caller === undefined ? [] : [{ name: "train", filename: file, line: caller }]),
    ],
    process_group: ["0", "default_pg"],
    collective_seq_id: i + 1,
    p2p_seq_id: 0,
    is_p2p: false,
    record_id: i,
    state: "scheduled",
    retired: i < steps.length - 1,
    time_created_ns: 1.7e18 + i * 1e6,
  }));
  return JSON.stringify({ version: "2.10", entries });
}

/** The calls of one round after the fault at call `k`, and the line of the fault. */
function broken(fault: Fault, round: readonly Step[], k: number, other: Step): { round: Step[]; line: number } {
  const line = round[k].caller ?? round[k].line;
  const changed = [...round];
  if (fault === "skipped") changed.splice(k, 1);
  else if (fault === "extra") changed.splice(k + 1, 0, { ...other, line: line + 1 });
  else if (fault === "shape") changed[k] = { ...round[k], size: 77 };
  else if (fault === "order")
    changed.splice(
      k,
      2,
      { ...round[k + 1], line: 60, caller: undefined },
      { ...round[k], line: 61, caller: undefined },
    );
  else return { round: [], line };
  return { round: changed, line: fault === "extra" ? line + 1 : fault === "order" ? 60 : line };
}

test("random programs with one fault: the rank is always named, its line where the calls tell", async () => {
  const random = seededRandom(11);
  const int = (n: number) => Math.floor(random() * n);
  const anyOf = <T>(list: readonly T[]): T => list[int(list.length)];
  const missed: string[] = [];
  let [all, lines] = [0, 0];
  for (let trial = 0; trial < 120; trial++) {
    const [ranks, rounds, inHelper] = [2 + int(4), 6 + int(6), int(3) === 0];
    const body = Array.from({ length: 2 + int(4) }, (_, i): Step & { every: number } => ({
      op: inHelper ? "all_reduce" : anyOf(operations),
      size: anyOf([8, 64]),
      ...(inHelper ? { line: 3, caller: 20 + 2 * i } : { line: 20 + 2 * i }),
      every: i > 0 && int(5) === 0 ? 3 : 1,
    }));
    const fault = anyOf(faults);
    const [culprit, at] = [int(ranks), fault === "uneven" ? rounds - 1 : 3 + int(rounds - 4)];
    const usual = (round: number): Step[] => body.filter(({ every }) => round % every === every - 1);
    const k = int(usual(at).length - (fault === "order" || fault === "extra" ? 1 : 0));
    if (usual(at).length < 2) continue;
    const wrong = broken(fault, usual(at), k, { op: anyOf(operations), size: anyOf([8, 64]), line: 0 });
    const programs = Array.from({ length: ranks }, (_, rank) => [
      ...Array.from({ length: rounds }, (_, round) =>
        rank === culprit && round === at ? wrong.round : usual(round),
      ).flat(),
      { op: "barrier", size: 1, line: 100 },
    ]);
    const issued = simulate(programs);
    // Equal calls that change places do no harm.
    if (issued.every((steps, rank) => steps.length === programs[rank].length && steps.at(-1)?.op === "barrier"))
      continue;
    using folder = new TestFolder();
    for (const [rank, steps] of issued.entries()) writeFileSync(join(folder.path, `rank${rank}`), dump(steps));
    const verdict = judgeHang(await readHang([folder.path]));
    all++;
    if (fault === "uneven" || verdict.site?.line === wrong.line) lines++;
    if (String(verdict.culprits) !== String(culprit))
      missed.push(`${trial}: ${fault} by rank ${culprit} of ${ranks}: ${verdict.kind} ${verdict.culprits}`);
  }
  assert.ok(all > 80, String(all));
  assert.deepEqual(missed, []);
  assert.ok(lines / all >= 0.93, `${lines} of ${all}`);
});
