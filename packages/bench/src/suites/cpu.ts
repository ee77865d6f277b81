// The CPU suite: Weft against OpenBLAS, PyTorch, TensorFlow.js and jax-js on the same cores, and cold starts.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as weft from "@weft/core";
import { openBlasPath } from "@weft/core/internal/device";
import { pinned, spreadOf, threadEnvironment, waitForIdleCores } from "../harness/index.js";
import { sharedClassifierStep } from "./classifier.js";
import { type Answers, type ContestRow, foreignLimit, runContest, type Seat } from "./contest.js";
import { type Contestant, LocalContestant, PeerProcess, serveContestant } from "./contestant.js";
import type { Context, Suite } from "./context.js";
import { type CpuSizes, cpuRows, cpuSizes, nativeRows } from "./cpu-rows.js";
import * as inputs from "./inputs.js";
import { entryPoint } from "./main-path.js";
import { startPeers } from "./peers.js";
import type { RowResult } from "./record.js";
import { printTable } from "./report/table.js";

function compareValues(got: readonly number[], expected: readonly number[], relative: number, absolute: number) {
  if (got.length !== expected.length) return `${got.length} values, expected ${expected.length}`;
  const wrong = got.findIndex((a, i) => !(Math.abs(a - expected[i]) <= absolute + relative * Math.abs(expected[i])));
  return wrong < 0 ? null : `value ${wrong} is ${got[wrong]}, expected ${expected[wrong]}`;
}

function firstProblem(answers: Answers, test: (answer: number[]) => string | null): string | null {
  for (const [name, answer] of Object.entries(answers)) {
    const problem = test(answer);
    if (problem !== null) return `${name}: ${problem}`;
  }
  return null;
}

/** Every contestant's sampled values against exact ones. */
const exact =
  (expected: () => number[], relative: number, absolute = relative) =>
  (answers: Answers): string | null =>
    firstProblem(answers, (answer) => compareValues(answer, expected(), relative, absolute));

/** Losses fall, and all contestants go through the same ones. */
const sameLosses = (answers: Answers): string | null =>
  firstProblem(answers, (losses) =>
    losses.at(-1)! < losses[0]
      ? compareValues(losses, answers.torch ?? answers.weft, 2e-4, 0)
      : `the loss does not fall: ${losses.join(", ")}`,
  );

const product = (answers: Answers): string | null =>
  firstProblem(answers, ([error]) => (error <= 1 ? null : `Freivalds' test fails: ${error} times the rounding error`));

/** The rows: what is measured, against whom, the required ratio, and how the answer is checked. */
export function cpuTable(sizes: CpuSizes): ContestRow[] {
  const [rows, columns] = sizes.rows;
  const chainInput = (): number[] => {
    const data = inputs.uniformNumbers(sizes.chain, 6, -3, 3);
    return inputs.sampleIndices(sizes.chain).map((i) => data[i]);
  };
  const normalized = (kind: "softmax" | "layer-norm") => (): number[] =>
    inputs.sampleIndices(rows * columns).map((index) => inputs.rowValue(kind, columns, index));
  const complexSamples = (): number[] => {
    const [a, b] = [8, 9].map((salt) => inputs.uniformNumbers(2 * sizes.matrices * 64, salt));
    return inputs.sampleIndices(a.length).map((index) => inputs.complexProductValue(a, b, 8, index));
  };
  const t = sizes.transformer;
  return [
    ...sizes.products.map((n) => ({
      id: `matmul-${n}`,
      title: `matmul f32 n=${n} through jit`,
      flops: 2 * n ** 3,
      peers: { openblas: n === 64 ? 0.7 : 0.95 },
      check: product,
    })),
    {
      id: "chain",
      title: `fused chain of 8 cheap ops with one exp, ${Math.round((4 * sizes.chain) / 2 ** 20)} MB`,
      bytes: 8 * sizes.chain,
      peers: { copy: 0.9, memcpy: null },
      check: ({ weft: own, ...copies }) =>
        exact(() => chainInput().map(inputs.chainValue), 2e-6)({ weft: own }) ?? exact(chainInput, 0)(copies),
    },
    {
      id: "softmax",
      title: `softmax [${rows}, ${columns}]`,
      bytes: 8 * rows * columns,
      peers: { torch: 1.2 },
      check: exact(normalized("softmax"), 5e-6, 1e-9),
    },
    {
      id: "layer-norm",
      title: `layer norm [${rows}, ${columns}]`,
      bytes: 8 * rows * columns,
      peers: { torch: 1.2 },
      check: exact(normalized("layer-norm"), 1e-5),
    },
    {
      id: "mlp",
      title: `MLP training step (${sizes.mlp.sizes.join("-")}, batch ${sizes.mlp.batch}, Adam)`,
      peers: { torch: 1.2, tfjs: 5, jaxjs: 3, "torch-fused": null },
      check: sameLosses,
    },
    {
      id: "transformer",
      title: `transformer training step (d ${t.width}, ${t.heads} heads, ${t.layers} layers, ff ${t.feedForward}, seq ${t.length}, batch ${t.batch}, vocabulary ${t.vocabulary}, Adam, dropout 0)`,
      peers: { torch: 1.2, "torch-fused": null },
      check: sameLosses,
    },
    {
      id: "complex-matmul",
      title: `complex64 batched matmul [${sizes.matrices}, 8, 8]`,
      flops: 8 * sizes.matrices * 8 ** 3,
      peers: { torch: 3 },
      check: exact(complexSamples, 3e-6),
    },
    { id: "tiny", title: "one jitted call on tiny inputs", limitMs: 0.03, check: exact(() => [6, 13, 22, 33], 0) },
  ];
}

const seats: Record<string, Seat> = {
  weft: { process: "weft", title: "Weft" },
  openblas: { process: "native", title: "OpenBLAS by koffi" },
  copy: { process: "native", title: "compiled copy loop" },
  memcpy: { process: "native", title: "memcpy", suffix: "-memcpy" },
  torch: { process: "torch", title: "PyTorch eager" },
  "torch-fused": { process: "torch", title: "PyTorch, fused Adam", suffix: "-fused" },
  tfjs: { process: "tfjs", title: "TensorFlow.js" },
  jaxjs: { process: "jaxjs", title: "jax-js" },
};

interface ColdStart {
  loss: number;
  firstResultMs: number;
  peakBytes: number;
  deviceAndDataMs: number;
}

/** Time from the first call of the transformer step to its first loss; imports and uploads are reported separately. */
function coldStart(context: Context): void {
  const begin = performance.now();
  const { step, params, state, batch } = sharedClassifierStep(cpuSizes(context.quick).transformer);
  const start = performance.now();
  const [, , loss] = step(params, state, ...batch);
  const value = loss.itemSync() as number;
  const answer: ColdStart = {
    loss: value,
    firstResultMs: performance.now() - start,
    peakBytes: weft.session().device.memory().peakBytes,
    deviceAndDataMs: start - begin,
  };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

const coldTable = [
  { id: "cold", title: "cold compile of the transformer step", limitMs: 5000 },
  { id: "cached", title: "transformer step from the disk cache", limitMs: 300 },
];

/** The transformer step in new processes: with an empty kernel cache, and with a filled one. */
async function coldRows(context: Context): Promise<RowResult[]> {
  const { cores, quick } = context;
  const cache = mkdtempSync(join(tmpdir(), "weft-bench-cache-"));
  const starts: Record<string, ColdStart[]> = { cold: [], cached: [] };
  try {
    for (let i = 0; i < Math.min(context.number("rounds"), 5); i++) {
      rmSync(cache, { recursive: true });
      mkdirSync(cache);
      for (const { id } of coldTable) {
        await waitForIdleCores(cores, context.number("patience"), foreignLimit);
        const line = [entryPoint, "serve", "cpu", "--cold", ...(quick ? ["--quick"] : [])];
        const [file, args] = pinned(cores, process.execPath, line);
        const env = { ...process.env, ...threadEnvironment(cores), WEFT_CACHE_DIR: cache };
        const done = spawnSync(file, args, { encoding: "utf8", env });
        if (done.status !== 0) throw new Error(done.stderr.split("\n").slice(0, 6).join("\n"));
        starts[id].push(JSON.parse(done.stdout) as ColdStart);
      }
    }
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
  const { loss } = starts.cold[0];
  return coldTable.map(({ id, title, limitMs }) => {
    const spread = spreadOf(starts[id].map(({ firstResultMs }) => firstResultMs));
    const differing = starts[id].find((start) => start.loss !== loss);
    return {
      id,
      title,
      wrong: differing === undefined ? null : `losses differ between starts: ${differing.loss}, ${loss}`,
      problems: {},
      times: { weft: { ms: spread.median, spread, starts: starts[id] } },
      ratios: {},
      limit: { ms: limitMs, met: spread.median <= limitMs },
    };
  });
}

const suite: Suite = {
  options: {
    native: { flag: true, help: "serve the native peer instead of Weft" },
    cold: { flag: true, help: "serve one cold start" },
  },
  async run(context) {
    const sizes = cpuSizes(context.quick);
    const served = (name: string, flags: string[]) => (): Contestant =>
      new PeerProcess(name, context.cores, process.execPath, [
        entryPoint,
        "serve",
        "cpu",
        ...flags,
        ...(context.quick ? ["--quick"] : []),
      ]);
    const peers = startPeers(context, { torch: ["torch_cpu.py"], tfjs: ["tfjs.mjs"], jaxjs: ["jaxjs.mjs"] });
    const { record, save, contest } = await runContest(context, "cpu", cpuTable(sizes), {
      seats,
      start: { weft: served("weft", []), native: served("native", ["--native"]), ...peers.start },
      absent: peers.absent,
    });
    contest.stop();
    if (context.rows === undefined) {
      context.log("cold starts");
      record.rows.push(...(await coldRows(context)));
      save();
    }
    printTable(record);
  },
  async serve(context) {
    if (context.flag("cold")) return coldStart(context);
    const sizes = cpuSizes(context.quick);
    const warmup = context.quick ? 0 : 0.2;
    if (context.flag("native"))
      return serveContestant(new LocalContestant(nativeRows(sizes), { openblas: openBlasPath() }, warmup));
    const { name, traits } = weft.session().device;
    const about = { weft: "0.1.0", device: name, threads: traits.threads };
    return serveContestant(new LocalContestant(cpuRows(sizes), about, warmup));
  },
};

export default suite;
