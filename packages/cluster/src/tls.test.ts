import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { Worker } from "./worker.js";

const folder = mkdtempSync(join(tmpdir(), "weft-tls-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A non-loopback address of this machine, as other machines would use. */
const address = Object.values(networkInterfaces())
  .flat()
  .find((face) => face?.family === "IPv4" && !face.internal)?.address;

function certificate(): { cert: string; key: string } | null {
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const made = spawnSync("openssl", [
    ..."req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=weft".split(" "),
    ...["-addext", `subjectAltName=IP:${address}`, "-keyout", key, "-out", cert],
  ]);
  return made.status === 0 ? { cert, key } : null;
}

const files = address === undefined ? null : certificate();
const skip = !CpuDevice.available()
  ? "no C compiler"
  : files === null
    ? "no openssl, or no address but loopback"
    : false;

test("beyond loopback, control messages, results and uploads use TLS and a token", { skip }, async () => {
  const { cert, key } = files!;
  const token = "secret";
  const dispatcher = await Dispatcher.start({ host: address, port: 0, cert, key, token });
  const { port } = dispatcher;
  const worker = new Worker({ host: address, port, dataHost: address, cores: 1, cert, key, ca: cert, token });
  const ready = new Promise<void>((resolve) => void worker.run(() => resolve()));
  await ready;
  process.env.WEFT_CLUSTER_DATA = "socket";
  try {
    await assert.rejects(connect(`${address}:${port}`, { ca: cert }), /a token is needed/);
    await assert.rejects(connect(`${address}:${port}`, { ca: cert, token: "wrong" }), /token is wrong/);
    // Without the certificate authority the certificate is not trusted.
    await assert.rejects(connect(`${address}:${port}`, { token }), /no dispatcher is listening|certificate/);
    const cluster = await connect(`${address}:${port}`, { ca: cert, token });
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
