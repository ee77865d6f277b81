// Peers that misbehave after they have been let in, or before: stalled uploads, requests whose answers nobody reads, occupied
// connections, workers that send other sizes than announced, and files that are not what they should be.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect as connectSocket, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as weft from "@weft/core";
import { createDevice } from "@weft/core/internal/device";
import { type Cluster, connect } from "./connect.js";
import { DataLink, type Destination } from "./data-link.js";
import { DataServer } from "./data-server.js";
import { readFrames, writeFrame } from "./frames.js";
import { printable } from "./printable.js";
import { decode, encode, fromClient, fromWorker, type WorkerInfo } from "./protocol.js";
import { RawClient } from "./raw-client.testkit.js";
import { certificates } from "./security.js";
import { Namespace } from "./store.js";
import { bytesOfLine, readTape } from "./tape-file.js";
import { skip, testWorker } from "./workers.testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-peers-"));
after(() => rmSync(folder, { recursive: true, force: true }));

async function withCluster(
  body: (cluster: Cluster, raw: RawClient, workers: readonly WorkerInfo[]) => Promise<void>,
): Promise<void> {
  const cluster = await connect({ devices: 2, ...testWorker });
  const raw = new RawClient(Number(/:(\d+)$/.exec(cluster.address)![1]), cluster.local!.token);
  try {
    const { workers } = await raw.until((m) => m.t === "welcome" && m);
    await body(cluster, raw, workers);
    assert.equal(await weft.ones([64, 8]).sum().item(), 512);
  } finally {
    raw.close();
    await cluster.close();
    weft.setDevice("cpu");
  }
}

const sum = async (): Promise<void> => assert.equal(await weft.ones([64, 8]).mul(2).sum().item(), 1024);

test("an upload that stalls holds up its own client only", { skip }, async () => {
  await withCluster(async (_, raw, workers) => {
    await sum();
    const parts = workers.map(({ id: worker }) => ({ worker, offset: null, sizes: [1], strides: [4], element: 4 }));
    raw.send({ t: "upload", id: 70, bytes: 8, parts });
    // What follows in the same message waits as well, and is not lost.
    raw.send([
      { t: "upload", id: 71, bytes: 8, parts },
      { t: "recomputed", tensors: 1 },
    ]);
    await delay(300);
    for (let i = 0; i < 20; i++) await sum();
    assert.ok(!raw.heard.some(({ t }) => t === "failed"), "the others had to wait for the upload");
    for (const id of [70, 71])
      await raw.until((m) => m.t === "failed" && m.ids.includes(id) && /did not arrive/.test(m.message));
  });
});

const residentBytes = (pid: number): number =>
  1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]);

test("a client that does not read its results costs a worker little memory", { skip }, async () => {
  await withCluster(async (_, raw, [{ id: worker, process: where }]) => {
    const bytes = 60_000;
    raw.send({
      ...{ t: "upload", id: 80, bytes },
      parts: [{ worker, offset: null, sizes: [bytes], strides: [1], element: 1 }],
    });
    const socket = await raw.data(worker, { name: null });
    writeFrame(socket, { upload: 80, bytes, at: 0, last: true }, new Uint8Array(bytes));
    socket.pause();
    const before = residentBytes(where.pid);
    // 600 MB of answers.
    for (let request = 1; request <= 10_000; request++) writeFrame(socket, { fetch: request, id: 80 });
    await delay(1500);
    const grown = residentBytes(where.pid) - before;
    assert.ok(grown < 200e6, `${Math.round(grown / 1e6)} MB for answers that nobody reads`);
    await sum();
  });
});

test("occupied connections of strangers keep no client from its workers", { skip }, async () => {
  await withCluster(async (cluster, _, workers) => {
    const idle: Socket[] = [];
    for (let i = 0; i < 600; i++) {
      const socket = connectSocket(workers[i % 2].data.port, "127.0.0.1");
      socket.on("error", () => {});
      idle.push(socket);
    }
    await delay(500);
    const other = await connect(cluster.address, { token: cluster.local!.token });
    await sum();
    await other.close();
    for (const socket of idle) socket.destroy();
  });
});

/** A worker's data plane that answers every fetch in its own way. */
async function falseWorker(answer: (socket: Socket, request: number) => void): Promise<[Server, WorkerInfo]> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    readFrames(socket, ({ header }) => typeof header.fetch === "number" && answer(socket, header.fetch));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return [server, { id: "w1", key: "", data: { host: "localhost", port, tls: false } } as WorkerInfo];
}

test("a worker that sends more, less or other bytes than it should gives an error, not a wrong result", async () => {
  const answers: [string, (socket: Socket, fetch: number) => void][] = [
    ["less", (socket, fetch) => writeFrame(socket, { fetch, bytes: 16, last: true }, new Uint8Array(8))],
    ["more", (socket, fetch) => writeFrame(socket, { fetch, bytes: 16, last: true }, new Uint8Array(24))],
    [
      "never the last",
      (socket, fetch) => {
        for (let i = 0; i < 4; i++) writeFrame(socket, { fetch, bytes: 16, last: false }, new Uint8Array(8));
      },
    ],
    ["nothing", (socket, fetch) => writeFrame(socket, { fetch, bytes: 0, last: true })],
    ["an offset of memory that is not shared", (socket, fetch) => writeFrame(socket, { fetch, bytes: 16, offset: 0 })],
    ["half an offset", (socket, fetch) => writeFrame(socket, { fetch, bytes: 16, offset: 0.5 })],
    ["wrong measurements", (socket) => writeFrame(socket, { measured: { wall: "x" } })],
  ];
  const listener = { uploaded: () => {}, broken: () => {}, tape: () => {}, measured: () => {} };
  for (const [what, answer] of answers) {
    const [server, info] = await falseWorker(answer);
    const link = new DataLink(info, 1, {}, listener);
    const to: Destination = { into: new Uint8Array(16), offset: 0, sizes: [4], strides: [4], element: 4 };
    await assert.rejects(
      link.fetch(1, to),
      /sent .* bytes for a shard of 16|invalid offset|closed the connection/,
      what,
    );
    link.fail("over");
    server.close();
  }
});

test("a worker at an impossible address is refused, and one that a client cannot reach is an error of its tensors", async () => {
  const facts = {
    ...{ t: "hello", device: "cpu", label: null, process: { host: "h", pid: 1 }, threads: 1, memoryBytes: 1 },
    ...{ rates: null, mpi: null },
  };
  const hello = (port: number, links = 1): Buffer =>
    encode({ ...facts, links, data: { host: "localhost", port, tls: false } });
  decode(fromWorker, hello(65_535));
  for (const bytes of [hello(65_536), hello(1, 1e6), hello(0.5), hello(-1)])
    assert.throws(() => decode(fromWorker, bytes), /is wrong: (data.port|links)/);
  const listener = { uploaded: () => {}, broken: () => {}, tape: () => {}, measured: () => {} };
  const data = { host: "localhost", port: 70_000, tls: false };
  const link = new DataLink({ id: "w1", key: "", data } as WorkerInfo, 1, {}, listener);
  await assert.rejects(link.peek(1), /the connection to worker w1 failed: Port should be/);
});

test("uploads that nobody asked for are bounded in total: whoever sent most of them is disconnected", async () => {
  const spaces = new Map<number, Namespace>();
  const device = createDevice("reference");
  const server = new DataServer(device, (client) => spaces.get(client), "localhost", {}, 64 << 10);
  await server.listen();
  const open = async (client: number): Promise<{ socket: Socket; over: () => boolean }> => {
    spaces.set(client, new Namespace(client, `key ${client}`, {}, device));
    const socket = connectSocket(server.port, "127.0.0.1");
    let closed = false;
    socket
      .on("error", () => {})
      .on("close", () => (closed = true))
      .resume();
    writeFrame(socket, { client, key: `key ${client}`, name: null });
    return { socket, over: () => closed };
  };
  try {
    const [small, large] = [await open(1), await open(2)];
    const send = ({ socket }: { socket: Socket }, id: number, bytes: number): void =>
      void writeFrame(socket, { upload: id, bytes, at: 0, last: true }, new Uint8Array(bytes).fill(id));
    send(small, 1, 16 << 10);
    for (let id = 1; id <= 4; id++) send(large, id, 14 << 10);
    for (const deadline = Date.now() + 30e3; !large.over(); await delay(10)) assert.ok(Date.now() < deadline);
    const kept = await server.waitForUpload(1, 1);
    assert.ok(kept?.length === 16 << 10 && kept.every((byte) => byte === 1));
    assert.equal(small.over(), false);
    small.socket.destroy();
  } finally {
    server.close();
  }
});

test("nobody is talked out of TLS beyond loopback, and a key that others can read is refused", async () => {
  const far = { id: "w1", key: "", data: { host: "192.0.2.1", port: 1, tls: false } } as WorkerInfo;
  const listener = { uploaded: () => {}, broken: () => {}, tape: () => {}, measured: () => {} };
  await assert.rejects(new DataLink(far, 1, {}, listener).peek(1), /give a TLS certificate/);
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  writeFileSync(cert, "certificate");
  writeFileSync(key, "key", { mode: 0o600 });
  assert.equal(certificates({ cert, key, ca: cert }, "why").key.toString(), "key");
  for (const mode of [0o644, 0o620, 0o602]) {
    chmodSync(key, mode);
    assert.throws(() => certificates({ cert, key, ca: cert }, "why"), /other users can read or write the TLS key/);
  }
  // A group may read it: secrets of containers are mounted so.
  chmodSync(key, 0o440);
  certificates({ cert, key, ca: cert }, "why");
});

test("names with marks that reorder or hide text are refused", () => {
  const hello = (label: string): unknown => ({ t: "hello", label, process: { host: "h", pid: 1 }, settings: {} });
  decode(fromClient, encode(hello("Grüße 東京 \u{1f680}")));
  for (const mark of ["\u061c", "\u202e", "\u180e", "\u00ad", "\ufff9", "\u{e0041}", "\u001b", "\u009b", "\n"]) {
    assert.throws(() => decode(fromClient, encode(hello(`a${mark}b`))), /cannot be printed/, JSON.stringify(mark));
    if (mark !== "\n") assert.equal(printable(`a${mark}b`).includes(mark), false);
  }
});

test("a tape is a plain file with lines of bounded length", { timeout: 20_000 }, async () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  for (const path of [pipe, "/dev/zero", folder]) await assert.rejects(readTape(path), /not a plain file/);
  await assert.rejects(readTape(join(folder, "nothing")), /ENOENT/);
  // Its data is beside it.
  const tape = { path: join(folder, "a.tape"), lines: [], instructions: [], unreadable: 0, problems: [] };
  mkdirSync(`${tape.path}.data`);
  execFileSync("mkfifo", [join(`${tape.path}.data`, "ab.bin")]);
  symlinkSync("/dev/zero", join(`${tape.path}.data`, "cd.bin"));
  for (const file of ["ab.bin", "cd.bin", "ef.bin"])
    assert.throws(() => bytesOfLine(tape, { file, sha256: "" }), /missing or not a plain file/);
});

/** A program with a tape at this path; `before` are commands of a shell in a mount namespace of its own. */
function taped(path: string, before = "true"): { status: number | null; stdout: string; stderr: string } {
  const program = `
    const weft = await import(${JSON.stringify(import.meta.resolve("@weft/core"))});
    weft.setDevice("reference");
    for (let i = 0; i < 300; i++) await weft.tensor(new Float32Array(500).fill(i)).add(1).data();
    await new Promise((resolve) => setTimeout(resolve, 300));
    console.log("computed");`;
  const line = [
    "-m",
    "sh",
    "-c",
    `${before} && exec "$0" "$@"`,
    process.execPath,
    "--input-type=module",
    "-e",
    program,
  ];
  return spawnSync("unshare", line, { encoding: "utf8", env: { ...process.env, WEFT_TAPE: path } });
}

test("a tape on a full disk ends, and its program does not; what is not a file is not replaced", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to mount a small file system");
  const small = join(folder, "small");
  mkdirSync(small);
  const full = taped(join(small, "a.tape"), `mount -t tmpfs -o size=256k none ${small}`);
  assert.equal(full.stdout, "computed\n", full.stderr);
  assert.match(full.stderr, /recording of the tape .* ends: ENOSPC/);
  assert.equal(full.status, 0);
  const pipe = join(folder, "kept");
  execFileSync("mkfifo", [pipe]);
  assert.match(taped(pipe).stderr, /would replace what is not a plain file/);
  assert.ok(lstatSync(pipe).isFIFO());
});

test("a tape writes nothing into a folder that another user has placed beside it", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to make a folder of another user");
  const path = join(folder, "placed.tape");
  mkdirSync(`${path}.data`);
  chownSync(`${path}.data`, 65534, 65534);
  const program = `
    const weft = await import(${JSON.stringify(import.meta.resolve("@weft/core"))});
    weft.setDevice("reference");
    await weft.tensor(new Float32Array(5000)).add(1).data();`;
  const env = { ...process.env, WEFT_TAPE: path };
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8", env });
  assert.match(done.stderr, /belongs to another user/);
  assert.deepEqual(readdirSync(`${path}.data`), []);
});

test("messages nested without end close their own connection only", { skip }, async () => {
  await withCluster(async (cluster, _, [{ id }]) => {
    const body = (inner: string): string =>
      `{"params":[],"nodes":[["scan",[],{"body":{"$fn":${inner}}},[]]],"outputs":[0]}`;
    const [open, close] = body("|").split("|");
    const define = (graph: string): string =>
      `{"t":"define","program":1,"members":["${id}"],"generation":1,"graphs":[${graph}],"which":[0],"donated":[],"collective":true}`;
    const run = { t: "run", program: 1, inputs: [], outputs: [1], step: 0, site: null };
    for (const text of [
      `${"[".repeat(2_000_000)}${"]".repeat(2_000_000)}`,
      define(`${"[".repeat(500_000)}${"]".repeat(500_000)}`),
      define(`${open.repeat(20_000)}null${close.repeat(20_000)}`),
      define(`${open.repeat(900)}null${close.repeat(900)}`),
    ]) {
      const raw = new RawClient(Number(/:(\d+)$/.exec(cluster.address)![1]), cluster.local!.token);
      await raw.until((m) => m.t === "welcome");
      raw.sendText(text);
      raw.send(run);
      // The end of a connection whose message is still on its way may overtake the reason.
      await raw.until((m) => m.t === "failed" || m.t === "refused").catch(() => assert.ok(raw.ended));
      raw.close();
      await sum();
      assert.equal(cluster.workers.length, 2);
    }
  });
});
