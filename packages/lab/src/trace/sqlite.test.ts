// Databases of Nsight Systems and rocprofv3: values equal to SQL on a file that Python's SQLite wrote in the documented schema,
// and hostile databases. No public report was at hand; the work is that of a real trace.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { brotliDecompressSync } from "node:zlib";
import { TestFolder, testdata } from "./fixtures.testkit.js";
import { analyzeTraces } from "./ranks.js";

const skip =
  spawnSync("python3", ["-c", "import sqlite3"]).status === 0 ? false : "there is no python3 with sqlite3 here";

interface Expected {
  devices: {
    device: number;
    busy: number;
    span: number;
    kernels: [name: string, count: number, sum: number, longest: number][];
    launches: [count: number, sum: number];
    copies: [count: number, sum: number | null];
  }[];
  steps: [number: number, duration: number][];
}

const us = (nanoseconds: number | null): number => (nanoseconds ?? 0) / 1000;

const profilers = [
  { source: "nsight", maker: "make_nsys.py", gpu: "NVIDIA H200" },
  { source: "rocpd", maker: "make_rocpd.py", gpu: "AMD Instinct MI300X" },
];

for (const { source, maker, gpu } of profilers)
  test(`a report of ${source} gives the values that SQL gives, per process and device`, { skip }, async () => {
    using folder = new TestFolder();
    const json = folder.file("a.json", brotliDecompressSync(readFileSync(testdata("traces/h200_streams.json.br"))));
    const file = join(folder.path, "report.sqlite");
    const made = spawnSync("python3", [testdata(maker), json, file], { encoding: "utf8" });
    assert.equal(made.status, 0, made.stderr);
    const expected = JSON.parse(made.stdout) as Expected;
    const report = await analyzeTraces([file]);
    assert.deepEqual(
      report.ranks.map((rank) => [rank.rank, rank.rankFrom, rank.source]),
      [
        [0, "device", source],
        [1, "device", source],
      ],
    );
    for (const [i, rank] of report.ranks.entries()) {
      const sql = expected.devices[i];
      assert.deepEqual([rank.spanUs, rank.idleUs], [us(sql.span), us(sql.span - sql.busy)]);
      const kernels = rank.kernels.filter((kernel) => kernel.type === "COMPUTATION");
      assert.deepEqual(
        kernels.map((k) => [k.name, k.count, k.sumUs, k.maxUs]).sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1)),
        sql.kernels.map(([name, count, sum, longest]) => [name, count, us(sum), us(longest)]),
      );
      const copies = rank.kernels.filter((kernel) => kernel.name.startsWith("Memcpy"));
      assert.equal(
        copies.reduce((sum, copy) => sum + copy.count, 0),
        sql.copies[0],
      );
      assert.ok(Math.abs(copies.reduce((sum, copy) => sum + copy.sumUs, 0) - us(sql.copies[1])) < 1e-9);
      // Names of calls lose their version; correlation ids of two processes do not mix.
      assert.deepEqual(
        rank.operators?.rows.map((row) => row.name).filter((name) => /_v\d+$/.test(name)),
        [],
      );
      const calls = rank.operators?.rows.filter((row) => /Launch/.test(row.name)) ?? [];
      assert.equal(
        calls.reduce((sum, row) => sum + row.kernels, 0),
        sql.launches[0],
      );
      assert.deepEqual(
        rank.steps,
        expected.steps.map(([number, duration]) => ({ number, us: us(duration) })),
      );
      assert.equal(rank.operators?.peaks?.name, gpu);
    }
  });

test("databases that are damaged, hostile or no report end with a reason", { skip }, async () => {
  using folder = new TestFolder();
  const make = (name: string, sql: string): string => {
    const path = join(folder.path, name);
    const code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit()";
    const done = spawnSync("python3", ["-c", code, path, sql], { encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr);
    return path;
  };
  const columns =
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER";
  const problems = async (file: string): Promise<string> => (await analyzeTraces([file])).ranks[0].problems.join("; ");
  assert.match(await problems(make("other.sqlite", "CREATE TABLE a (b)")), /none of the tables of Nsight Systems/);
  assert.match(
    await problems(make("rocpd.sqlite", "CREATE TABLE rocpd_string (id)")),
    /none of the tables .* rocprofv3/,
  );
  // Ids that repeat would multiply the rows of both tables: 4e8 events here.
  const many = (n: number, values: string): string =>
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ${n}) SELECT ${values} FROM n`;
  const repeated = make(
    "repeated.sqlite",
    `CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (${columns});
    INSERT INTO StringIds ${many(20000, "1, 'x'")}; INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ${many(20000, "i, i + 1, 0, 7, i, 0, 1")};`,
  );
  assert.equal((await analyzeTraces([repeated])).ranks[0].kernels[0].count, 20000);
  const dispatch =
    "CREATE TABLE rocpd_kernel_dispatch_1 (id INTEGER PRIMARY KEY, agent_id, kernel_id, stream_id, queue_id, start, end, event_id)";
  const wrongTypes = make(
    "types.sqlite",
    `${dispatch}; CREATE TABLE rocpd_event_1 (id, stack_id, category_id, extdata); INSERT INTO rocpd_event_1 VALUES (1, 'x', NULL, x'00');
    INSERT INTO rocpd_kernel_dispatch_1 VALUES (1, 'gpu', 3, 0, 0, 1000, 2500, 1), (2, 4, NULL, 0, 1, 3000, 4000.5, NULL), (3, 4, 1, NULL, 0, 'a', 'b', 1),
    (4, 4, 1, 0, 0, 9223372036854775807, 9223372036854775807, 1), (5, 4, 1, 0, 0, -9223372036854775808, 9223372036854775807, 1);`,
  );
  assert.ok((await analyzeTraces([wrongTypes])).ranks.every((one) => one.kernels.every((kernel) => kernel.sumUs >= 0)));
  // A view that never ends must not be read.
  const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
  const view = `CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS ${endless} SELECT i AS start, i AS end, 0 AS deviceId, 7 AS streamId, i AS correlationId FROM n`;
  assert.match(await problems(make("view.sqlite", view)), /none of the tables of Nsight Systems/);
  const file = make(
    "good.sqlite",
    `CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (${columns});
    INSERT INTO StringIds VALUES (1, 'quote " and \\ and ' || char(10)); INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
    (1000, 2500, 0, 7, 1, 0, 1), (3000, 2000, 0, 7, 2, 0, 1), ('x', 'y', 0, 7, 3, 0, 1), (NULL, 5, 0, 7, 4, 0, 1), (5000, 6001, 0, 7, NULL, NULL, 99);`,
  );
  const [rank] = (await analyzeTraces([file])).ranks;
  assert.deepEqual(
    rank.kernels.map((kernel) => [kernel.name, kernel.sumUs]),
    // A kernel without an id of its launch has run all the same.
    [
      ['quote " and \\ and \n', 1.5],
      ["kernel 99", 1.001],
    ],
  );
  assert.match(rank.problems.join("; "), /^2 rows without times, or that end before they begin, were left out/);
  // A text of megabytes is not read once per row, and a page that the tree contains many times not at all.
  const insert = `INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ${many(20000, "i, i + 1, 0, 7, i, 0, 1")}`;
  const tables = `CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (${columns}); CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`;
  const long = make(
    "long.sqlite",
    `${tables}; INSERT INTO StringIds VALUES (1, printf('%.*c', 9000000, 'x')); ${insert};`,
  );
  assert.deepEqual(
    (await analyzeTraces([long])).ranks[0].kernels.map(({ name, count }) => [name, count]),
    [["kernel 1", 20000]],
  );
  const pages = readFileSync(make("pages.sqlite", `${tables}; ${insert};`));
  const root = pages.subarray(4096, 8192);
  const cell = (i: number): number => root.readUInt16BE(12 + 2 * i);
  for (let i = 1; i < root.readUInt16BE(3); i++) root.copy(root, cell(i), cell(0), cell(0) + 4);
  assert.match(await problems(folder.file("pages2.sqlite", pages)), /damaged/);
  const whole = readFileSync(file);
  for (const length of [100, 4096, whole.length - 4096]) {
    const cut = folder.file(`cut${length}.sqlite`, whole.subarray(0, length));
    assert.match(await problems(cut), /SQLite|malformed|database|none of the tables/);
  }
});

test("a database of rocprofv3 that other tools wrote, without events, has its kernels and copies", {
  skip,
}, async () => {
  using folder = new TestFolder();
  const file = join(folder.path, "other.db");
  const tables = `
    CREATE TABLE rocpd_info_agent_a (id INTEGER PRIMARY KEY, type TEXT, name TEXT);
    INSERT INTO rocpd_info_agent_a VALUES (1, 'CPU', 'cpu'), (2, 'GPU', 'gfx90a');
    CREATE TABLE rocpd_info_kernel_symbol_a (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT);
    INSERT INTO rocpd_info_kernel_symbol_a VALUES (1, 'add.kd', 'add');
    CREATE TABLE rocpd_kernel_dispatch_a (id INTEGER PRIMARY KEY, agent_id, kernel_id, queue_id, stream_id, start, end);
    INSERT INTO rocpd_kernel_dispatch_a VALUES (1, 2, 1, 0, 1, 1000, 3000), (2, 2, 1, 0, 1, 5000, 6000);
    CREATE TABLE rocpd_memory_copy_a (id INTEGER PRIMARY KEY, start, end, name_id, dst_agent_id, src_agent_id, size, stream_id);
    INSERT INTO rocpd_memory_copy_a VALUES (1, 0, 500, 1, 2, 1, 4096, 1);
    CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM rocpd_kernel_dispatch_a;`;
  const code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit()";
  assert.equal(spawnSync("python3", ["-c", code, file, tables]).status, 0);
  const [rank] = (await analyzeTraces([file])).ranks;
  assert.deepEqual(
    rank.kernels.map(({ name, count, sumUs }) => [name, count, sumUs]),
    [
      ["add", 2, 3],
      ["Memcpy HtoD", 1, 0.5],
    ],
  );
  assert.deepEqual([rank.spanUs, rank.source], [6, "rocpd"]);
});

test("tables of another rocpd schema are named", { skip }, async () => {
  using folder = new TestFolder();
  const file = join(folder.path, "tracks.db");
  // A layout of rocprofiler-sdk with times and places in tables of their own.
  const tables = `CREATE TABLE rocpd_kernel_dispatch_a (id INTEGER PRIMARY KEY, track_id, kernel_id, start_id, end_id, event_id);
    INSERT INTO rocpd_kernel_dispatch_a VALUES (1, 1, 1, 1, 2, 1);`;
  const code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit()";
  assert.equal(spawnSync("python3", ["-c", code, file, tables]).status, 0);
  const [rank] = (await analyzeTraces([file])).ranks;
  assert.match(rank.problems.join("; "), /rocpd_kernel_dispatch_a .* other columns/);
});
