// All-reduce of float32 over processes with one core each, Weft's shared-memory group against MPI_Allreduce of OpenMPI in
// alternating rounds; and the round trip of a tiny operation through a dispatcher, with one worker and with idle ones
// beside it. Sums and values are checked before their times count.
import { spawnSync } from "node:child_process";
import { cpus } from "node:os";
import { arena, barrierOf, connect, describe, groupLibrary, MpiGroup, ShmGroup } from "@weft/cluster/internal";
import * as weft from "@weft/core";
import { median, quantile } from "@weft/formats/stats";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { jsonLines } from "./peers.js";
import { commandOutput } from "./process.js";

type Placement = "inPlace" | "outOfPlace";
const placements: Placement[] = ["inPlace", "outOfPlace"];
/** Seconds of every turn, by one member. */
type Member = Record<Placement, number[]>;

/** One process: fills its buffers, sums, checks, times. */
function runMember(context: Context): void {
  const [kind, elements, turns] = [context.text("member"), context.number("elements"), context.number("turns")];
  const core = context.text("core");
  if (core !== undefined) spawnSync("taskset", ["-pc", core, String(process.pid)]);
  const library = groupLibrary();
  const group =
    kind === "weft"
      ? ShmGroup.join(context.text("group")!, context.number("rank"), context.number("size"))
      : MpiGroup.join();
  const { rank, size } = group;
  const bytes = 4 * elements;
  const [input, output] = [arena.allocate(bytes), arena.allocate(bytes)];
  const values = Float32Array.from({ length: elements }, (_, i) => (i % 251) + rank);
  const fill = (): void => library.copyIn(input, new Uint8Array(values.buffer), bytes);
  const attrs = { ...barrierOf(rank, size), fn: "sum" as const, dtype: "float32" as const, shape: [elements] };
  const [descriptor, barrier] = [describe(attrs), describe(barrierOf(rank, size))];
  const run = (placement: Placement, count: number): number[] => {
    const seconds = new Float64Array(count);
    const target = placement === "inPlace" ? input : output;
    const code =
      kind === "weft"
        ? library.bench(group.native!.group, descriptor, barrier, input, target, count, seconds)
        : library.mpiBench(placement === "inPlace" ? 0 : input, target, elements, count, seconds);
    if (code !== 0) throw new Error(`the all-reduce failed with ${code}`);
    return [...seconds];
  };
  const check = (from: number): void => {
    const got = new Float32Array(elements);
    library.copyOut(new Uint8Array(got.buffer), from, bytes);
    for (let i = 0; i < elements; i += 1009) {
      const expected = size * (i % 251) + (size * (size - 1)) / 2;
      if (got[i] !== expected) throw new Error(`element ${i}: ${got[i]} instead of ${expected}`);
    }
  };
  fill();
  run("outOfPlace", 1);
  check(output);
  run("inPlace", 1);
  check(input);
  fill();
  const answer: Member = { outOfPlace: run("outOfPlace", turns), inPlace: run("inPlace", turns) };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
  group.barrier();
  group.close();
}

let groups = 0;
const memberLine = (kind: string, elements: number, turns: number): string[] => [
  ...[entryPoint, "serve", "collectives", "--member", kind],
  ...["--elements", String(elements), "--turns", String(turns)],
];

async function reduceByWeft(size: number, elements: number, turns: number): Promise<Member[]> {
  const line = [...memberLine("weft", elements, turns), "--group", `bench-${process.pid}-${++groups}`, "--size", size];
  const place = (rank: number): (string | number)[] => (size <= cpus().length ? ["--core", rank] : []);
  const ranks = Array.from({ length: size }, (_, rank) =>
    commandOutput(null, process.execPath, [...line, "--rank", rank, ...place(rank)]),
  );
  return (await Promise.all(ranks)).flatMap((out) => jsonLines<Member>(out));
}

async function reduceByMpi(size: number, elements: number, turns: number): Promise<Member[]> {
  const binding = size <= cpus().length ? ["--bind-to", "core"] : ["--oversubscribe", "--bind-to", "none"];
  const line = ["--allow-run-as-root", ...binding, "-n", size, process.execPath, ...memberLine("mpi", elements, turns)];
  return jsonLines<Member>(await commandOutput(null, "mpirun", line));
}

/** A turn takes as long as its slowest member. */
const slowest = (members: Member[], which: Placement): number[] =>
  members[0][which].map((_, turn) => Math.max(...members.map((m) => m[which][turn])));

async function allReduceRow(context: Context, size: number, hasMpi: boolean): Promise<object> {
  const megabytes = context.quick ? 0.1 : context.number("megabytes");
  const turns = context.quick ? 2 : context.number("turns");
  const samples: Record<"weft" | "openmpi", Member> = {
    weft: { inPlace: [], outOfPlace: [] },
    openmpi: { inPlace: [], outOfPlace: [] },
  };
  for (let round = 0; round < context.number("rounds"); round++)
    for (const [who, reduce] of [
      ["weft", reduceByWeft],
      ["openmpi", reduceByMpi],
    ] as const) {
      if (who === "openmpi" && !hasMpi) continue;
      const members = await reduce(size, Math.round((megabytes * 1e6) / 4), turns);
      for (const which of placements) samples[who][which].push(...slowest(members, which));
    }
  const compared = placements.map((which) => {
    const [own, theirs] = [samples.weft[which], samples.openmpi[which]].map((s) => 1e3 * median(s));
    return [which, hasMpi ? { weftMs: own, openmpiMs: theirs, ratio: theirs / own } : { weftMs: own, ratio: null }];
  });
  return {
    ranks: size,
    cores: cpus().length,
    megabytes,
    oversubscribed: size > cpus().length,
    ...Object.fromEntries(compared),
    measured: hasMpi ? samples : { weft: samples.weft },
  };
}

/** Milliseconds of "add one and read back" through a dispatcher; one request at a time. */
export async function roundTripRow(context: Context, workers: number): Promise<object> {
  const requests = context.quick ? 20 : context.number("requests");
  const warm = Math.min(200, requests);
  const samples: number[] = [];
  let bytesPerRequest = 0;
  for (let round = 0; round < context.number("rounds"); round++) {
    const cluster = await connect({ devices: workers, cores: 1 });
    try {
      const step = weft.jit((x: weft.Tensor) => x.add(1));
      let x = weft.tensor([1, 2]);
      for (let i = 0; i < requests + warm; i++) {
        const begin = performance.now();
        const y = step(x);
        const [value] = (await y.data()) as Float32Array;
        if (i >= warm) samples.push(performance.now() - begin);
        if (value !== i + 2) throw new Error(`request ${i}: got ${value}, expected ${i + 2}`);
        x.dispose();
        x = y;
      }
      bytesPerRequest = cluster.device.connection.sent.bytes / (requests + warm);
    } finally {
      await cluster.close();
    }
  }
  const [medianMs, p90Ms, p99Ms] = [0.5, 0.9, 0.99].map((share) => quantile(samples, share));
  return { workers, medianMs, p90Ms, p99Ms, bytesPerRequest, samples };
}

const suite: Suite = {
  defaults: { rounds: "3" },
  options: {
    ranks: { value: "2,8", help: "processes of the all-reduce" },
    megabytes: { value: "64", help: "size of the all-reduce" },
    turns: { value: "7", help: "all-reduces per round" },
    workers: { value: "1,8", help: "workers of the round trip" },
    requests: { value: "2000", help: "round trips per round" },
    member: { help: "serve: one process of the all-reduce" },
    ...Object.fromEntries(["elements", "group", "rank", "size", "core"].map((name) => [name, { help: "serve" }])),
  },
  async run(context) {
    const mpi = spawnSync("mpirun", ["--version"], { encoding: "utf8" });
    const hasMpi = mpi.status === 0 && !context.quick;
    const { record, save } = context.open("collectives", {
      source: "`npm run bench -- collectives`",
      machine: { processor: cpus()[0]?.model, cores: cpus().length, mpi: mpi.stdout?.split("\n")[0] ?? "no OpenMPI" },
      allreduce: [] as object[],
      roundtrip: [] as object[],
    });
    if (!hasMpi) record.absent.openmpi = "mpirun was not found or not requested";
    const [ranks, workers] = context.quick ? [[2], [1]] : [context.numbers("ranks"), context.numbers("workers")];
    const rows = [
      {
        id: "all-reduce",
        counts: ranks,
        into: record.allreduce,
        measure: (n: number) => allReduceRow(context, n, hasMpi),
      },
      { id: "round-trip", counts: workers, into: record.roundtrip, measure: (n: number) => roundTripRow(context, n) },
    ];
    for (const { id, counts, into, measure } of context.choose(rows))
      for (const count of counts) {
        context.log(`${id}, ${count} processes`);
        into.push(await measure(count));
        save();
      }
  },
  async serve(context) {
    runMember(context);
  },
};

export default suite;
