// Tensors round-trip through files in every format and dtype; the extension selects the format.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "../index.js";

const folder = mkdtempSync(join(tmpdir(), "weft-io-"));
after(() => rmSync(folder, { recursive: true, force: true }));
weft.setDevice("reference");

test("one tensor in .npy, named ones in .npz and .safetensors", async () => {
  const x = weft.randn([3, 4], { seed: 1 });
  const tensors = { "layer.weight": x, half: x.cast("bfloat16"), index: x.cast("int64"), z: weft.complex(x, x.neg()) };
  await weft.io.save(join(folder, "x.npy"), x);
  const back = (await weft.io.load(join(folder, "x.npy"))) as weft.Tensor;
  assert.deepEqual([back.shape, back.dtype, [...back.dataSync()]], [[3, 4], "float32", [...x.dataSync()]]);
  for (const ending of ["npz", "safetensors"]) {
    const path = join(folder, `all.${ending}`);
    await weft.io.save(path, tensors);
    const found = (await weft.io.load(path)) as Record<string, weft.Tensor>;
    assert.deepEqual(Object.keys(found).sort(), Object.keys(tensors).sort());
    for (const [name, t] of Object.entries(tensors)) {
      assert.equal(found[name].dtype, t.dtype, `${name} in .${ending}`);
      assert.deepEqual([...found[name].rawSync()], [...t.rawSync()], `${name} in .${ending}`);
    }
  }
});

test("an unknown extension or a wrong argument throws, and nothing is written", async () => {
  const x = weft.ones([2]);
  await assert.rejects(weft.io.save(join(folder, "x.txt"), x), /does not end in \.npy/);
  await assert.rejects(weft.io.save(join(folder, "y.npz"), x), /holds named tensors/);
  await assert.rejects(weft.io.save(join(folder, "y.npy"), { x }), /holds one tensor/);
  await assert.rejects(weft.io.load(join(folder, "x.bin")), /does not end in/);
  await assert.rejects(weft.io.load(join(folder, "missing.npy")), /missing\.npy/);
  assert.ok(!existsSync(join(folder, "y.npz")) && !existsSync(join(folder, "y.npy")));
});
