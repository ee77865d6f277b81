// Thousands of distinct programs in one process: on the CPU, on a recorded CUDA driver and on a worker. Every result is compared with
// plain arithmetic (the recorded driver computes nothing), and memory and handles are sampled on the way: after the caches are full
// they must not grow.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { connect, Dispatcher } from "@weft/cluster";
import * as weft from "@weft/core";
import { collectNow } from "@weft/core/internal/device";
import { FakeCuda } from "@weft/testing/fake-cuda";
import type { Context, Suite } from "./context.js";

/** Memory and handles of a process. */
interface Sample {
  /** Programs so far. */
  programs: number;
  residentBytes: number;
  openFiles: number;
  mappings: number;
  /** Programs that are mapped. */
  libraries: number;
  threads: number;
  /** Only of this process. */
  heapBytes?: number;
  resources?: number;
  /** Only of the recorded driver. */
  modules?: number;
  graphs?: number;
  deviceBytes?: number;
}

interface SoakRow {
  id: string;
  programs: number;
  seconds: number;
  wrong: number;
  samples: Sample[];
  /** What grew after the caches were full, with first and last value. */
  growth: string[];
}

export interface SoakProgramsRecord {
  seed: number;
  rows: SoakRow[];
}

const modulus = 97;
const rem = (x: weft.Tensor): weft.Tensor => weft.mod(x, modulus);
const positive = (x: number): number => ((x % modulus) + modulus) % modulus;

/** Steps of the programs, and the same in plain arithmetic. */
const steps: [(x: weft.Tensor) => weft.Tensor, (x: readonly number[]) => number[]][] = [
  [(x) => rem(x.mul(3).add(1)), (x) => x.map((v) => positive(3 * v + 1))],
  [(x) => rem(x.sub(weft.flip(x, 0).mul(2))), (x) => x.map((v, i) => positive(v - 2 * x[x.length - 1 - i]))],
  [(x) => rem(x.add(x.sum())), (x) => x.map((v) => positive(v + x.reduce((a, b) => a + b, 0)))],
  [(x) => weft.where(x.greater(50), x.sub(50), x.add(7)), (x) => x.map((v) => (v > 50 ? v - 50 : v + 7))],
  [
    (x) => rem(weft.cumsum(x, 0)),
    (x) => {
      let sum = 0;
      return x.map((v) => positive((sum += v)));
    },
  ],
];

/** Program `i` runs the steps that its digits name; a six-digit number has no equal below 15,625. */
const digits = 6;
const stepsOf = (i: number): typeof steps =>
  Array.from({ length: digits }, (_, k) => steps[Math.floor(i / steps.length ** k) % steps.length]);

/** Runs program `i` with jit, or every second time without, and compares its result. Returns whether it was right. */
async function runOnce(i: number, compares: boolean): Promise<boolean> {
  const size = 4 + (i % 13);
  const values = Array.from({ length: size }, (_, k) => (i * 31 + k * 17) % modulus);
  const chain = stepsOf(i);
  const program = (x: weft.Tensor): weft.Tensor => chain.reduce((value, [step]) => step(value), x);
  const x = weft.tensor(Int32Array.from(values));
  const result = (i % 2 === 0 ? weft.jit(program) : program)(x);
  const got = await result.data();
  x.dispose();
  result.dispose();
  if (!compares) return true;
  const expected = chain.reduce<readonly number[]>((value, [, step]) => step(value), values);
  return expected.every((value, k) => Number(got[k]) === value);
}

/** Reads a process of Linux; other systems tell nothing. */
function sampleOf(pid: number, programs: number): Sample {
  const at = `/proc/${pid}`;
  const status = readFileSync(`${at}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)![1]);
  const maps = readFileSync(`${at}/maps`, "utf8").trim().split("\n");
  const files = new Set(maps.flatMap((line) => /\/[0-9a-f]{40}\.so/.exec(line)?.[0] ?? []));
  return {
    programs,
    residentBytes: field("VmRSS") * 1024,
    openFiles: readdirSync(`${at}/fd`).length,
    mappings: maps.length,
    libraries: files.size,
    threads: field("Threads"),
  };
}

function ownSample(programs: number): Sample {
  collectNow();
  return {
    ...sampleOf(process.pid, programs),
    heapBytes: process.memoryUsage().heapUsed,
    resources: process.getActiveResourcesInfo().length,
  };
}

/** How much a figure may be above its first value: a share of it, and an amount. */
type Allowed = Partial<Record<keyof Sample, [share: number, amount: number]>>;
const handles: Allowed = { openFiles: [0, 4], threads: [0, 2], resources: [0, 4] };
const cached: Allowed = {
  residentBytes: [0.05, 24 * 2 ** 20],
  heapBytes: [0.1, 3 * 2 ** 20],
  deviceBytes: [0, 2 ** 20],
  mappings: [0.02, 200],
  libraries: [0, 40],
  modules: [0, 40],
  graphs: [0, 4],
};
/** Programs after which all caches are full: a session holds 1,024. */
const fullAfter = 2000;

/** What grew until the last sample: handles from the start, what caches hold from the first sample with full caches. */
function growthOf(samples: readonly Sample[]): string[] {
  const last = samples[samples.length - 1];
  const full = samples.find(({ programs }) => programs >= fullAfter);
  return [
    { first: samples[0], limits: handles },
    { first: full, limits: cached },
  ].flatMap(({ first, limits }) =>
    Object.entries(limits).flatMap(([name, [share, amount]]) => {
      const [from, to] = [first?.[name as keyof Sample], last[name as keyof Sample]];
      if (from === undefined || to === undefined || to <= from * (1 + share) + amount) return [];
      return [`${name}: ${from} after ${first!.programs} programs, ${to} after ${last.programs}`];
    }),
  );
}

interface Place {
  sample(programs: number): Sample;
  /** The recorded driver computes nothing. */
  computes: boolean;
  afterEach?(): void;
}

/** Where the programs run; the device is current while `body` runs. */
const places: Record<string, (body: (place: Place) => Promise<void>) => Promise<void>> = {
  async cpu(body) {
    weft.setDevice("cpu");
    await body({ sample: ownSample, computes: true });
  },
  async cuda(body) {
    await new FakeCuda({ memoryBytes: 2 ** 32 }).within(async (fake) => {
      const device = new weft.CudaDevice(0);
      weft.setDevice(device);
      const sample = (programs: number): Sample => ({
        ...ownSample(programs),
        modules: fake.loadedModules,
        graphs: fake.executableGraphs,
        deviceBytes: fake.allocatedBytes,
      });
      try {
        await body({ sample, computes: false, afterEach: () => void fake.sequence() });
      } finally {
        weft.setDevice("cpu");
        device.close();
      }
    });
  },
  async worker(body) {
    const dispatcher = await Dispatcher.start({ port: 0 });
    const main = fileURLToPath(new URL("./main.js", import.meta.resolve("@weft/cluster")));
    const options = { port: dispatcher.port, cores: 1, host: "localhost" };
    const child = spawn(process.execPath, [main, "worker", JSON.stringify(options)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    try {
      await once(child.stdout!, "data");
      const cluster = await connect(`localhost:${dispatcher.port}`);
      // The heap is that of the client, everything else of the worker.
      const sample = (programs: number): Sample => {
        const { heapBytes, resources } = ownSample(programs);
        return { ...sampleOf(child.pid!, programs), heapBytes, resources };
      };
      await body({ sample, computes: true });
      await cluster.close();
    } finally {
      weft.setDevice("cpu");
      dispatcher.stop();
      child.kill();
    }
  },
};

async function soak(id: string, count: number, seed: number, log: (text: string) => void): Promise<SoakRow> {
  const row: SoakRow = { id, programs: count, seconds: 0, wrong: 0, samples: [], growth: [] };
  const begun = performance.now();
  await places[id](async ({ sample, computes, afterEach }) => {
    const every = Math.max(1, Math.floor(count / 20));
    for (let i = 0; i < count; i++) {
      if (!(await runOnce(seed + i, computes))) row.wrong++;
      afterEach?.();
      if ((i + 1) % every !== 0) continue;
      // Collected programs are released in a task of their own.
      collectNow();
      await new Promise((resolve) => setTimeout(resolve, 20));
      row.samples.push(sample(i + 1));
      if ((i + 1) % (5 * every) === 0) log(`${id}: ${i + 1} programs, ${JSON.stringify(row.samples.at(-1))}`);
    }
  });
  row.seconds = (performance.now() - begun) / 1e3;
  row.growth = growthOf(row.samples);
  return row;
}

const suite: Suite = {
  options: {
    programs: { value: "10000", help: "distinct programs per row, at most 15625" },
    seed: { value: "0", help: "number of the first program" },
    cache: { help: "folder of compiled programs; a temporary one by default" },
  },
  async run(context: Context) {
    if (!existsSync("/proc/self/maps")) throw new Error("soak-programs reads /proc, which this system does not have");
    const ids = context.choose(Object.keys(places).map((id) => ({ id })));
    const [count, seed] = [context.quick ? 60 : context.number("programs"), context.number("seed")];
    const { record, save } = context.open<SoakProgramsRecord>("soak-programs", { seed, rows: [] }, { merge: true });
    const given = context.text("cache");
    const cache = given ?? mkdtempSync(join(tmpdir(), "weft-soak-"));
    // Every program is compiled, and the compiler's optimizations are not what is tested. Workers inherit this.
    Object.assign(process.env, { WEFT_CACHE_DIR: cache, WEFT_INTERPRET: "0", WEFT_CC_FLAGS: "-O0" });
    process.env.WEFT_RATES = "assumed";
    try {
      for (const { id } of ids) {
        const row = await soak(id, count, seed, context.log);
        record.rows = [...record.rows.filter((other) => other.id !== id), row];
        save();
        const { wrong, growth, seconds } = row;
        context.log(
          `${id}: ${count} programs in ${seconds.toFixed(0)} s, ${wrong} wrong, ${growth.length} figures grew`,
        );
        if (wrong > 0 || growth.length > 0) throw new Error([`${id}: ${wrong} wrong results`, ...growth].join("; "));
      }
    } finally {
      if (given === undefined) rmSync(cache, { recursive: true, force: true });
    }
  },
};

export default suite;
