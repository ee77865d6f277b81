// Speed of `weft hang`: dumps of a large job, written as PyTorch's pickler writes them. All ranks issued the same collectives
// but one, which has not issued the last.
import { linkSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Writes a pickle of protocol 2 in which texts and frames are stored once and referred to afterwards. */
class Pickler {
  private readonly parts: Buffer[] = [Buffer.from([0x80, 2])];
  private readonly stored = new Map<string, number>();

  bytes(...codes: number[]): this {
    this.parts.push(Buffer.from(codes));
    return this;
  }

  code(text: string): this {
    this.parts.push(Buffer.from(text, "latin1"));
    return this;
  }

  private index(short: number, long: number, index: number): void {
    const wide = Buffer.alloc(5);
    wide[0] = long;
    wide.writeUInt32LE(index, 1);
    this.parts.push(index < 256 ? Buffer.from([short, index]) : wide);
  }

  /** Writes something the first time and refers to it afterwards. */
  once(key: string, write: () => void): this {
    const cached = this.stored.get(key);
    if (cached !== undefined) this.index(0x68, 0x6a, cached);
    else {
      write();
      this.index(0x71, 0x72, this.stored.size);
      this.stored.set(key, this.stored.size);
    }
    return this;
  }

  text(value: string): this {
    return this.once(`text ${value}`, () => {
      const head = Buffer.alloc(5);
      head[0] = 0x58;
      head.writeUInt32LE(Buffer.byteLength(value), 1);
      this.parts.push(head, Buffer.from(value));
    });
  }

  number(value: number): this {
    if (value >= 0 && value < 256) return this.bytes(0x4b, value);
    const wide = Buffer.alloc(value < 65536 ? 3 : Number.isSafeInteger(value) && value < 2 ** 31 ? 5 : 10);
    if (wide.length === 3) {
      wide[0] = 0x4d;
      wide.writeUInt16LE(value, 1);
    } else if (wide.length === 5) {
      wide[0] = 0x4a;
      wide.writeInt32LE(value, 1);
    } else {
      wide[0] = 0x8a;
      wide[1] = 8;
      wide.writeBigInt64LE(BigInt(value), 2);
    }
    this.parts.push(wide);
    return this;
  }

  list(items: readonly (() => void)[]): this {
    this.code("](");
    for (const item of items) item();
    return this.code("e");
  }

  finish(): Buffer {
    return Buffer.concat(this.parts);
  }
}

const operations: readonly [name: string, size: number[]][] = [
  ["nccl:all_reduce", [1024, 1024]],
  ["nccl:all_gather", [64, 128]],
  ["nccl:reduce_scatter", [4096]],
  ["nccl:all_reduce", [25557032]],
];
const began = 1794814336263;

function dump(ranks: number, entries: number, missing: number): Buffer {
  const p = new Pickler();
  const nanoseconds = (i: number): number => (began + i) * 1e6;
  const sizes = (size: readonly number[]): Pickler =>
    p.list([() => p.list(size.map((n) => (): Pickler => p.number(n)))]);
  p.code("}(").text("version").text("2.10").text("pg_config").code("}(").text("0").code("}(").text("name").text("0");
  p.text("desc")
    .text("default_pg")
    .text("ranks")
    .text(JSON.stringify(Array.from({ length: ranks }, (_, i) => i)));
  p.code("uu").text("entries").code("](");
  for (let i = 0; i < entries - missing; i++) {
    const kind = i % operations.length;
    const [name, size] = operations[kind];
    const isLast = i === entries - 1;
    const frame = (depth: number) => (): Pickler =>
      p.once(`frame ${kind} ${depth}`, () => {
        p.code("}(").text("name").text(`f${kind}_${depth}`).text("filename").text(`/job/part${depth}.py`);
        p.text("line")
          .number(10 * depth + kind)
          .code("u");
      });
    p.code("}(")
      .text("frames")
      .list(Array.from({ length: 6 }, (_, depth) => frame(depth)));
    p.text("record_id")
      .number(i)
      .text("pg_id")
      .number(0)
      .text("process_group")
      .text("0")
      .text("default_pg")
      .bytes(0x86);
    p.text("collective_seq_id").number(i).text("p2p_seq_id").number(0).text("op_id").number(i);
    p.text("profiling_name").text(name).text("time_created_ns").number(nanoseconds(i));
    p.text("input_sizes");
    sizes(size);
    p.text("input_dtypes")
      .list([(): Pickler => p.text("Float")])
      .text("output_sizes");
    sizes(size);
    p.text("output_dtypes").list([(): Pickler => p.text("Float")]);
    p.text("state")
      .text(isLast ? "started" : "completed")
      .text("time_discovered_started_ns")
      .number(nanoseconds(i));
    p.text("time_discovered_completed_ns")
      .number(nanoseconds(i))
      .text("retired")
      .bytes(isLast ? 0x89 : 0x88);
    p.text("timeout_ms").number(600000).text("is_p2p").bytes(0x89).code("u");
  }
  return p.code("eu.").finish();
}

/** Writes the dumps of a job into a folder; returns the bytes of one. Ranks with the same content share one file. */
export function writeDumps(folder: string, ranks: number, entries: number, culprit: number): number {
  mkdirSync(folder, { recursive: true });
  const file = (rank: number): string => join(folder, `nccl_trace_rank_${rank}`);
  const usual = dump(ranks, entries, 0);
  const first = culprit === 0 ? 1 : 0;
  writeFileSync(file(first), usual);
  for (let rank = 0; rank < ranks; rank++) {
    if (rank === culprit) writeFileSync(file(rank), dump(ranks, entries, 1));
    else if (rank !== first) linkSync(file(first), file(rank));
  }
  return usual.length;
}
