// weft bench: measures the sharding benchmark at several device counts; the lab judges and draws the record.

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";
import { join } from "node:path";
import { type BenchOptions, coreOrder, parseSize, type RowSpec, rowsOf, runBench, runJitBench } from "@weft/bench";
import * as weft from "@weft/core";
import { settings } from "@weft/core/internal/settings";
import { readText } from "@weft/formats/file";
import { type BenchRecord, benchFiles, benchText, judgeBench, parseBenchRecord } from "@weft/lab/internal/bench";
import { type MachineReport, MachineWitness } from "@weft/lab/internal/runner";
import { type Command, InvalidArgumentError, Option } from "commander";
import {
  attempt,
  CommandError,
  failed,
  ProgressLine,
  parseCounts,
  printJson,
  printText,
  warn,
  wrongUsage,
} from "../terminal/index.js";
import { jitText, torchText } from "./bench-suites.js";
import { torchRows } from "./bench-torch.js";

interface Options {
  devices?: number[];
  device?: string;
  quick?: boolean;
  suite: "shard" | "jit" | "pytorch";
  sizes?: string[];
  cores?: number;
  warmup?: number;
  repeats?: number;
  precision?: string;
  computeOnly?: boolean;
  calibrate?: boolean;
  independent: boolean;
  sameCores: boolean;
  simulate?: string;
  server?: string;
  tokenFile?: string;
  tape?: string;
  out?: string;
  pictures: boolean;
  json?: boolean;
  from?: string;
}

const help = `
Examples:
  weft bench --quick                       three rows, under a minute, on the devices of this machine
  weft bench --devices 1 2 4 8             starts workers, measures nine rows at each count, explains, cleans up
  weft bench --devices 1,2 --sizes 2048 8192x1024x1024 4096:1024-4096-1024
  weft bench --server localhost:9000       uses a dispatcher and workers that are running (weft server, weft worker)
  weft bench --devices 1 8 --simulate h200  predicts times for one and eight GPUs; nothing is measured
  weft bench --suite jit                   compiled programs against one call per operation
  weft bench --suite pytorch               the same rows in PyTorch, where it is installed

Two clocks: "compute" has its inputs on the devices, leaves the results there and issues calls back to back, on one device as
on many (the record also has calls that were each waited for); "end to end" creates the inputs, computes and fetches the whole
result into an array that is reused. All counts take turns, in up to three rounds per row, so that they see the same minutes of
the machine. Every result is checked before it is timed. Sizes are those of GPU benchmarks, or a quarter of each edge on CPUs. A
device is a GPU, or --cores cores of the CPU.`;

const whole = (what: string) => (value: string) => {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1)
    throw new InvalidArgumentError(`${what} should be a whole number above 0`);
  return number;
};

const listed = (value: string, previous: string[] | undefined): string[] => [
  ...(previous ?? []),
  ...value.split(/[\s,]+/).filter((part) => part !== ""),
];

export default function add(program: Command): void {
  program
    .command("bench")
    .description("Measure how products, batches and MLPs scale over the devices of this machine, and explain why.")
    .addOption(new Option("--devices <counts...>", "device counts: 1,2,4 or 1 2 4").argParser(parseCounts))
    .addOption(new Option("--gpus <counts...>", "the same, on GPUs").argParser(parseCounts))
    .option("--device <kind>", "cpu or cuda; a GPU when there is one")
    .option("--quick", "three rows, three calls each: a square, a large batch, an element-wise pass")
    .addOption(new Option("--suite <name>", "what to run").choices(["shard", "jit", "pytorch"]).default("shard"))
    .option("--sizes <sizes...>", "other rows: 2048 8192x4096x4096 4096:4096-8192-4096 8192x2048", listed)
    .option("--cores <n>", "cores of a CPU device", whole("--cores"))
    .option("--warmup <n>", "calls before the measured ones", whole("--warmup"))
    .option("--repeats <n>", "samples of each clock", whole("--repeats"))
    .addOption(new Option("--precision <p>", "of products on GPUs").choices(["float32", "tf32"]))
    .option("--compute-only", "leave out the clock that creates and fetches")
    .option(
      "--calibrate",
      "measure the rates of the workers for the planner first, once per machine; otherwise rates are assumed",
    )
    .option("--no-independent", "do not also measure workers that share nothing")
    .option("--no-same-cores", "do not also measure one device with the cores of all workers")
    .option("--simulate <machine>", "predict all counts for another machine: h200")
    .option("--server <host:port>", "use a running dispatcher and its workers")
    .option("-p, --port <port>", "the same on this host", (port) => `localhost:${port}`)
    .option("--token-file <file>", "file with the dispatcher's token (or WEFT_TOKEN; the same user needs none)")
    .option("--tape <file>", "record every instruction into this file")
    .option("--from <file>", "judge and draw an earlier bench.json instead of measuring")
    .option("--out <dir>", "folder for bench.json, the page and the pictures", "bench-report")
    .option("--no-pictures", "write no page and no pictures")
    .option("--json", "the record as JSON on standard output")
    .addHelpText("after", help)
    .action((options: Options & { gpus?: number[]; port?: string }) => attempt(() => run(options)));
}

async function run(options: Options & { gpus?: number[]; port?: string }): Promise<void> {
  if (options.from !== undefined) return judge(readRecord(options.from), options);
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  const progress = new ProgressLine();
  try {
    const bench = benchOptions(options, abort.signal, progress);
    if (bench.server !== undefined) {
      const workers = await workersAt(bench.server, options.tokenFile);
      if (options.devices === undefined && options.gpus === undefined) bench.counts = defaultCounts(workers, options);
      checkCounts(bench.server, workers, bench.counts);
    }
    if (options.suite === "jit") {
      const rows = await runJitBench({ ...bench, warmup: options.warmup ?? 10, repeats: options.repeats ?? 100 });
      progress.clear();
      if (options.json) printJson({ suite: "jit", rows }, 1);
      else printText(`${jitText(rows)}\n`);
      return;
    }
    const record = await measure(options, bench);
    progress.clear();
    if (options.suite === "pytorch") {
      const torch = torchRows(bench);
      const result = { suite: "pytorch", weft: record, torch };
      if (options.json) printJson(result, 1);
      else printText(`${torchText(record, torch)}\n`);
      return;
    }
    await judge(record, options);
  } catch (error) {
    progress.clear();
    if (abort.signal.aborted) throw new CommandError("stopped; workers that were started have been ended");
    if (error instanceof weft.WeftError) throw new CommandError(error.message);
    throw error;
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

/** Number of ready workers of a dispatcher; none is an error. */
async function workersAt(address: string, tokenFile: string | undefined): Promise<number> {
  const { watch } = await import("@weft/cluster");
  const workers = await new Promise<number>((resolve, reject) => {
    const stop = watch(
      address,
      { tokenFile },
      (status) => {
        stop();
        resolve(status.workers.filter(({ state }) => state === "ready").length);
      },
      (message) => reject(new CommandError(message)),
    );
  });
  if (workers === 0)
    throw new CommandError(`the dispatcher at ${address} has no workers; start some: weft worker -p PORT`);
  return workers;
}

function checkCounts(address: string, workers: number, counts: readonly number[]): void {
  const above = counts.filter((count) => count > workers);
  if (above.length > 0)
    throw new CommandError(
      `${above.join(", ")} devices were asked for and the dispatcher at ${address} has ${workers} worker${workers === 1 ? "" : "s"}; ask for fewer (--devices), or start more: weft worker`,
      wrongUsage,
    );
}

/** GPUs of this machine; 0 if CUDA cannot be used. */
const gpuCount = (): number => weft.system.devices().filter((d) => d.startsWith("cuda")).length;

function benchOptions(
  options: Options & { gpus?: number[]; port?: string },
  signal: AbortSignal,
  progress: ProgressLine,
): BenchOptions {
  const gpus = gpuCount();
  const device = options.device ?? (options.gpus !== undefined || gpus > 0 ? "cuda" : "cpu");
  if (!/^(cpu|cuda|reference)$/.test(device))
    throw new CommandError(`--device ${device}: write cpu or cuda`, wrongUsage);
  const coresPerWorker = options.cores ?? 1;
  const cores = coreOrder();
  const most = device === "cuda" ? gpus : Math.max(1, Math.floor(cores.length / coresPerWorker));
  const asked = [...new Set(options.devices ?? options.gpus ?? defaultCounts(most, options))].sort((a, b) => a - b);
  const server = options.server ?? options.port;
  const above = server === undefined && options.simulate === undefined ? asked.filter((n) => n > most) : [];
  if (above.length > 0)
    throw new CommandError(
      `${above.join(", ")} ${device === "cuda" ? "GPUs" : "devices"} were asked for and this machine has ${most}` +
        `${device === "cuda" ? "" : ` (${cores.length} cores, ${coresPerWorker} per device)`}; ask for fewer, or predict another machine with --simulate h200`,
      wrongUsage,
    );
  const precision = options.precision ?? (device === "cuda" && options.simulate === undefined ? "tf32" : "float32");
  return {
    suite: options.quick ? "quick" : options.suite,
    rows: rowsFor(options, options.simulate === undefined ? device : "cuda"),
    counts: asked,
    device,
    coresPerWorker,
    cores,
    precision,
    warmup: options.warmup ?? (options.quick ? 1 : 2),
    repeats: options.repeats ?? (options.quick ? 3 : 5),
    computeOnly: options.computeOnly,
    calibrate: options.calibrate,
    independent: options.independent && options.suite === "shard" && !options.quick,
    sameCores: options.sameCores && options.suite === "shard" && !options.quick,
    signal,
    onProgress: (what, done, of) => progress.update(what, done, of),
    ...(server !== undefined && { server }),
    ...(options.tokenFile !== undefined && { tokenFile: options.tokenFile }),
    ...(options.tape !== undefined && { tape: options.tape }),
    ...(options.simulate !== undefined && { simulate: options.simulate }),
  };
}

/** 1, 2, 4 ... up to the number of devices; quick runs take only the first and the last. */
function defaultCounts(most: number, options: Options): number[] {
  if (options.suite !== "shard") return [1];
  const all: number[] = [];
  for (let n = 1; n <= most; n *= 2) all.push(n);
  return options.quick && all.length > 2 ? [1, all[all.length - 1]!] : all;
}

function rowsFor(options: Options, device: string): RowSpec[] {
  try {
    return options.sizes === undefined
      ? rowsOf(options.quick ? "quick" : "shard", device)
      : options.sizes.map((size) => parseSize(size));
  } catch (error) {
    throw new CommandError((error as Error).message, wrongUsage);
  }
}

/** Attempts at a quiet measurement: a disturbed one is repeated once. */
const attempts = 2;

async function measure(options: Options, bench: BenchOptions): Promise<BenchRecord> {
  let best: { rows: BenchRecord["rows"]; machine: MachineReport } | null = null;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const witness = new MachineWitness({ gpus: bench.device === "cuda" });
    const rows = await runBench(bench);
    const machine = witness.report();
    // The times of one attempt belong to what the machine did during that attempt.
    if (best === null || machine.foreignPercent <= best.machine.foreignPercent) best = { rows, machine };
    if (options.simulate !== undefined || machine.disturbance === null || !options.quick) break;
    if (attempt < attempts) warn(`${machine.disturbance}; measuring once more`);
  }
  const { rows, machine } = best!;
  return {
    ...(options.simulate === undefined && { machine }),
    format: "weft-bench",
    version: 1,
    suite: bench.suite,
    at: new Date().toISOString(),
    device: options.simulate === undefined ? bench.device : `${options.simulate} (simulated: every time is predicted)`,
    coresPerWorker: bench.device === "cpu" && options.simulate === undefined ? bench.coresPerWorker : null,
    precision: bench.precision,
    autoShard: settings.autoShard.get(),
    hardware: { processor: cpus()[0]?.model ?? "unknown", cores: availableParallelism(), memoryBytes: totalmem() },
    versions: { node: process.version },
    warmup: bench.warmup,
    repeats: bench.repeats,
    rows,
  };
}

function readRecord(path: string): BenchRecord {
  let value: unknown;
  try {
    value = JSON.parse(readText(path, 5e8));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== undefined) throw error;
    throw new CommandError(`${path} is not JSON: ${(error as Error).message}`);
  }
  try {
    return parseBenchRecord(value, path);
  } catch (error) {
    throw new CommandError((error as Error).message);
  }
}

async function judge(record: BenchRecord, options: Options): Promise<void> {
  const judged = judgeBench(record);
  const folder = options.out ?? "bench-report";
  mkdirSync(folder, { recursive: true });
  if (options.from === undefined) writeFileSync(join(folder, "bench.json"), `${JSON.stringify(record, null, 1)}\n`);
  if (options.json) printJson(record, 1);
  else printText(`${benchText(judged)}\n`);
  if (options.pictures) {
    const files = await benchFiles(judged);
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
    warn(`report in ${join(folder, "bench.html")}`);
  } else if (existsSync(join(folder, "bench.json"))) warn(`record in ${join(folder, "bench.json")}`);
  if (judged.verdicts.length === 0) process.exitCode = failed;
}
