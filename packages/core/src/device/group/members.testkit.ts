// What the processes of shm.test.ts do: collectives of every kind, checked against the reference in each process.
import {
  bytesOf,
  type DType,
  isBig,
  isUnsigned,
  makeStorage,
  numel,
  type OpAttrs,
  type Shape,
} from "../../graph/index.js";
import { combine, type Value } from "../../ops/index.js";
import type { ProcessGroup } from "../contract.js";
import { bytesReceived, MpiGroup, movedBytes, ShmGroup } from "./index.js";
import { barrierOf } from "./shm.js";
import type { RankContext } from "./testkit.js";

type Attrs = OpAttrs["collective"];

const wave = (seed: number, i: number): number => ((seed * 7919 + i * 104729) % 31) - 15;

function operand(shape: Shape, dtype: DType, seed: number): Value {
  const data = makeStorage(dtype, numel(shape));
  for (let i = 0; i < data.length; i++) {
    const x = wave(seed, i);
    if (isBig(dtype)) (data as BigInt64Array)[i] = BigInt(isUnsigned(dtype) ? Math.abs(x) : x);
    else if (dtype === "bool") data[i] = x > 0 ? 1 : 0;
    // 1, 1.5 or 2 as bits: exact in both half types.
    else if (dtype === "float16") data[i] = [0x3c00, 0x3e00, 0x4000][Math.abs(x) % 3];
    else if (dtype === "bfloat16") data[i] = [0x3f80, 0x3fc0, 0x4000][Math.abs(x) % 3];
    else data[i] = isUnsigned(dtype) ? Math.abs(x) : x;
  }
  return { shape, dtype, data };
}

const bytesOfValue = ({ data }: Value): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
const blank = (rank: number, size: number): Attrs => ({ ...barrierOf(rank, size), fn: "sum", dtype: "float32" });

interface Case {
  name: string;
  /** For every rank its attributes and the shape of its operand. */
  ranks: { attrs: Attrs; shape: Shape }[];
}

const cut = (total: number, n: number): number[] =>
  Array.from({ length: n }, (_, i) => Math.floor((total * (i + 1)) / n) - Math.floor((total * i) / n));

/** One of each kind at a size, with uneven parts (and empty ones where there are fewer rows than ranks). */
function casesOf(size: number, rows: number, columns: number, dtype: DType): Case[] {
  const sizes = cut(rows, size);
  const widths = cut(columns, size);
  const each = (make: (rank: number) => { attrs: Partial<Attrs>; shape: Shape }): Case["ranks"] =>
    Array.from({ length: size }, (_, rank) => {
      const { attrs, shape } = make(rank);
      return { attrs: { ...blank(rank, size), dtype, ...attrs }, shape };
    });
  const fns: Attrs["fn"][] = dtype.startsWith("complex") ? ["sum", "prod"] : ["sum", "prod", "max", "min"];
  return [
    ...fns.map((fn) => ({
      name: `allReduce ${fn}`,
      ranks: each(() => ({ attrs: { kind: "allReduce", fn, shape: [rows, columns] }, shape: [rows, columns] })),
    })),
    {
      name: "allGather rows",
      ranks: each((r) => ({
        attrs: { kind: "allGather", axis: 0, sizes, shape: [rows, columns] },
        shape: [sizes[r], columns],
      })),
    },
    {
      name: "allGather columns",
      ranks: each((r) => ({
        attrs: { kind: "allGather", axis: 1, sizes: widths, shape: [rows, columns] },
        shape: [rows, widths[r]],
      })),
    },
    {
      name: "reduceScatter columns",
      ranks: each((r) => ({
        attrs: { kind: "reduceScatter", axis: 1, sizes: widths, shape: [rows, widths[r]] },
        shape: [rows, columns],
      })),
    },
    {
      name: "allToAll",
      ranks: each((r) => ({
        attrs: { kind: "allToAll", axis: 0, splitAxis: 1, sizes, splitSizes: widths, shape: [rows, widths[r]] },
        shape: [sizes[r], columns],
      })),
    },
    {
      // Everybody's rows move on by one rank; the last column arrives nowhere and stays zero.
      name: "exchange",
      ranks: each((r) => {
        const [to, from] = [(r + 1) % size, (r + size - 1) % size];
        return {
          attrs: {
            kind: "exchange",
            sends: [{ rank: to, start: [0, 0], stop: [sizes[r], columns - 1] }],
            receives: [{ rank: from, start: [0, 0], stop: [sizes[from], columns - 1] }],
            shape: [sizes[from], columns],
          },
          shape: [sizes[r], columns],
        };
      }),
    },
    {
      name: "allReduce in two halves",
      ranks: each(() => ({
        attrs: { kind: "allReduce", groups: halves(size), shape: [rows, columns] },
        shape: [rows, columns],
      })),
    },
  ];
}

function halves(size: number): number[][] {
  const ranks = Array.from({ length: size }, (_, i) => i);
  return [ranks.filter((r) => r % 2 === 0), ranks.filter((r) => r % 2 === 1)].filter((g) => g.length > 0);
}

/** Runs every case and says which ones differ from the reference; sums of integers and of small halves are exact. */
export function everyKind(
  { rank, size, name }: RankContext,
  { shapes, dtypes, mpi = false }: { shapes: [number, number][]; dtypes: DType[]; mpi?: boolean },
  group: ProcessGroup = mpi ? MpiGroup.join() : ShmGroup.join(name, rank, size),
): { run: number; wrong: string[]; moved: number; due: number } {
  const wrong: string[] = [];
  let run = 0;
  let due = 0;
  const before = movedBytes();
  for (const dtype of dtypes) {
    for (const [rows, columns] of shapes) {
      for (const { name: what, ranks } of casesOf(size, rows, columns, dtype)) {
        const operands = ranks.map(({ shape }, r) => operand(shape, dtype, r + 1));
        const { attrs } = ranks[rank];
        const members = attrs.groups.find((g) => g.includes(rank))!;
        const expected = combine(
          members.map((m) => ranks[m].attrs),
          members.map((m) => operands[m]),
        )[members.indexOf(rank)];
        const got = new Uint8Array(numel(attrs.shape) * bytesOf(dtype));
        group.collective(attrs, bytesOfValue(operands[rank]), got, ranks[rank].shape);
        run++;
        due += bytesReceived(attrs, ranks[rank].shape);
        if (Buffer.compare(got, bytesOfValue(expected)) !== 0) wrong.push(`${what} ${dtype} [${rows},${columns}]`);
      }
    }
  }
  const moved = movedBytes() - before;
  group.barrier();
  group.close();
  return { run, wrong, moved, due };
}

/** Sums that round: every rank must get the same bits. */
export function sameBits({ rank, size, name }: RankContext): string {
  const group = ShmGroup.join(name, rank, size);
  const x = Float32Array.from({ length: 100_003 }, (_, i) => Math.sin(i * (rank + 1)) * 10 ** ((i + rank) % 7));
  const y = new Float32Array(x.length);
  group.collective(
    { ...blank(rank, size), kind: "allReduce", shape: [x.length] },
    new Uint8Array(x.buffer),
    new Uint8Array(y.buffer),
    [x.length],
  );
  group.close();
  let hash = 0;
  for (const word of new Uint32Array(y.buffer)) hash = (Math.imul(hash, 31) + word) >>> 0;
  return String(hash);
}

/** Barriers until the process is killed or a peer is missed; answers with the error and how long it took to notice. */
export function untilError({ rank, size, name }: RankContext): { message: string; seconds: number } {
  const group = ShmGroup.join(name, rank, size, { stopLimit: 1 });
  process.stderr.write("joined\n");
  let last = performance.now();
  for (;;) {
    try {
      group.barrier();
      last = performance.now();
    } catch (error) {
      return { message: (error as Error).message, seconds: (performance.now() - last) / 1000 };
    }
  }
}

/** Rank 0 sums where the others gather. */
export function disagree({ rank, size, name }: RankContext): string {
  const group = ShmGroup.join(name, rank, size);
  const attrs: Attrs = { ...blank(rank, size), kind: "allReduce", fn: rank === 0 ? "sum" : "max", shape: [4] };
  const bytes = new Uint8Array(16);
  try {
    group.collective(attrs, bytes, bytes, [4]);
    return "no error";
  } catch (error) {
    return (error as Error).message;
  }
}

/** Joins and leaves. The rank `absent` is alive and never joins. */
export async function joinOnly(
  { rank, size, name }: RankContext,
  args: { timeout: number; size?: number; absent?: number },
): Promise<string> {
  if (rank === args.absent) await new Promise((resolve) => setTimeout(resolve, 1e3 * args.timeout));
  process.stderr.write("joining\n");
  try {
    ShmGroup.join(name, rank, args.size ?? size, { joinTimeout: args.timeout }).close();
    return "joined";
  } catch (error) {
    return (error as Error).message;
  }
}
