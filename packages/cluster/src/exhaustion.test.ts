// Attempts to use up what a dispatcher, a worker or a host has: connections, memory of pending requests, names in shared memory,
// the size of messages. Whoever tries it may lose its own connection; everybody else is served.
import assert from "node:assert/strict";
import { type SpawnOptions, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as connectHttp2, constants } from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { gzipSync } from "node:zlib";
import * as weft from "@weft/core";
import { collectNow, groupFiles, groupPath } from "@weft/core/internal/device";
import { has, installDebian } from "@weft/testing/debian";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { writeFrame } from "./frames.js";
import { decode, decodeAll, encode, fromClient, fromWorker } from "./protocol.js";
import { RawClient } from "./raw-client.testkit.js";
import { Strangers } from "./strangers.js";
import { watch } from "./watch.js";
import { openStream } from "./wire.js";
import { skip, testWorker } from "./workers.testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-exhaustion-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const portOf = (address: string): number => Number(/:(\d+)$/.exec(address)![1]);
const residentBytes = (pid: number): number =>
  1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]);

function idle(port: number, count: number): { sockets: Socket[]; closed(): number } {
  let closed = 0;
  const sockets = Array.from({ length: count }, () => {
    const socket = connectSocket(port, "127.0.0.1");
    socket.on("error", () => {});
    socket.on("close", () => closed++);
    // Whoever does not read does not notice the end.
    socket.resume();
    return socket;
  });
  return { sockets, closed: () => closed };
}

/** A client is let in. */
async function letsIn(port: number, token: string): Promise<void> {
  const { stream, close } = await openStream("localhost", port, "client", { token }, false);
  stream.on("error", () => {});
  close();
}

/** Waits until a condition holds. */
async function until(condition: () => boolean, what: string, seconds = 10): Promise<void> {
  for (const deadline = Date.now() + seconds * 1e3; !condition(); await delay(20))
    assert.ok(Date.now() < deadline, what);
}

test("connections that never begin a TLS handshake keep nobody out, and are closed", {
  skip: installDebian(["openssl"], () => has("openssl")) ?? false,
}, async () => {
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const line = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=weft"];
  assert.equal(spawnSync("openssl", [...line, "-keyout", key, "-out", cert]).status, 0);
  const options = { cert: readFileSync(cert), key: readFileSync(key) };
  const server = createTlsServer(options, (socket) => socket.on("error", () => {}));
  new Strangers(server, 8, 500);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const { sockets, closed } = idle(port, 20);
  await until(() => closed() >= 12, "the oldest ones were not closed");
  const client = connectTls({ port, host: "127.0.0.1", ca: options.cert, checkServerIdentity: () => undefined });
  await once(client, "secureConnect");
  await until(() => closed() === 20, "silent connections stay");
  client.destroy();
  for (const socket of sockets) socket.destroy();
  server.close();
});

test("a thousand idle connections to a dispatcher do not keep clients out", async () => {
  const [token, workerToken] = ["token of clients", "token of workers"];
  const dispatcher = await Dispatcher.start({ port: 0, token, workerToken });
  try {
    const { sockets, closed } = idle(dispatcher.port, 1000);
    await until(() => closed() > 400, "idle connections are not limited");
    for (let i = 0; i < 5; i++) await letsIn(dispatcher.port, token);
    for (const socket of sockets) socket.destroy();
  } finally {
    dispatcher.stop();
  }
});

test("fetches that never end are bounded, and forgotten with their connection", { skip }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  const raw = new RawClient(portOf(cluster.address), cluster.local!.token);
  try {
    const [{ id: worker, process: where }] = (await raw.until((m) => m.t === "welcome" && m)).workers;
    const flood = async (first: number): Promise<void> => {
      const socket = await raw.data(worker, { name: null });
      for (let k = 0; k < 100_500 && !socket.destroyed; k++) {
        const more = writeFrame(socket, { fetch: first + k, id: 1e6 + k });
        // The worker hangs up in the middle: a write may fail before the end is seen.
        if (!more) await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => {});
      }
      await until(() => socket.destroyed, "100,500 fetches are pending");
    };
    const before = residentBytes(where.pid);
    for (let i = 0; i < 3; i++) await flood(1e6 * i);
    const grown = residentBytes(where.pid) - before;
    assert.ok(grown < 250e6, `${Math.round(grown / 1e6)} MB for fetches of connections that have ended`);
    // They are forgotten: another fetch may wait.
    const answers: object[] = [];
    const next = await raw.data(worker, { name: null }, (header) => answers.push(header));
    writeFrame(next, { fetch: 1, id: 1e6 });
    await delay(500);
    assert.deepEqual(answers, []);
    next.destroy();
    // A client has few connections: with its key it could otherwise take all of them.
    const several = await Promise.all(Array.from({ length: 12 }, () => raw.data(worker, { name: null })));
    await until(() => several.filter((socket) => socket.destroyed).length >= 8, "a client has 12 connections");
    assert.equal(await weft.ones([64, 8]).sum().item(), 512);
  } finally {
    raw.close();
    await cluster.close();
    weft.setDevice("cpu");
  }
});

test("a client that does not read its errors costs a worker little memory", { skip }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  const raw = new RawClient(portOf(cluster.address), cluster.local!.token);
  try {
    const [{ id: worker, process: where }] = (await raw.until((m) => m.t === "welcome" && m)).workers;
    const text = "x".repeat(1500);
    // An op of that name exists nowhere; the error that quotes it is long.
    const graph = { params: [], nodes: [["const", [], { value: text, dtype: text }, []]], outputs: [0] };
    const define = { t: "define", program: 1, donated: [], members: [worker], generation: 1, graphs: [graph] };
    raw.send({ ...define, which: [0], collective: false });
    raw.send({ t: "run", program: 1, inputs: [], outputs: [5], step: 0, site: null });
    await raw.until((m) => m.t === "failed");
    const socket = await raw.data(worker, { name: null });
    socket.pause();
    const before = residentBytes(where.pid);
    for (let request = 1; request <= 400_000 && !socket.destroyed; request++) {
      const more = writeFrame(socket, { fetch: request, id: 5 });
      if (!more && !(await Promise.race([once(socket, "drain"), delay(500).then(() => null)]))) break;
    }
    const grown = residentBytes(where.pid) - before;
    assert.ok(grown < 150e6, `${Math.round(grown / 1e6)} MB for errors that nobody reads`);
    assert.equal(await weft.ones([64, 8]).sum().item(), 512);
  } finally {
    raw.close();
    await cluster.close();
    weft.setDevice("cpu");
  }
});

test("a client that does not read what its dispatcher says is disconnected before that costs much memory", async () => {
  const [token, workerToken] = ["token of clients", "token of workers"];
  const dispatcher = await Dispatcher.start({ port: 0, token, workerToken });
  const { stream, close } = await openStream("localhost", dispatcher.port, "client", { token }, false);
  try {
    stream.on("error", () => {});
    stream.write(encode({ t: "hello", label: null, process: { host: "h", pid: 1 }, settings: {} }));
    const program = { t: "define", program: 1, donated: [], members: ["nobody"], generation: 1 };
    stream.write(encode({ ...program, graphs: [null], which: [0], collective: false }));
    // Every run fails, and the answer names all its outputs.
    const outputs = Array.from({ length: 50_000 }, (_, i) => 1e9 + i);
    const run = encode({ t: "run", program: 1, inputs: [], outputs, step: 0, site: null });
    const before = process.memoryUsage().arrayBuffers;
    let over = false;
    stream.on("close", () => (over = true));
    for (let i = 0; i < 1000 && !over; i++) {
      if (stream.write(run)) continue;
      await Promise.race([once(stream, "drain"), delay(3000).then(() => (over = true))]);
    }
    // What is held, without memory that the process has not given back yet.
    collectNow();
    const grown = process.memoryUsage().arrayBuffers - before;
    assert.ok(grown < 350e6, `${Math.round(grown / 1e6)} MB`);
    await letsIn(dispatcher.port, token);
  } finally {
    close();
    dispatcher.stop();
  }
});

test("plans and rates that fill messages are cut or refused, and watchers go on", async () => {
  const [token, workerToken] = ["token of clients", "token of workers"];
  const dispatcher = await Dispatcher.start({ port: 0, token, workerToken });
  const raw = new RawClient(dispatcher.port, token);
  try {
    await raw.until((m) => m.t === "welcome");
    const long = "w".repeat(300);
    const pairs = Array.from({ length: 4096 }, () => [long, long, 1]);
    for (let program = 1; program <= 20; program++)
      raw.send({ t: "plan", program, why: "large", devices: 2, candidates: [], tensors: [], pairs });
    const seen = await new Promise<number>((resolve, reject) => {
      const address = `localhost:${dispatcher.port}`;
      const fail = (why: string): void => reject(new Error(why));
      const stop = watch(
        address,
        { token },
        (status) => {
          if ((status.plans?.length ?? 0) < 16) return;
          stop();
          resolve(JSON.stringify(status).length);
        },
        fail,
      );
      setTimeout(() => fail("watchers see no plans"), 10_000).unref();
    });
    assert.ok(seen < 8e6, `${seen} characters`);
    const hello = {
      ...{ t: "hello", device: "cpu", label: null, process: { host: "h", pid: 1 } },
      data: { host: "localhost", port: 1, tls: false },
      ...{ links: 1, threads: 1, memoryBytes: 1, mpi: null, accelerator: null },
    };
    assert.throws(() => decode(fromWorker, encode({ ...hello, rates: "x".repeat(1 << 20) })), /too long/);
    assert.ok(decode(fromWorker, encode({ ...hello, rates: null })));
    const many = Array.from({ length: 100_000 }, () => ({ t: "free", ids: [] }));
    assert.throws(() => decodeAll(fromClient, encode(many)), /a batch has 100000 messages/);
    assert.equal(decodeAll(fromClient, encode(many.slice(0, 256))).length, 256);
  } finally {
    raw.close();
    dispatcher.stop();
  }
});

test("compressed bombs, streams that are reset at once and floods of settings leave a dispatcher that answers", async () => {
  const [token, workerToken] = ["token of clients", "token of workers"];
  const dispatcher = await Dispatcher.start({ port: 0, token, workerToken });
  try {
    const path = {
      ":method": "POST",
      ":path": "/weft.Cluster/Client",
      "content-type": "application/grpc",
      te: "trailers",
    };
    const before = process.memoryUsage().rss;
    const session = connectHttp2(`http://127.0.0.1:${dispatcher.port}`);
    session.on("error", () => {});
    // 200 MB of zeros in 200 kB.
    const bomb = gzipSync(Buffer.alloc(200 << 20));
    const frame = Buffer.concat([Buffer.of(1, 0, 0, 0, 0), bomb]);
    frame.writeUInt32BE(bomb.length, 1);
    for (const name of ["Client", "Worker", "Challenge"]) {
      const call = session.request({ ...path, ":path": `/weft.Cluster/${name}`, "grpc-encoding": "gzip" });
      call.on("error", () => {});
      call.write(frame);
    }
    await delay(300);
    const resets = connectHttp2(`http://127.0.0.1:${dispatcher.port}`);
    resets.on("error", () => {});
    for (let i = 0; i < 20_000 && !resets.destroyed; i++) {
      const call = resets.request({ ...path, ":path": "/weft.Cluster/Challenge" });
      call.on("error", () => {});
      call.close(constants.NGHTTP2_CANCEL);
      if (i % 100 === 0) await delay(1);
    }
    const flood = connectSocket(dispatcher.port, "127.0.0.1");
    flood.on("error", () => {});
    flood.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // An empty SETTINGS frame has nine bytes, and wants an answer.
    const settings = Buffer.concat(Array.from({ length: 1000 }, () => Buffer.of(0, 0, 0, 4, 0, 0, 0, 0, 0)));
    for (let i = 0; i < 200 && !flood.destroyed; i++) flood.write(settings);
    const begin = Date.now();
    await letsIn(dispatcher.port, token);
    assert.ok(Date.now() - begin < 5000, `a client waited ${Date.now() - begin} ms`);
    const grown = process.memoryUsage().rss - before;
    assert.ok(grown < 600e6, `${Math.round(grown / 1e6)} MB`);
    for (const one of [session, resets]) one.destroy();
    flood.destroy();
  } finally {
    dispatcher.stop();
  }
});

test("thousands of streams on connections of strangers keep no client out", async () => {
  const [token, workerToken] = ["token of clients", "token of workers"];
  // A process of its own: what it does for strangers is counted.
  const program = `
    const { Dispatcher } = await import(${JSON.stringify(new URL("./dispatcher.js", import.meta.url).href)});
    const { port } = await Dispatcher.start(${JSON.stringify({ port: 0, token, workerToken })});
    console.log(port);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const port = Number(await once(child.stdout, "data"));
    await letsIn(port, token);
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    const [{ maxConcurrentStreams }] = (await once(session, "remoteSettings")) as [{ maxConcurrentStreams: number }];
    session.destroy();
    assert.ok(maxConcurrentStreams <= 8, `${maxConcurrentStreams} streams per connection`);
    const http2Frame = (type: number, flags: number, stream: number, payload: Buffer): Buffer => {
      const head = Buffer.alloc(9);
      head.writeUIntBE(payload.length, 0, 3);
      head[3] = type;
      head[4] = flags;
      head.writeUInt32BE(stream, 5);
      return Buffer.concat([head, payload]);
    };
    // POST and http by their numbers in HPACK's table, and a name with its value.
    const literal = (name: string, value: string): Buffer =>
      Buffer.concat([Buffer.of(0, name.length), Buffer.from(name), Buffer.of(value.length), Buffer.from(value)]);
    const request = (path: string): Buffer =>
      Buffer.concat([Buffer.of(0x83, 0x86), literal(":path", path), literal("content-type", "application/grpc")]);
    const begin = Buffer.concat([
      Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
      http2Frame(4, 0, 0, Buffer.alloc(0)),
    ]);
    const before = residentBytes(child.pid!);
    const sockets = ["/weft.Cluster/Client", "/no/method"].flatMap((path) =>
      Array.from({ length: 8 }, () => {
        const socket = connectSocket(port, "127.0.0.1");
        socket.on("error", () => {}).resume();
        const headers = request(path);
        const streams = Array.from({ length: 4000 }, (_, i) => http2Frame(1, 4, 2 * i + 1, headers));
        socket.write(Buffer.concat([begin, ...streams]));
        return socket;
      }),
    );
    await delay(200);
    for (let i = 0; i < 3; i++) await letsIn(port, token);
    const grown = residentBytes(child.pid!) - before;
    // 64,000 streams that were taken seriously took a gigabyte, and half a minute of processor time.
    assert.ok(grown < 250e6, `${Math.round(grown / 1e6)} MB`);
    for (const socket of sockets) socket.destroy();
  } finally {
    child.kill("SIGKILL");
  }
});

const member = `
  const { groupLibrary, ShmGroup } = await import(${JSON.stringify(import.meta.resolve("@weft/core/internal/device"))});
  const [name, rank, mask = "077"] = process.argv.slice(1);
  groupLibrary();
  process.umask(mask);
  const group = ShmGroup.join(name, Number(rank), 2, { joinTimeout: 20 });
  group.barrier();
  console.log("met", group.rank);
  group.close();`;

/** What two members print that join a group, started with a command before theirs. */
function meet(before: readonly string[], args: readonly string[], options: SpawnOptions = {}): Promise<string[]> {
  const [name, ...more] = args;
  const ranks = ["0", "1"].map((rank) => {
    const line = [...before, process.execPath, "--input-type=module", "-e", member, name, rank, ...more];
    const child = spawn(line[0], line.slice(1), { ...options, stdio: "pipe" });
    let output = "";
    for (const pipe of [child.stdout, child.stderr]) pipe!.on("data", (text) => (output += text));
    return once(child, "close").then(() => output);
  });
  return Promise.all(ranks);
}

test("members that cannot create a file for their group all say so at once, and their mask does not matter", {
  skip,
}, async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to be another user and to mount a small file system");
  const begin = performance.now();
  for (const room of ["size=4k", "size=64k,ro"]) {
    // Two members in two mounts see the same: nothing can be created.
    const mounted = ["unshare", "-m", "sh", "-c", `mount -t tmpfs -o ${room} none /dev/shm && exec "$0" "$@"`];
    for (const said of await meet(mounted, [`full-${process.pid}`])) assert.match(said, /\/dev\/shm cannot be written/);
  }
  // Rank 1 would wait for 20 s each time.
  assert.ok(performance.now() - begin < 36_000, "a member was waited for that could not come");
  const other = { uid: 65534, gid: 65534, cwd: "/" };
  const met = await meet([], [`mask-${process.pid}`, "777"], other);
  for (const [rank, said] of met.entries()) assert.ok(said.endsWith(`met ${rank}\n`), said);
});

test("names in shared memory that another user has taken do not keep a group from meeting", { skip }, async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to be another user");
  const name = `taken-${process.pid}`;
  const path = groupPath(name);
  const squat = `
    const { writeFileSync } = require("node:fs");
    const { execFileSync } = require("node:child_process");
    // A pipe blocks whoever opens it; a file blocks whoever wants to create it.
    execFileSync("mkfifo", ["-m", "666", process.argv[1] + ".1"]);
    writeFileSync(process.argv[1], "mine");`;
  const made = spawnSync(process.execPath, ["-e", squat, path], { uid: 65534, gid: 65534, encoding: "utf8", cwd: "/" });
  assert.equal(made.status, 0, made.stderr);
  try {
    assert.notEqual(groupPath(name), path);
    assert.ok(!groupFiles().some((file) => path.endsWith(file)), "another user's file counts as this user's");
    assert.deepEqual(await meet([], [name]), ["met 0\n", "met 1\n"]);
  } finally {
    rmSync(path, { force: true });
    rmSync(`${path}.1`, { force: true });
  }
});

test("another user cannot fill the sockets over which memory is passed", { skip }, async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root, to be another user");
  const flood = `
    import socket, time
    def names():
        with open("/proc/net/unix") as table:
            return [line.split()[-1][1:] for line in table if "@weft-" in line]
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.setblocking(False)
    print("floods", flush=True)
    while True:
        for name in names():
            for _ in range(100):
                try: out.sendto(bytes(48), b"\\0" + name.encode())
                except OSError: break`;
  const text = flood.replace(/^ {4}/gm, "").trim();
  const other = spawn("python3", ["-c", text], {
    uid: 65534,
    gid: 65534,
    cwd: "/",
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    await once(other.stdout, "data");
    const cluster = await connect({ devices: 1, ...testWorker });
    const [{ id }] = cluster.workers;
    assert.equal((await weft.tensor(new Float32Array(100_000).fill(2)).mul(2).data())[99_999], 4);
    assert.ok(cluster.device.connection.link(id).shares, "the memory is not shared");
    await cluster.close();
  } finally {
    other.kill("SIGKILL");
    weft.setDevice("cpu");
  }
});
