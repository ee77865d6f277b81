// Every CPU suite runs to its end with tiny sizes and without peers, and writes a valid record; the pages can be generated
// from the stored results.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CpuDevice } from "@weft/core/internal/device";
import { Contest } from "./contest.js";
import { LocalContestant } from "./contestant.js";
import { Context } from "./context.js";
import { cpuTable } from "./cpu.js";
import { cpuSizes } from "./cpu-rows.js";
import type { DrillRecord } from "./drill.js";
import { countTests, gpuTestFiles } from "./gpu-tests.js";
import { entryPoint } from "./main-path.js";
import { quantumTable } from "./quantum-rows.js";
import { type ContestRecord, type RowResult, recordProblems, recordText, resultFolder } from "./record.js";
import { pagesOf, readResults } from "./report/index.js";
import { currentName } from "./report/stored.js";
import type { SoakProgramsRecord } from "./soak-programs.js";

const skip = CpuDevice.available() ? false : "no C compiler";

/** Runs a suite with --quick and returns its record. */
function runQuick(args: string[]): ContestRecord & Record<string, unknown> {
  const folder = mkdtempSync(join(tmpdir(), "weft-bench-test-"));
  try {
    const out = join(folder, "record.json");
    const line = [entryPoint, ...args, "--quick", "--cores", "0", "--out", out];
    const env = { ...process.env, WEFT_RATES: "assumed" };
    const done = spawnSync(process.execPath, line, { encoding: "utf8", env, timeout: 120_000 });
    assert.equal(done.status, 0, done.stderr);
    const record = JSON.parse(readFileSync(out, "utf8"));
    assert.deepEqual(recordProblems(record), [], args.join(" "));
    return record;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const timedRows = (record: ContestRecord): string[] =>
  record.rows.filter((row) => row.wrong === null && row.times.weft.ms > 0).map(({ id }) => id);

test("the cpu suite checks and times every row, and cold starts", { skip }, () => {
  const record = runQuick(["cpu"]);
  const expected = [...cpuTable(cpuSizes(true)).map(({ id }) => id), "cold", "cached"];
  assert.deepEqual(timedRows(record), expected);
  assert.ok(record.rows.every(({ id, times }) => id.startsWith("c") || times.weft.rounds![0].samples.length >= 3));
});

test("the drill: faults on one host lead to right results or one clear error, and leave nothing behind", {
  skip,
}, () => {
  const ids = ["worker-killed", "worker-stopped", "all-replaced", "dispatcher-lost"];
  const { rows } = runQuick(["drill", "--rows", ids.join(",")]) as unknown as DrillRecord;
  for (const { id, expected, trials } of rows)
    for (const { outcome, left, message } of trials) {
      assert.equal(outcome, expected, `${id}: ${message}`);
      assert.deepEqual(left, [], id);
    }
  assert.equal(rows.length, ids.length);
});

test("distinct programs give right results on every kind of device, and hold no handles", { skip }, () => {
  const { rows } = runQuick(["soak-programs"]) as unknown as SoakProgramsRecord;
  assert.deepEqual(
    rows.map(({ id, programs, wrong, growth }) => [id, programs, wrong, growth]),
    ["cpu", "cuda", "worker"].map((id) => [id, 60, 0, []]),
  );
});

test("the first-hour suite measures and checks its rows", { skip }, () => {
  const rows = ["eager-op", "new-shape", "jit-call", "step-2"];
  const record = runQuick(["first-hour", "--rows", rows.join(",")]);
  assert.deepEqual(timedRows(record), rows);
});

test("the quantum suite checks and times its rows", { skip }, () => {
  const rows = ["lindblad-ensemble-2", "pauli-chain-2", "two-level"];
  assert.deepEqual(timedRows(runQuick(["quantum", "--rows", rows.join(",")])), rows);
});

test("the rows of the gpu suite run on a CPU", { skip }, () => {
  const rows = [
    "matmul-tf32-48x32x16",
    "end-to-end-48x32x16",
    "mlp-8",
    "train-tiny-tf32",
    "lindblad-ensemble-2",
    "tiny",
  ];
  assert.deepEqual(timedRows(runQuick(["gpu", "--device", "cpu", "--rows", rows.join(",")])), rows);
});

test("quantum programs on workers agree with one core", { skip }, () => {
  const { rows } = runQuick(["quantum-workers", "--counts", "1"]) as unknown as {
    rows: Record<string, { counts: { right: boolean }[] }>;
  };
  assert.deepEqual(
    rows["tasks-4"].counts.map(({ right }) => right),
    [true],
  );
});

test("the training suites measure steps and tokenizing", { skip }, () => {
  const record = runQuick(["train", "--rows", "tokenize,small"]);
  assert.equal((record.training as { size: string }[])[0].size, "tiny");
  assert.ok((record.tokenize as { ratio: number }).ratio > 0);
  const { epochs, testAccuracy } = runQuick(["train-runs", "--rows", "full"]);
  assert.equal((epochs as object[]).length, 2);
  assert.equal(typeof testAccuracy, "number");
});

test("`weft scale` on a training records the steps of one and of two ranks", { skip }, () => {
  const [run] = runQuick(["train-scale"]).runs as { verdict: string; measured: { ranks: number }[] }[];
  assert.deepEqual(
    run.measured.map(({ ranks }) => ranks),
    [1, 2],
  );
});

test("planner, collectives and lab suites write valid records", { skip }, () => {
  const planner = runQuick(["planner", "--devices", "1"]);
  assert.equal((planner.rows as unknown as { mode: string }[])[0].mode, "one device");
  const [placed] = runQuick(["placements"]).rows as unknown as { placement: string; rounds: number[] }[];
  assert.match(placed.placement, /^data \d+/);
  assert.equal(placed.rounds.length, 1);
  const collectives = runQuick(["collectives", "--rows", "all-reduce"]);
  assert.equal((collectives.allreduce as { ranks: number }[])[0].ranks, 2);
  assert.equal((runQuick(["lab", "--rows", "analyze"]).seconds as { samples: number[] }).samples.length, 1);
  assert.ok((runQuick(["lab", "--rows", "trace"]).compared as object[]).length > 0);
});

test("the pages are generated from the stored results, without codes for rows", {
  skip: !existsSync(resultFolder) && "not in a checkout",
}, () => {
  const files = readResults();
  const pages = pagesOf(files);
  const performance = pages["docs/performance.md"];
  assert.doesNotMatch(performance, /\bW[1-8]\b|undefined|NaN|\[object/);
  for (const heading of ["## CPU", "## GPU", "## Sharding", "## Predicted", "## Collectives", "## Quantum"])
    assert.ok(performance.includes(`\n${heading}`), heading);
  assert.match(performance, /pauli-chain-4: Pauli chain n=4, 4999 steps/);
  assert.match(pages["docs/training.md"], /Hash-tokenizing IMDB/);
  assert.equal(currentName("w1-4096"), "lindblad-ensemble-4096");
  assert.equal(currentName("matmul-64"), "matmul-64");
});

test("a record of the current quantum suite replaces the older files in the report", {
  skip: !existsSync(resultFolder) && "not in a checkout",
}, () => {
  const row: RowResult = {
    id: "lindblad-ensemble-16",
    title: "one-qubit Lindblad ensemble, 16 tasks, value and gradient",
    wrong: null,
    problems: {},
    times: { weft: { ms: 2 }, torch: { ms: 90 } },
    ratios: { torch: { name: "PyTorch", ratio: 45, wanted: 50, met: false } },
  };
  const page = pagesOf({ ...readResults(), quantum: { kind: "quantum", rows: [row] } })["docs/performance.md"];
  assert.match(page, /lindblad-ensemble-16: .* CPU \| 2\.00 ms \| PyTorch \| 90\.0 ms \| 45\.0 \| 50x \| MISSED \|/);
  assert.doesNotMatch(page, /maml-32: .* CPU/);
});

test("a wrong answer has no time, and a failing peer does not stop the row", async () => {
  const context = new Context("cpu", { run() {} }, ["--rounds", "3", "--seconds", "0", "--patience", "0"]);
  const fixed = (check: number[]) => () => ({ call: () => 0, check });
  const weft = new LocalContestant({ good: fixed([1]), bad: fixed([2]) }, {}, 0);
  const peer = new LocalContestant({ good: fixed([1]), bad: fixed([1]) }, {}, 0);
  const seats = Object.fromEntries(["weft", "peer", "missing"].map((name) => [name, { process: name, title: name }]));
  const contest = new Contest(context, {
    seats,
    start: { weft: () => weft, peer: () => peer },
    absent: { missing: "why" },
  });
  const check = (answers: Record<string, number[]>): string | null =>
    answers.weft[0] === answers.peer[0] ? null : "they differ";
  const peers = { peer: 0, missing: null };
  const good = await contest.run({ id: "good", title: "good", peers, check });
  assert.equal(good.wrong, null);
  assert.equal(good.ratios.peer.met, true);
  assert.equal(good.times.peer.rounds!.length, 3);
  assert.deepEqual(good.problems, { missing: "why" });
  const bad = await contest.run({ id: "bad", title: "bad", peers, check });
  assert.deepEqual([bad.wrong, Object.keys(bad.times)], ["they differ", []]);
  const missing = await contest.run({ id: "unknown", title: "unknown" });
  assert.match(missing.wrong!, /no row unknown/);
});

test("arguments are checked", () => {
  const suite = { run() {} };
  assert.throws(() => new Context("cpu", suite, ["--round", "3"]), /Unknown option '--round'/);
  assert.throws(() => new Context("cpu", suite, ["--rounds", "many"]).number("rounds"), /--rounds many: expected/);
  const context = new Context("cpu", suite, ["--rows", "softmax,nothing"]);
  assert.throws(() => context.choose([{ id: "softmax" }, { id: "mlp" }]), /--rows nothing: .*softmax, mlp/);
  assert.equal(context.resultPath("cpu"), null);
  const older = new Context("quantum", suite, ["--rows", "w1-16,w4-2,tokenise"]);
  assert.deepEqual(older.rows, ["lindblad-ensemble-16", "pauli-chain-2", "tokenize"]);
  const done = spawnSync(process.execPath, [entryPoint, "nothing"], { encoding: "utf8" });
  assert.equal(done.status, 1);
  assert.match(done.stderr, /unknown suite nothing; suites are cpu, /);
});

test("golden values are required of Weft; a peer with another discretization only has to agree", () => {
  const { check } = quantumTable("cuda", false).find(({ id }) => id === "pauli-chain-4")!;
  assert.equal(check!({ weft: [0.0142000983499], jax: [0.0142000940572] }), null);
  assert.match(check!({ weft: [0.0142000940572] })!, /loss is 0.0142000940572, expected 0.014200098361/);
  assert.match(check!({ weft: [0.0142000983499], jax: [0.0143] })!, /jax: number 0 is 0.0143/);
});

test("a record without times, samples or machine is invalid", () => {
  const head = { kind: "cpu", device: "cpu", at: "2026-01-01", hardware: {}, versions: {}, settings: {}, absent: {} };
  assert.deepEqual(recordProblems({ ...head, rows: [{ times: { weft: { ms: 1, rounds: [{ samples: [1] }] } } }] }), []);
  assert.deepEqual(recordProblems({ ...head, rows: [{ times: { weft: { ms: null } } }] }), [
    "rows.0.times.weft.ms has no value",
  ]);
  assert.deepEqual(recordProblems({ ...head, rows: [{ samples: [] }] }), ["rows.0.samples is empty"]);
  assert.match(
    recordProblems({ ...head, hardware: undefined, at: "now" }).join(),
    /at is no date.*hardware is missing/,
  );
  assert.equal(recordText({ samples: [1.23456789, 2] }), '{\n "samples": [1.2346,2]\n}\n');
});

test("the test files of the GPU run exist, and their counts are read from TAP", () => {
  for (const { suite, file } of gpuTestFiles(true)) assert.ok(existsSync(file), `${suite}: ${file} is missing`);
  assert.deepEqual(countTests("ok 1 - a\nok 2 - b # SKIP\nnot ok 3 - c\n"), {
    passed: 1,
    failed: 1,
    skipped: 1,
    failures: ["c"],
  });
});

test("both tables name each row once, and peers of a row have a required ratio or none", () => {
  for (const rows of [cpuTable(cpuSizes(false)), quantumTable("cpu", false), quantumTable("cuda", false)]) {
    assert.equal(new Set(rows.map(({ id }) => id)).size, rows.length);
    for (const { id, peers = {} } of rows)
      for (const wanted of Object.values(peers)) assert.ok(wanted === null || wanted > 0, id);
  }
});
