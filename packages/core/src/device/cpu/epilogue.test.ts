// Products with something done to their result: in panels of rows where the right matrix is small, in one piece where
// laying it out for every panel would cost more. Both give what the reference device gives.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type GraphFn, storageView } from "../../graph/index.js";
import { build } from "../../ops/index.js";
import { ReferenceDevice } from "../reference/index.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";

function layer(m: number, k: number, n: number): GraphFn {
  const x = build.input([m, k], "float32");
  const w = build.input([k, n], "float32");
  return { params: [x, w], outputs: [build.binary("max", build.matmul(x, w), build.full([m, n], 0, "float32"))] };
}

function run(device: CpuDevice | ReferenceDevice, fn: GraphFn): Float32Array {
  const inputs = fn.params.map(({ shape: [rows, columns] }, p) => {
    const values = Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(i * 0.37 + p));
    const buffer = device.allocate(values.byteLength);
    device.upload(buffer, new Uint8Array(values.buffer));
    return buffer;
  });
  const [result] = device.compile(fn, {}).run(inputs);
  const bytes = new Uint8Array(fn.outputs[0].shape.reduce((a, b) => a * b, 4));
  device.download(result, bytes);
  for (const buffer of [...inputs, result]) device.free(buffer);
  return storageView("float32", bytes.buffer) as Float32Array;
}

for (const { k, n, panels } of [
  { k: 16, n: 2048, panels: true },
  { k: 160, n: 1024, panels: false },
])
  test(`a layer of ${k} to ${n}: ${panels ? "in panels" : "in one piece"}`, { skip }, () => {
    const device = new CpuDevice();
    const fn = layer(301, k, n);
    assert.equal(/for \(long r = 0; r < 301; r \+= \d+\)/.test(device.source(fn)), panels);
    const [found, expected] = [run(device, fn), run(new ReferenceDevice(), fn)];
    for (let i = 0; i < expected.length; i++)
      assert.ok(Math.abs(found[i] - expected[i]) <= 1e-5 * k, `element ${i} is ${found[i]}, not ${expected[i]}`);
    assert.ok(expected.some((v) => v > 0.1) && expected.some((v) => v === 0));
  });
