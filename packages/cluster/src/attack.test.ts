// Hostile input through every interface: graphs with C code in their attributes, and messages intended to crash
// workers. No payload runs, the sender gets an error, and other clients are unaffected.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectSocket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { type OpName, WeftError } from "@weft/core/internal/graph";
import { decodeFunction } from "@weft/core/internal/ops";
import { type Cluster, connect } from "./connect.js";
import { writeFrame } from "./frames.js";
import { at, attributePlaces, sampleFunctions, withValue } from "./hostile.testkit.js";
import type { ToClient } from "./protocol.js";
import { RawClient } from "./raw-client.testkit.js";
import { diffTapes, readTape } from "./tape-file.js";
import { replay } from "./tape-replay.js";
import { skip, testWorker } from "./workers.testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-attack-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const proof = join(folder, "proof");

/** C that creates a file, wherever it lands in a kernel: after a pragma, an expression, a name or a comment. */
const payloads = [
  `max:r0)") for (int q_ = 0; q_ < 1; q_++) r0 += 0; { extern int system(const char*); system("touch ${proof}"); } _Pragma("omp simd reduction(min`,
  `*/ system("touch ${proof}"); /*`,
  `"; system("touch ${proof}"); //`,
  `0); system("touch ${proof}"); (0`,
  `\nint x = system("touch ${proof}");\n`,
  "",
  "__proto__",
  "x".repeat(21_000),
];
const notMade = (): void => assert.ok(!existsSync(proof), "an attack ran a command");

/** Ops with names that a user chooses; these payloads are valid names. */
const freeNames: ReadonlySet<OpName> = new Set(["alias", "pin", "custom"]);

test("every field of every attribute of every op rejects code, wrong types and invalid numbers", () => {
  let tried = 0;
  for (const [op, fn] of sampleFunctions()) {
    decodeFunction(structuredClone(fn));
    for (const path of attributePlaces(fn, op)) {
      const was = at(fn, path);
      const values: unknown[] = [
        ...payloads,
        [payloads[0]],
        { toString: payloads[0] },
        null,
        -1,
        1.5,
        2 ** 53,
        { $: payloads[0] },
      ];
      for (const value of values) {
        // Any JSON number is a valid constant.
        const isNumber = op === "const" || path.includes("scale") || path.includes("dropout");
        if (isNumber && typeof value === "number") continue;
        if (typeof was === "string" && freeNames.has(op) && (value === "" || value === "__proto__")) continue;
        if (JSON.stringify(was) === JSON.stringify(value)) continue;
        assert.throws(
          () => decodeFunction(withValue(fn, path, value)),
          (error) => error instanceof WeftError && error.message.length < 2000,
          `${op} ${path.join(".")} = ${JSON.stringify(value).slice(0, 60)}`,
        );
        tried++;
      }
      const parent = at(fn, path.slice(0, -1));
      if (!Array.isArray(parent))
        assert.throws(() => decodeFunction(withValue(fn, [...path.slice(0, -1), payloads[0]], 1)), WeftError);
    }
  }
  assert.ok(tried > 1500, `${tried} values`);
  notMade();
});

const exploit = (): unknown => {
  const fn = sampleFunctions().get("reduce" as OpName)!;
  return withValue(fn, ["nodes", 0, 2, "fn"], payloads[0]);
};

test("replay and diff reject a tape with code in an attribute", { skip }, async () => {
  const path = join(folder, "evil.tape");
  const lines = [
    { type: "tape", version: 1 },
    { type: "program", program: 1, donated: [], graph: exploit() },
    { type: "data", id: 1, bytes: 128, sha256: "", base64: Buffer.alloc(128).toString("base64") },
    { type: "run", step: 1, program: 1, inputs: [1], outputs: [2], cause: null },
  ];
  writeFileSync(path, lines.map((line) => JSON.stringify(line)).join("\n"));
  const tape = await readTape(path);
  await assert.rejects(
    replay(tape, new CpuDevice({ threads: 1 })),
    /fn of reduce should be one of sum, prod, max, min/,
  );
  assert.throws(() => diffTapes(tape, tape), /fn of reduce/);
  notMade();
});

test("a tape whose data is smaller than its program requires is rejected", { skip }, async () => {
  const path = join(folder, "small.tape");
  const graph = sampleFunctions().get("reduce" as OpName);
  const lines = [
    { type: "tape", version: 1 },
    { type: "program", program: 1, donated: [], graph },
    { type: "data", id: 1, bytes: 4, sha256: "", base64: Buffer.alloc(4).toString("base64") },
    { type: "run", step: 1, program: 1, inputs: [1], outputs: [2], cause: null },
  ];
  writeFileSync(path, lines.map((line) => JSON.stringify(line)).join("\n"));
  await assert.rejects(replay(await readTape(path), new CpuDevice({ threads: 1 })), /takes 128 bytes/);
});

async function withCluster(body: (port: number, cluster: Cluster) => Promise<void>): Promise<void> {
  const cluster = await connect({ devices: 2, ...testWorker });
  try {
    const before = cluster.workers.map(({ id, process: p }) => `${id} ${p.pid}`);
    await body(Number(/:(\d+)$/.exec(cluster.address)![1]), cluster);
    // The other workers are the same processes and still compute.
    assert.deepEqual(
      cluster.workers.map(({ id, process: p }) => `${id} ${p.pid}`),
      before,
    );
    assert.equal(await weft.ones([64, 8]).sum().item(), 512);
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
  notMade();
}

const failedOf = (id: number) => (m: ToClient) => m.t === "failed" && m.ids.includes(id) && m.message;

test("code in attributes, long names and wrong sizes or offsets fail only for the client that sent them", {
  skip,
}, async () => {
  await withCluster(async (port, cluster) => {
    const raw = new RawClient(port, cluster.local!.token);
    const { workers, generation } = await raw.until((m) => m.t === "welcome" && m);
    const [{ id: worker }] = workers;
    const { bytes: room } = await raw.shareMemory(worker);
    const define = (program: number, graph: unknown, more = {}): void =>
      raw.send({
        t: "define",
        program,
        donated: [],
        members: [worker],
        generation,
        graphs: [graph],
        which: [0],
        collective: false,
        ...more,
      });
    const run = (program: number, inputs: number[], outputs: number[]): void =>
      raw.send({ t: "run", program, inputs, outputs, step: 1, site: null });
    const upload = (id: number, bytes: number, part: object): void => {
      const whole = { worker, offset: 0, sizes: [bytes / 4], strides: [4], element: 4 };
      raw.send({ t: "upload", id, bytes, parts: [{ ...whole, ...part }] });
    };
    const samples = sampleFunctions();
    const reduce = samples.get("reduce")!;

    define(1, exploit());
    upload(1, 128, {});
    run(1, [1], [100]);
    const problem = await raw.until(failedOf(100)).catch(String);
    notMade();
    assert.match(problem, /fn of reduce should be one of sum, prod, max, min/);

    define(2, withValue(reduce, ["nodes", 0, 0], "x".repeat(21_000)));
    run(2, [1], [101]);
    assert.match(await raw.until(failedOf(101)), /there is no op "xxxx/);

    // A program whose argument is smaller than its shape, and one that names a tensor twice.
    define(3, reduce);
    upload(5, 4, {});
    run(3, [5], [102]);
    assert.match(await raw.until(failedOf(102)), /takes 128 bytes, and the tensor given for it has 4/);
    run(3, [], [103]);
    assert.match(await raw.until(failedOf(103)), /takes 1 tensors, and 0 are given/);
    upload(6, 128, {});
    run(3, [6], [104, 105]);
    assert.match(await raw.until(failedOf(104)), /the program has 1 outputs/);

    // Uploads from outside the shared memory, and with sizes that overflow.
    upload(7, 128, { offset: room - 64 });
    assert.match(await raw.until(failedOf(7)), /ends at byte/);
    upload(8, 128, { strides: [2 ** 50] });
    assert.match(await raw.until(failedOf(8)), /ends at byte/);
    upload(9, 128, { sizes: [2 ** 30, 2 ** 30], strides: [4, 4] });
    assert.match(await raw.until(failedOf(9)), /larger than the 128 bytes/);
    upload(10, 128, { sizes: [32], strides: [4, 4] });
    assert.match(await raw.until(failedOf(10)), /strides/);

    // Collectives without a group, and as another rank.
    define(4, samples.get("collective"));
    run(4, [6], [106]);
    assert.match(await raw.until(failedOf(106)), /does not fit a program without a group/);
    raw.close();
  });
});

test("an invalid message closes its own connection only", { skip }, async () => {
  await withCluster(async (port, cluster) => {
    const { token } = cluster.local!;
    const rank13 = {
      worker: "w1",
      offset: 0,
      sizes: new Array(13).fill(1),
      strides: new Array(13).fill(4),
      element: 4,
    };
    const [worker] = cluster.workers;
    const bad: unknown[] = [
      { t: "upload", id: 1, bytes: 4, parts: [rank13] },
      { t: "upload", id: 1, bytes: -4, parts: [] },
      { t: "define", program: 1 },
      {
        t: "define",
        program: 1,
        donated: [],
        members: [worker.id, worker.id],
        generation: 1,
        graphs: [{}, {}],
        which: [0, 1],
        collective: true,
      },
      {
        t: "define",
        program: 1,
        donated: [],
        members: [worker.id],
        generation: 1e9,
        graphs: [{}],
        which: [0],
        collective: true,
      },
      {
        t: "define",
        program: 1,
        donated: [],
        members: [worker.id],
        generation: 1,
        graphs: [{}],
        which: [1],
        collective: true,
      },
      { t: "run", program: 77, inputs: [], outputs: [1], step: 1, site: null },
      { t: "run", program: 1, inputs: [], outputs: [1], step: 1, site: "x".repeat(30_000) },
      { t: "x".repeat(30_000) },
      "text",
      null,
      [[[[[]]]]],
    ];
    for (const message of bad) {
      const raw = new RawClient(port, token);
      await raw.until((m) => m.t === "welcome" && m);
      raw.send(message);
      const said = await raw.until((m) => m.t === "refused" && m.message);
      assert.ok(said.length < 2000, said.slice(0, 100));
      raw.close();
    }
  });
});

test("uploads that are too long, out of order or never arrive do not affect other clients", { skip }, async () => {
  await withCluster(async (port, cluster) => {
    const raw = new RawClient(port, cluster.local!.token);
    const { client, workers } = await raw.until((m) => m.t === "welcome" && m);
    const [{ id: worker, data, key }] = workers;
    const talk = (...frames: [object, Uint8Array?][]): Promise<void> =>
      new Promise((resolve) => {
        const socket = connectSocket(data.port, "127.0.0.1", () => {
          writeFrame(socket, { client, key });
          for (const [header, bytes] of frames) writeFrame(socket, header, bytes ?? null);
        });
        socket.on("error", () => {});
        socket.on("close", () => resolve());
      });
    const four = new Uint8Array(4);
    await talk([{ upload: 1, bytes: 2 ** 52, at: 0, last: false }, four]);
    await talk([{ upload: 2, bytes: -1, at: 0, last: true }, four]);
    await talk([{ upload: 3, bytes: 64, at: 60, last: true }, four]);
    await talk([{ upload: 4, bytes: 64, at: 0, last: true }, four]);
    await talk([{ upload: 5, bytes: 4, at: "0", last: true }, four]);
    await talk([{ nothing: 1 }]);
    // An upload is announced, its bytes never arrive, and its client leaves.
    const part = { worker, offset: null, sizes: [1], strides: [4], element: 4 };
    raw.send({ t: "upload", id: 50, bytes: 4, parts: [part] });
    await new Promise((resolve) => setTimeout(resolve, 300));
    raw.close();
    const begun = Date.now();
    assert.equal(await weft.ones([64, 8]).sum().item(), 512);
    assert.ok(Date.now() - begun < 10_000, "other clients waited for a client that left");
  });
});

test("members that would issue different collectives get an error at once, and no member waits", { skip }, async () => {
  await withCluster(async (port, cluster) => {
    const raw = new RawClient(port, cluster.local!.token);
    const { workers, generation } = await raw.until((m) => m.t === "welcome" && m);
    const members = workers.map(({ id }) => id);
    const all = { groups: [[0, 1]], sends: [], receives: [], kind: "allReduce", sizes: [], splitSizes: [] };
    const collective = withValue(sampleFunctions().get("collective")!, ["nodes", 0, 2], {
      ...(at(sampleFunctions().get("collective")!, ["nodes", 0, 2]) as object),
      ...all,
    });
    const local = { ...collective, nodes: [], outputs: [0] };
    const unused = { ...collective, outputs: [0] };
    const max = withValue(collective, ["nodes", 0, 2, "fn"], "max");
    const define = (program: number, ...graphs: unknown[]): void =>
      raw.send({ t: "define", program, donated: [], members, generation, graphs, which: [0, 1], collective: true });
    const begun = Date.now();
    [local, unused, max, {}, null].forEach((other, i) => {
      define(i + 1, collective, other);
      raw.send({ t: "run", program: i + 1, inputs: [1], outputs: [10 + i], step: 1, site: null });
    });
    for (let i = 0; i < 5; i++)
      assert.match(await raw.until(failedOf(10 + i)), /issue different collectives/, `program ${i + 1}`);
    assert.ok(Date.now() - begun < 5000);
    raw.close();
  });
});

test("instructions for a worker that does not read them are bounded in bytes", { skip }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  try {
    const port = Number(/:(\d+)$/.exec(cluster.address)![1]);
    const raw = new RawClient(port, cluster.local!.token);
    const { workers, generation } = await raw.until((m) => m.t === "welcome" && m);
    const [{ id, process: where }] = workers;
    const graph = sampleFunctions().get("reduce");
    raw.send({
      t: "define",
      program: 1,
      donated: [],
      members: [id],
      generation,
      graphs: [graph],
      which: [0],
      collective: false,
    });
    // It has no arguments: the failure says that the program has arrived.
    raw.send({ t: "run", program: 1, inputs: [], outputs: [999], step: 1, site: null });
    await raw.until(failedOf(999));
    process.kill(where.pid, "SIGSTOP");
    try {
      const site = "x".repeat(10_000);
      for (let i = 0; i < 200; i++) {
        const runs = Array.from({ length: 100 }, (_, k) => ({
          t: "run",
          program: 1,
          inputs: [],
          outputs: [1000 + 100 * i + k],
          step: 1,
          site,
        }));
        raw.send(runs);
      }
      const queued = /bytes of instructions of this client are queued/;
      await raw.until((m) => m.t === "failed" && m.code === "error" && queued.test(m.message));
    } finally {
      process.kill(where.pid, "SIGCONT");
    }
    raw.close();
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
});

test("an upload whose connection breaks in the middle leaves a worker that serves everybody", { skip }, async () => {
  await withCluster(async (port, cluster) => {
    const raw = new RawClient(port, cluster.local!.token);
    const { workers } = await raw.until((m) => m.t === "welcome" && m);
    const [{ id: worker }] = workers;
    const part = { worker, offset: null, sizes: [1000], strides: [4], element: 4 };
    const announce = (id: number): void => raw.send({ t: "upload", id, bytes: 4000, parts: [part] });
    for (const [id, header] of [
      [60, { upload: 60, bytes: 4000, at: 0, last: false }],
      [61, { upload: 61, bytes: 2 ** 50, at: 0, last: false }],
      [62, { upload: 62, bytes: 400, at: 0, last: true }],
    ] as const) {
      announce(id);
      const socket = await raw.data(worker);
      writeFrame(socket, header, new Uint8Array(400));
      await new Promise((resolve) => setTimeout(resolve, 200));
      socket.destroy();
      assert.match(await raw.until(failedOf(id)), /did not arrive|400 bytes arrived for a shard of 4000/);
      assert.equal(await weft.ones([64, 8]).sum().item(), 512);
    }
    raw.close();
  });
});
