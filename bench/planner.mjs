// The planner on CPU processes: how long it plans, and how far its predicted time of a step is from the measured one. Every
// rank is a process with one core and its part of the program; rank 0 measures its rates alone, all ranks theirs at the same
// time, the group its links, and all plan from rank 0's numbers. Predictions are made from the compiled kernels before the
// first run, at the speed that the cores have then: the same short program is timed after the rates and before each prediction,
// by as many ranks as will run, and what it takes longer everything does. Writes bench/results/planner.json.
//   node bench/planner.mjs [--devices 2] [--programs transformer,loop] [--rounds 3] [--by-kernel 12] [--out FILE]
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const self = fileURLToPath(import.meta.url);
const root = join(dirname(self), "..");
const dist = process.env.WEFT_DIST ?? join(root, "packages/core/dist");
const engine = (path) => import(join(dist, path, "index.js"));

const sizes = {
  "transformer step": {
    batch: 32,
    length: 128,
    width: 128,
    heads: 4,
    layers: 2,
    feedForward: 256,
    vocabulary: 20000,
    classes: 4,
  },
  "wide transformer step": {
    batch: 16,
    length: 64,
    width: 256,
    heads: 8,
    layers: 2,
    feedForward: 1024,
    vocabulary: 4000,
    classes: 4,
  },
};

async function programs(wanted) {
  const make = await import(join(dist, "test/programs.js"));
  const all = [
    ...Object.entries(sizes).map(([name, size]) => [name, () => make.transformerStep(size)]),
    ["MLP step, 2048 rows", () => make.mlpStep(2048, 512, 512, 10)],
    ["MLP step, small", () => make.mlpStep(64, 32, 32, 10)],
    ["loop gradient, 4096 examples", () => make.loopGradient(4096, 8, 50)],
  ];
  return all.filter(([name]) => wanted.length === 0 || wanted.some((part) => name.includes(part)));
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Seconds of many calls: the median, the least, and the median of each kernel where they are timed. */
function timeRuns(device, executable, inputs, { least, most, budget }) {
  const times = [];
  const runs = executable.kernels.map(() => []);
  const end = performance.now() + budget;
  for (let i = 0; i < least || (i < most && performance.now() < end); i++) {
    const start = performance.now();
    const results = executable.run(inputs);
    times.push((performance.now() - start) / 1e3);
    for (let k = 0; device.timing && k < runs.length; k++) runs[k].push(executable.lastTimes[k]);
    for (const buffer of results) device.free(buffer);
  }
  const kept = times.slice(2);
  return { median: median(kept), least: Math.min(...kept), kernels: device.timing ? runs.map(median) : [] };
}

/** A few milliseconds of the work that programs are made of; `seconds` is what the slowest of so many ranks takes for it now. */
async function speedometer(device, group) {
  const { build } = await engine("ops");
  const { bareCollective } = await engine("graph");
  const matrices = [1, 2, 3].map(() => build.input([256, 256], "float32"));
  const [x, y] = [1, 2].map(() => build.input([1 << 18], "float32"));
  let at = matrices[0];
  for (const m of [1, 2, 1, 2]) at = build.matmul(at, matrices[m]);
  const params = [...matrices, x, y];
  const executable = device.compile(
    { params, outputs: [at, build.unary("tanh", build.add(x, y)), build.sum(y, [0])] },
    {},
  );
  const inputs = params.map(({ shape }) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const buffer = device.allocate(4 * count);
    const numbers = Float32Array.from({ length: count }, (_, i) => ((i % 97) - 48) / 400);
    device.upload(buffer, new Uint8Array(numbers.buffer));
    return buffer;
  });
  const { rank, size } = group;
  const everybody = { ...bareCollective, groups: [Array.from({ length: size }, (_, i) => i)], rank };
  const largest = (value) => {
    const [mine, all] = [Float64Array.of(value), new Float64Array(1)];
    const attrs = { ...everybody, kind: "allReduce", fn: "max", shape: [1], dtype: "float64" };
    group.collective(attrs, new Uint8Array(mine.buffer), new Uint8Array(all.buffer), [1]);
    return all[0];
  };
  return (ranks) => {
    group.barrier();
    const isIn = ranks.includes(rank);
    return largest(isIn ? timeRuns(device, executable, inputs, { least: 9, most: 9, budget: 0 }).median : 0);
  };
}

/** All ranks measure: rank 0 alone, all at once, the links; everybody gets rank 0's numbers. */
function calibrate(group, device, measureGroup, speed, file) {
  group.barrier();
  const begin = performance.now();
  const before = speedOf(speed, group);
  const measured = measureGroup(group, device);
  const after = speedOf(speed, group);
  const seconds = (performance.now() - begin) / 1e3;
  if (group.rank === 0) writeFileSync(file, JSON.stringify(measured));
  group.barrier();
  const mean = (key) => Math.sqrt(before[key] * after[key]);
  return {
    rates: JSON.parse(readFileSync(file, "utf8")),
    seconds,
    speed: { alone: mean("alone"), together: mean("together") },
  };
}

/** The same work by one rank and by all. */
const speedOf = (speed, group) => ({
  alone: speed([0]),
  together: speed(Array.from({ length: group.size }, (_, i) => i)),
});

/** One rank: rates, plans, parts; then, round by round, rates again, predictions from them, and the time of many steps. */
async function rankMain(rank, size, name, folder, options) {
  const { CpuDevice, coreOrder, ShmGroup } = await engine("device");
  const { measureGroup } = await engine("runtime");
  const { partition, plan, predictKernels, priceKernels, ratesAt, scatterValue } = await engine("shard");
  const made = (await programs(options.programs)).map(([title, make]) => [title, make()]);
  const device = new CpuDevice({ cores: [coreOrder()[rank % coreOrder().length]] });
  const group = ShmGroup.join(name, rank, size, { joinTimeout: 120 });
  device.group = group;
  const started = performance.now();
  const isLate = () => group.rank === 0 && performance.now() - started > options.limit;
  const speed = await speedometer(device, group);
  let calibration = calibrate(group, device, measureGroup, speed, join(folder, "rates-0.json"));

  const prepared = [];
  for (const [title, program] of made) {
    const donated = program.fn.params.map((_, i) => i < program.fn.params.length - program.data);
    const params = program.fn.params.map(() => null);
    const ranks = Array.from({ length: size }, (_, i) => i);
    for (const mode of size > 1 ? ["planned", "one device"] : ["one device"]) {
      const p = plan(program.fn, {
        ranks: mode === "planned" ? ranks : [0],
        rates: calibration.rates,
        params,
        donated,
      });
      const parts = partition(program.fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });
      const at = p.mesh.ranks.indexOf(rank);
      const row = {
        program: title,
        mode,
        devices: p.mesh.size,
        split: p.name,
        planMilliseconds: p.planned,
        plannerSeconds: p.seconds,
        collectives: parts.moves.length,
        rounds: [],
      };
      if (at < 0) {
        prepared.push({ row, mesh: p.mesh });
        continue;
      }
      const executable = device.compile(parts.functions[at], {});
      const inputs = program.args.map((value, i) => {
        const { data } = scatterValue(value, parts.params[i])[at];
        const buffer = device.allocate(data.byteLength);
        device.upload(buffer, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        return buffer;
      });
      prepared.push({ row, mesh: p.mesh, executable, inputs, works: executable.kernels.map(({ work }) => work) });
    }
  }

  // What processors do changes from second to second where others share them: rates and steps are measured in turn.
  for (let round = 0; round < options.rounds; round++) {
    if (round > 0) calibration = calibrate(group, device, measureGroup, speed, join(folder, `rates-${round}.json`));
    for (const { row, mesh, executable, inputs, works } of prepared) {
      const here = ratesAt(calibration.rates, mesh.size);
      // Between one and all, the middle: rates are interpolated, too.
      const { alone, together } = calibration.speed;
      const part = size === 1 ? 0 : Math.log(mesh.size) / Math.log(size);
      const slowdown = speed(mesh.ranks) / (alone ** (1 - part) * together ** part);
      group.barrier();
      if (executable !== undefined) {
        const predictedSeconds = predictKernels(works, here) * slowdown;
        const least = mesh.size > 1 ? 15 : 5;
        const took = timeRuns(device, executable, inputs, { least, most: 15, budget: options.budget });
        row.rounds.push({ predictedSeconds, slowdown, measuredSeconds: took.median, leastSeconds: took.least });
      }
      if (round === 0 && options.byKernel > 0) {
        if (executable !== undefined) {
          device.timing = true;
          const { kernels } = timeRuns(device, executable, inputs, { least: 10, most: 10, budget: 0 });
          device.timing = false;
          row.kernels = priceKernels(works, here).map((price, i) => ({
            name: executable.kernels[i].name,
            isMove: executable.kernels[i].kind === "collective",
            measured: kernels[i],
            ...price,
          }));
          const sum = (isMove) => row.kernels.reduce((n, k) => n + (k.isMove === isMove ? k.measured : 0), 0);
          writeFileSync(
            join(folder, `parts-${rank}.json`),
            JSON.stringify({ rank, compute: sum(false), collectives: sum(true) }),
          );
        }
        group.barrier();
        // Where the ranks differ, the others wait: that is in the time of their collectives.
        if (rank === 0 && executable !== undefined)
          row.ranks = mesh.ranks.map((r) => JSON.parse(readFileSync(join(folder, `parts-${r}.json`), "utf8")));
        group.barrier();
      }
    }
    // What is done is known even if the rest is cut off.
    if (rank === 0) writeFileSync(`${options.out}.rows`, JSON.stringify(prepared.map(({ row }) => summary(row))));
    // Rank 0 decides for all whether there is time for another round.
    if (isLate()) writeFileSync(join(folder, "late"), "");
    group.barrier();
    if (existsSync(join(folder, "late"))) break;
  }
  group.barrier();
  group.close();
  const rows = prepared.map(({ row }) => summary(row));
  const answer = { rates: calibration.rates, calibrationSeconds: calibration.seconds, rows };
  if (rank === 0) process.stdout.write(`${JSON.stringify(answer)}\n`);
}

/** The middle of all rounds, of predictions and of steps. */
function summary({ rounds, ...row }) {
  const of = (key) => (rounds.length === 0 ? undefined : median(rounds.map((round) => round[key])));
  return {
    ...row,
    predictedSeconds: of("predictedSeconds"),
    measuredSeconds: of("measuredSeconds"),
    leastSeconds: rounds.length === 0 ? undefined : Math.min(...rounds.map(({ leastSeconds }) => leastSeconds)),
    rounds,
  };
}

const milliseconds = (seconds) => `${(seconds * 1e3).toFixed(3)} ms`;
const microseconds = (seconds) => (seconds * 1e6).toFixed(1).padStart(9);

function print(rows, byKernel) {
  for (const row of rows) {
    const ratio = row.measuredSeconds === undefined ? "" : (row.predictedSeconds / row.measuredSeconds).toFixed(2);
    console.log(
      `${row.program.padEnd(30)} ${row.mode.padEnd(10)} ${row.devices} devices  predicted ${milliseconds(row.predictedSeconds ?? 0)}  ` +
        `measured ${milliseconds(row.measuredSeconds ?? 0)}  ratio ${ratio}  (by operations ${milliseconds(row.plannerSeconds)})  ` +
        `planned in ${row.planMilliseconds.toFixed(0)} ms`,
    );
    if (row.kernels === undefined) continue;
    for (const { rank, compute, collectives } of row.ranks ?? [])
      console.log(
        `    rank ${rank}: computes ${milliseconds(compute)}, exchanges and waits ${milliseconds(collectives)}`,
      );
    console.log(
      "    measured predicted    memory arithmetic  (us, largest differences first; predicted before the run)",
    );
    const gap = ({ measured, seconds }) => Math.abs(measured - seconds);
    for (const kernel of [...row.kernels].sort((a, b) => gap(b) - gap(a)).slice(0, byKernel))
      console.log(
        `   ${microseconds(kernel.measured)} ${microseconds(kernel.seconds)} ${microseconds(kernel.memory)} ${microseconds(kernel.arithmetic)}  ${kernel.name}`,
      );
    row.kernels = [...row.kernels].sort((a, b) => gap(b) - gap(a)).slice(0, 2 * byKernel);
  }
}

async function main() {
  const flag = (name, otherwise) => {
    const at = process.argv.indexOf(name);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const devices = Number(flag("--devices", Math.min(2, availableParallelism())));
  const out = flag("--out", join(root, "bench/results/planner.json"));
  const byKernel = Number(flag("--by-kernel", 0));
  const options = {
    programs: flag("--programs", "").split(",").filter(Boolean),
    rounds: Number(flag("--rounds", 3)),
    budget: Number(flag("--budget", 2000)),
    limit: Number(flag("--limit", 600)) * 1e3,
    byKernel,
    out,
  };
  rmSync(`${out}.rows`, { force: true });
  const folder = join(tmpdir(), `weft-planner-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const name = `planner-${process.pid}`;
  const children = Array.from({ length: devices }, (_, rank) => {
    const env = { ...process.env, WEFT_THREADS: "1" };
    const args = [self, "--rank", String(rank), String(devices), name, folder, JSON.stringify(options)];
    const child = spawn(process.execPath, args, { env });
    let output = "";
    child.stdout.on("data", (text) => {
      output += text;
    });
    child.stderr.pipe(process.stderr);
    return new Promise((resolve) => child.on("close", (code) => resolve({ code, output })));
  });
  const results = await Promise.all(children);
  rmSync(folder, { recursive: true, force: true });
  const bad = results.findIndex(({ code }) => code !== 0);
  if (bad >= 0) throw new Error(`rank ${bad} failed`);
  const { rates, calibrationSeconds, rows } = JSON.parse(results[0].output);
  print(rows, byKernel);
  const result = { processor: cpus()[0]?.model, devices, calibrationSeconds, rates, rows };
  writeFileSync(out, `${JSON.stringify(result, null, 1)}\n`);
  rmSync(`${out}.rows`, { force: true });
}

if (process.argv[2] === "--rank")
  await rankMain(
    Number(process.argv[3]),
    Number(process.argv[4]),
    process.argv[5],
    process.argv[6],
    JSON.parse(process.argv[7]),
  );
else await main();
