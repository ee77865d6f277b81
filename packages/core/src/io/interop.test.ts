// Files exchanged with NumPy and the safetensors package themselves.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { testPython } from "../testing/python.js";
import { writeAtomically } from "./file.js";
import { bytesView } from "./host.js";
import { readNpy, writeNpy } from "./npy.js";
import { npyHeader } from "./npy-header.js";
import { readNpz, writeNpz } from "./npz.js";
import { openSafetensors, readSafetensors, writeSafetensors } from "./safetensors.js";
import { allDtypes, assertSameArray, runPython, sample, scratchFolder } from "./testkit.js";
import { ZipWriter } from "./zip-writer.js";

const folder = scratchFolder();
const { python, skip } = testPython("numpy", "interchange with NumPy");
const options = { skip };

/** What `sample` makes, in NumPy: the bytes first, then a view. */
const sampleInPython = `
import sys, numpy as np, ml_dtypes
types = dict(bool=np.bool_, int8=np.int8, uint8=np.uint8, int16=np.int16, uint16=np.uint16, int32=np.int32,
             uint32=np.uint32, int64=np.int64, uint64=np.uint64, float16=np.float16,
             bfloat16=ml_dtypes.bfloat16, float32=np.float32, float64=np.float64,
             complex64=np.complex64, complex128=np.complex128)
def sample(name, shape):
    dtype = np.dtype(types[name])
    i = np.arange(int(np.prod(shape)) * dtype.itemsize)
    raw = (i % 2 if name == "bool" else (i * 37 + 11) % 120).astype(np.uint8)
    return raw.view(dtype).reshape(shape)
def same(a, name, shape):
    b = sample(name, shape)
    if name == "bfloat16" and a.dtype.kind == "V": a = a.view(b.dtype)
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (name, a, b)
folder = sys.argv[1]
`;

test("NumPy reads what we write", options, async () => {
  for (const dtype of allDtypes) await writeNpy(join(folder, `ours-${dtype}.npy`), sample(dtype, [3, 4]));
  await writeNpy(join(folder, "ours-scalar.npy"), sample("float64", []));
  await writeNpy(join(folder, "ours-empty.npy"), sample("float64", [0, 3]));
  const arrays = Object.fromEntries(allDtypes.map((dtype) => [dtype, sample(dtype, [7])]));
  await writeNpz(join(folder, "ours-stored.npz"), arrays);
  await writeNpz(join(folder, "ours-deflated.npz"), arrays, { compress: true });
  const large = join(folder, "ours-zip64.npz");
  await writeAtomically(large, async (file) => {
    const zip = new ZipWriter(large, file, 50);
    for (const dtype of allDtypes) {
      const { shape, data } = sample(dtype, [7]);
      await zip.add(`${dtype}.npy`, [npyHeader(shape, dtype), bytesView(data)], dtype === "int32");
    }
    await zip.finish();
  });
  const script = `${sampleInPython}
for name in types:
    same(np.load(f"{folder}/ours-{name}.npy"), name, (3, 4))
same(np.load(f"{folder}/ours-scalar.npy"), "float64", ())
same(np.load(f"{folder}/ours-empty.npy"), "float64", (0, 3))
for kind in ("stored", "deflated", "zip64"):
    with np.load(f"{folder}/ours-{kind}.npz") as z:
        assert sorted(z.files) == sorted(types), z.files
        for name in types: same(z[name], name, (7,))
print("checked", len(types))
`;
  assert.equal(runPython(python, script, [folder]).trim(), `checked ${allDtypes.length}`);
});

test("we read what NumPy writes", options, async () => {
  const script = `${sampleInPython}
for name in types:
    a = sample(name, (3, 4))
    np.save(f"{folder}/theirs-{name}.npy", a)
    np.save(f"{folder}/fortran-{name}.npy", np.asfortranarray(a))
    if name != "bfloat16":
        np.save(f"{folder}/big-{name}.npy", a.astype(a.dtype.newbyteorder(">")))
    with open(f"{folder}/v2-{name}.npy", "wb") as f: np.lib.format.write_array(f, a, version=(2, 0))
    with open(f"{folder}/v3-{name}.npy", "wb") as f: np.lib.format.write_array(f, a, version=(3, 0))
np.save(f"{folder}/theirs-scalar.npy", sample("float64", ()))
np.savez(f"{folder}/theirs-stored.npz", **{name: sample(name, (7,)) for name in types})
np.savez_compressed(f"{folder}/theirs-deflated.npz", **{name: sample(name, (7,)) for name in types})
np.save(f"{folder}/objects.npy", np.array([{}], dtype=object), allow_pickle=True)
`;
  runPython(python, script, [folder]);
  for (const dtype of allDtypes)
    for (const kind of ["theirs", "fortran", "big", "v2", "v3"])
      if (kind !== "big" || dtype !== "bfloat16")
        assertSameArray(await readNpy(join(folder, `${kind}-${dtype}.npy`)), sample(dtype, [3, 4]));
  assertSameArray(await readNpy(join(folder, "theirs-scalar.npy")), sample("float64", []));
  for (const kind of ["stored", "deflated"]) {
    const read = await readNpz(join(folder, `theirs-${kind}.npz`));
    assert.deepEqual(Object.keys(read).sort(), [...allDtypes].sort());
    for (const dtype of allDtypes) assertSameArray(read[dtype], sample(dtype, [7]));
  }
  await assert.rejects(readNpy(join(folder, "objects.npy")), /pickled Python objects/);
});

test("the safetensors package and we read each other's files", options, async () => {
  const shared = allDtypes.filter((dtype) => dtype !== "complex128");
  const tensors = Object.fromEntries(shared.map((dtype) => [dtype, sample(dtype, [2, 5])]));
  await writeSafetensors(join(folder, "ours.safetensors"), tensors, { by: "weft" });
  const script = `${sampleInPython}
from safetensors import safe_open
from safetensors.numpy import save_file
names = [name for name in types if name != "complex128"]
with safe_open(f"{folder}/ours.safetensors", framework="np") as f:
    assert f.metadata() == {"by": "weft"}, f.metadata()
    assert sorted(f.keys()) == sorted(names), f.keys()
    for name in names: same(f.get_tensor(name), name, (2, 5))
save_file({name: sample(name, (2, 5)) for name in names}, f"{folder}/theirs.safetensors", {"by": "them"})
`;
  runPython(python, script, [folder]);
  const read = await readSafetensors(join(folder, "theirs.safetensors"));
  assert.deepEqual(Object.keys(read).sort(), [...shared].sort());
  for (const dtype of shared) assertSameArray(read[dtype], sample(dtype, [2, 5]));
  const file = await openSafetensors(join(folder, "theirs.safetensors"));
  assert.deepEqual(file.metadata, { by: "them" });
  await file.close();
});
