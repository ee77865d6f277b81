// Ranks that wait for each other in a circle, and calls in a branch of their own beside calls of every round.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type HangVerdict, judgeHang, readHang } from "./index.js";

/** The verdict on one dump per rank. */
async function verdictOf(dumps: readonly object[], source = ""): Promise<HangVerdict> {
  const folder = mkdtempSync(join(tmpdir(), "weft-circle-"));
  try {
    const program = join(folder, "train.py");
    writeFileSync(program, source);
    mkdirSync(join(folder, "dumps"));
    for (const [rank, dump] of dumps.entries())
      writeFileSync(join(folder, `dumps/rank${rank}.json`), JSON.stringify(dump).replaceAll("PROGRAM", program));
    return judgeHang(await readHang([join(folder, "dumps")]));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Issued {
  group: string;
  op?: string;
  line?: number;
}

/** What the flight recorder holds of a rank; the last call is not complete. */
function recorded(rank: number, groups: Record<string, number[]>, calls: readonly Issued[]): object {
  const numbers = new Map<string, number>();
  const entries = calls.map(({ group, op = "all_reduce", line = 3 }, i) => {
    const number = (numbers.get(group) ?? 0) + 1;
    numbers.set(group, number);
    return {
      record_id: i,
      process_group: [group, group],
      collective_seq_id: number,
      p2p_seq_id: 0,
      is_p2p: false,
      profiling_name: `nccl:${op}`,
      input_sizes: [[8]],
      output_sizes: [[8]],
      input_dtypes: ["Float"],
      output_dtypes: ["Float"],
      state: i < calls.length - 1 ? "completed" : "scheduled",
      retired: i < calls.length - 1,
      time_created_ns: 1.7e18 + i * 1e6,
      frames: [{ name: "train", filename: "PROGRAM", line }],
    };
  });
  const pgConfig = Object.fromEntries(
    Object.entries(groups).map(([name, ranks]) => [name, { name, desc: name, ranks: JSON.stringify(ranks) }]),
  );
  return { version: "2.10", rank, pg_config: pgConfig, entries };
}

test("overlapping groups: the rank that took another order between its groups", async () => {
  const groups = { a: [0, 1], b: [1, 2], c: [0, 2] };
  const of = (rank: number, ...names: string[]): object =>
    recorded(
      rank,
      groups,
      names.map((group) => ({ group })),
    );
  const verdict = await verdictOf([
    of(0, "a", "c", "a", "c", "a", "c", "c"),
    of(1, "a", "b", "a", "b", "a", "b", "a"),
    of(2, "b", "c", "b", "c", "b", "c", "b"),
  ]);
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.collective?.group], ["order", [0], "c"]);
});

test("ranks that all receive before they send are a circle", async () => {
  const dump = (rank: number): object => ({
    format: "weft.hang",
    version: 1,
    rank,
    worldSize: 3,
    pointToPoint: [
      {
        op: "recv",
        peer: (rank + 2) % 3,
        number: 1,
        index: 1,
        done: false,
        tag: 0,
        site: { file: "PROGRAM", line: 3, name: "train" },
      },
    ],
  });
  const verdict = await verdictOf([dump(0), dump(1), dump(2)]);
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["point-to-point", [0, 1, 2], 3]);
});

const loop = `def train():
    for step in range(9):
        for _ in range(tries()):
            dist.all_reduce(metric)
        dist.all_gather(parts, metric)
`;

test("a call in a loop of its own is one too many, unless something jumps over the other", async () => {
  const groups = { world: [0, 1, 2] };
  const [inner, outer] = [
    { group: "world", line: 4 },
    { group: "world", op: "all_gather", line: 5 },
  ];
  const round = [inner, inner, outer];
  const usual = recorded(0, groups, [...round, ...round, ...round, ...round]);
  const odd = recorded(1, groups, [...round, ...round, ...round, inner, inner, inner]);
  const third = recorded(2, groups, [...round, ...round, ...round, ...round]);
  const verdict = await verdictOf([usual, odd, third], loop);
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["extra", [1], 4]);
  const jumps = loop.replace("metric)\n        dist.all_gather", "metric)\n        continue\n        dist.all_gather");
  const moved = [usual, odd, third].map((dump) => JSON.parse(JSON.stringify(dump).replaceAll('"line":5', '"line":6')));
  assert.equal((await verdictOf(moved as object[], jumps)).kind, "skipped");
});
