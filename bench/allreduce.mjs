// All-reduce of float32 over 2 and 8 processes with one core each: Weft's shared-memory group against OpenMPI's own
// MPI_Allreduce, on the same cores, in alternating rounds. Sums are checked before their times count.
// Options: --ranks 2,8  --megabytes 64  --turns 7  --rounds 3  --out FILE (default: results/allreduce.json)
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { arena, barrierOf, describe, groupLibrary, MpiGroup, ShmGroup } from "@weft/cluster";

const self = fileURLToPath(import.meta.url);
const mark = "@allreduce ";

/** One process: fills its buffers, sums, checks, times. */
function member([kind, name, rankText, sizeText, elementsText, turnsText, core]) {
  const [elements, turns] = [Number(elementsText), Number(turnsText)];
  if (core !== "-") spawnSync("taskset", ["-pc", core, String(process.pid)]);
  const library = groupLibrary();
  const group = kind === "weft" ? ShmGroup.join(name, Number(rankText), Number(sizeText)) : MpiGroup.join();
  const { rank, size } = group;
  const bytes = 4 * elements;
  const [input, output] = [arena.allocate(bytes), arena.allocate(bytes)];
  const values = Float32Array.from({ length: elements }, (_, i) => (i % 251) + rank);
  const fill = () => library.copyIn(input, new Uint8Array(values.buffer), bytes);
  const attrs = { ...barrierOf(rank, size), fn: "sum", dtype: "float32", shape: [elements] };
  const [descriptor, barrier] = [describe(attrs), describe(barrierOf(rank, size))];
  const run = (inPlace, count) => {
    const seconds = new Float64Array(count);
    const target = inPlace ? input : output;
    const code =
      kind === "weft"
        ? library.bench(group.native.group, descriptor, barrier, input, target, count, seconds)
        : library.mpiBench(inPlace ? 0 : input, target, elements, count, seconds);
    if (code !== 0) throw new Error(`error ${code}`);
    return [...seconds];
  };
  const check = (from) => {
    const got = new Float32Array(elements);
    library.copyOut(new Uint8Array(got.buffer), from, bytes);
    for (let i = 0; i < elements; i += 1009) {
      const expected = size * (i % 251) + (size * (size - 1)) / 2;
      if (got[i] !== expected) throw new Error(`element ${i}: ${got[i]} instead of ${expected}`);
    }
  };
  fill();
  run(false, 1);
  check(output);
  run(true, 1);
  check(input);
  fill();
  const outOfPlace = run(false, turns);
  const inPlace = run(true, turns);
  process.stdout.write(`${mark}${JSON.stringify({ rank, outOfPlace, inPlace })}\n`);
  group.barrier();
  group.close();
}

const collect = (children) =>
  Promise.all(
    children.map(
      (child) =>
        new Promise((resolve, reject) => {
          let out = "";
          child.stdout.on("data", (text) => {
            out += text;
          });
          child.on("close", (code) => {
            const answers = out
              .split("\n")
              .filter((line) => line.startsWith(mark))
              .map((line) => JSON.parse(line.slice(mark.length)));
            if (code === 0 && answers.length > 0) resolve(answers);
            else reject(new Error(`a process ended with ${code}`));
          });
        }),
    ),
  ).then((lists) => lists.flat());

let jobs = 0;
const stdio = ["ignore", "pipe", "inherit"];
const pinnedTo = (rank, size) => (size <= cpus().length ? String(rank) : "-");

function runWeft(size, elements, turns) {
  const name = `bench-${process.pid}-${++jobs}`;
  return collect(
    Array.from({ length: size }, (_, rank) =>
      spawn(
        process.execPath,
        [self, "member", "weft", name, rank, size, elements, turns, pinnedTo(rank, size)].map(String),
        { stdio },
      ),
    ),
  );
}

function runMpi(size, elements, turns) {
  const binding = size <= cpus().length ? ["--bind-to", "core"] : ["--oversubscribe", "--bind-to", "none"];
  const command = ["--allow-run-as-root", ...binding, "-n", String(size), process.execPath, self, "member", "mpi"];
  return collect([spawn("mpirun", [...command, "-", "-", "-", String(elements), String(turns), "-"], { stdio })]);
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** A turn takes as long as its slowest member. */
const slowest = (answers, which) => answers[0][which].map((_, t) => Math.max(...answers.map((a) => a[which][t])));

async function main() {
  const { values: options } = parseArgs({
    options: {
      ranks: { type: "string", default: "2,8" },
      megabytes: { type: "string", default: "64" },
      turns: { type: "string", default: "7" },
      rounds: { type: "string", default: "3" },
      out: { type: "string", default: join(dirname(self), "results/allreduce.json") },
    },
  });
  const megabytes = Number(options.megabytes);
  const elements = (megabytes * 1e6) / 4;
  const turns = Number(options.turns);
  const mpi = spawnSync("mpirun", ["--version"], { encoding: "utf8" });
  const rows = [];
  for (const size of options.ranks.split(",").map(Number)) {
    const samples = { weft: { inPlace: [], outOfPlace: [] }, openmpi: { inPlace: [], outOfPlace: [] } };
    for (let round = 0; round < Number(options.rounds); round++) {
      for (const [who, run] of [
        ["weft", runWeft],
        ["openmpi", mpi.status === 0 ? runMpi : null],
      ]) {
        if (run === null) continue;
        const answers = await run(size, elements, turns);
        for (const which of ["inPlace", "outOfPlace"]) samples[who][which].push(...slowest(answers, which));
      }
    }
    const row = { ranks: size, cores: cpus().length, megabytes, samples, oversubscribed: size > cpus().length };
    for (const which of ["inPlace", "outOfPlace"]) {
      const [ours, theirs] = [samples.weft[which], samples.openmpi[which]].map((s) =>
        s.length > 0 ? median(s) : null,
      );
      row[which] = {
        weftMs: ours * 1e3,
        openmpiMs: theirs === null ? null : theirs * 1e3,
        ratio: theirs === null ? null : theirs / ours,
      };
    }
    rows.push(row);
    const { samples: _, ...shown } = row;
    console.log(JSON.stringify(shown));
  }
  const result = {
    what: "all-reduce of float32",
    machine: cpus()[0]?.model,
    node: process.version,
    mpi: mpi.stdout?.split("\n")[0] ?? null,
    rows,
  };
  if (options.out !== "-") writeFileSync(options.out, `${JSON.stringify(result, null, 2)}\n`);
}

if (process.argv[2] === "member") member(process.argv.slice(3));
else await main();
