// Attacks: graphs with C in their attributes, and messages that were meant to end workers, through every door. Nothing of
// them runs, the sender gets an error, and everybody else goes on.
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
import { decode, encode, protocolVersion, type ToClient, toClient } from "./protocol.js";
import { diffTapes, readTape } from "./tape-file.js";
import { replay } from "./tape-replay.js";
import { hostId, openStream } from "./wire.js";
import { ownMemory } from "./worker.js";
import { skip, testWorker } from "./workers.testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-attack-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const proof = join(folder, "proof");

/** C that makes a file, wherever it lands in a kernel: the end of a pragma, of an expression, of a name or of a comment. */
const payloads = [
  `max:r0)\n{extern int system(const char*); system("touch ${proof}");}\n#pragma omp simd reduction(max`,
  `*/ system("touch ${proof}"); /*`,
  `"; system("touch ${proof}"); //`,
  `0); system("touch ${proof}"); (0`,
  `\nint x = system("touch ${proof}");\n`,
  "",
  "__proto__",
  "x".repeat(21_000),
];
const notMade = (): void => assert.ok(!existsSync(proof), "an attack ran a command");

test("every place of every attribute of every op refuses code, other types and numbers that are none", () => {
  let tried = 0;
  for (const [op, fn] of sampleFunctions()) {
    decodeFunction(structuredClone(fn));
    for (const path of attributePlaces(fn, op)) {
      const was = at(fn, path);
      const values = [
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
        // A number that JSON has is a constant like any other, and a nameless alias has the empty name.
        const isNumber = op === "const" || path.includes("scale") || path.includes("dropout");
        if (isNumber && typeof value === "number") continue;
        if (typeof was === "string" && (op === "alias" || op === "pin") && (value === "" || value === "__proto__"))
          continue;
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

test("a tape with code in an attribute is refused by replay and diff", { skip }, async () => {
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

test("a tape whose data is smaller than its program says is refused", { skip }, async () => {
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

/** A client that speaks the protocol by hand. */
class Raw {
  readonly heard: ToClient[] = [];
  ended = false;
  readonly #channel;
  #wake: () => void = () => {};

  constructor(port: number) {
    this.#channel = openStream("localhost", port, "Client", {}, false);
    this.#channel.stream.on("data", (bytes: Buffer) => {
      this.heard.push(decode(toClient, bytes));
      this.#wake();
    });
    const over = (): void => {
      this.ended = true;
      this.#wake();
    };
    this.#channel.stream.on("error", over);
    this.#channel.stream.on("end", over);
    const where = { host: hostId(), pid: process.pid, memory: ownMemory() };
    const role = { role: "client", label: null, process: where, settings: {} };
    this.send({ t: "hello", version: protocolVersion, token: null, ...role });
  }

  send(message: unknown): void {
    this.#channel.stream.write(encode(message));
  }

  async until<T>(find: (message: ToClient) => T | undefined | false, seconds = 20): Promise<T> {
    for (const deadline = Date.now() + seconds * 1e3; Date.now() < deadline; ) {
      for (const message of this.heard) {
        const found = find(message);
        if (found) return found;
      }
      if (this.ended) throw new Error(`ended after ${JSON.stringify(this.heard).slice(0, 500)}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, 200);
      });
    }
    throw new Error(`nothing of the kind in ${JSON.stringify(this.heard.slice(-3)).slice(0, 1000)}`);
  }

  close(): void {
    this.#channel.stream.end();
    this.#channel.close();
  }
}

async function withCluster(body: (port: number, cluster: Cluster) => Promise<void>): Promise<void> {
  const cluster = await connect({ devices: 2, ...testWorker });
  try {
    const before = cluster.workers.map(({ id, process: p }) => `${id} ${p.pid}`);
    await body(Number(/:(\d+)$/.exec(cluster.address)![1]), cluster);
    // The others live on: the same processes, and they compute.
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
