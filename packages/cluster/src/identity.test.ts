// Who may do what: tokens of users, roles and clients, and what a peer without a token can cause. Every attack runs
// against real connections.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import * as weft from "@weft/core";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { canReach, checkWorker } from "./dispatcher-checks.js";
import { listenerOwners, ownToken, readTokenFile } from "./identity.js";
import { printable } from "./printable.js";
import { fromWorker } from "./protocol.js";
import { RawClient } from "./raw-client.testkit.js";
import { securityFrom } from "./security.js";
import { watch } from "./watch.js";
import { openStream, service } from "./wire.js";
import { Worker } from "./worker.js";
import { skip, testWorker } from "./workers.testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-identity-"));
chmodSync(folder, 0o755);
after(() => rmSync(folder, { recursive: true, force: true }));
const index = new URL("./index.js", import.meta.url).href;

/** Runs a test with its own folder for tokens. */
function withRuntimeFolder<T>(path: string, body: () => T): T {
  const before = process.env.XDG_RUNTIME_DIR;
  process.env.XDG_RUNTIME_DIR = path;
  try {
    return body();
  } finally {
    if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
    else process.env.XDG_RUNTIME_DIR = before;
  }
}

test("a user's tokens are created once, for their owner only, and files that others can read or place are refused", () => {
  const runtime = join(folder, "runtime");
  mkdirSync(runtime, { mode: 0o700 });
  withRuntimeFolder(runtime, () => {
    const token = ownToken("token");
    assert.match(token, /^[0-9a-f]{64}$/);
    assert.equal(ownToken("token"), token);
    assert.notEqual(ownToken("worker-token"), token);
    assert.equal(statSync(join(runtime, "weft", "token")).mode & 0o777, 0o600);
    assert.equal(statSync(join(runtime, "weft")).mode & 0o777, 0o700);
    chmodSync(join(runtime, "weft", "token"), 0o644);
    assert.throws(() => ownToken("token"), /other users can read .*chmod 600/);
    chmodSync(join(runtime, "weft", "token"), 0o600);
    chmodSync(join(runtime, "weft"), 0o777);
    assert.throws(() => ownToken("token"), /can be written by others/);
    chmodSync(join(runtime, "weft"), 0o700);
    assert.equal(ownToken("token"), token);
  });
  symlinkSync(join(runtime, "weft", "token"), join(folder, "link"));
  assert.throws(() => readTokenFile(join(folder, "link")), /cannot be read/);
  writeFileSync(join(folder, "long"), "x".repeat(2000), { mode: 0o600 });
  assert.throws(() => readTokenFile(join(folder, "long")), /at most 1000 bytes/);
  spawnSync("mkfifo", ["-m", "600", join(folder, "fifo")]);
  if (existsSync(join(folder, "fifo"))) assert.throws(() => readTokenFile(join(folder, "fifo")), /not a plain file/);
});

test("tokens are not kept in a folder that depends on the working directory", (t) => {
  if (existsSync(`/run/user/${process.getuid?.()}`)) return t.skip("this user has a runtime folder");
  const { HOME } = process.env;
  try {
    for (const home of ["", "relative"]) {
      process.env.HOME = home;
      withRuntimeFolder("relative", () => {
        assert.throws(() => ownToken("token"), /there is no home folder for tokens; set XDG_RUNTIME_DIR/);
      });
    }
  } finally {
    if (HOME === undefined) delete process.env.HOME;
    else process.env.HOME = HOME;
  }
});

test("processes that start at the same time agree on one token", async () => {
  const runtime = join(folder, "together");
  mkdirSync(runtime, { mode: 0o700 });
  const program = `const { ownToken } = await import(${JSON.stringify(new URL("./identity.js", import.meta.url).href)}); console.log(ownToken("token"));`;
  const tokens = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
        env: { ...process.env, XDG_RUNTIME_DIR: runtime },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const [text] = (await once(child.stdout, "data")) as [Buffer];
      return text.toString();
    }),
  );
  assert.equal(new Set(tokens).size, 1);
});

const local = (options: Parameters<typeof securityFrom>[0] = {}) =>
  securityFrom(options, "localhost", ["token", "worker-token"]);

async function opens(port: number, security: Parameters<typeof openStream>[3]): Promise<void> {
  const { stream, close } = await openStream("localhost", port, "client", security, false);
  stream.on("error", () => {});
  close();
}

async function withDispatcher(
  options: Parameters<typeof Dispatcher.start>[0],
  body: (port: number) => Promise<void>,
): Promise<void> {
  const dispatcher = await Dispatcher.start({ port: 0, ...options });
  try {
    await body(dispatcher.port);
  } finally {
    dispatcher.stop();
  }
}

test("a client's token does not register a worker, and a worker's token does not make a client", async () => {
  await withDispatcher({ token: "the token of clients", workerToken: "the token of workers" }, async (port) => {
    const at = (role: "client" | "worker" | "watcher" | "heartbeat", token: string) =>
      openStream("localhost", port, role, { token, workerToken: token }, false).then(({ stream, close }) => {
        stream.on("error", () => {});
        close();
      });
    await at("client", "the token of clients");
    await at("watcher", "the token of clients");
    await at("worker", "the token of workers");
    for (const role of ["worker", "heartbeat"] as const)
      await assert.rejects(at(role, "the token of clients"), /token is wrong/);
    await assert.rejects(at("client", "the token of workers"), /token is wrong/);
    await assert.rejects(new Worker({ port, cores: 1, workerToken: "the token of clients" }).run(), /token is wrong/);
  });
});

test("without --insecure nobody connects without a token, and with it both sides must say so", async () => {
  await withDispatcher({}, async (port) => {
    await assert.rejects(openStream("localhost", port, "client", { insecure: true }, false), /a token is needed/);
  });
  await withDispatcher({ insecure: true }, async (port) => {
    await assert.rejects(openStream("localhost", port, "client", local(), false), /without tokens \(--insecure\)/);
    await opens(port, local({ insecure: true }));
  });
  await assert.rejects(Dispatcher.start({ host: "0.0.0.0", port: 0, insecure: true }), /loopback only/);
});

/** The output of a program that runs as another user; null where that is impossible. */
async function asNobody(program: string, env: Record<string, string>): Promise<string | null> {
  if (process.getuid?.() !== 0) return null;
  const home = mkdtempSync(join(tmpdir(), "weft-nobody-"));
  spawnSync("chown", ["65534:65534", home]);
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    uid: 65534,
    gid: 65534,
    env: { PATH: process.env.PATH, HOME: home, XDG_RUNTIME_DIR: home, WEFT_CACHE_DIR: join(home, "cache"), ...env },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 120_000,
    cwd: "/",
  });
  let output = "";
  for (const pipe of [child.stdout, child.stderr]) pipe.setEncoding("utf8").on("data", (text) => (output += text));
  await once(child, "close");
  rmSync(home, { recursive: true, force: true });
  return output;
}

test("another user of the host can neither use a dispatcher nor offer a worker to it", async (t) => {
  const dispatcher = await Dispatcher.start({ port: 0 });
  try {
    const program = `
      const { connect, Worker } = await import(${JSON.stringify(index)});
      const said = [];
      await connect("localhost:" + process.env.PORT, { timeout: 5 }).catch((error) => said.push(error.message));
      await new Worker({ port: Number(process.env.PORT), device: "reference" }).run().catch((error) => said.push(error.message));
      console.log(said.join("\\n"));
      process.exit(0);`;
    const PORT = String(dispatcher.port);
    const own = await asNobody(program, { PORT });
    if (own === null || /Cannot find|EACCES/.test(own)) {
      t.skip("needs root and a checkout that other users can read");
      return;
    }
    // Neither with its own tokens, nor with guessed ones, nor without any.
    const guessed = await asNobody(program, { PORT, WEFT_TOKEN: "guess", WEFT_WORKER_TOKEN: "guess" });
    const none = await asNobody(program, { PORT, WEFT_INSECURE: "1" });
    for (const output of [own, guessed, none])
      assert.equal(output!.match(/the token is wrong|a token is needed|belongs to another user/g)?.length, 2, output!);
  } finally {
    dispatcher.stop();
  }
});

test("a client does not reveal its token to a server that does not know it", async () => {
  const server = new grpc.Server();
  const seen: string[] = [];
  const nonce = "0".repeat(32);
  server.addService(service as unknown as grpc.ServiceDefinition, {
    Challenge: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
      seen.push(JSON.stringify(call.metadata.getMap()));
      call.write(Buffer.from(JSON.stringify({ nonce, proof: "0".repeat(64) })));
      call.end();
    },
    Client: (call: grpc.ServerDuplexStream<Buffer, Buffer>) =>
      seen.push(`client ${JSON.stringify(call.metadata.getMap())}`),
    Worker: () => {},
    Heartbeat: () => {},
  });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  try {
    await assert.rejects(connect(`127.0.0.1:${port}`, { token: "the secret" }), /token is wrong/);
    assert.equal(seen.length, 1, "the client went on");
    assert.ok(!seen.join().includes("the secret"));
  } finally {
    server.forceShutdown();
  }
});

test("wrong tokens are limited per second, and a proof cannot be used twice", async () => {
  await withDispatcher({ token: "the right token of clients" }, async (port) => {
    const guess = async (): Promise<string> => {
      // The dispatcher's own proof would reveal a wrong token to an honest client; an attacker does not look.
      const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
      const asked = new grpc.Metadata();
      asked.set("weft-version", String((await import("./protocol.js")).protocolVersion));
      asked.set("weft-role", "client");
      asked.set("weft-nonce", "1".repeat(32));
      const { path, requestSerialize, responseDeserialize } = service.Challenge;
      const call = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, asked);
      const [bytes] = (await once(call, "data")) as [Buffer];
      const proof = new grpc.Metadata();
      proof.set("weft-challenge", (JSON.parse(bytes.toString()) as { nonce: string }).nonce);
      proof.set("weft-proof", "2".repeat(64));
      const opened = client.makeBidiStreamRequest(service.Client.path, requestSerialize, responseDeserialize, proof);
      const [error] = (await once(opened, "error")) as [grpc.ServiceError];
      client.close();
      return error.details;
    };
    // At once: on a busy machine there would be time for more of them.
    const said = await Promise.all(Array.from({ length: 20 }, guess));
    assert.ok(said.some((text) => /token is wrong/.test(text)));
    assert.ok(said.filter((text) => /too many wrong tokens/.test(text)).length >= 2, said.join("\n"));
    await delay(1200);
    await opens(port, { token: "the right token of clients" });
  });
});

test("bytes of peers without a token are limited", async () => {
  await withDispatcher({}, async (port) => {
    const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), {
      "grpc.max_send_message_length": -1,
    });
    const { path, requestSerialize, responseDeserialize } = service.Client;
    const before = process.memoryUsage().rss;
    const call = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
    const refused = once(call, "error");
    call.write(Buffer.alloc(30 << 20));
    const [error] = (await refused) as [grpc.ServiceError];
    assert.match(error.details, /handshake is missing/);
    assert.ok(process.memoryUsage().rss - before < 200e6);
    client.close();
    await opens(port, local());
  });
});

test("a client cannot use another's tensors, keys, numbers or memory", { skip }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  try {
    const x = weft.tensor(new Float32Array(50_000).fill(7));
    await x.add(1).realize().data();
    const port = Number(/:(\d+)$/.exec(cluster.address)![1]);
    const raw = new RawClient(port, cluster.local!.token);
    const { client, workers } = await raw.until((m) => m.t === "welcome" && m);
    const [{ id, key }] = workers;
    const closes = async (claim: object): Promise<void> => {
      const socket = await raw.data(id, claim);
      await Promise.race([
        once(socket, "close"),
        delay(5000).then(() => assert.fail(`${JSON.stringify(claim).slice(0, 100)} was accepted`)),
      ]);
    };
    // Another client's number with the own key, a wrong key, and a first frame that is too long.
    await closes({ client: client - 1 });
    await closes({ key: key.replace(/./g, "0") });
    await closes({ key: "" });
    await closes({ key: "x".repeat(2000) });
    await closes({ client: -1 });
    await closes({ client: "1" });
    // Ids of the other client's tensors are not on the worker for this one.
    const answers: Record<string, unknown>[] = [];
    const socket = await raw.data(id, {}, (header) => answers.push(header));
    const { writeFrame } = await import("./frames.js");
    for (let tensor = 0; tensor < 20; tensor++) writeFrame(socket, { fetch: tensor + 1, id: tensor });
    await delay(500);
    assert.ok(!answers.some((answer) => "fetch" in answer && !("failed" in answer)), JSON.stringify(answers));
    // Memory that was never passed cannot be uploaded from, whatever the offset.
    raw.send({
      t: "upload",
      id: 5,
      bytes: 64,
      parts: [{ worker: id, offset: 4096, sizes: [16], strides: [4], element: 4 }],
    });
    const failed = await raw.until((m) => m.t === "failed" && m.ids.includes(5) && m.message);
    assert.match(failed, /has not passed its memory/);
    raw.close();
    assert.equal((await x.add(1).data())[49_999], 8);
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
});

test("no token is on a command line or in what is sent to watchers", { skip }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  try {
    const { token, workerToken, dispatcher, workers } = cluster.local!;
    for (const { child } of [dispatcher, ...workers]) {
      const line = readFileSync(`/proc/${child.pid}/cmdline`, "utf8");
      assert.ok(line.includes("main.js"));
      assert.ok(!line.includes(token) && !line.includes(workerToken));
    }
    // A worker does not get the clients' token.
    assert.ok(!readFileSync(`/proc/${workers[0].child.pid}/environ`, "utf8").includes(token));
    const status = await new Promise<unknown>((resolve, reject) => {
      const stop = watch(
        cluster.address,
        { token },
        (s) => {
          stop();
          resolve(s);
        },
        (m) => reject(new Error(m)),
      );
    });
    const text = JSON.stringify(status);
    assert.ok(!text.includes(token) && !text.includes(cluster.workers[0].key));
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
});

test("text of other processes cannot control a terminal", () => {
  const evil = ["\u001b[2J", "\u009b2J", "\u202etxt", "a\rb", "\u2066", "\u0007", "\u2028"];
  const failed = { t: "failed", client: 1, ids: [1], code: "error", worker: "w1" };
  for (const text of evil) {
    assert.doesNotMatch(printable(`x${text}y`), /[\p{Cc}\u2028-\u202e\u2066-\u2069]/u);
    assert.ok(!fromWorker.safeParse({ ...failed, message: "m", worker: text }).success, JSON.stringify(text));
    const parsed = fromWorker.parse({ ...failed, message: `one\n${text}` }) as { message: string };
    assert.doesNotMatch(parsed.message.replace("\n", ""), /[\p{Cc}\u2028-\u202e\u2066-\u2069]/u);
  }
  assert.equal(printable("two\nlines\tand ünïcode 漢字"), "two\nlines\tand ünïcode 漢字");
});

test("a port of this user's dispatcher that another user has taken is not used", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root");
    return;
  }
  const program = `require("net").createServer((s) => s.on("data", (d) => process.stdout.write(d))).listen(0, "127.0.0.1", function () { console.log(this.address().port); });`;
  const child = spawn(process.execPath, ["-e", program], {
    uid: 65534,
    gid: 65534,
    cwd: "/",
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const [text] = (await once(child.stdout!, "data")) as [Buffer];
    await assert.rejects(connect(`localhost:${text.toString().trim()}`), /belongs to another user \(uid 65534\)/);
  } finally {
    child.kill();
  }
});

test("whoever listens on another address of this host is told from the dispatcher", async (t) => {
  const listens = async (address: string): Promise<number> => {
    const server = createServer();
    t.after(() => server.close());
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(0, address, resolve));
    return (server.address() as { port: number }).port;
  };
  const own = process.getuid!();
  const everywhere = await listens("0.0.0.0");
  assert.deepEqual(listenerOwners("127.0.0.1", everywhere), [own]);
  assert.deepEqual(listenerOwners("127.0.0.1", await listens("127.0.0.1")), [own]);
  assert.deepEqual(listenerOwners("127.0.0.1", await listens("127.0.0.7")), []);
  if (!existsSync("/proc/net/if_inet6") || readFileSync("/proc/net/if_inet6", "utf8") === "") return;
  const six = await listens("::1");
  assert.deepEqual(listenerOwners("127.0.0.1", six), []);
  assert.deepEqual(listenerOwners("::1", six), [own]);
  assert.deepEqual(listenerOwners("127.0.0.1", await listens("::")), [own]);
});

test("tokens that can be guessed are refused where strangers are answered with a proof", () => {
  const long = "a token of twenty words";
  assert.throws(
    () => new Dispatcher({ token: "secret", workerToken: long }),
    /token of clients has 6 characters.*openssl/,
  );
  assert.throws(() => new Dispatcher({ token: long, workerToken: "" }), /token of workers has 0 characters/);
});

test("clients are not sent to loopback addresses of their own machine", () => {
  const hello = (host: string, tls: boolean) => ({ data: { host, port: 1, tls } }) as Parameters<typeof checkWorker>[0];
  checkWorker(hello("localhost", false), true);
  checkWorker(hello("10.0.0.2", true), false);
  assert.throws(() => checkWorker(hello("localhost", false), false), /--data-host/);
  assert.throws(() => checkWorker(hello("10.0.0.2", false), false), /must use TLS/);
  assert.equal(canReach(false, hello("127.0.0.1", false)), false);
  assert.equal(canReach(true, hello("127.0.0.1", false)), true);
  assert.equal(canReach(false, hello("10.0.0.2", true)), true);
});
