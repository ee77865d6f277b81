// The planner on CPU processes: how long it plans, and how far its predicted time of a step is from the measured one. Every
// rank is a process with one core and its part of the program; rank 0 measures the rates, the group measures its links,
// and all ranks plan from the same numbers. Writes bench/results/planner.json.
//   node bench/planner.mjs [--devices 2] [--out FILE]
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const self = fileURLToPath(import.meta.url);
const root = join(dirname(self), "..");
const engine = (path) => import(join(root, "packages/engine/dist", path, "index.js"));

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

async function programs() {
  const make = await import(join(root, "packages/engine/dist/test/programs.js"));
  return [
    ...Object.entries(sizes).map(([name, size]) => [name, () => make.transformerStep(size)]),
    ["MLP step, 2048 rows", () => make.mlpStep(2048, 512, 512, 10)],
    ["MLP step, small", () => make.mlpStep(64, 32, 32, 10)],
    ["loop gradient, 4096 examples", () => make.loopGradient(4096, 8, 50)],
  ];
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** One rank: rates, plan, part, and the time of many steps. */
async function rankMain(rank, size, name, folder) {
  const { CpuDevice, ShmGroup } = await engine("device");
  const { measureDevice, measureLinks } = await engine("runtime");
  const { partition, plan, scatterValue } = await engine("shard");
  const made = (await programs()).map(([title, make]) => [title, make()]);
  const device = new CpuDevice({ cores: [rank % availableParallelism()] });
  const group = ShmGroup.join(name, rank, size, { joinTimeout: 120 });
  const file = join(folder, "rates.json");
  // All measure at once: neighbours share caches and memory while the program runs, too.
  group.barrier();
  const mine = measureDevice(device);
  const links = measureLinks(group);
  if (rank === 0) writeFileSync(file, JSON.stringify({ ...mine, links }));
  group.barrier();
  const rates = JSON.parse(readFileSync(file, "utf8"));
  device.group = group;
  const rows = [];
  for (const [title, program] of made) {
    const donated = program.fn.params.map((_, i) => i < program.fn.params.length - program.data);
    const params = program.fn.params.map(() => null);
    const ranks = Array.from({ length: size }, (_, i) => i);
    for (const mode of ["planned", "one device"]) {
      const p = plan(program.fn, { ranks: mode === "planned" ? ranks : [0], rates, params, donated });
      const parts = partition(program.fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });
      const at = p.mesh.ranks.indexOf(rank);
      let times = [];
      if (at >= 0) {
        const executable = device.compile(parts.functions[at], {});
        const inputs = program.args.map((value, i) => {
          const { data } = scatterValue(value, parts.params[i])[at];
          const buffer = device.allocate(data.byteLength);
          device.upload(buffer, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
          return buffer;
        });
        const end = performance.now() + 2000;
        for (let i = 0; i < 5 || (i < 15 && performance.now() < end) || (p.mesh.size > 1 && i < 15); i++) {
          const start = performance.now();
          const results = executable.run(inputs);
          times.push((performance.now() - start) / 1e3);
          for (const buffer of results) device.free(buffer);
        }
        for (const buffer of inputs) device.free(buffer);
        times = times.slice(2);
      }
      group.barrier();
      rows.push({
        program: title,
        mode,
        devices: p.mesh.size,
        split: p.name,
        planMilliseconds: p.planned,
        predictedSeconds: p.seconds,
        measuredSeconds: times.length > 0 ? median(times) : null,
        leastSeconds: times.length > 0 ? Math.min(...times) : null,
        collectives: parts.moves.length,
      });
    }
  }
  group.barrier();
  group.close();
  if (rank === 0) process.stdout.write(`${JSON.stringify({ rates, rows })}\n`);
}

async function main() {
  const flag = (name, otherwise) => {
    const at = process.argv.indexOf(name);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const devices = Number(flag("--devices", Math.min(2, availableParallelism())));
  const out = flag("--out", join(root, "bench/results/planner.json"));
  const folder = join(tmpdir(), `weft-planner-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const name = `planner-${process.pid}`;
  const children = Array.from({ length: devices }, (_, rank) => {
    const env = { ...process.env, WEFT_THREADS: "1" };
    const child = spawn(process.execPath, [self, "--rank", String(rank), String(devices), name, folder], { env });
    let output = "";
    child.stdout.on("data", (text) => {
      output += text;
    });
    child.stderr.pipe(process.stderr);
    return new Promise((resolve) => child.on("close", (code) => resolve({ code, output })));
  });
  const results = await Promise.all(children);
  const bad = results.findIndex(({ code }) => code !== 0);
  if (bad >= 0) throw new Error(`rank ${bad} failed`);
  const { rates, rows } = JSON.parse(results[0].output);
  for (const row of rows) {
    const ratio = row.measuredSeconds === null ? "" : (row.predictedSeconds / row.measuredSeconds).toFixed(2);
    console.log(
      `${row.program.padEnd(30)} ${row.mode.padEnd(10)} ${row.devices} devices  predicted ${(row.predictedSeconds * 1e3).toFixed(3)} ms  ` +
        `measured ${((row.measuredSeconds ?? 0) * 1e3).toFixed(3)} ms  ratio ${ratio}  planned in ${row.planMilliseconds.toFixed(0)} ms`,
    );
  }
  writeFileSync(out, `${JSON.stringify({ processor: cpus()[0]?.model, devices, rates, rows }, null, 1)}\n`);
}

if (process.argv[2] === "--rank")
  await rankMain(Number(process.argv[3]), Number(process.argv[4]), process.argv[5], process.argv[6]);
else await main();
