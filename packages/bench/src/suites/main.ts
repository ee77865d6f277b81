// Entry point of the repository's benchmarks: `node packages/bench/dist/suites/main.js SUITE [options]`. In a checkout
// `npm run bench -- SUITE` builds first. Suites are loaded one at a time, because each needs other packages: the GPU
// suite runs where only koffi and the @weft packages are.
import { clearKernelChoices } from "../harness/index.js";
import { Context, commonOptions, type Suite } from "./context.js";

const suites: Record<string, [summary: string, load: () => Promise<{ default: Suite }>]> = {
  cpu: ["against OpenBLAS, PyTorch, TensorFlow.js and jax-js on the CPU; cold starts", () => import("./cpu.js")],
  "first-hour": ["small operations, new shapes, event loop, busy neighbors", () => import("./first-hour.js")],
  gpu: ["against PyTorch and JAX on one GPU", () => import("./gpu.js")],
  general: ["work that nothing was tuned for, against PyTorch on one GPU", () => import("./general.js")],
  "gpu-tests": ["runs the test suites of all devices on a GPU", () => import("./gpu-tests.js")],
  models: ["training steps and generation of whole models against PyTorch on one GPU", () => import("./models.js")],
  quantum: ["against PyTorch, JAX and QuTiP on a CPU or a GPU", () => import("./quantum.js")],
  "quantum-peers": ["problems of QuTiP's documentation: errors and times", () => import("./quantum-peers.js")],
  "quantum-workers": ["quantum programs on 1 to 8 workers", () => import("./quantum-workers.js")],
  "quantum-middle": [
    "quantum systems of middle size and trajectories against dense JAX",
    () => import("./quantum-middle.js"),
  ],
  train: ["training steps against PyTorch, overlap, tokenizing", () => import("./train.js")],
  "train-gpu": ["the trainer on a GPU against its bare program", () => import("./train-gpu.js")],
  pretrain: ["an encoder pretrained on AG News and IMDB, and fine-tuned on each", () => import("./pretrain.js")],
  "train-scale": ["`weft scale` on `weft train` at 1 and 2 workers", () => import("./train-scale.js")],
  "train-runs": ["full trainings, one worker against two, settings", () => import("./train-runs.js")],
  planner: ["predicted against measured step times", () => import("./planner.js")],
  placements: ["plans of training steps for simulated clusters: time and choice", () => import("./placements.js")],
  collectives: ["all-reduce against OpenMPI; round trips to workers", () => import("./collectives.js")],
  control: ["calls per second of a dispatcher, joining, round trips", () => import("./control.js")],
  drill: ["faults injected into real processes and hosts, and what became of the results", () => import("./drill.js")],
  soak: ["a random program while workers are killed at random, compared with a model", () => import("./soak.js")],
  "soak-programs": [
    "10,000 distinct programs on the CPU, a recorded CUDA driver and a worker: memory and handles",
    () => import("./soak-programs.js"),
  ],
  preflight: ["slow workers, hosts and links, and whether preflight names them", () => import("./preflight.js")],
  lab: ["speed of `weft analyze` and of traces; cost of the probe", () => import("./lab.js")],
  ui: ["the web app in Chromium: first picture, page weight, frames per second", () => import("./ui.js")],
  "lane-count": ["counts what lane programs cost on a GPU, without one", () => import("./lane-count.js")],
  report: [
    "writes docs/performance.md, docs/reliability.md and figures of docs/training.md",
    () => import("./report/index.js"),
  ],
};

function listSuites(): void {
  console.log("npm run bench -- SUITE [options]\n\nSuites:");
  for (const [name, [summary]] of Object.entries(suites)) console.log(`  ${name.padEnd(16)} ${summary}`);
  console.log("\nSUITE --help lists the options of a suite.");
}

function listOptions(name: string, { options = {}, defaults = {} }: Suite): void {
  console.log(`${name}: ${suites[name][0]}\n`);
  for (const [option, { help, flag, value }] of Object.entries({ ...commonOptions, ...options })) {
    const otherwise = defaults[option] ?? value;
    const shown = `--${option}${flag ? "" : " VALUE"}`;
    console.log(`  ${shown.padEnd(20)} ${help}${otherwise === undefined ? "" : ` (${otherwise})`}`);
  }
}

async function main(): Promise<void> {
  const cleared = clearKernelChoices();
  if (cleared.length > 0) console.error(`bench: measuring without ${cleared.join(", ")} of the environment`);
  const serves = process.argv[2] === "serve";
  const [name, ...args] = process.argv.slice(serves ? 3 : 2);
  if (name === undefined || name === "--help") return listSuites();
  if (!Object.hasOwn(suites, name))
    throw new Error(`unknown suite ${name}; suites are ${Object.keys(suites).join(", ")}`);
  const { default: suite } = await suites[name][1]();
  if (args.includes("--help")) return listOptions(name, suite);
  const context = new Context(name, suite, args);
  if (!serves) await suite.run(context);
  else if (suite.serve === undefined) throw new Error(`${name} serves nothing`);
  else await suite.serve(context);
}

try {
  await main();
} catch (error) {
  console.error(`bench: ${(error as Error).message}`);
  process.exitCode = 1;
}
