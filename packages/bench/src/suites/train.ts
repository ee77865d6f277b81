// The trainer against PyTorch on the CPU (eager, and DistributedDataParallel over gloo) with one core per worker, in
// alternating rounds; tokenizing against plain Python; overlapped communication against none. Rows that are not measured
// stay as they are in the record.
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { mean, median } from "@weft/formats/stats";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { findPeer, peerScript } from "./peers.js";
import { commandOutput } from "./process.js";
import {
  type ModelSize,
  makeTexts,
  recordedSteps,
  runEnvironment,
  temporaryFolder,
  textConfig,
  trainBatches,
  trainModels,
  weftCommand,
} from "./weft-runs.js";

interface Steps {
  seconds: number[];
  losses: number[];
  /** Processor time, share of exposed communication and of waiting for data, per step (Weft). */
  processor: number[];
  exposed: number[];
  dataWait: number[];
  torch?: string;
}

/** Measures steps on one core per worker. */
class StepRunner {
  readonly #folder = temporaryFolder("train");
  readonly #env = runEnvironment(this.#folder);
  #runs = 0;

  constructor(readonly rows: number) {}

  async weft(size: ModelSize, cores: number[], steps: number, overlap?: boolean): Promise<Steps> {
    const name = `run-${this.#runs++}`;
    const [config, output] = [join(this.#folder, `${name}.yaml`), join(this.#folder, name)];
    const distributed = overlap === undefined ? {} : { distributed: { overlap } };
    writeFileSync(config, JSON.stringify(textConfig(this.#folder, size, this.rows, distributed)));
    const warm = warmSteps(size);
    const args = ["train", config, "--devices", cores.length, "--max-steps", steps + warm, "--out", output];
    const env = { ...this.#env, WEFT_DEVICE: "cpu" };
    await commandOutput(cores, process.execPath, [weftCommand, ...args, "--json"], env);
    const [all] = recordedSteps(output);
    rmSync(output, { recursive: true });
    const steady = all.slice(warm);
    return checked(size, "weft", {
      seconds: steady.map((r) => r.durationUs / 1e6),
      processor: steady.map((r) => r.cpuUs / 1e6),
      exposed: steady.map((r) => r.exposedCommUs / r.durationUs),
      dataWait: steady.map((r) => r.dataWaitUs / r.durationUs),
      losses: all.map((r) => r.loss),
    });
  }

  async torch(python: string, size: ModelSize, cores: number[], steps: number): Promise<Steps> {
    const warm = warmSteps(size);
    const data = join(makeTexts(this.#folder, trainModels[size].max_seq_len, this.rows), "train.jsonl");
    const task = { model: trainModels[size], batch: trainBatches[size], steps: steps + warm, data };
    const port = String(20000 + Math.floor(Math.random() * 20000));
    const ranks = cores.map((core, rank) => {
      const group = {
        RANK: String(rank),
        WORLD_SIZE: String(cores.length),
        MASTER_ADDR: "127.0.0.1",
        MASTER_PORT: port,
      };
      const args = ["-W", "ignore", peerScript("torch_train.py"), JSON.stringify(task)];
      return commandOutput([core], python, args, { ...this.#env, ...group });
    });
    const [first] = await Promise.all(ranks);
    const { seconds, losses, torch } = JSON.parse(first.trim().split("\n").at(-1)!) as Steps;
    return checked(size, "torch", {
      seconds: seconds.slice(warm),
      losses,
      torch,
      processor: [],
      exposed: [],
      dataWait: [],
    });
  }

  texts(length: number, rows: number): string {
    return makeTexts(this.#folder, length, rows);
  }

  /** Seconds of tokenizing on one core; both sides must get the same ids. */
  async tokenize(core: number, folder: string, file: string): Promise<{ weft: number; python: number }> {
    type Answer = { seconds: number; sum: number };
    const run = async (command: string, args: string[]): Promise<Answer> =>
      JSON.parse(await commandOutput([core], command, args, this.#env)) as Answer;
    const own = await run(process.execPath, [entryPoint, "serve", "train", "--texts", folder]);
    const theirs = await run("python3", [peerScript("hash_tokenize.py"), file]);
    if (own.sum !== theirs.sum) throw new Error(`the ids differ: their sums are ${own.sum} and ${theirs.sum}`);
    return { weft: own.seconds, python: theirs.seconds };
  }
}

/** Steps before those that count. */
const warmSteps = (size: ModelSize): number => (size === "larger" ? 1 : 2);

/** Both sides start near the loss of guessing; anything else is different work. */
function checked(size: ModelSize, who: string, steps: Steps): Steps {
  if (!steps.losses.every(Number.isFinite) || steps.losses[0] > 2.5)
    throw new Error(`${who} ${size}: losses ${steps.losses.join(", ")}`);
  return steps;
}

type Side = "weft" | "torch";
type PerCount = Record<1 | 2, number[]>;
const perSide = (): Record<Side, PerCount> => ({ weft: { 1: [], 2: [] }, torch: { 1: [], 2: [] } });

/** Step times of one model on one and two workers. */
async function trainingRow(context: Context, runner: StepRunner, size: ModelSize, steps: number): Promise<object> {
  const python = findPeer(context, "torch");
  const counts = context.cores.length >= 2 ? ([1, 2] as const) : ([1] as const);
  const stepSeconds = { ...perSide(), exposed: [] as number[], dataWait: [] as number[] };
  const eachStep = perSide();
  const processor: PerCount = { 1: [], 2: [] };
  let torch: string | null = null;
  const rounds = context.number("rounds");
  for (let round = 0; round < rounds; round++) {
    const sides: Side[] = "reason" in python ? ["weft"] : round % 2 === 0 ? ["weft", "torch"] : ["torch", "weft"];
    const jobs = counts.flatMap((workers) => sides.map((side) => ({ workers, side })));
    // Few long steps: Weft runs again in the opposite order, so that a machine that changes its speed meanwhile is not
    // taken for efficiency.
    if (size === "larger") jobs.push(...[...counts].reverse().map((workers) => ({ workers, side: "weft" as const })));
    for (const { workers, side } of jobs) {
      const on = context.cores.slice(0, workers);
      const got =
        "command" in python && side === "torch"
          ? await runner.torch(python.command, size, on, steps)
          : await runner.weft(size, on, steps);
      context.log(`${size} ${side}, ${workers} workers: ${(median(got.seconds) * 1e3).toFixed(1)} ms per step`);
      stepSeconds[side][workers].push(median(got.seconds));
      eachStep[side][workers].push(...got.seconds);
      torch = got.torch ?? torch;
      if (side === "torch") continue;
      stepSeconds.dataWait.push(mean(got.dataWait));
      processor[workers].push(...got.processor);
      if (workers === 2) stepSeconds.exposed.push(mean(got.exposed));
    }
  }
  const ratioOf = (a: number[], b: number[]): number | null =>
    a.length === 0 || b.length === 0 ? null : median(a) / median(b);
  const medianOf = (list: number[]): number | null => (list.length === 0 ? null : median(list));
  const { at, hardware, versions } = context.head();
  return {
    size,
    ...{ at, hardware, versions },
    settings: { rounds, steps },
    torch,
    batchPerRank: trainBatches[size],
    stepSeconds,
    eachStep,
    processorTime: { 1: medianOf(processor[1]), 2: medianOf(processor[2]) },
    ratio: { 1: ratioOf(eachStep.torch[1], eachStep.weft[1]), 2: ratioOf(eachStep.torch[2], eachStep.weft[2]) },
    efficiency: {
      weft: ratioOf(eachStep.weft[1], eachStep.weft[2]),
      torch: ratioOf(eachStep.torch[1], eachStep.torch[2]),
    },
    exposedShare: medianOf(stepSeconds.exposed),
    dataWaitShare: median(stepSeconds.dataWait),
  };
}

async function overlapRow(
  context: Context,
  runner: StepRunner,
  size: ModelSize,
  steps: number,
): Promise<object | null> {
  if (context.cores.length < 2) return null;
  const [overlap, none, exposed, exposedNone]: number[][] = [[], [], [], []];
  for (let round = 0; round < context.number("rounds"); round++)
    for (const [isOverlapped, times, shares] of [
      [true, overlap, exposed],
      [false, none, exposedNone],
    ] as const) {
      const got = await runner.weft(size, context.cores.slice(0, 2), steps, isOverlapped);
      times.push(median(got.seconds));
      shares.push(mean(got.exposed));
    }
  const { at, hardware, versions } = context.head();
  const ratio = median(none.map((t, i) => t / overlap[i]));
  const [exposedShare, exposedShareNone] = [median(exposed), median(exposedNone)];
  return { at, hardware, versions, overlap, none, exposed, exposedNone, ratio, exposedShare, exposedShareNone };
}

async function tokenizeRow(context: Context, runner: StepRunner): Promise<object> {
  const given = context.text("data");
  const folder = given ?? runner.texts(230, context.quick ? 50 : 8000);
  const file = [join(folder, "train.jsonl.gz"), join(folder, "train.jsonl")].find(existsSync);
  if (file === undefined) throw new Error(`--data ${folder}: there is no train.jsonl.gz and no train.jsonl`);
  const seconds = { weft: [] as number[], python: [] as number[] };
  for (let round = 0; round < context.number("rounds"); round++) {
    const times = await runner.tokenize(context.cores[0], folder, file);
    seconds.weft.push(times.weft);
    seconds.python.push(times.python);
  }
  const { at, hardware, versions } = context.head();
  const ratio = median(seconds.python.map((t, i) => t / seconds.weft[i]));
  return {
    at,
    hardware,
    versions,
    data: given === undefined ? "generated reviews" : "IMDB, 25,000 reviews",
    seconds,
    ratio,
  };
}

const suite: Suite = {
  defaults: { rounds: "3" },
  options: {
    steps: { help: "measured steps per run (24, or 3 for the larger model)" },
    data: { help: "folder of the IMDB reviews; generated texts otherwise" },
    texts: { help: "serve: tokenize this folder" },
  },
  async run(context) {
    const { quick } = context;
    const runner = new StepRunner(quick ? 64 : 2048);
    const stepsFor = (otherwise: number): number =>
      context.text("steps") === undefined ? (quick ? 2 : otherwise) : context.number("steps");
    const { record, save } = context.open(
      "train",
      { tokenize: null as object | null, training: [] as { size?: string }[], overlap: null as object | null },
      { merge: true },
    );
    const training = async (size: ModelSize, steps: number): Promise<void> => {
      const measured = await trainingRow(context, runner, size, steps);
      record.training = [...record.training.filter((t) => t.size !== size), measured];
    };
    const rows = [
      {
        id: "tokenize",
        measure: async () => {
          record.tokenize = await tokenizeRow(context, runner);
        },
      },
      { id: "small", measure: () => training(quick ? "tiny" : "small", stepsFor(24)) },
      {
        id: "overlap",
        measure: async () => {
          record.overlap = await overlapRow(context, runner, quick ? "tiny" : "small", stepsFor(24));
        },
      },
      ...(quick ? [] : [{ id: "larger", measure: () => training("larger", stepsFor(3)) }]),
    ];
    const torch = findPeer(context, "torch");
    if ("reason" in torch) record.absent.torch = torch.reason;
    for (const { id, measure } of context.choose(rows)) {
      context.log(id);
      await measure();
      save();
    }
  },
  /** Tokenizes texts in memory, as the Python side does. */
  async serve(context) {
    const data = await import("@weft/train/internal/data");
    const table = await data.findSplit("imdb", "train", context.text("texts")!).read();
    const tokenizer = data.hashTokenizer(20000);
    const start = performance.now();
    const { ids } = data.tokenize(table, tokenizer);
    const seconds = (performance.now() - start) / 1e3;
    let sum = 0;
    for (const id of ids) sum += id;
    console.log(JSON.stringify({ seconds, sum, texts: table.rows }));
  },
};

export default suite;
