// Counts what lane programs cost without running them: kernels, scalar operations, loads and stores of a step, states,
// bytes of history, and (where nvcc is installed) registers and spills of the generated CUDA.
//   node bench/lane-count.mjs [name ...] [--json]
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planFunction } from "../packages/core/dist/compile/index.js";
import { cudaPlanOptions, writeCudaProgram } from "../packages/core/dist/device/cuda/source.js";
import { functionOrder } from "../packages/core/dist/graph/index.js";
import * as weft from "../packages/core/dist/index.js";
import { programs } from "./lib/ensembles.mjs";

/** Keeps the loops that it is asked to compile, and does not run them. */
class Recorder extends (weft.CpuDevice.available() ? weft.CpuDevice : weft.ReferenceDevice) {
  compile(fn, options) {
    if (!functionOrder(fn).some((node) => node.op === "scan")) return super.compile(fn, options);
    this.last = { fn, options };
    return {
      kernels: [],
      scratchBytes: 0,
      aliases: new Map(),
      run: () => fn.outputs.map((o) => this.allocate(o.shape.reduce((n, d) => n * d, 16))),
    };
  }
}

function resources(source) {
  const folder = mkdtempSync(join(tmpdir(), "weft-count-"));
  try {
    writeFileSync(join(folder, "k.cu"), source);
    const told = spawnSync(
      "nvcc",
      [
        "-arch=sm_90",
        "-std=c++17",
        "-w",
        "-Xptxas",
        "-v",
        "-cubin",
        "-o",
        join(folder, "k.cubin"),
        join(folder, "k.cu"),
      ],
      { encoding: "utf8" },
    );
    if (told.error) return null;
    if (told.status !== 0) return told.stderr.slice(0, 400);
    const pattern =
      /Compiling entry function '(\w+)'[\s\S]*?(\d+) bytes stack frame, (\d+) bytes spill stores[\s\S]*?Used (\d+) registers/g;
    return [...told.stderr.matchAll(pattern)].map(([, name, stack, spills, registers]) => ({
      name,
      registers: Number(registers),
      stackBytes: Number(stack),
      spillBytes: Number(spills),
    }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const flags = process.argv.slice(2);
const names = flags.filter((f) => !f.startsWith("--"));
for (const [name, make] of Object.entries(programs)) {
  if (names.length > 0 && !names.includes(name)) continue;
  const device = new Recorder();
  weft.setDevice(device);
  const { fn, args } = await make(weft);
  const inputs = args.map((a) => a.realize?.() ?? a);
  weft.jit(fn)(...inputs);
  const { fn: graph, options } = device.last;
  const start = performance.now();
  const plan = planFunction(graph, {
    ...cudaPlanOptions,
    lanes: { ...cudaPlanOptions.lanes, known: options.known ?? new Map() },
  });
  const { source } = writeCudaProgram(plan, 2112);
  const milliseconds = Math.round(performance.now() - start);
  if (flags.includes("--source")) console.error(source.slice(source.indexOf("template <int N> struct Args")));
  const steps = plan.steps.map((s) =>
    s.kind === "kernel"
      ? s.kernel.name
      : s.kind === "lane"
        ? "lanes"
        : s.kind === "loop"
          ? `loop of ${s.body.steps.length}`
          : `${s.kind}`,
  );
  const lanes = plan.steps
    .filter((s) => s.kind === "lane")
    .map(({ program: p }) =>
      p.form === "block"
        ? {
            lanes: p.lanes,
            block: {
              threads: p.threads,
              levels: p.levels.length,
              tasks: p.levels.flat().length,
              sharedBytes: p.sharedBytes,
              length: p.loop.length,
            },
            loops: [],
          }
        : { lanes: p.lanes, loops: p.counts, operationsALane: p.flops },
    );
  console.log(
    JSON.stringify(
      {
        program: name,
        kernels: steps.length,
        steps,
        lanes,
        compileMilliseconds: milliseconds,
        cuda: flags.includes("--no-nvcc") ? null : resources(source),
      },
      null,
      flags.includes("--json") ? 0 : 1,
    ),
  );
}
