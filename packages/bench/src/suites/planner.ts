// The planner on CPU processes: how long it plans, and how far its predicted step time is from the measured one. Every
// rank is a process with one core and its part of the program. All plan from rank 0's rates; predictions are made from the
// compiled kernels before the first run, at the current speed of the cores: a short program is timed after the rates and
// before each prediction, by as many ranks as will run, and scales the prediction.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import {
  costKernels,
  h200,
  type KernelCost,
  type KernelWork,
  predictKernels,
  type Rates,
  ratesAt,
} from "@weft/core/internal/cost";
import { CpuDevice, coreOrder, type DeviceBuffer, type Executable, ShmGroup } from "@weft/core/internal/device";
import { bareCollective } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { measureGroup } from "@weft/core/internal/runtime";
import { partitionFunction, planSharding, scatterValue } from "@weft/core/internal/shard";
import { median } from "@weft/formats/stats";
import * as make from "@weft/testing/programs";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { commandOutput } from "./process.js";
import { temporaryFolder } from "./weft-runs.js";

const size = (
  batch: number,
  length: number,
  width: number,
  heads: number,
  feedForward: number,
  vocabulary: number,
) => ({ ...{ batch, length, width, heads, feedForward, vocabulary }, layers: 2, classes: 4 });

const programs = (quick: boolean): { id: string; program: string; trace: () => make.Program }[] =>
  quick
    ? [{ id: "mlp-small", program: "MLP step, small", trace: () => make.mlpStep(16, 8, 8, 4) }]
    : [
        {
          id: "transformer",
          program: "transformer step",
          trace: () => make.transformerStep(size(32, 128, 128, 4, 256, 20000)),
        },
        {
          id: "transformer-wide",
          program: "wide transformer step",
          trace: () => make.transformerStep(size(16, 64, 256, 8, 1024, 4000)),
        },
        { id: "mlp", program: "MLP step, 2048 rows", trace: () => make.mlpStep(2048, 512, 512, 10) },
        { id: "mlp-small", program: "MLP step, small", trace: () => make.mlpStep(64, 32, 32, 10) },
        { id: "loop", program: "loop gradient, 4096 examples", trace: () => make.loopGradient(4096, 8, 50) },
      ];

interface RunTimes {
  median: number;
  least: number;
  kernels: number[];
}

/** Seconds of many calls: the median, the least, and the median of each kernel where they are timed. */
function timeRuns(
  device: CpuDevice,
  executable: Executable,
  inputs: DeviceBuffer[],
  { least, most, budgetMs }: { least: number; most: number; budgetMs: number },
): RunTimes {
  const times: number[] = [];
  const kernels: number[][] = executable.kernels.map(() => []);
  const end = performance.now() + budgetMs;
  for (let i = 0; i < least || (i < most && performance.now() < end); i++) {
    const start = performance.now();
    const results = executable.run(inputs);
    times.push((performance.now() - start) / 1e3);
    if (device.timing) for (const [k, list] of kernels.entries()) list.push(executable.lastTimes![k]);
    for (const buffer of results) device.free(buffer);
  }
  const steady = times.slice(2);
  return { median: median(steady), least: Math.min(...steady), kernels: device.timing ? kernels.map(median) : [] };
}

function uploaded(device: CpuDevice, data: ArrayBufferView): DeviceBuffer {
  const buffer = device.allocate(data.byteLength);
  device.upload(buffer, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return buffer;
}

/** Times a few milliseconds of typical work; returns the seconds of the slowest of the given ranks. */
function speedometer(device: CpuDevice, group: ShmGroup): (ranks: readonly number[]) => number {
  const matrices = [1, 2, 3].map(() => build.input([256, 256], "float32"));
  const [x, y] = [1, 2].map(() => build.input([1 << 18], "float32"));
  const product = [1, 2, 1, 2].reduce((at, m) => build.matmul(at, matrices[m]), matrices[0]);
  const params = [...matrices, x, y];
  const outputs = [product, build.unary("tanh", build.add(x, y)), build.sum(y, [0])];
  const executable = device.compile({ params, outputs }, {});
  const inputs = params.map(({ shape }) => {
    const length = shape.reduce((a, b) => a * b, 1);
    return uploaded(
      device,
      Float32Array.from({ length }, (_, i) => ((i % 97) - 48) / 400),
    );
  });
  const { rank, size: ranks } = group;
  const everybody = { ...bareCollective, groups: [Array.from({ length: ranks }, (_, i) => i)], rank };
  const attrs = { ...everybody, kind: "allReduce", fn: "max", shape: [1], dtype: "float64" } as const;
  return (members) => {
    group.barrier();
    const isMember = members.includes(rank);
    const own = isMember ? timeRuns(device, executable, inputs, { least: 9, most: 9, budgetMs: 0 }).median : 0;
    const [mine, all] = [Float64Array.of(own), new Float64Array(1)];
    group.collective(attrs as never, new Uint8Array(mine.buffer), new Uint8Array(all.buffer), [1]);
    return all[0];
  };
}

interface Calibration {
  rates: Rates;
  seconds: number;
  /** Seconds of the speedometer on one rank and on all. */
  speed: { alone: number; together: number };
}

/**
 * Rank 0 measures its rates while the others wait, then all ranks measure at the same time, then the group measures its links. All use
 * rank 0's numbers.
 */
function calibrate(
  group: ShmGroup,
  measureRates: () => Rates | null,
  speed: (ranks: number[]) => number,
  file: string,
): Calibration {
  const both = (): [number, number] => [speed([0]), speed(Array.from({ length: group.size }, (_, i) => i))];
  group.barrier();
  const begin = performance.now();
  const before = both();
  const measured = measureRates();
  const after = both();
  const seconds = (performance.now() - begin) / 1e3;
  if (group.rank === 0) writeFileSync(file, JSON.stringify(measured));
  group.barrier();
  const [alone, together] = [0, 1].map((i) => Math.sqrt(before[i] * after[i]));
  return { rates: JSON.parse(readFileSync(file, "utf8")) as Rates, seconds, speed: { alone, together } };
}

interface KernelRow extends KernelCost {
  name: string;
  isCollective: boolean;
  measured: number;
}

interface PlannerRow {
  program: string;
  mode: "planned" | "one device";
  devices: number;
  split: string;
  planMilliseconds: number;
  plannerSeconds: number;
  collectives: number;
  rounds: { predictedSeconds: number; slowdown: number; measuredSeconds: number; leastSeconds: number }[];
  predictedSeconds?: number;
  measuredSeconds?: number;
  leastSeconds?: number;
  kernels?: KernelRow[];
}

interface PreparedPlan {
  row: PlannerRow;
  ranks: readonly number[];
  executable?: Executable;
  inputs: DeviceBuffer[];
  works: (KernelWork | undefined)[];
}

/** Plans a program, and compiles this rank's part of it. */
function preparePlan(
  { program, traced, mode }: { program: string; traced: make.Program; mode: PlannerRow["mode"] },
  group: ShmGroup,
  device: CpuDevice,
  rates: Rates,
): PreparedPlan {
  const { fn, args, data } = traced;
  const donated = fn.params.map((_, i) => i < fn.params.length - data);
  const ranks = mode === "planned" ? Array.from({ length: group.size }, (_, i) => i) : [0];
  const p = planSharding(fn, { ranks, rates, params: fn.params.map(() => null), donated });
  const parts = partitionFunction(fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });
  const row: PlannerRow = {
    program,
    mode,
    devices: p.mesh.size,
    split: p.name,
    planMilliseconds: p.planned,
    plannerSeconds: p.seconds,
    collectives: parts.moves.length,
    rounds: [],
  };
  const at = p.mesh.ranks.indexOf(group.rank);
  if (at < 0) return { row, ranks: p.mesh.ranks, inputs: [], works: [] };
  const executable = device.compile(parts.functions[at], {});
  const inputs = args.map((value, i) => uploaded(device, scatterValue(value, parts.params[i])[at].data));
  return { row, ranks: p.mesh.ranks, executable, inputs, works: executable.kernels.map(({ work }) => work) };
}

/** One rank: plans and parts; then, round by round, rates, predictions from them, and the time of many steps. */
function runRank(context: Context): void {
  const [rank, ranks] = [context.number("rank"), context.number("devices")];
  const [folder, byKernel] = [context.text("folder")!, context.number("by-kernel")];
  const budgetMs = context.quick ? 20 : 2000;
  const order = coreOrder();
  const device = new CpuDevice({ cores: [order[rank % order.length]] });
  const group = ShmGroup.join(context.text("group")!, rank, ranks, { joinTimeout: 120 });
  device.group = group;
  const started = performance.now();
  const speed = speedometer(device, group);
  // Measuring rates takes seconds; --quick plans with those of another machine.
  const measureRates = (): Rates | null => (context.quick ? h200 : measureGroup(group, device));
  let calibration = calibrate(group, measureRates, speed, join(folder, "rates-0.json"));
  const modes = ranks > 1 ? (["planned", "one device"] as const) : (["one device"] as const);
  const prepared = context.choose(programs(context.quick)).flatMap(({ program, trace }) => {
    const traced = trace();
    return modes.map((mode) => preparePlan({ program, traced, mode }, group, device, calibration.rates));
  });
  const late = join(folder, "late");
  // Processors that others share change their speed from second to second: rates and steps are measured in turns.
  for (let round = 0; round < context.number("rounds") && !existsSync(late); round++) {
    if (round > 0) calibration = calibrate(group, measureRates, speed, join(folder, `rates-${round}.json`));
    for (const { row, ranks: members, executable, inputs, works } of prepared) {
      const rates = ratesAt(calibration.rates, members.length);
      // Between one rank and all, the speed is interpolated as the rates are.
      const part = ranks === 1 ? 0 : Math.log(members.length) / Math.log(ranks);
      const slowdown = speed(members) / (calibration.speed.alone ** (1 - part) * calibration.speed.together ** part);
      group.barrier();
      if (executable !== undefined) {
        const predictedSeconds = predictKernels(works as KernelWork[], rates) * slowdown;
        const least = members.length > 1 ? 15 : 5;
        const took = timeRuns(device, executable, inputs, { least, most: 15, budgetMs });
        row.rounds.push({ predictedSeconds, slowdown, measuredSeconds: took.median, leastSeconds: took.least });
      }
      if (round > 0 || byKernel === 0) continue;
      if (executable !== undefined) {
        device.timing = true;
        const { kernels } = timeRuns(device, executable, inputs, { least: 10, most: 10, budgetMs: 0 });
        device.timing = false;
        row.kernels = costKernels(works as KernelWork[], rates).map((cost, i) => ({
          name: executable.kernels[i].name,
          isCollective: executable.kernels[i].kind === "collective",
          measured: kernels[i],
          ...cost,
        }));
      }
      group.barrier();
    }
    // Rank 0 decides for all whether there is time for another round.
    if (rank === 0 && performance.now() - started > 1e3 * context.number("limit")) writeFileSync(late, "");
    group.barrier();
  }
  group.barrier();
  group.close();
  const answer = {
    rates: calibration.rates,
    calibrationSeconds: calibration.seconds,
    rows: prepared.map(({ row }) => summarize(row)),
  };
  if (rank === 0) process.stdout.write(`${JSON.stringify(answer)}\n`);
}

/** Medians over all rounds. */
function summarize(row: PlannerRow): PlannerRow {
  if (row.rounds.length === 0) return row;
  return {
    ...row,
    predictedSeconds: median(row.rounds.map((r) => r.predictedSeconds)),
    measuredSeconds: median(row.rounds.map((r) => r.measuredSeconds)),
    leastSeconds: Math.min(...row.rounds.map((r) => r.leastSeconds)),
  };
}

const gap = ({ measured, seconds }: KernelRow): number => Math.abs(measured - seconds);

function print(row: PlannerRow, byKernel: number): void {
  const ms = (seconds = 0): string => `${(seconds * 1e3).toFixed(3)} ms`;
  const us = (seconds: number): string => (seconds * 1e6).toFixed(1).padStart(10);
  const ratio = (row.predictedSeconds ?? 0) / (row.measuredSeconds ?? 1);
  console.log(
    `${row.program.padEnd(30)} ${row.mode.padEnd(10)} ${row.devices} devices  predicted ${ms(row.predictedSeconds)}  ` +
      `measured ${ms(row.measuredSeconds)}  ratio ${ratio.toFixed(2)}  (by operations ${ms(row.plannerSeconds)})  ` +
      `planned in ${row.planMilliseconds.toFixed(0)} ms`,
  );
  if (row.kernels === undefined) return;
  row.kernels = row.kernels.sort((a, b) => gap(b) - gap(a)).slice(0, 2 * byKernel);
  console.log("     measured  predicted     memory arithmetic  (us, largest differences first)");
  for (const k of row.kernels.slice(0, byKernel))
    console.log(`   ${us(k.measured)} ${us(k.seconds)} ${us(k.memory)} ${us(k.arithmetic)}  ${k.name}`);
}

const suite: Suite = {
  defaults: { rounds: "3" },
  options: {
    devices: { value: String(Math.min(2, availableParallelism())), help: "ranks" },
    "by-kernel": { value: "0", help: "print so many kernels with the largest differences" },
    limit: { value: "600", help: "seconds after which no new round starts" },
    ...Object.fromEntries(["rank", "group", "folder"].map((name) => [name, { help: "serve" }])),
  },
  async run(context) {
    context.choose(programs(context.quick));
    const [devices, folder] = [context.number("devices"), temporaryFolder("planner")];
    const given = ["rounds", "by-kernel", "limit", "devices", ...(context.rows === undefined ? [] : ["rows"])];
    const line = [
      ...[entryPoint, "serve", "planner", "--group", `planner-${process.pid}`, "--folder", folder],
      ...given.flatMap((name) => [`--${name}`, context.text(name)!]),
      ...(context.quick ? ["--quick"] : []),
    ];
    const env = { ...process.env, WEFT_THREADS: "1" };
    const outputs = Array.from({ length: devices }, (_, rank) =>
      commandOutput(null, process.execPath, [...line, "--rank", rank], env),
    );
    const [first] = await Promise.all(outputs);
    const answer = JSON.parse(first) as { rates: Rates; calibrationSeconds: number; rows: PlannerRow[] };
    for (const row of answer.rows) print(row, context.number("by-kernel"));
    context.open(devices === 2 ? "planner" : `planner-${devices}`, { devices, ...answer }).save();
  },
  async serve(context) {
    runRank(context);
  },
};

export default suite;
