// `node bench/meta-gpu.mjs`: the rows of bench/meta.mjs and a training of 2,000 iterations on one GPU, and the same rows by
// PyTorch there (eager, as one CUDA graph, and with all steps as matrices). Golden values first. Writes results/meta-gpu.json.
// Options: --device cuda  --python python3  --out FILE  --peers run|none|FILE (the lines that peers/torch_meta.py printed, or an
// earlier record; the page of results wants them from the same machine and day)  --seconds 0.6 (measuring time of a row)
// --rows golden,w1-16,w2-32,w3-16,train (all by default)  --iterations 2000 (of the training)
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as weft from "@weft/core";
import * as optim from "@weft/core/optim";
import * as quantum from "@weft/quantum";
import { metaWork } from "./lib/meta-work.mjs";
import { median } from "./lib/stats.mjs";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const { values: options } = parseArgs({
  options: {
    device: { type: "string", default: "cuda" },
    python: { type: "string", default: "python3" },
    peers: { type: "string", default: "run" },
    seconds: { type: "string", default: "0.6" },
    rows: { type: "string" },
    iterations: { type: "string", default: "2000" },
    out: { type: "string", default: path("results/meta-gpu.json") },
  },
});
const seconds = Number(options.seconds);
weft.setDevice(options.device);
const lines = [];
const gpu = spawnSync("nvidia-smi", ["--query-gpu=name,driver_version", "--format=csv,noheader"], { encoding: "utf8" });
/** Written after every row: a run that is cut short keeps what it has. */
function write({ torch, torchMeasured }) {
  const report = {
    gpu: (gpu.stdout ?? "").trim(),
    measured: new Date().toISOString(),
    weft: lines,
    torchMeasured,
    torch,
  };
  writeFileSync(options.out, `${JSON.stringify(report, null, 1)}\n`);
}
/** One row; a failure is a line of its own and does not hide the others. */
const wanted = options.rows?.split(",");
function row(name, work) {
  if (wanted !== undefined && !wanted.includes(name)) return;
  const start = performance.now();
  let line;
  try {
    line = { name, ...work(), total_s: (performance.now() - start) / 1e3 };
  } catch (error) {
    line = { name, error: String(error?.stack ?? error).slice(0, 1500) };
  }
  lines.push(line);
  write({ torch: [] });
  console.log(JSON.stringify(line).slice(0, 240));
}

/** The call reads one number, so that the time holds the work. */
function time(call, seconds, least) {
  for (let i = 0; i < 5; i++) call();
  const samples = [];
  const end = performance.now() + seconds * 1e3;
  while (samples.length < least || (performance.now() < end && samples.length < 3000)) {
    const start = performance.now();
    call();
    samples.push(performance.now() - start);
  }
  return { ms: median(samples), min_ms: Math.min(...samples), samples: samples.length };
}

row("golden", () => {
  const f64 = (data) => weft.tensor(data, { dtype: "float64" });
  const angle = (k) => (2 * Math.PI * k) / 60;
  const pulse = Array.from({ length: 60 }, (_, k) => [
    (Math.PI / 2) * (1 + 0.1 * Math.sin(angle(k))),
    0.2 * Math.cos(angle(k)),
  ]);
  const problem = quantum.prepareProblem(quantum.qubitFlip());
  const fidelity = (u, g) => weft.sub(1, quantum.controlInfidelity(problem, { method: "rk4", perSegment: 1 }, u, g));
  const both = weft.jit((u, g) => weft.valueAndGrad(fidelity, { argument: [0, 1] })(u, g));
  const [value, [du, dg]] = both(f64(pulse), f64([0.05, 0.025]));
  const got = [value.itemSync(), Math.hypot(...du.arraySync().flat()), ...dg.arraySync()];
  const want = [0.9778427990483176, 2.934092024e-3, -0.2410146322, -0.3876397128];
  return { got, want, ok: got.every((x, i) => Math.abs(x - want[i]) < [1e-13, 1e-11, 1e-9, 1e-9][i]) };
});
const { w1, w2, w3 } = metaWork({ weft, quantum, optim });
for (const b of [1, 16, 256, 4096, 65536, 1048576])
  row(`w1-${b}`, () => {
    const { call, check, info } = w1(b);
    return { ...time(call, seconds, b > 1e5 ? 5 : 20), check, kernels: info.kernels };
  });
for (const [name, ...settings] of [
  ["w2-32", 32, 1],
  ["w2-32-second-order", 32, 2],
  ["w2-200", 200, 1],
  ["w2-4096", 4096, 1],
])
  row(name, () => {
    const { call, check, info } = w2(...settings);
    return { ...time(call, seconds, 20), check, kernelCount: info.kernels.length, compileSeconds: info.compileSeconds };
  });
for (const b of [16, 4096])
  row(`w3-${b}`, () => {
    const { call, check, info } = w3(b);
    return { ...time(call, seconds, 10), check, kernels: info.kernels };
  });
row("train", () => {
  const iterations = Number(options.iterations);
  const trainer = new quantum.MetaTrainer({
    iterations,
    validation: { tasks: 100, every: Math.ceil(iterations / 10) },
  });
  const start = performance.now();
  trainer.run();
  return {
    iterations,
    seconds: (performance.now() - start) / 1e3,
    validations: trainer.validations,
    explain: trainer.explain().split("\n"),
    cache: quantum.cacheStats().programs,
  };
});

const jsonLines = (text) => text.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));

/** What PyTorch needs on the same machine: measured now, or before and written down. */
function peers() {
  if (options.peers === "none") return { torch: [] };
  if (options.peers !== "run") {
    const text = readFileSync(options.peers, "utf8");
    if (!options.peers.endsWith(".json")) return { torch: jsonLines(text) };
    const { torch, measured, torchMeasured = measured } = JSON.parse(text);
    return { torch, torchMeasured };
  }
  const script = [path("peers/torch_meta.py"), "--device", "cuda"];
  const done = spawnSync(options.python, ["-W", "ignore", ...script], { encoding: "utf8" });
  const torch = jsonLines(done.stdout ?? "");
  if (torch.length === 0)
    console.error(`bench: no PyTorch on the GPU: ${(done.stderr ?? "").trim().split("\n").at(-1)}`);
  return { torch, torchMeasured: new Date().toISOString() };
}
write(peers());
