// Checkpoints: named tensors and a JSON description in one .safetensors file, written atomically.
import { WeftError } from "@weft/core/internal/graph";
import { fromStorage, type Tensor } from "@weft/core/internal/tensor";
import { type HostArray, openSafetensors, writeSafetensors } from "@weft/core/io";

const descriptionKey = "weft";

/** Writes tensors and a description as a checkpoint of a kind. */
export async function writeTensorCheckpoint(
  path: string,
  kind: string,
  tensors: Record<string, Tensor>,
  description: unknown,
): Promise<void> {
  if (!path.endsWith(".safetensors"))
    throw new WeftError(`checkpoint: ${path} must end in .safetensors; checkpoints are written in that format`);
  const arrays = Object.fromEntries(
    Object.entries(tensors).map(([name, t]): [string, HostArray] => [
      name,
      { shape: t.shape, dtype: t.dtype, data: t.rawSync() },
    ]),
  );
  await writeSafetensors(path, arrays, { [descriptionKey]: JSON.stringify({ kind, description }) });
}

/** Reads a checkpoint of a kind; `formerKind` is the name that earlier versions wrote. */
export async function readTensorCheckpoint<D>(
  path: string,
  kind: string,
  formerKind = kind,
): Promise<{ tensors: Record<string, Tensor>; description: D }> {
  const file = await openSafetensors(path);
  try {
    const text = file.metadata[descriptionKey];
    let parsed: { kind?: string; description?: D } = {};
    try {
      parsed = JSON.parse(text ?? "{}") as typeof parsed;
    } catch {
      // Reported below.
    }
    if ((parsed.kind !== kind && parsed.kind !== formerKind) || parsed.description === undefined)
      throw new WeftError(
        `checkpoint: ${path} is not a checkpoint of ${kind}${parsed.kind === undefined ? "" : `, but of ${parsed.kind}`}`,
      );
    const tensors: Record<string, Tensor> = {};
    for (const name of file.names) {
      const { shape, dtype, data } = await file.read(name);
      tensors[name] = fromStorage(shape, dtype, data);
    }
    return { tensors, description: parsed.description };
  } finally {
    await file.close();
  }
}
