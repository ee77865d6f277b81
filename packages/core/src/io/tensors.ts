// Tensors to files and back, by the file's ending.
import { extname } from "node:path";
import { WeftError } from "../graph/index.js";
import { fromStorage, Tensor } from "../tensor/internal.js";
import type { HostArray, LazyArray } from "./host.js";
import { readNpy, writeNpy } from "./npy.js";
import { readNpz, writeNpz } from "./npz.js";
import { readSafetensors, writeSafetensors } from "./safetensors.js";

const toTensor = ({ shape, dtype, data }: HostArray): Tensor => fromStorage(shape, dtype, data);

/** Read from the device only when the file is being written, one at a time. */
const lazy = (t: Tensor): LazyArray => ({
  shape: t.shape,
  dtype: t.dtype,
  load: async () => ({ shape: t.shape, dtype: t.dtype, data: t.rawSync() }),
});

const all = (arrays: Iterable<[string, HostArray]>): Record<string, Tensor> =>
  Object.fromEntries([...arrays].map(([name, array]) => [name, toTensor(array)]));

const endings = ".npy (one tensor), .npz or .safetensors (named tensors)";

/** Loads tensors to the current device: one from .npy, named ones from .npz and .safetensors. */
export async function load(path: string): Promise<Tensor | Record<string, Tensor>> {
  const ending = extname(path);
  if (ending === ".npy") return toTensor(await readNpy(path));
  if (ending === ".npz") return all(Object.entries(await readNpz(path)));
  if (ending === ".safetensors") return all(Object.entries(await readSafetensors(path)));
  throw new WeftError(`load: ${path} does not end in ${endings}`);
}

/**
 * Writes one tensor (.npy) or named tensors (.npz, .safetensors). The write is atomic.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { io, ones, type Tensor, zeros } from "@weft/core";
 *
 * const path = join(mkdtempSync(join(tmpdir(), "weft-")), "model.safetensors");
 * await io.save(path, { weight: ones([2, 3]), bias: zeros([2]) });
 * const model = (await io.load(path)) as Record<string, Tensor>;
 * console.log(model.weight.shape, model.bias.shape); // [2, 3] [2]
 * ```
 */
export async function save(path: string, tensors: Tensor | Record<string, Tensor>): Promise<void> {
  const ending = extname(path);
  if (ending === ".npy") {
    if (!(tensors instanceof Tensor))
      throw new WeftError(`save: ${path} holds one tensor; use .npz or .safetensors for several`);
    await writeNpy(path, lazy(tensors));
    return;
  }
  if (ending !== ".npz" && ending !== ".safetensors") throw new WeftError(`save: ${path} does not end in ${endings}`);
  if (tensors instanceof Tensor) throw new WeftError(`save: ${path} holds named tensors: { name: tensor }`);
  const named = Object.fromEntries(Object.entries(tensors).map(([name, t]) => [name, lazy(t)]));
  await (ending === ".npz" ? writeNpz(path, named) : writeSafetensors(path, named));
}
