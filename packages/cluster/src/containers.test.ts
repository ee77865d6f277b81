// Workers in containers: namespaces of their own for processes, host names and shared memory, so that two of them have the
// same name and process id 1. Results are right, or there is an error.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { ShmGroup } from "@weft/core/internal/device";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { skip as noCompiler, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const container = ["--pid", "--fork", "--mount", "--uts", "--mount-proc", "--kill-child"];
const works = spawnSync("unshare", [...container, "true"]).status === 0;
const skip = noCompiler || (works ? false : "namespaces need root and unshare");
const started: ChildProcess[] = [];
after(() => {
  for (const child of started) child.kill("SIGKILL");
});

/** Starts a command in a container whose process 1 it is. Shared memory is private, or that of this host. */
function inContainer(command: readonly string[], privateMemory: boolean): ChildProcess {
  const own = privateMemory ? "mount -t tmpfs weft /dev/shm && " : "";
  const line = `${own}hostname box && exec "$@"`;
  const child = spawn("unshare", [...container, "sh", "-c", line, "sh", ...command], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, WEFT_RATES: "assumed" },
  });
  started.push(child);
  return child;
}

async function worker(port: number, privateMemory: boolean): Promise<ChildProcess> {
  const options = JSON.stringify({ port, ...testWorker });
  const child = inContainer([process.execPath, main, "worker", options], privateMemory);
  await once(child.stdout!, "data");
  return child;
}

for (const privateMemory of [true, false]) {
  const kind = privateMemory ? "shared memory of their own" : "the host's shared memory";
  test(`workers in containers with one name, process 1 and ${kind} give right results`, { skip }, async () => {
    const dispatcher = await Dispatcher.start({ port: 0 });
    try {
      await worker(dispatcher.port, privateMemory);
      await worker(dispatcher.port, privateMemory);
      const cluster = await connect(`localhost:${dispatcher.port}`);
      const places = cluster.workers.map(({ process: p }) => p);
      assert.deepEqual(
        places.map(({ pid }) => pid),
        [1, 1],
      );
      assert.notEqual(places[0].host, places[1].host);
      const n = 60_000;
      const x = weft.tensor(Float32Array.from({ length: n }, (_, i) => i % 1000));
      const y = weft.tensor(Float32Array.from({ length: n }, (_, i) => (i * 7) % 1000));
      const got = await x.mul(2).add(y).data();
      assert.ok(got.every((value, i) => value === 2 * (i % 1000) + ((i * 7) % 1000)));
      // Sharded by force, over workers that can exchange data: those of one container.
      process.env.WEFT_FORCE_SHARD = "1";
      const matrix = weft.ones([64, 64]).add(weft.arange(64));
      assert.equal(await matrix.sum().item(), 64 * (64 + (63 * 64) / 2));
      await cluster.close();
    } finally {
      delete process.env.WEFT_FORCE_SHARD;
      weft.setDevice("cpu");
      dispatcher.stop();
    }
  });
}

test("processes of two containers with one name and process id do not form a group of shared memory", {
  skip,
}, async () => {
  const name = `containers-${process.pid}`;
  const core = new URL(import.meta.resolve("@weft/core/internal/device")).href;
  const program = (rank: number): string => `
    const { ShmGroup, barrierOf } = await import(${JSON.stringify(core)});
    try {
      const group = ShmGroup.join(${JSON.stringify(name)}, ${rank}, 2, { joinTimeout: 3 });
      const [sum, own] = [new Float32Array(20_000), new Float32Array(20_000).fill(${rank} + 1)];
      const attrs = { ...barrierOf(${rank}, 2), fn: "sum", shape: [20_000], dtype: "float32" };
      group.collective(attrs, new Uint8Array(own.buffer), new Uint8Array(sum.buffer), [20_000]);
      console.log(sum.every((x) => x === 3) ? "right" : "wrong");
    } catch (error) {
      console.log(error.message);
    }`;
  const said = await Promise.all(
    [0, 1].map(async (rank) => {
      const child = inContainer([process.execPath, "--input-type=module", "-e", program(rank)], false);
      let text = "";
      child.stdout!.setEncoding("utf8").on("data", (more: string) => {
        text += more;
      });
      await once(child, "close");
      return text;
    }),
  );
  for (const text of said) assert.match(text, /right|is gone|cannot be opened|is in use|did not come|given up/);
  assert.ok(!said.some((text) => /wrong/.test(text)), said.join());
  assert.ok(ShmGroup);
});
