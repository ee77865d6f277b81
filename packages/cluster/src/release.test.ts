// Programs of a cluster: a client that releases compiled functions makes its workers forget them, and a worker unloads
// the code that its cache has dropped.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { build } from "@weft/core/internal/ops";
import { Session } from "@weft/core/internal/runtime";
import { useFastCompiler } from "@weft/testing/fast-compiler";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { Worker } from "./worker.js";

process.env.WEFT_RATES ??= "assumed";
const skip = CpuDevice.available() ? false : "no C compiler";
const compiler = useFastCompiler();
after(() => compiler.remove());

test("60 distinct programs leave as many libraries loaded in a worker as its cache holds", { skip }, async () => {
  const dispatcher = await Dispatcher.start({ host: "127.0.0.1", port: 0 });
  const worker = new Worker({ host: "127.0.0.1", port: dispatcher.port, cores: 1, executables: 8 });
  await new Promise<void>((resolve) => void worker.run(() => resolve()));
  try {
    const cluster = await connect(`127.0.0.1:${dispatcher.port}`);
    const session = new Session(cluster.device, 4);
    const runOnce = async (n: number): Promise<Float32Array> => {
      const x = build.input([n], "float32", "x");
      const compiled = session.compile({ params: [x], outputs: [build.shift(x, 1)] });
      const input = session.upload({ shape: [n], dtype: "float32" }, new Float32Array(n));
      const [result] = session.run(compiled, [input]);
      const data = (await session.downloadAsync(result)) as Float32Array;
      for (const value of [input, result]) value.free();
      compiled.release();
      return data;
    };
    await runOnce(3);
    compiler.compile();
    assert.deepEqual(await runOnce(4), new Float32Array(4).fill(1));
    compiler.copyFrom();
    const before = compiler.loaded();
    for (let n = 5; n < 65; n++) {
      await runOnce(n);
      // Seven programs of the client's session may wait for their message.
      assert.ok(compiler.loaded() - before <= 8 + 7, `${compiler.loaded() - before} libraries after ${n - 4} programs`);
    }
    const compiled = session.compile({ params: [], outputs: [build.full([2], 1, "float32")] });
    compiled.release();
    session.forgetCompiled();
    assert.throws(() => compiled.executable.run([]), /was released/);
    await cluster.close();
  } finally {
    weft.setDevice("cpu");
    worker.stop();
    dispatcher.stop();
  }
});
