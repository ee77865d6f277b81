// The quantum suite on a CPU or a GPU: Lindblad ensembles, MAML, the controlled-Z, the Pauli chain, two-level systems,
// cavities and GRAPE, against PyTorch, JAX and QuTiP; figures that others published stand beside ours.
import { spawnSync } from "node:child_process";
import * as weft from "@weft/core";
import { pinned, threadEnvironment } from "../harness/index.js";
import { runContest, type Seat } from "./contest.js";
import { LocalContestant, PeerProcess, serveContestant } from "./contestant.js";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { startPeers } from "./peers.js";
import { quantumTable } from "./quantum-rows.js";
import { printTable } from "./report/table.js";

const seats: Record<string, Seat> = {
  weft: { process: "weft", title: "Weft" },
  torch: { process: "torch", title: "PyTorch, tasks batched, step by step" },
  "torch-graph": { process: "torch", title: "the same as one CUDA graph", suffix: "-graph" },
  "torch-tree": { process: "torch", title: "PyTorch, tasks and steps batched as matrices", suffix: "-tree" },
  "torch-tree-graph": { process: "torch", title: "the same as one CUDA graph", suffix: "-tree-graph" },
  qutip: { process: "qutip", title: "QuTiP, task by task, forward only" },
  jax: { process: "jax", title: "JAX scan, same machine" },
  "jax-tree": { process: "jax", title: "JAX, all steps as matrices, multiplied pairwise", suffix: "-tree" },
};

/** A full meta-training of 2,000 iterations with validation, adaptation curves and the baselines. */
async function metaTraining(): Promise<void> {
  const quantum = await import("@weft/quantum");
  const trainer = new quantum.MetaTrainer({ iterations: 2000, validation: { tasks: 100, every: 100 } });
  const compileStart = performance.now();
  const kernels = trainer.kernels().length;
  const start = performance.now();
  trainer.run({
    onProgress: (t, validation) => {
      if (validation !== null) console.error(`bench: iteration ${t.iteration}: ${validation.after.toFixed(6)}`);
    },
  });
  const seconds = (performance.now() - start) / 1e3;
  const curves = trainer.curves(quantum.drawTasks(trainer.config.tasks, weft.key(424242), 60), 20);
  const result = {
    device: weft.session().device.name,
    iterations: trainer.iteration,
    seconds,
    compileSeconds: (start - compileStart) / 1e3,
    kernels,
    final: trainer.validations.at(-1),
    validations: trainer.validations,
    losses: trainer.metrics.filter((m) => m.iteration % 20 === 0 || m.iteration <= 10),
    adaptation: Array.from({ length: 21 }, (_, k) => curves.reduce((s, c) => s + c[k], 0) / curves.length),
    baselines: quantum.compareBaselines(trainer, { randomized: 2000 }),
    explain: trainer.explain().split("\n"),
    cache: quantum.cacheStats(),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

const serveLine = (context: Context, more: string[] = []): string[] => [
  entryPoint,
  "serve",
  "quantum",
  ...["--device", context.device],
  ...(context.quick ? ["--quick"] : []),
  ...more,
];

const suite: Suite = {
  options: { training: { flag: true, help: "also run the meta-training of 2,000 iterations" } },
  defaults: { rounds: "5" },
  async run(context) {
    const { cores, device, quick } = context;
    const peers = startPeers(context, {
      torch: ["torch_quantum.py", "--device", device],
      jax: ["jax_chain.py"],
      ...(device === "cpu" && { qutip: ["qutip_ensemble.py"] }),
    });
    const weftProcess = () => new PeerProcess("weft", cores, process.execPath, serveLine(context));
    const { record, save, contest } = await runContest(
      context,
      device === "cpu" ? "quantum" : "quantum-gpu",
      quantumTable(device, quick),
      { seats, start: { weft: weftProcess, ...peers.start }, absent: peers.absent },
    );
    contest.stop();
    if (context.flag("training")) {
      const [file, args] = pinned(cores, process.execPath, serveLine(context, ["--training"]));
      const env = { ...process.env, ...threadEnvironment(cores) };
      const done = spawnSync(file, args, { env, stdio: ["ignore", "pipe", "inherit"], maxBuffer: 2 ** 28 });
      const training = done.status === 0 ? JSON.parse(String(done.stdout)) : { problem: `exit ${done.status}` };
      Object.assign(record, { training });
      save();
    }
    printTable(record);
  },
  async serve(context) {
    weft.setDevice(context.device);
    if (context.flag("training")) return metaTraining();
    const rows = quantumTable(context.device, context.quick);
    const makers = Object.fromEntries(rows.map(({ id, make }) => [id, make]));
    const about = { name: "weft 0.1.0", device: weft.session().device.name };
    return serveContestant(new LocalContestant(makers, about, context.quick ? 0 : 0.2));
  },
};

export default suite;
