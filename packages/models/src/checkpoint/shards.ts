// The tensors of a model folder: `model.safetensors`, or shards with `model.safetensors.index.json`. The index and the headers of
// the shards must agree before any tensor is read.
import { type DType, io } from "@weft/core";
import { fileOf, isJsonObject, ModelError, readJson } from "../config/index.js";

type SafetensorsFile = Awaited<ReturnType<typeof io.openSafetensors>>;
type HostArray = Awaited<ReturnType<SafetensorsFile["read"]>>;

/** Name of the file of an unsharded model. */
export const singleFile = "model.safetensors";
/** Name of the index of a sharded one. */
export const indexName = "model.safetensors.index.json";
const maxIndexBytes = 64 * 2 ** 20;
const maxShards = 4096;

/** The tensors of a folder, read one by one. */
export interface TensorFolder {
  /** Names in the order in which the files hold them. */
  readonly names: readonly string[];
  /** Shape and dtype without reading; the dtype is null if it is not supported. */
  info(name: string): { shape: readonly number[]; dtype: DType | null };
  /** The file that holds a tensor, for errors. */
  fileOf(name: string): string;
  read(name: string): Promise<HostArray>;
  close(): Promise<void>;
}

/** File name of every tensor, by the index. */
async function readIndex(folder: string): Promise<Map<string, string> | null> {
  const index = await readJson(folder, indexName, maxIndexBytes);
  if (index === null) return null;
  const label = `${folder}/${indexName}`;
  const map = index["weight_map"];
  if (!isJsonObject(map)) throw new ModelError(`${label}: has no weight_map, which names the file of every tensor`);
  const files = new Map<string, string>();
  for (const [name, file] of Object.entries(map)) {
    // A plain name: neither a path nor a file of another kind.
    if (typeof file !== "string" || !/^[\w.-]{1,200}\.safetensors$/.test(file) || file.startsWith("."))
      throw new ModelError(
        `${label}: ${JSON.stringify(name.slice(0, 100))} is in ${JSON.stringify(file)?.slice(0, 200)}, which is not the name of a .safetensors file of this folder`,
      );
    files.set(name, file);
  }
  if (new Set(files.values()).size > maxShards) throw new ModelError(`${label}: names more than ${maxShards} shards`);
  return files;
}

async function openShard(folder: string, file: string): Promise<SafetensorsFile> {
  const path = await fileOf(folder, file);
  if (path === null) throw new ModelError(`${folder}/${file}: there is no such file, but the index names it`);
  const opened = await io.openSafetensors(path);
  const { format } = opened.metadata;
  if (format !== "tf" && format !== "flax") return opened;
  await opened.close();
  throw new ModelError(
    `${path}: was saved by ${format}, whose weights have other names and layouts; save the model with PyTorch`,
  );
}

/** Opens the tensors of a folder and checks its index against the headers of the shards. */
export async function openTensors(folder: string): Promise<TensorFolder> {
  const hasSingle = (await fileOf(folder, singleFile)) !== null;
  const index = hasSingle ? null : await readIndex(folder);
  if (index === null && !hasSingle)
    throw new ModelError(
      `${folder}: has neither ${singleFile} nor ${indexName}; files in the format of pickle (.bin, .pt) are not read: convert them to safetensors`,
    );
  const files = index === null ? [singleFile] : [...new Set(index.values())];
  const open = new Map<string, SafetensorsFile>();
  const close = async (): Promise<void> => {
    for (const file of open.values()) await file.close();
  };
  try {
    const places = new Map<string, string>();
    for (const name of files) {
      const file = await openShard(folder, name);
      open.set(name, file);
      for (const tensor of file.names) {
        const earlier = places.get(tensor);
        if (earlier !== undefined)
          throw new ModelError(`${folder}: the tensor ${tensor} is in ${earlier} and in ${name}`);
        if (index !== null && index.get(tensor) !== name)
          throw new ModelError(
            `${folder}/${name}: holds the tensor ${tensor}, which the index ${index.has(tensor) ? `places in ${index.get(tensor)}` : "does not list"}`,
          );
        places.set(tensor, name);
      }
    }
    for (const [tensor, name] of index ?? [])
      if (!places.has(tensor))
        throw new ModelError(`${folder}/${name}: lacks the tensor ${tensor}, which the index places there`);
    const fileFor = (name: string): string => {
      const found = places.get(name);
      if (found === undefined) throw new ModelError(`${folder}: has no tensor ${name}`);
      return found;
    };
    const shard = (name: string): SafetensorsFile => open.get(fileFor(name)) as SafetensorsFile;
    return {
      names: [...places.keys()],
      info: (name) => shard(name).info(name),
      fileOf: (name) => `${folder}/${fileFor(name)}`,
      read: (name) => shard(name).read(name),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
