// Verdicts from recorded evidence of every kind, written here: dumps of several versions, logs, RAS reports, stacks.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { type HangVerdict, hangText, judgeHang, readHang } from "./index.js";

const root = mkdtempSync(join(tmpdir(), "weft-hang-test-"));
after(() => rmSync(root, { recursive: true, force: true }));
let count = 0;

function folderWith(files: Record<string, string | Buffer>): string {
  const folder = join(root, String(count++));
  mkdirSync(folder);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

const verdictOf = async (files: Record<string, string | Buffer>): Promise<HangVerdict> =>
  judgeHang(await readHang([folderWith(files)]));

interface Step {
  op: string;
  line: number;
  /** The line stands in a helper that this line calls. */
  caller?: number;
  size?: number;
  dtype?: string;
}

/** A dump in the format of one version of the flight recorder, its last call not completed. */
function dump(steps: readonly Step[], version: "list" | "1.5" | "2.3" | "2.10"): string {
  const nccl = version !== "2.10";
  const entries = steps.map(({ op, line, caller, size = 64, dtype = "Float" }, i) => {
    const frames = [
      { name: op, filename: "/x/site-packages/torch/distributed/distributed_c10d.py", line: 100 },
      { name: caller === undefined ? "train" : "reduce_mean", filename: "/home/u/train.py", line },
      ...(caller === undefined ? [] : [{ name: "train", filename: "/home/u/train.py", line: caller }]),
    ];
    const finished = i < steps.length - 1;
    const shared = {
      profiling_name: `${nccl ? "nccl" : "gloo"}:${op}`,
      input_sizes: [[size]],
      output_sizes: [[size]],
      frames,
    };
    const state = nccl ? (finished ? "completed" : "scheduled") : "scheduled";
    if (version === "list") return { ...shared, seq_id: i + 1, state, time_created: 1_700_000_000_000_000 + i };
    if (version === "1.5") return { ...shared, pg_id: 0, seq_id: i + 1, state, retired: finished };
    const types = { input_dtypes: [dtype], output_dtypes: [dtype] };
    const names = { process_group: ["0", "default_pg"], collective_seq_id: i + 1, p2p_seq_id: 0, is_p2p: false };
    return { ...shared, ...types, ...names, record_id: i, state, retired: finished, time_created_ns: 1.7e18 + i * 1e6 };
  });
  return JSON.stringify(version === "list" ? entries : { version, entries });
}

const loop = (steps: number, ...body: Step[]): Step[] => Array.from({ length: steps }, () => body).flat();
const reduce = { op: "all_reduce", line: 10 };
const gather = { op: "all_gather", line: 12 };

for (const version of ["list", "1.5", "2.3", "2.10"] as const)
  test(`a skipped collective is found in dumps of version ${version}`, async () => {
    const good = [...loop(5, reduce, gather), reduce];
    const bad = [...loop(5, reduce, gather), gather];
    const verdict = await verdictOf({ nccl_trace_rank_0: dump(good, version), nccl_trace_rank_1: dump(bad, version) });
    assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["skipped", [1], 10]);
    assert.match(hangText(verdict), /Rank 1 did not issue a collective[\s\S]*train\.py:10/);
  });

test("mixed versions, missing, renamed and truncated dumps give a verdict or a reason, never an exception", async () => {
  const good = dump([...loop(5, reduce, gather), reduce], "2.10");
  const bad = dump([...loop(5, reduce, gather), gather], "2.3");
  const mixed = await verdictOf({ rank0: good, rank1: bad, rank2: good });
  assert.deepEqual(mixed.culprits, [1]);
  const renamed = await readHang([folderWith({ "first.json": good, "second.json": bad, "third.json": good })]);
  assert.deepEqual(judgeHang(renamed).culprits, [1]);
  assert.match(renamed.problems.join(), /taken for rank/);
  for (let end = 0; end <= bad.length; end += 97)
    await verdictOf({ rank0: good, rank1: bad.slice(0, end), rank2: good });
  const missing = await verdictOf({ rank0: good, rank2: good });
  assert.deepEqual([missing.kind, missing.culprits], ["dead", [1]]);
  for (const junk of [
    "",
    "[]",
    "{}",
    "null",
    "{",
    '{"entries":5}',
    '{"entries":[{"profiling_name":5,"frames":{}}]}',
    "\0\0",
    "text",
    "[[[[[",
  ])
    assert.ok(["none", "unknown"].includes((await verdictOf({ rank0: junk, rank1: junk })).kind), junk);
});

test("dumps that another program has rewritten are read, or it is said why not", async () => {
  const good = dump([...loop(5, reduce, gather), reduce], "2.10");
  const bad = dump([...loop(5, reduce, gather), gather], "2.10");
  const backward = (text: string): string => {
    const value = JSON.parse(text) as { entries: unknown[] };
    return JSON.stringify({ ...value, entries: value.entries.reverse() });
  };
  const forms: Record<string, (text: string) => string> = {
    mark: (text) => `\uFEFF${text}`,
    words: (text) => text.replaceAll('"retired"', '"duration_ms":NaN,"other":-Infinity,"retired"'),
    backward,
  };
  for (const [name, form] of Object.entries(forms)) {
    const evidence = await readHang([folderWith({ rank0: form(good), rank1: form(bad), rank2: form(good) })]);
    const verdict = judgeHang(evidence);
    assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["skipped", [1], 10], name);
    assert.deepEqual(evidence.problems, [], name);
  }
  const others = { rank0: gzipSync(good), rank1: "(dp0\nVversion\np1\nV2.10\np2\ns.", rank2: good };
  const { problems } = await readHang([folderWith(others)]);
  assert.match(problems.join("; "), /compressed with gzip[\s\S]*protocol 0/);
});

test("sizes and types that differ name the rank that did otherwise before", async () => {
  const steps = loop(4, reduce, gather);
  const shape = await verdictOf({
    rank0: dump([...steps, reduce], "2.10"),
    rank1: dump([...steps, { ...reduce, size: 65 }], "2.10"),
  });
  assert.deepEqual([shape.kind, shape.culprits, shape.collective?.op], ["shape", [1], "all_reduce"]);
  const dtype = await verdictOf({
    rank0: dump([...steps, { ...reduce, dtype: "Half" }], "2.10"),
    rank1: dump([...steps, reduce], "2.10"),
    rank2: dump([...steps, reduce], "2.10"),
  });
  assert.deepEqual([dtype.kind, dtype.culprits], ["dtype", [0]]);
});

test("a line of its own for rank 0 is no fault", async () => {
  const first = loop(5, { op: "broadcast", line: 20 }, reduce);
  const other = loop(5, { op: "broadcast", line: 22 }, reduce);
  const verdict = await verdictOf({
    rank0: dump(first, "2.10"),
    rank1: dump(other, "2.10"),
    rank2: dump(other, "2.10"),
  });
  assert.deepEqual(verdict.culprits, []);
});

test("finished dumps of a healthy job accuse nobody", async () => {
  const entries = JSON.parse(dump(loop(5, reduce, gather), "2.10"));
  for (const entry of entries.entries) entry.retired = true;
  const text = JSON.stringify(entries);
  assert.equal((await verdictOf({ rank0: text, rank1: text })).kind, "none");
});

const watchdogLine = (rank: number, seq: number, op: string) =>
  `[rank${rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank ${rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=${seq}, OpType=${op}, NumelIn=544, NumelOut=68, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.
[rank${rank}]:[E1206 18:44:12.715588844 ProcessGroupNCCL.cpp:1664] [PG ID 0 PG GUID 0(default_pg) Rank ${rank}] Exception (either an error or timeout) detected by watchdog at work: ${seq}, last enqueued NCCL work: ${seq + (rank === 2 ? 0 : 2)}, last completed NCCL work: ${seq - 1}.`;

test("watchdog lines: the rank that enqueued least", async () => {
  const log = [0, 1, 2, 3].map((rank) => watchdogLine(rank, 7753, "ALLREDUCE")).join("\n");
  const verdict = await verdictOf({ "job.out": log });
  assert.deepEqual([verdict.culprits, verdict.collective?.op, verdict.collective?.sequence], [[2], "allreduce", 7753]);
});

test("watchdog lines: the rank that reported nothing", async () => {
  const log = [0, 1, 3]
    .map((rank) => watchdogLine(rank, 12, "ALLREDUCE"))
    .join("\n")
    .replaceAll("work: 14", "work: 12");
  assert.deepEqual((await verdictOf({ "slurm-77.out": log })).culprits, [2]);
});

test("logs: the exception of one rank explains the errors of the others", async () => {
  const verdict = await verdictOf({
    "job.log": `[rank1]: Traceback (most recent call last):
[rank1]:   File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2806, in all_reduce
[rank1]:     work.wait()
[rank1]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/u/train.py", line 88, in <module>
[rank3]:     main()
[rank3]:   File "/home/u/data.py", line 12, in load
[rank3]:     return rows[index]
[rank3]: IndexError: list index out of range`,
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["raised", [3], 12]);
});

test("logs: signals in torchrun's table and SLURM's messages", async () => {
  const torchrun = await verdictOf({ "a.log": "  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 9136)\n" });
  assert.deepEqual([torchrun.kind, torchrun.culprits], ["dead", [3]]);
  const slurm = await verdictOf({ "b.log": "srun: error: node07: task 5: Out Of Memory\n" });
  assert.deepEqual([slurm.kind, slurm.culprits], ["dead", [5]]);
});

test("a report of NCCL RAS names the ranks that are behind", async () => {
  const verdict = await verdictOf({
    "ras.txt": `Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
    7 ranks have launched up to operation 6650
    1 rank has launched up to operation 6649
    Rank 4 -- GPU 4 managed by process 483072 on node 172.16.64.210
`,
  });
  assert.deepEqual([verdict.culprits, verdict.worldSize], [[4], 8]);
});

test("py-spy stacks say what the absent rank does", async () => {
  const good = dump([...loop(3, reduce, gather), reduce], "2.10");
  const calm = JSON.parse(dump(loop(3, reduce, gather), "2.10"));
  for (const entry of calm.entries) entry.retired = true;
  const spy = `Process 4711: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    write (zipfile.py:1180)
    save (torch/serialization.py:944)
    save_checkpoint (/home/u/train.py:61)
    main (/home/u/train.py:90)
`;
  const verdict = await verdictOf({ rank0: good, rank1: JSON.stringify(calm), "rank1.pyspy.txt": spy });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["checkpoint", [1], 61]);
});

test("recorded dumps of a real gloo job are pickles without rank lists", { skip: false }, async () => {
  // Taken from PyTorch 2.13 with three ranks, one of which issued a broadcast that the others did not.
  const data = new URL("../../testdata/hangs/", import.meta.url);
  const verdict = await verdictOf({
    nccl_trace_rank_0: readFileSync(new URL("rank0.pickle", data)),
    nccl_trace_rank_2: readFileSync(new URL("rank2.pickle", data)),
  });
  assert.deepEqual(verdict.culprits, [1]);
});

test("one of the repetitions of an inner loop is skipped", async () => {
  const step = [gather, gather, gather, reduce];
  const whole = [...loop(5, ...step), gather, gather, gather];
  const short = [...loop(5, ...step), gather, gather, reduce];
  const verdict = await verdictOf({
    "rank0.json": dump(whole, "2.10"),
    "rank1.json": dump(whole, "2.10"),
    "rank2.json": dump(short, "2.10"),
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.collective?.op], ["skipped", [2], "all_gather"]);
  assert.deepEqual([verdict.site?.line, verdict.at?.line], [gather.line, reduce.line]);
});

test("in a pipeline the stage that sent nothing is named, not the stages that wait behind it", async () => {
  const calls = (rank: number, sends: number, waits: boolean): object[] =>
    Array.from({ length: 7 }, (_, i) => [
      ...(rank > 0 ? [{ op: "recv", peer: rank - 1, number: 2 * i, tag: 0, done: !(waits && i === 6) }] : []),
      ...(rank < 3 && i < sends ? [{ op: "send", peer: rank + 1, number: 2 * i + 1, tag: 0, done: true }] : []),
    ]).flat();
  const stage = (rank: number, sends: number, waits: boolean): string =>
    JSON.stringify({ format: "weft.hang", version: 1, rank, worldSize: 4, pointToPoint: calls(rank, sends, waits) });
  const verdict = await verdictOf({
    "rank0.json": stage(0, 7, false),
    "rank1.json": stage(1, 6, false),
    "rank2.json": stage(2, 6, true),
    "rank3.json": stage(3, 0, true),
  });
  assert.deepEqual([verdict.kind, verdict.culprits], ["point-to-point", [1]]);
});

const probeDump = (rank: number, more: object): string =>
  JSON.stringify({ format: "weft.hang", version: 1, rank, worldSize: 2, ...more });
const at = (line: number) => [{ file: "/home/u/train.py", line, name: "train" }];

test("hangs outside of collectives: no rank waits, a loader process dies, a rank ends early, two threads", async () => {
  const stuck = (rank: number) =>
    probeDump(rank, { stalledSeconds: 130, stacks: [{ thread: "MainThread", main: true, frames: at(40) }] });
  const local = await verdictOf({ "rank0.json": stuck(0), "rank1.json": stuck(1) });
  assert.deepEqual([local.kind, local.culprits, local.site?.line], ["local", [0, 1], 40]);
  // The same words are a cause in a loader process, and a consequence in a collective.
  const raised = (rank: number, file: string) =>
    probeDump(rank, {
      raised: {
        type: "RuntimeError",
        message: "Connection reset by peer",
        frames: [{ file, line: 1, name: "f" }, ...at(9)],
      },
    });
  const collective = "/x/site-packages/torch/distributed/distributed_c10d.py";
  const loader = await verdictOf({
    "rank0.json": raised(0, collective),
    "rank1.json": raised(1, "/x/lib/python3.11/multiprocessing/connection.py"),
  });
  assert.deepEqual([loader.kind, loader.culprits], ["raised", [1]]);
  const ended = await verdictOf({
    "rank0.json": raised(0, collective),
    "rank1.alive.json": JSON.stringify({ format: "weft.hang.rank", rank: 1, worldSize: 2, exit: "ok" }),
  });
  assert.deepEqual([ended.kind, ended.culprits, ended.site?.line], ["uneven", [1], 9]);
  const swapped = await verdictOf({
    rank0: dump([...loop(5, reduce, gather), reduce], "2.10"),
    rank1: dump([...loop(5, reduce, gather), gather, reduce], "2.10"),
  });
  assert.deepEqual([swapped.kind, swapped.culprits, swapped.site?.line], ["order", [1], 12]);
});

test("a call that is left out of a loop of equal calls is no other order, whatever helper issues it", async () => {
  const mean = (caller: number): Step => ({ op: "all_reduce", line: 3, caller });
  const sync = { op: "broadcast", line: 30 };
  for (const [first, second] of [
    [reduce, { ...reduce, line: 14 }],
    [mean(20), mean(24)],
  ] as [Step, Step][]) {
    const steps = loop(4, first, second, first, second, sync);
    const left = await verdictOf({
      rank0: dump([...steps, first, second, first, second, sync], "2.10"),
      rank1: dump([...steps, first, first, second, sync], "2.10"),
    });
    assert.deepEqual([left.kind, left.culprits, left.site?.line], ["skipped", [1], second.caller ?? second.line]);
    const added = await verdictOf({
      rank0: dump([...steps, first, second, first, second, sync], "2.10"),
      rank1: dump([...steps, first, { ...second, line: 3, caller: 27 }, second, first, second], "2.10"),
    });
    assert.deepEqual([added.culprits, added.site?.line], [[1], second.caller === undefined ? 3 : 27]);
  }
});

test("a rank with an additional call is behind the others in its steps", async () => {
  const steps = loop(5, reduce, gather);
  const dumpOf = (rank: number, calls: Step[], count: number) =>
    probeDump(rank, { steps: count, flightRecorder: JSON.parse(dump(calls, "2.10")) });
  for (const [count, kind] of [
    [4, "extra"],
    [5, "skipped"],
  ] as const) {
    const verdict = await verdictOf({
      "rank0.json": dumpOf(0, [...steps, reduce, gather], 5),
      "rank1.json": dumpOf(1, [...steps, reduce, reduce], count),
    });
    assert.deepEqual([verdict.kind, verdict.culprits], [kind, [1]]);
  }
});

test("a send and a receive with different tags", async () => {
  const calls = (op: string, peer: number, tags: number[]) =>
    tags.map((tag, i) => ({ op, peer, tag, index: i + 1, done: i < tags.length - 1, site: at(10 + peer)[0] }));
  const verdict = await verdictOf({
    "rank0.json": probeDump(0, { pointToPoint: calls("send", 1, [3, 4, 5, 6]) }),
    "rank1.json": probeDump(1, { pointToPoint: calls("recv", 0, [3, 4, 5, 7]) }),
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["point-to-point", [1], 10]);
});

const dumpOfRank = (rank: number, about: object): string =>
  JSON.stringify({
    format: "weft.hang",
    version: 1,
    rank,
    worldSize: 3,
    reason: "stalled",
    stalledSeconds: 9,
    ...about,
  });
const stackAt = (line: number, name = "train"): object[] => [
  { thread: "MainThread", main: true, frames: [{ name, filename: "/home/u/train.py", line }] },
];

test("ranks that were started with different numbers of ranks are told apart", async () => {
  const verdict = await verdictOf({
    "rank0.json": dumpOfRank(0, { stacks: stackAt(5) }),
    "rank1.json": dumpOfRank(1, { stacks: stackAt(5) }),
    "rank2.json": dumpOfRank(2, { worldSize: 4, stacks: stackAt(3) }),
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["world-size", [2], 3]);
  assert.match(hangText(verdict), /WORLD_SIZE 4; ranks 0 and 1: 3/);
});

test("groups that one rank makes in another order are found by their members", async () => {
  const made = (...groups: number[][]): object[] =>
    groups.map((ranks) => ({ ranks, done: true, site: { name: "train", filename: "/home/u/train.py", line: 7 } }));
  const verdict = await verdictOf({
    "rank0.json": dumpOfRank(0, { stacks: stackAt(9), made: made([0, 1], [1, 2]) }),
    "rank1.json": dumpOfRank(1, { stacks: stackAt(9), made: made([1, 2], [0, 1]) }),
    "rank2.json": dumpOfRank(2, { stacks: stackAt(9), made: made([0, 1], [1, 2]) }),
  });
  assert.deepEqual(
    [verdict.kind, verdict.culprits, verdict.site?.line, verdict.collective?.op],
    ["order", [1], 7, "new_group"],
  );
});

test("several calls that a rank leaves out in a row are skipped, not reordered", async () => {
  const weights = { op: "all_reduce", line: 20, caller: 5 };
  const barrier = { op: "barrier", line: 30 };
  const second = { op: "all_gather", line: 22 };
  const rounds = [...loop(3, weights, second), barrier, ...loop(2, weights, second)];
  const good = dump([...rounds, weights], "2.10");
  const bad = dump([...rounds, barrier], "2.10");
  const verdict = await verdictOf({ rank0: good, rank1: bad, rank2: good });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.collective?.op], ["skipped", [1], "all_reduce"]);
});

test("a rank that leaves a loop because it handles an exception is reported with that exception", async () => {
  const entries = (steps: Step[]): object => JSON.parse(dump(steps, "2.10")) as object;
  const rounds = loop(4, reduce, gather);
  const good = { stacks: stackAt(10), flightRecorder: entries([...rounds, reduce]) };
  const frames = [
    { name: "parse", filename: "/home/u/data.py", line: 3 },
    { name: "train", filename: "/home/u/train.py", line: 9 },
  ];
  const verdict = await verdictOf({
    "rank0.json": dumpOfRank(0, good),
    "rank1.json": dumpOfRank(1, {
      stacks: stackAt(15),
      flightRecorder: entries([...rounds, { op: "barrier", line: 15 }]),
      handling: { type: "ValueError", message: "sample 88 is empty", frames },
    }),
    "rank2.json": dumpOfRank(2, good),
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["raised", [1], 3]);
  assert.match(hangText(verdict), /sample 88 is empty/);
});

test("who holds nobody up: a rank in code of its own is late, wherever the waiting one came from", async () => {
  const entries = (steps: Step[]): object => JSON.parse(dump(steps, "2.3")) as object;
  const before = loop(4, reduce);
  const verdict = await verdictOf({
    "rank0.json": dumpOfRank(0, {
      worldSize: 2,
      stacks: stackAt(20),
      flightRecorder: entries([...before, { op: "barrier", line: 20 }]),
    }),
    "rank1.json": dumpOfRank(1, { worldSize: 2, stacks: stackAt(24), flightRecorder: done(entries(before)) }),
  });
  assert.deepEqual([verdict.kind, verdict.culprits, verdict.site?.line], ["late", [1], 24]);
});

/** The same record with its last call completed. */
function done(record: object): object {
  const text = JSON.stringify(record)
    .replaceAll('"scheduled"', '"completed"')
    .replaceAll('"retired":false', '"retired":true');
  return JSON.parse(text) as object;
}
