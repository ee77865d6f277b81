// Counts what lane programs cost on a GPU without running them: kernels, operations, loads and stores per step, states,
// bytes of history, and (where nvcc is installed) registers and spills of the generated CUDA.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { scheduleFunction } from "@weft/core/internal/compile";
import type { CompileOptions, DeviceBuffer } from "@weft/core/internal/device";
import { functionOrder, type GraphFn } from "@weft/core/internal/graph";
import * as quantum from "@weft/quantum";
import { cudaScheduleOptions, writeCudaProgram } from "@weft/testing/cuda-source";
import type { Suite } from "./context.js";
import { oneQubitLoss, twoQubitLoss } from "./density-matrices.js";
import { chainParameters, pauliChainLoss } from "./quantum-programs.js";

interface Recorded {
  fn: GraphFn;
  options: CompileOptions;
}

/** Sets a device that keeps the last loop that it should compile instead of running it; returns what it kept. */
function recordLoops(): () => Recorded {
  const device = weft.device(weft.CpuDevice.available() ? "cpu" : "reference");
  const compile = device.compile.bind(device);
  let last: Recorded | null = null;
  device.compile = (fn, options) => {
    if (!functionOrder(fn).some((node) => node.op === "scan")) return compile(fn, options);
    last = { fn, options };
    const bytes = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 16);
    const run = (): DeviceBuffer[] => fn.outputs.map((o) => device.allocate(bytes(o.shape)));
    return { kernels: [], scratchBytes: 0, aliases: new Map(), run, release: () => {} };
  };
  weft.setDevice(device);
  return () => last!;
}

/** Registers, stack and spills of each kernel as ptxas reports them; null without nvcc. */
function resourcesOf(source: string): object | null {
  const folder = mkdtempSync(join(tmpdir(), "weft-count-"));
  try {
    const [file, out] = [join(folder, "k.cu"), join(folder, "k.cubin")];
    writeFileSync(file, source);
    const flags = ["-arch=sm_90", "-std=c++17", "-w", "-Xptxas", "-v", "-cubin", "-o", out, file];
    const done = spawnSync("nvcc", flags, { encoding: "utf8" });
    if (done.error !== undefined) return null;
    if (done.status !== 0) return { error: done.stderr.slice(0, 400) };
    const pattern =
      /Compiling entry function '(\w+)'[\s\S]*?(\d+) bytes stack frame, (\d+) bytes spill stores[\s\S]*?Used (\d+) registers/g;
    return [...done.stderr.matchAll(pattern)].map(([, name, stack, spills, registers]) => ({
      ...{ name, registers: Number(registers), stackBytes: Number(stack), spillBytes: Number(spills) },
    }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface LaneRow {
  id: string;
  make(): { fn: (...args: never[]) => unknown; args: unknown[] };
}

const ensemble = (
  id: string,
  count: number,
  loss: () => ReturnType<typeof oneQubitLoss>,
  controls: number,
): LaneRow => ({
  id,
  make: () => ({
    fn: (u: Tensor, gd: Tensor, gr: Tensor) => weft.valueAndGrad(loss())(u, gd, gr),
    args: [weft.full([count, 60, controls], 0.3), weft.full([count], 0.05), weft.full([count], 0.025)],
  }),
});

const pauliChain = (n: number, chunks: number): LaneRow => ({
  id: `pauli-chain-${n}`,
  make: () => ({ fn: weft.valueAndGrad(pauliChainLoss(n, { steps: 4999, chunks })), args: [chainParameters(n)] }),
});

const fluxoniumChain = (n: number): LaneRow => ({
  id: `fluxonium-chain-${n}`,
  make() {
    const chain = quantum.Chain.fluxonium({ qubits: n });
    const target = quantum.gate("X", n);
    const loss = (p: ReturnType<typeof chain.parameters>): Tensor =>
      quantum.processInfidelity(quantum.evolve(chain.with(p), { steps: 4999, method: "trotter2" }), target);
    return { fn: weft.valueAndGrad(loss), args: [chain.parameters()] };
  },
});

const table: LaneRow[] = [
  ensemble("lindblad-ensemble-4096", 4096, oneQubitLoss, 2),
  ensemble("lindblad-ensemble-65536", 65536, oneQubitLoss, 2),
  ensemble("lindblad-two-qubits", 4096, twoQubitLoss, 6),
  ...[2, 4, 6].map(fluxoniumChain),
  pauliChain(2, 128),
  pauliChain(4, 128),
  pauliChain(6, 64),
];

const suite: Suite = {
  options: {
    source: { flag: true, help: "print the generated CUDA to standard error" },
    "no-nvcc": { flag: true, help: "do not compile" },
  },
  run(context) {
    for (const { id, make } of context.choose(context.quick ? table.slice(0, 1) : table)) {
      const recorded = recordLoops();
      const { fn, args } = make();
      weft.jit(fn)(...(args as never[]));
      const { fn: graph, options } = recorded();
      const start = performance.now();
      const lanes = { ...cudaScheduleOptions.lanes, constants: options.constants ?? new Map() };
      const plan = scheduleFunction(graph, { ...cudaScheduleOptions, lanes } as typeof cudaScheduleOptions);
      const { source } = writeCudaProgram(plan, 2112);
      const compileMilliseconds = Math.round(performance.now() - start);
      if (context.flag("source")) console.error(source.slice(source.indexOf("template <int N> struct Args")));
      const programs = plan.steps.flatMap((step) => (step.kind === "lane" ? [step.program] : []));
      const counted = programs.map((p) =>
        p.form === "block"
          ? { lanes: p.lanes, threads: p.threads, levels: p.levels.length, sharedBytes: p.sharedBytes }
          : { lanes: p.lanes, loops: p.counts, operationsPerLane: p.flops },
      );
      const cuda = context.flag("no-nvcc") || context.quick ? null : resourcesOf(source);
      const steps = plan.steps.map((step) => (step.kind === "kernel" ? step.kernel.name : step.kind));
      console.log(
        JSON.stringify(
          { program: id, kernels: steps.length, steps, lanes: counted, compileMilliseconds, cuda },
          null,
          1,
        ),
      );
    }
  },
};

export default suite;
