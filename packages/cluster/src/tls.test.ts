import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { connect as connectTls } from "node:tls";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { has, installDebian } from "@weft/testing/debian";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { Worker } from "./worker.js";

const folder = mkdtempSync(join(tmpdir(), "weft-tls-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A non-loopback address of this machine, as other machines would use. */
const address = Object.values(networkInterfaces())
  .flat()
  .find((face) => face?.family === "IPv4" && !face.internal)?.address;

function certificate(name: string): { cert: string; key: string } | null {
  const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  const made = spawnSync("openssl", [
    ..."req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=weft".split(" "),
    ...["-addext", `subjectAltName=IP:${address}`, "-keyout", key, "-out", cert],
  ]);
  return made.status === 0 ? { cert, key } : null;
}

const missing = installDebian(["openssl"], () => has("openssl"));
const files = address === undefined || missing !== null ? null : certificate("cert");
const skip = !CpuDevice.available() ? "no C compiler" : files === null ? (missing ?? "no address but loopback") : false;

/** A connection without a certificate is closed before a frame is read. */
async function assertDataPlaneNeedsCertificate(port: number, ca: string): Promise<void> {
  const socket = connectTls({ host: address, port, ca: readFileSync(ca) });
  await new Promise<void>((resolve, reject) => {
    socket.on("error", () => resolve());
    socket.on("close", () => resolve());
    setTimeout(() => reject(new Error("a connection without a certificate stayed open")), 5000).unref();
  });
}

test("beyond loopback, control messages, results and uploads use TLS and a token", { skip }, async () => {
  const { cert, key } = files!;
  const [token, workerToken] = ["secret of clients", "secret of workers"];
  const own = { cert, key, ca: cert };
  const dispatcher = await Dispatcher.start({ host: address, port: 0, ...own, token, workerToken });
  const { port } = dispatcher;
  const worker = new Worker({ host: address, port, dataHost: address, cores: 1, ...own, workerToken });
  const ready = new Promise<void>((resolve) => void worker.run(() => resolve()));
  await ready;
  process.env.WEFT_CLUSTER_DATA = "socket";
  try {
    const at = `${address}:${port}`;
    await assert.rejects(connect(at, own), /a token is needed/);
    await assert.rejects(connect(at, { ...own, token: "wrong" }), /token is wrong/);
    // The token of clients does not make a worker.
    const false_ = new Worker({ host: address, port, dataHost: address, cores: 1, ...own, workerToken: token });
    await assert.rejects(false_.run(), /token is wrong/);
    // A certificate of another authority is trusted by neither side.
    const other = certificate("other")!;
    await assert.rejects(connect(at, { ...own, ca: other.cert, token }), /no encrypted connection.*certificate/);
    await assert.rejects(connect(at, { ...own, ...other, token }), /no encrypted connection.*certificate/);
    await assert.rejects(connect(at, { ca: cert, token }), /TLS certificate/);
    const cluster = await connect(at, { ...own, token });
    await assertDataPlaneNeedsCertificate(cluster.workers[0].data.port, cert);
    assert.equal(cluster.workers[0].data.tls, true);
    const x = weft.tensor(Float32Array.from({ length: 200_000 }, (_, i) => i)).mul(2);
    const got = await x.data();
    assert.equal(got[199_999], 399_998);
    await cluster.close();
  } finally {
    delete process.env.WEFT_CLUSTER_DATA;
    weft.setDevice("cpu");
    worker.stop();
    dispatcher.stop();
  }
});

test("a worker that listens beyond loopback needs a certificate", { skip }, () => {
  assert.throws(() => new Worker({ dataHost: "0.0.0.0", cores: 1 }), /certificate/);
});
