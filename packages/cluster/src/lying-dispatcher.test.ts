// A dispatcher that lies: to clients, which end with an error that says so and keep their memory, and to workers, which leave it. And
// workers that lie to a dispatcher about what is not theirs.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createServer, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { toPlain } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { AnnouncedWorkers } from "./announced-workers.js";
import { connect } from "./connect.js";
import { Connection } from "./connection.js";
import { DataLink, type Destination } from "./data-link.js";
import { Dispatcher } from "./dispatcher.js";
import { announced, FalseDispatcher, type Peer, welcome } from "./false-dispatcher.testkit.js";
import { inHeaders, readFrames, writeFrame } from "./frames.js";
import { encode, type FromWorker, type ToClient, type WorkerInfo } from "./protocol.js";
import { receiveMemory, shareName } from "./shared-memory.js";
import { StandInWorker } from "./stand-ins.js";
import { isOwnAddress, openStream } from "./wire.js";
import { WorkQueue } from "./work-queue.js";
import { Worker } from "./worker.js";
import { skip } from "./workers.testkit.js";

/** Waits until a condition holds. */
async function until(condition: () => boolean, what: string, seconds = 30): Promise<void> {
  for (const deadline = performance.now() + seconds * 1e3; !condition(); await delay(5))
    assert.ok(performance.now() < deadline, what);
}

// What is behind the address of the only worker: accepts connections and says nothing.
let elsewhere: Server;
let port = 0;
before(async () => {
  elsewhere = createServer((socket) => socket.on("error", () => {}).resume());
  await new Promise<void>((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  // It keeps no process alive, whatever happens before its end.
  elsewhere.unref();
  port = (elsewhere.address() as { port: number }).port;
});
after(() => elsewhere.close());

async function toldBy(
  messages: (ToClient | object)[],
  check: (connection: Connection, peer: () => Peer) => Promise<void>,
): Promise<void> {
  const dispatcher = await FalseDispatcher.start((peer) => peer.sendAll(messages));
  const connection = new Connection(`localhost:${dispatcher.port}`, { insecure: true, timeout: 20 });
  try {
    await check(connection, () => dispatcher.peers[0]);
  } finally {
    connection.close();
    dispatcher.stop();
  }
}

test("a client ends with an error when its dispatcher contradicts itself", async () => {
  const [w1, w2] = [announced("w1", port), announced("w2", port)];
  const good = welcome([w1]);
  const workers = (joined: WorkerInfo[], generation = 2, more = false): object => ({
    ...{ t: "workers", generation, more, joined, lost: [] },
  });
  const cases: [string, object[], RegExp][] = [
    ["two welcomes", [good, good], /"welcome" after its welcome/],
    ["workers first", [workers([w1])], /"workers" before its welcome/],
    ["failures first", [{ t: "failed", ids: [1], message: "x", code: "error", worker: "w1" }], /"failed" before/],
    ["a worker twice in a list", [welcome([w1, w1])], /worker w1 is announced twice/],
    ["another address of a worker", [good, workers([announced("w1", port + 1)])], /worker w1 is announced twice/],
    ["an older generation", [good, workers([w2], 0)], /generation 0 follows generation 1/],
    ["an answer to no question", [good, { t: "confirmed", question: 7 }], /an answer to question 7/],
    ["a status", [good, { t: "status", clients: 0, messages: 0, bytes: 0, workers: [] }], /"status" is for watchers/],
    ["a key that is text", [welcome([announced("w1", port, { key: "\r\nGET /" })])], /workers.0.key is not a key/],
    ["an impossible port", [welcome([announced("w1", 70_000)])], /workers.0.data.port/],
    ["a list without end", [welcome([w1], true)], /no answer from localhost:\d+ within 0.3 s/],
  ];
  for (const [what, messages, expected] of cases) {
    const dispatcher = await FalseDispatcher.start((peer) => peer.sendAll(messages));
    const timeout = what === "a list without end" ? 0.3 : 20;
    const connection = new Connection(`localhost:${dispatcher.port}`, { insecure: true, timeout });
    await until(() => connection.lost !== null, what);
    assert.match(connection.lost!, expected, what);
    assert.match(connection.lost!, /^(the dispatcher at|no answer from)/, what);
    dispatcher.stop();
  }
});

test("every limit that a client may ask for reaches its dispatcher", async () => {
  const dispatcher = await FalseDispatcher.start((peer) => peer.send({ t: "refused", message: "heard" }));
  const limits = { maxTensors: 1, maxBytes: 2, maxQueue: 3, maxSeconds: 4, maxCompileSeconds: 5 };
  const asked = connect(`localhost:${dispatcher.port}`, { insecure: true, ...limits });
  await assert.rejects(asked, /refused: heard/);
  const [{ settings }] = dispatcher.peers[0].heard as unknown as { settings: object }[];
  assert.deepEqual(settings, { ...limits, tape: false });
  dispatcher.stop();
});

test("an invalid handshake is refused", async () => {
  for (const answer of [null, [], { nonce: 1 }, { nonce: "x\n", proof: null }, { nonce: "00", proof: {} }]) {
    const dispatcher = await FalseDispatcher.start(() => {}, answer);
    const opened = openStream("localhost", dispatcher.port, "client", { insecure: true }, false, 20);
    await assert.rejects(opened, /this is not a dispatcher of weft/, JSON.stringify(answer));
    dispatcher.stop();
  }
});

test("failures and losses of what a client does not have take no memory", async () => {
  const ids = Array.from({ length: 50_000 }, (_, i) => i + 100);
  const lost = Array.from({ length: 10_000 }, (_, i) => ({ worker: `x${i}`, reason: "x".repeat(200) }));
  await toldBy([welcome([announced("w1", port)])], async (connection, peer) => {
    await connection.ready;
    connection.send({ t: "run", program: 1, inputs: [], outputs: [7, 8], step: 0, site: null });
    connection.free(8);
    await until(() => peer().heard.some(({ t }) => t === "run"), "the run");
    for (const some of [ids, [7, 8]])
      peer().send({ t: "failed", ids: some, message: "no", code: "error", worker: "w1" });
    peer().send({ t: "workers", generation: 2, more: false, joined: [], lost });
    await until(() => connection.generation === 2, "the losses");
    assert.deepEqual([...connection.failures.keys()], [7]);
    assert.equal(connection.isDead("x1"), true);
    assert.equal(connection.deathOf("x1"), "worker x1 is not connected");
    assert.equal(connection.deathOf("w1"), null);
  });
});

test("lists of workers are bounded, and name no address of the client's machine unless the dispatcher is there", () => {
  const list = new AnnouncedWorkers();
  const some = (from: number, count: number): WorkerInfo[] =>
    Array.from({ length: count }, (_, i) => announced(`w${from + i}`, 1));
  list.change({ generation: 1, joined: some(0, 16_384), lost: [] }, 1e6, true);
  assert.throws(() => list.change({ generation: 1, joined: some(20_000, 1), lost: [] }, 1, true), /more than 16384/);
  const large = new AnnouncedWorkers();
  large.change({ generation: 1, joined: some(0, 1), lost: [] }, 500 << 20, true);
  // What is lost counts no longer.
  const lost = [{ worker: "w0", reason: "ended" }];
  assert.deepEqual(large.change({ generation: 1, joined: some(1, 1), lost }, 500 << 20, true), lost);
  assert.throws(() => large.change({ generation: 1, joined: some(2, 1), lost: [] }, 100 << 20, true), /bytes/);
  const far = new AnnouncedWorkers();
  const at = (host: string): WorkerInfo => announced("w1", 1, { data: { host, port: 1, tls: true } });
  for (const host of ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
    assert.throws(() => far.change({ generation: 1, joined: [at(host)], lost: [] }, 1, false), /is this machine/);
  far.change({ generation: 1, joined: [at("10.0.0.2")], lost: [] }, 1, false);
  assert.deepEqual(["127.0.0.1:9000", "[::1]:9000", "192.0.2.7:9000"].map(isOwnAddress), [true, true, false]);
});

test("a worker leaves a dispatcher that contradicts itself, and computes for an honest one", {
  timeout: 120_000,
}, async () => {
  const client = { t: "client", client: 1, key: "", settings: {} };
  const hello = { t: "welcome", worker: "w1", key: "" };
  const lies: object[][] = [[hello, hello], [hello, client, client], [hello]];
  let round = 0;
  const dispatcher = await FalseDispatcher.start((peer) => peer.sendAll(lies[Math.min(round++, 2)]));
  const worker = new Worker({ port: dispatcher.port, device: "reference", insecure: true });
  const running = worker.run();
  try {
    await until(() => dispatcher.peers.length === 3, "the worker did not come back");
    assert.deepEqual(
      dispatcher.peers.map(({ ended }) => ended),
      [true, true, false],
    );
    const peer = dispatcher.peers[2];
    peer.send(client);
    const x = build.input([2], "float32");
    const graph = toPlain({ params: [x], outputs: [build.unary("exp", x)] });
    const group = { name: "g-1-1-x", rank: 0, size: 2, pids: [1, 2], mpi: null, links: null };
    const define = (program: number, more: object = {}): object => ({
      ...{ t: "define", client: 1, program, donated: [], graph, group: null },
      ...more,
    });
    const run = (program: number, output: number): object => ({
      ...{ t: "run", client: 1, program, inputs: [], outputs: [output], step: 0, site: null },
    });
    peer.send([
      define(1, { group: { ...group, rank: 2 } }),
      define(2, { group: { ...group, size: 1e6, pids: [] } }),
      define(3, { group: { ...group, mpi: [0] } }),
      ...[1, 2, 3, 4].map((program) => run(program, program)),
      // Twice the same upload, of bytes that nobody sends, for somebody who never came.
      ...[9, 9].map((id) => ({
        ...{ t: "upload", client: 1, id, bytes: 4 },
        part: { worker: "w1", offset: null, sizes: [1], strides: [4], element: 4 },
      })),
      { t: "run", client: 1 },
    ]);
    // The batch above has one wrong message, and is left out; the same without it is followed.
    peer.send([define(1, { group: { ...group, rank: 2 } }), define(2, { group: { ...group, size: 1e6, pids: [] } })]);
    peer.send([define(3, { group: { ...group, mpi: [0] } }), ...[1, 2, 3, 4].map((program) => run(program, program))]);
    const failed = (): { ids: number[]; message: string }[] =>
      peer.heard.filter(({ t }) => t === "failed") as unknown as { ids: number[]; message: string }[];
    await until(() => failed().length === 4, "the failures");
    const texts = failed().map(({ ids, message }) => `${ids}: ${message}`);
    assert.match(texts[0], /^1: define: rank 2 of a group of 2 with 2 members/);
    assert.match(texts[1], /^2: define: rank 0 of a group of 1000000/);
    assert.match(texts[2], /^3: define: rank 0 of a group of 2 with 2, 1 members/);
    assert.match(texts[3], /^4: program 4 was not defined/);
  } finally {
    worker.stop();
    dispatcher.stop();
    await running;
  }
});

test("instructions that a dispatcher sends without waiting are bounded, also those that wait for a compiler", () => {
  const queue = new WorkQueue(4, 1000);
  const free = (client: number): Parameters<WorkQueue["push"]>[0] => ({ t: "free", client, ids: [] });
  for (const client of [1, 2, 1]) queue.push(free(client), 10);
  const goOn = queue.hold(1);
  const work = queue.next()!;
  assert.deepEqual(work.message, free(2));
  assert.equal(queue.next(), undefined);
  queue.push(free(1), 10);
  assert.throws(() => queue.push(free(1), 10), /5 instructions of 50 bytes are not completed/);
  queue.clear();
  assert.equal(goOn(), false);
  queue.push(free(1), 900);
  assert.throws(() => queue.push(free(2), 101), /of 1001 bytes/);
  queue.clear();
  const again = queue.hold(1);
  queue.push(free(1), 900);
  assert.equal(queue.next(), undefined);
  assert.equal(again(), true);
  queue.done(queue.next()!);
  queue.push(free(2), 950);
  queue.drop(2);
  queue.push(free(3), 950);
  assert.deepEqual(queue.next()?.message, free(3));
});

test("a worker can fail its own tensors only, and break its own groups only", async () => {
  const token = "t".repeat(32);
  const security = { token, workerToken: token };
  const dispatcher = await Dispatcher.start({ port: 0, ...security });
  const graph = { params: [], nodes: [["const", [], { value: 1, dtype: "float32" }, []]], outputs: [0] };
  const workers = [
    await StandInWorker.join(dispatcher.port, security),
    await StandInWorker.join(dispatcher.port, security),
  ];
  const connection = new Connection(`localhost:${dispatcher.port}`, { token });
  try {
    await connection.ready;
    await until(() => connection.workers.length === 2, "both workers");
    const { generation, client } = connection;
    connection.send({
      ...{ t: "define", program: 1, donated: [], members: ["w1"], generation },
      ...{ graphs: [graph], which: [0], collective: false },
    });
    connection.send({ t: "run", program: 1, inputs: [], outputs: [5], step: 0, site: null });
    const say = (at: number, message: FromWorker): void => void workers[at].channel.stream.write(encode(message));
    const failed = { t: "failed" as const, client, ids: [5], code: "error" as const };
    await delay(50);
    say(1, { ...failed, message: "a lie", worker: "w1" });
    say(1, { t: "broken", group: `${dispatcher.id}-${generation}-1-0` });
    say(1, { t: "progress", client, done: 1e9, seconds: 0 });
    await delay(50);
    say(0, { ...failed, message: "the truth", worker: "w2" });
    await until(() => connection.failures.has(5), "the failure");
    assert.equal(connection.failures.get(5)!.message, "the truth");
    assert.equal(connection.generation, generation);
  } finally {
    connection.close();
    dispatcher.stop();
  }
});

/** A worker's data plane that answers every fetch in its own way. */
async function falseWorker(answer: (socket: Socket, request: number) => void): Promise<[Server, WorkerInfo]> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    readFrames(socket, ({ header }) => typeof header.fetch === "number" && answer(socket, header.fetch));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return [server, announced("w1", (server.address() as { port: number }).port)];
}

const shard = (elements: number): Destination => ({
  ...{ into: new Uint8Array(4 * elements), offset: 0, sizes: [elements], strides: [4], element: 4 },
});

test("answers that are repeated, out of order, of other requests or in the smallest pieces give right values or an error", async () => {
  const records: unknown[] = [];
  const listener = {
    uploaded: () => {},
    broken: () => {},
    tape: (some: unknown[]) => void records.push(...some),
    measured: () => {},
  };
  const piece = (fetch: number, at: number, last: boolean, fill: number): [object, Uint8Array] => [
    { fetch, bytes: 16, at, last },
    new Uint8Array(8).fill(fill),
  ];
  const cases: [string, (socket: Socket, fetch: number) => void, RegExp | null][] = [
    [
      "in order, with answers to nobody, and the whole answer again",
      (socket, fetch) => {
        writeFrame(socket, { fetch: 999, bytes: 16, last: true }, new Uint8Array(16).fill(9));
        for (const one of [piece(fetch, 0, false, 1), piece(fetch, 8, true, 1)]) writeFrame(socket, ...one);
        for (const one of [piece(fetch, 0, false, 7), piece(fetch, 8, true, 7)]) writeFrame(socket, ...one);
      },
      null,
    ],
    [
      "byte by byte",
      (socket, fetch) => {
        for (let at = 0; at < 16; at++) writeFrame(socket, { fetch, at, last: at === 15 }, Uint8Array.of(1));
      },
      null,
    ],
    [
      "the second piece first",
      (socket, fetch) => void writeFrame(socket, ...piece(fetch, 8, false, 1)),
      /sent 8 bytes/,
    ],
    [
      "a piece twice",
      (socket, fetch) => {
        for (let i = 0; i < 2; i++) writeFrame(socket, ...piece(fetch, 0, i === 1, 1));
      },
      /sent 16 bytes for a shard of 16/,
    ],
    [
      "a record of another kind for the tape",
      (socket) => void writeFrame(socket, { tape: [{ type: "check" }] }),
      /closed/,
    ],
    ["a tape that is no list", (socket) => void writeFrame(socket, { tape: { type: "data" } }), /closed/],
  ];
  for (const [what, answer, expected] of cases) {
    const [server, info] = await falseWorker(answer);
    const link = new DataLink(info, 1, {}, listener);
    const to = shard(4);
    if (expected === null) {
      await link.fetch(1, to);
      await delay(20);
      assert.ok(
        to.into.every((byte) => byte === 1),
        what,
      );
      assert.equal(link.fetchedBytes, 16, what);
    } else await assert.rejects(link.fetch(1, to), expected, what);
    link.fail("over");
    server.close();
  }
  assert.deepEqual(records, []);
});

test("records of a tape fit into headers, however many there are", () => {
  const records = Array.from({ length: 3000 }, (_, i) => ({ i, text: "x".repeat(1000) }));
  const lists = [...inHeaders([...records, { text: "x".repeat(1 << 20) }])];
  assert.deepEqual(lists.flat(), records);
  assert.ok(lists.length > 5 && lists.every((list) => JSON.stringify({ tape: list }).length < 1 << 20));
  assert.deepEqual([...inHeaders([])], []);
});

/** A data plane that asks a client for its memory, as another user or as this one; prints whether it came. */
const asker = `
import array, json, os, secrets, socket, struct, sys
os.setuid(int(sys.argv[1]))
announce = sys.argv[2] == "1"
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
link, _ = server.accept()
def frame():
    total, size = struct.unpack("<II", link.recv(8, socket.MSG_WAITALL))
    return json.loads(link.recv(total - 8, socket.MSG_WAITALL)[:size])
def reply(header):
    text = json.dumps(header).encode()
    link.sendall(struct.pack("<II", 8 + len(text), len(text)) + text)
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name, secret, ticket = "weft-" + secrets.token_hex(16), secrets.token_hex(16), secrets.token_hex(32)
own.bind("\\0" + name)
theirs, their_secret = frame()["name"].split(".")
if announce: own.sendto(bytes.fromhex(their_secret + ticket), "\\0" + theirs)
reply({"ticket": ticket, "name": name + "." + secret})
own.settimeout(float(sys.argv[3]))
try:
    _, rights, _, _ = own.recvmsg(64, 64)
    print("memory" if rights else "no memory", flush=True)
except TimeoutError:
    print("nothing", flush=True)
`;

test("a client passes its memory to a process of its own user that asked for it, and to nobody else", {
  skip,
}, async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to be another user");
  if (spawnSync("python3", ["-V"]).status !== 0) return t.skip("needs Python");
  assert.notEqual(shareName(), null);
  const listener = { uploaded: () => {}, broken: () => {}, tape: () => {}, measured: () => {} };
  for (const [uid, announces, expected] of [
    ["0", "1", "memory"],
    ["65534", "1", "nothing"],
    ["0", "0", "nothing"],
  ]) {
    const other = spawn("python3", ["-c", asker, uid, announces, expected === "memory" ? "20" : "0.5"], { cwd: "/" });
    other.stderr.pipe(process.stderr);
    const lines = createInterface({ input: other.stdout })[Symbol.asyncIterator]();
    const { value: at } = await lines.next();
    const link = new DataLink(announced("w1", Number(at)), 1, {}, listener);
    assert.equal((await lines.next()).value, expected, `user ${uid}, announced ${announces}`);
    link.fail("over");
    assert.equal(receiveMemory("00".repeat(32)), null);
    other.kill();
  }
});
