// Sharded checkpoints: each rank writes the parts of the state that it holds into one .safetensors file, and an index says
// which file holds which box of which tensor. Nothing is gathered, and files are written while the next steps run. Reading
// takes any box from either format, so a run continues on any number of ranks.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { open, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  bytesOf,
  type DType,
  makeStorage,
  numel,
  type Shape,
  type Storage,
  shortened,
} from "@weft/core/internal/graph";
import type { IndexBox, Placement } from "@weft/core/internal/shard";
import { type Tensor, tensor } from "@weft/core/internal/tensor";
import { type HostArray, openSafetensors, type SafetensorsFile, writeSafetensors } from "@weft/core/io";
import { CheckpointError } from "./errors.js";
import { marksOf, readPlainText, readProgress } from "./progress.js";

/** The sections of a state that are stored. */
const sections = ["model", "optimizer", "state"] as const;
export type Section = (typeof sections)[number];

export const indexFile = "index.json";
const sumSuffix = ".sha256";

/** A named tensor of the state: whole shape, placement, and this rank's part. */
export interface StoredTensor {
  section: Section;
  name: string;
  shape: Shape;
  placement: Placement;
  local: Tensor;
}

interface Part {
  file: string;
  start: readonly number[];
  stop: readonly number[];
}

interface TensorEntry {
  shape: readonly number[];
  dtype: DType;
  parts: Part[];
}

/** Content of index.json. */
interface ShardIndex {
  version: 1;
  ranks: number;
  tensors: Record<string, TensorEntry>;
}

const fileOf = (rank: number, ranks: number): string =>
  `rank-${String(rank).padStart(5, "0")}-of-${String(ranks).padStart(5, "0")}.safetensors`;
const keyOf = (section: Section, name: string): string => `${section}/${name}`;

/** Which rank writes which box. Boxes that several ranks hold are written once, by each of them in turn. */
export function shardIndex(tensors: readonly StoredTensor[], ranks: number): ShardIndex {
  const entries = tensors.map(({ section, name, shape, placement, local }, i): [string, TensorEntry] => {
    const holders = new Map<string, { box: IndexBox; ranks: number[] }>();
    for (const rank of placement.mesh.ranks) {
      const box = placement.box(rank, shape);
      const key = `${box.start}:${box.stop}`;
      const holder = holders.get(key) ?? { box, ranks: [] };
      holder.ranks.push(rank);
      holders.set(key, holder);
    }
    const parts = [...holders.values()]
      .filter(({ box }) => numel(sizeOf(box)) > 0)
      .map(({ box, ranks: list }) => ({ file: fileOf(list[i % list.length], ranks), ...box }));
    return [keyOf(section, name), { shape, dtype: local.dtype, parts }];
  });
  return { version: 1, ranks, tensors: Object.fromEntries(entries) };
}

const sizeOf = ({ start, stop }: IndexBox): number[] => stop.map((to, i) => to - start[i]);

/** A copy of this rank's parts in host memory, from which they are written while the next steps change the state. */
export function snapshot(tensors: readonly StoredTensor[], index: ShardIndex, rank: number): Record<string, HostArray> {
  const own = fileOf(rank, index.ranks);
  return Object.fromEntries(
    tensors.flatMap(({ section, name, local }) => {
      const key = keyOf(section, name);
      if (!index.tensors[key].parts.some(({ file }) => file === own)) return [];
      // As stored: reading would widen half types.
      return [[key, { shape: local.shape, dtype: local.dtype, data: local.rawSync().slice() as Storage }]];
    }),
  );
}

/** Writes the file of one rank, then its checksum, whose presence says that the file is complete. */
export async function writeShard(
  folder: string,
  index: ShardIndex,
  rank: number,
  arrays: Record<string, HostArray>,
  marksOf: (part: string) => Record<string, string>,
): Promise<void> {
  const file = fileOf(rank, index.ranks);
  const path = join(folder, file);
  await writeSafetensors(path, arrays, marksOf(file));
  const sum = await hashFile(path);
  await writeFile(`${path}${sumSuffix}.tmp`, sum);
  await rename(`${path}${sumSuffix}.tmp`, `${path}${sumSuffix}`);
}

/** The hash of a file, read in pieces between which other work runs. */
async function hashFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  const file = await open(path, "r");
  try {
    const piece = Buffer.allocUnsafe(1 << 20);
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, piece.length);
      if (bytesRead === 0) return hash.digest("hex");
      hash.update(piece.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}

/** Files of the ranks with their checksums, once all of them are written; null before. */
export function finishedShards(folder: string, index: ShardIndex): { file: string; sum: string }[] | null {
  const files = Array.from({ length: index.ranks }, (_, rank) => fileOf(rank, index.ranks));
  if (!files.every((file) => existsSync(join(folder, `${file}${sumSuffix}`)))) return null;
  return files.map((file) => ({ file, sum: readFileSync(join(folder, `${file}${sumSuffix}`), "utf8") }));
}

/** Names of the checksum files, which are removed before a checkpoint is complete. */
export const sumFiles = (index: ShardIndex): string[] =>
  Array.from({ length: index.ranks }, (_, rank) => `${fileOf(rank, index.ranks)}${sumSuffix}`);

/** Files that an index refers to. */
export const filesOf = (index: ShardIndex): string[] =>
  Array.from({ length: index.ranks }, (_, rank) => fileOf(rank, index.ranks));

const isIndices = (list: unknown, rank: number): list is number[] =>
  Array.isArray(list) && list.length === rank && list.every((n) => Number.isSafeInteger(n) && n >= 0);

/** Whether two boxes have elements in common. */
const overlap = (boxes: readonly IndexBox[]): boolean =>
  boxes.some((a, i) =>
    boxes
      .slice(i + 1)
      .some((b) => a.start.every((from, d) => Math.max(from, b.start[d]) < Math.min(a.stop[d], b.stop[d]))),
  );

/** Reads and checks the index of a folder; null if its checkpoint is not sharded. */
export function readIndex(folder: string): ShardIndex | null {
  const path = join(folder, indexFile);
  if (!existsSync(path)) return null;
  const wrong = (what: string): never => {
    throw new CheckpointError(`${path}: ${what}`);
  };
  let index: ShardIndex;
  try {
    index = JSON.parse(readPlainText(path)) as ShardIndex;
  } catch (error) {
    return wrong(`is not JSON: ${(error as Error).message}`);
  }
  if (index?.version !== 1 || typeof index.tensors !== "object" || index.tensors === null)
    return wrong("is no index of version 1");
  if (!Number.isSafeInteger(index.ranks) || index.ranks < 1 || index.ranks > 1e6)
    return wrong(`says ${index.ranks} ranks`);
  const files = new Set(filesOf(index));
  // Many tensors are divided alike.
  const checked = new Set<string>();
  for (const [name, { shape, parts }] of Object.entries(index.tensors)) {
    if (!Array.isArray(shape) || !isIndices(shape, shape.length) || !Array.isArray(parts))
      return wrong(`${name} has no shape or no parts`);
    let covered = 0;
    for (const { file, start, stop } of parts) {
      if (!files.has(file)) wrong(`${name} is said to be in ${file}, which is not one of its files`);
      const inside = isIndices(start, shape.length) && isIndices(stop, shape.length);
      if (!inside || stop.some((to, i) => to > shape[i] || to < start[i]))
        wrong(`${name} has a part outside of its shape`);
      covered += numel(sizeOf({ start, stop }));
    }
    const divided = JSON.stringify(parts.map(({ start, stop }) => [start, stop]));
    if (!checked.has(divided) && overlap(parts)) wrong(`${name} has parts that overlap`);
    checked.add(divided);
    if (covered !== numel(shape)) wrong(`the parts of ${name} have ${covered} of ${numel(shape)} elements`);
  }
  return index;
}

/** Opens a file of a checkpoint. One that carries the marks of another place was put there by mistake, or by somebody. */
async function openMarked(folder: string, file: string): Promise<SafetensorsFile> {
  const path = join(folder, file);
  const opened = await openSafetensors(path);
  const { metadata } = opened;
  // Files of earlier versions have no marks.
  const wrong =
    metadata.weft_part === undefined
      ? undefined
      : Object.entries(marksOf(readProgress(folder), file)).find(([mark, value]) => metadata[mark] !== value);
  if (wrong === undefined) return opened;
  await opened.close();
  const [mark, value] = wrong;
  throw new CheckpointError(
    `${path} belongs to another checkpoint: its ${mark} is ${shortened(metadata[mark] ?? "missing", 60)}, not ${value}; put the right file there, or remove the folder to continue from the checkpoint before`,
  );
}

/** The tensors of one section of a checkpoint; any box of them can be read. */
export class SectionReader {
  readonly #files = new Map<string, Promise<SafetensorsFile>>();

  private constructor(
    private readonly folder: string,
    private readonly section: Section,
    private readonly index: ShardIndex | null,
    private readonly whole: SafetensorsFile | null,
  ) {}

  static async open(folder: string, section: Section): Promise<SectionReader> {
    const index = readIndex(folder);
    const whole = index === null ? await openMarked(folder, `${section}.safetensors`) : null;
    return new SectionReader(folder, section, index, whole);
  }

  get names(): string[] {
    if (this.index === null) return [...(this.whole as SafetensorsFile).names];
    const prefix = `${this.section}/`;
    return Object.keys(this.index.tensors).flatMap((key) => (key.startsWith(prefix) ? [key.slice(prefix.length)] : []));
  }

  info(name: string): { shape: Shape; dtype: DType } {
    const found =
      this.index === null ? (this.whole as SafetensorsFile).info(name) : this.index.tensors[keyOf(this.section, name)];
    if (found?.dtype == null) throw new CheckpointError(`${this.folder}: it has no ${this.section} tensor ${name}`);
    return { shape: found.shape, dtype: found.dtype };
  }

  /** Reads a box of a tensor, the whole tensor by default. */
  async read(name: string, box?: IndexBox): Promise<HostArray> {
    const { shape, dtype } = this.info(name);
    const wanted = box ?? { start: shape.map(() => 0), stop: shape };
    const target = { box: wanted, data: makeStorage(dtype, numel(sizeOf(wanted))) };
    const key = this.index === null ? name : keyOf(this.section, name);
    const everything: Part[] = [{ file: "", start: shape.map(() => 0), stop: shape }];
    for (const part of this.index?.tensors[key].parts ?? everything) {
      if (shape.some((_, i) => Math.min(part.stop[i], wanted.stop[i]) <= Math.max(part.start[i], wanted.start[i])))
        continue;
      const file = this.whole ?? (await this.#open(part.file));
      const read = await file.read(key);
      if (read.dtype !== dtype || read.shape.join() !== sizeOf(part).join())
        throw new CheckpointError(
          `${join(this.folder, part.file)}: ${name} is ${read.dtype}[${read.shape}], the index says ${dtype}[${sizeOf(part)}]`,
        );
      copyBox(dtype, { box: part, data: read.data }, target);
    }
    return { shape: sizeOf(wanted), dtype, data: target.data };
  }

  #open(file: string): Promise<SafetensorsFile> {
    let found = this.#files.get(file);
    if (found === undefined) this.#files.set(file, (found = openMarked(this.folder, file)));
    return found;
  }

  async close(): Promise<void> {
    await this.whole?.close();
    for (const file of this.#files.values()) await (await file).close();
  }
}

interface Boxed {
  box: IndexBox;
  data: Storage;
}

/** Copies the common elements of two boxes of one tensor, row by row. */
function copyBox(dtype: DType, from: Boxed, to: Boxed): void {
  const rank = from.box.start.length;
  const each = bytesOf(dtype);
  const [source, target] = [from, to].map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  const start = from.box.start.map((at, i) => Math.max(at, to.box.start[i]));
  const size = from.box.stop.map((at, i) => Math.min(at, to.box.stop[i]) - start[i]);
  const row = rank === 0 ? 1 : size[rank - 1];
  const offset = ({ box }: Boxed, at: readonly number[]): number =>
    at.reduce((n, position, i) => n * (box.stop[i] - box.start[i]) + position - box.start[i], 0);
  const at = [...start];
  for (let rows = numel(size.slice(0, -1)); rows > 0; rows--) {
    const begin = offset(from, at) * each;
    target.set(source.subarray(begin, begin + row * each), offset(to, at) * each);
    for (let axis = rank - 2; axis >= 0; axis--) {
      if (++at[axis] < start[axis] + size[axis]) break;
      at[axis] = start[axis];
    }
  }
}

/** Reads this rank's part of a tensor of the state, cast to its dtype. */
export async function readPart(reader: SectionReader, given: StoredTensor, rank: number): Promise<Tensor> {
  const { name, shape, placement, local } = given;
  const info = reader.info(name);
  if (info.shape.join() !== shape.join())
    throw new CheckpointError(`${name} has shape [${info.shape}] in the checkpoint, and [${shape}] in this model`);
  const { data, dtype, shape: size } = await reader.read(name, placement.box(rank, shape));
  const part = tensor(data, { shape: size, dtype });
  return dtype === local.dtype ? part : part.cast(local.dtype);
}
