// weft quantum bench: one small problem with a known result, retraced on every call, compiled once, batched, and on the GPU. Every
// result is checked before it is timed.

import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";
import { type Command, InvalidArgumentError } from "commander";
import {
  attempt,
  CommandError,
  printJson,
  printText,
  significant,
  table,
  time,
  withProgress,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  batch: number;
  seconds: number;
  json?: boolean;
}

const help = `
Example:
  weft quantum bench --batch 4096

The problem: one qubit with decay and dephasing, 60 segments, RK4, value and gradient with respect to all 120 controls.`;

const positive = (value: string): number => {
  const n = Number(value);
  if (!(n > 0)) throw new InvalidArgumentError(`${value} should be a number above 0`);
  return n;
};

export default function add(program: Command): void {
  program
    .command("bench")
    .description("Time one problem retraced on every call, compiled once, batched, and on the GPU.")
    .option("--batch <n>", "problems in a batch", positive, 4096)
    .option("--seconds <s>", "measuring time per row", positive, 1)
    .option("--json", "write the rows as JSON to standard output")
    .addHelpText("after", help)
    .action((options: Options) =>
      attempt(() => engineWork(() => withProgress(async (progress) => run(options, progress.update.bind(progress))))),
    );
}

interface Rung {
  rung: string;
  device: string;
  batch: number;
  /** Microseconds per problem, value and gradient. */
  usPerTask: number;
  firstMs: number;
  fidelity: number;
}

const f64 = { dtype: "float64" } as const;
const wanted = 0.9778427990483176;

function fidelity(u: weft.Tensor, dephasing: weft.Tensor, relaxation: weft.Tensor): weft.Tensor {
  const h = quantum.hamiltonian({
    static: quantum.sigmaZ.scale(0),
    drives: [quantum.sigmaX, quantum.sigmaY],
    amplitudes: u,
  });
  const jumps = [
    { operator: quantum.sigmaMinus, rate: relaxation },
    { operator: quantum.sigmaZ.scale(Math.SQRT1_2), rate: dephasing },
  ];
  const start = quantum.densityOf(quantum.basisState(2, 0));
  return quantum.lindblad({ hamiltonian: h, jumps }, start, { duration: 1, steps: 60 }).final.index(1, 1).real();
}

type Problem = [weft.Tensor, weft.Tensor, weft.Tensor];

function problem(batch: number | null): Problem {
  const u = weft.tensor(
    Array.from({ length: 60 }, (_, k) => {
      const angle = (2 * Math.PI * k) / 60;
      return [(Math.PI / 2) * (1 + 0.1 * Math.sin(angle)), 0.2 * Math.cos(angle)];
    }),
    f64,
  );
  const all: Problem = [u, weft.tensor(0.05, f64), weft.tensor(0.025, f64)];
  const made = batch === null ? all : (all.map((x) => x.unsqueeze(0).expand([batch, ...x.shape])) as Problem);
  return made.map((x) => x.add(0).realize()) as Problem;
}

const both = weft.valueAndGrad(fidelity);

function measure(
  rung: string,
  device: string,
  batch: number | null,
  seconds: number,
  call: (p: Problem) => [weft.Tensor, weft.Tensor],
): Rung {
  weft.setDevice(device);
  const p = problem(batch);
  const once = (): number => {
    const [values, gradient] = call(p);
    gradient.realize();
    return (values.rank === 0 ? values : values.index(0)).itemSync();
  };
  const start = performance.now();
  const value = once();
  const firstMs = performance.now() - start;
  if (Math.abs(value - wanted) > 1e-12) throw new CommandError(`${rung}: the fidelity is ${value}, not ${wanted}`);
  const samples: number[] = [];
  for (const end = performance.now() + 1e3 * seconds; performance.now() < end || samples.length < 3; ) {
    const t = performance.now();
    once();
    samples.push(performance.now() - t);
  }
  samples.sort((a, b) => a - b);
  const ms = samples[Math.floor((samples.length - 1) / 2)];
  return { rung, device, batch: batch ?? 1, usPerTask: (1e3 * ms) / (batch ?? 1), firstMs, fidelity: value };
}

function run({ batch, seconds, json }: Options, onRung: (name: string, done: number, total: number) => void): void {
  const device = weft.session().device.name;
  const once = weft.jit((u: weft.Tensor, a: weft.Tensor, b: weft.Tensor) => both(u, a, b));
  const many = weft.jit((u: weft.Tensor, a: weft.Tensor, b: weft.Tensor) => weft.vmap(both)(u, a, b));
  const planned: Parameters<typeof measure>[] = [
    ["rebuilt on every call", device, null, seconds, (p) => both(...p)],
    ["compiled once", device, null, seconds, (p) => once(...p)],
    ["batched", device, batch, seconds, (p) => many(...p)],
  ];
  if (!device.startsWith("cuda") && weft.CudaDevice.available())
    planned.push(["batched on the GPU", "cuda", batch, seconds, (p) => many(...p)]);
  const rungs = planned.map((rung, done) => {
    onRung(rung[0], done, planned.length);
    return measure(...rung);
  });
  if (json) {
    printJson({ rungs });
    return;
  }
  const first = rungs[0].usPerTask;
  const rows = rungs.map((r) => [
    r.rung,
    r.device,
    String(r.batch),
    time(r.usPerTask),
    `${significant(first / r.usPerTask)}x`,
    time(r.firstMs * 1e3),
  ]);
  printText(`${table(["rung", "device", "batch", "per problem", "speedup", "first call"], rows)}\n`);
  if (rungs.length === 3) printText("no GPU available: the GPU row is skipped\n");
}
