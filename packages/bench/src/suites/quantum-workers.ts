// Quantum programs on 1, 2, 4 and 8 one-core workers as the planner divides them, against as many workers that share
// nothing. Every result is compared with that of one core, and the bytes that move with what value and gradient take. All
// processes compile first; then independent workers and the cluster take turns, with calls issued back to back.
import { type Cluster, connect } from "@weft/cluster";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { coreOrder } from "@weft/core/internal/device";
import type { TensorValue } from "@weft/core/internal/runtime";
import { median } from "@weft/formats/stats";
import type { PolicyParameters } from "@weft/quantum";
import { spreadOf, timePipelined } from "../harness/index.js";
import { type Contestant, PeerProcess, serveContestant } from "./contestant.js";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import * as programs from "./quantum-programs.js";

interface Program {
  args: unknown[];
  fn(...args: never[]): unknown;
  /** Most bytes that may reach a worker per call; never more for more time steps. */
  mostBytes: number;
}

interface WorkersRow {
  id: string;
  title: string;
  make(): Program;
  /** Why the row is not worth dividing; such rows are measured with --all and not judged. */
  small?: string;
}

/** Every task has its own pulse: nothing is shared, nothing moves. */
function separatePulses(count: number): Program {
  const { pulses, rates } = programs.ensembleInputs(count);
  const each = weft.vmap(weft.valueAndGrad(programs.flipInfidelity(), { argument: [0, 1] }));
  return { args: [pulses, rates], fn: (u: Tensor, g: Tensor) => each(u, g), mostBytes: 0 };
}

/** One pulse for all environments: value and gradient are one sum, which passes a worker in both directions. */
function sharedPulse(count: number): Program {
  const { pulses, rates } = programs.ensembleInputs(count);
  const infidelity = programs.flipInfidelity();
  const loss = (u: Tensor, g: Tensor): Tensor =>
    weft
      .vmap((r: Tensor) => infidelity(u, r))(g)
      .mean();
  return {
    args: [pulses.index(0).realize(), rates],
    fn: (u: Tensor, g: Tensor) => weft.valueAndGrad((x: Tensor) => loss(x, g))(u),
    mostBytes: 2 * 4 * (1 + 2 * programs.segments),
  };
}

function maml(count: number): Program {
  const params = programs.policyParameters();
  const size = weft.treeLeaves(params).reduce((n, leaf) => n + leaf.size, 0);
  return {
    args: [params, programs.taskBatch(count, 0)],
    fn: (p: PolicyParameters, tasks: programs.TaskTensors) => {
      const { grads, loss } = programs.adaptationGradient(p, tasks, 1);
      return [loss, grads];
    },
    // The values of the tasks may be gathered instead of their mean.
    mostBytes: 2 * 4 * (1 + size) + 4 * count,
  };
}

/** Gradients of gates (one matrix each) and the propagators of pieces of time are combined. */
function pauliChain(n: number, steps: number, chunks?: number, strategy?: "gates" | "dense"): Program {
  const both = weft.valueAndGrad(programs.pauliChainLoss(n, { steps, chunks, strategy }));
  const pieces = chunks ?? 8;
  return {
    args: [programs.chainParameters(n)],
    fn: (p: programs.ChainParameters) => both(p),
    mostBytes: 16 * 4 ** n * (10 + pieces * (2 + pieces)),
  };
}

const shortCall = (ms: number): string =>
  `a call of ${ms} ms leaves each of 8 workers less than a millisecond, which is what distributing it takes; batch more`;

const table: WorkersRow[] = [
  {
    id: "tasks-65536",
    title: "lindblad-ensemble, 65,536 tasks, each its own pulse",
    make: () => separatePulses(65536),
  },
  {
    id: "ensemble-262144",
    title: "lindblad-ensemble, one pulse for 262,144 environments",
    make: () => sharedPulse(262144),
  },
  { id: "meta-256", title: "maml, meta-gradient of 256 tasks", make: () => maml(256) },
  {
    id: "chunks-6",
    title: "pauli-chain n=6, 1,000 steps, 8 pieces x 64 columns",
    make: () => pauliChain(6, 1000, 8, "dense"),
  },
  {
    id: "chunks-4",
    title: "pauli-chain n=4, 5,000 steps, 8 pieces x 16 columns",
    make: () => pauliChain(4, 5000, 8, "gates"),
  },
  {
    id: "default-6",
    title: "pauli-chain n=6, 1,000 steps, pieces as the solver chooses",
    make: () => pauliChain(6, 1000),
  },
  { id: "meta-32", title: "maml, meta-gradient of 32 tasks", make: () => maml(32), small: shortCall(4) },
  {
    id: "chunks-3",
    title: "pauli-chain n=3, 4,992 steps, 16 pieces x 8 columns",
    make: () => pauliChain(3, 4992, 16, "gates"),
    small: shortCall(5),
  },
  {
    id: "columns-6",
    title: "pauli-chain n=6, 1,000 steps, by columns alone",
    make: () => pauliChain(6, 1000, 1, "dense"),
    small:
      "eight columns per worker: each still sums gradients of whole 64 x 64 matrices; divide time as well (the default on a cluster)",
  },
];
const quickTable: WorkersRow[] = [
  { id: "tasks-4", title: "lindblad-ensemble, 4 tasks", make: () => separatePulses(4), small: "tiny" },
];
const tableOf = (quick: boolean): WorkersRow[] => (quick ? quickTable : table);

const now = (): number => performance.now() / 1e3;

/** Norm of every leaf of a result: few numbers that reveal a wrong one. */
async function normsOf(result: unknown): Promise<number[]> {
  const leaves = await Promise.all(weft.treeLeaves(result as Tensor).map((t) => t.data()));
  return leaves.map((x) => Math.sqrt(Array.from(x as ArrayLike<number>, Number).reduce((sum, v) => sum + v * v, 0)));
}

/** Weft on N workers or on one core; times are of calls in flight. */
class PipelinedContestant implements Contestant {
  readonly pid = process.pid;
  readonly #programs = new Map<string, () => Tensor[]>();

  constructor(
    readonly rows: readonly WorkersRow[],
    readonly cluster: Cluster | null,
  ) {}

  async versions(): Promise<Record<string, unknown>> {
    return { workers: this.cluster?.workers.length ?? 1 };
  }

  async prepare(id: string): Promise<{ check: number[]; info: Record<string, unknown> }> {
    const row = this.rows.find((r) => r.id === id)!;
    const { args, fn, mostBytes } = row.make();
    const program = weft.jit((...given: never[]) => fn(...given));
    this.#programs.set(id, () => weft.treeLeaves(program(...(args as never[])) as Tensor));
    const start = now();
    const check = await normsOf(program(...(args as never[])));
    const first = now() - start;
    // Arguments that are used again may get a better placement at the second call: that is part of the preparation.
    for (let i = 0; i < 2; i++) await this.#finish(this.#issue(id, 1));
    const alone: number[] = [];
    for (let i = 0; i < 4; i++) {
      const begin = now();
      alone.push((await this.#finish(this.#issue(id, 1))) - begin);
    }
    return { check, info: { first, alone, ...(this.cluster !== null && this.#plan(row, mostBytes)) } };
  }

  /** What the planner did; more bytes than allowed are an error. */
  #plan({ small }: WorkersRow, mostBytes: number): Record<string, unknown> {
    const { device, workers } = this.cluster!;
    const { mesh, params, moves } = device.lastPlan!;
    if (mesh.size !== workers.length && small === undefined)
      throw new Error(`planned for ${mesh.size} of ${workers.length} workers: ${device.lastChoice}`);
    const collectives = moves.map(({ kind, bytes }) => [kind, bytes] as [string, number]);
    if (collectives.reduce((sum, [, bytes]) => sum + bytes, 0) > mostBytes)
      throw new Error(`moves ${JSON.stringify(collectives)}, more than the ${mostBytes} bytes that are needed`);
    const cut = params.map(String).filter((p) => /[a-z]/.test(p));
    return { plan: device.lastChoice, used: mesh.size, collectives, cut };
  }

  /** `count` calls back to back; every result but the last is disposed at once. */
  #issue(id: string, count: number): Tensor[] {
    const call = this.#programs.get(id)!;
    for (let i = 1; ; i++) {
      const leaves = call();
      weft.session().realize(leaves.map((t) => t.node));
      if (i >= count) return leaves;
      for (const leaf of leaves) leaf.dispose();
    }
  }

  async #finish(leaves: Tensor[]): Promise<number> {
    if (this.cluster === null) weft.session().device.synchronize();
    else await this.cluster.device.computed((leaves[0].node.value as TensorValue).buffer);
    for (const leaf of leaves) leaf.dispose();
    return now();
  }

  async time(id: string, seconds: number): Promise<number[]> {
    const start = now();
    await this.#finish(this.#issue(id, 1));
    const inFlight = Math.max(1, Math.min(32, Math.floor(seconds / 4 / (now() - start))));
    const end = now() + seconds;
    return timePipelined(
      { issue: (count) => this.#issue(id, count), finish: (leaves: Tensor[]) => this.#finish(leaves) },
      inFlight,
      (samples) => samples >= 2 && now() >= end,
    );
  }

  async release(): Promise<void> {}
  stop(): void {}
}

type Prepared = Awaited<ReturnType<Contestant["prepare"]>> | { failed: string };

/** A process with all rows prepared; a row that fails keeps its reason. */
class Runner {
  readonly prepared = new Map<string, Prepared>();
  readonly process: PeerProcess;

  constructor(context: Context, what: string[]) {
    const line = [entryPoint, "serve", "quantum-workers", ...what, ...(context.quick ? ["--quick"] : [])];
    this.process = new PeerProcess(what.join(" "), null, process.execPath, line, context.number("limit"));
  }

  async prepare(rows: readonly WorkersRow[]): Promise<void> {
    for (const { id } of rows) {
      const failed = (error: Error): Prepared => ({ failed: error.message.slice(0, 600) });
      this.prepared.set(id, await this.process.prepare(id).catch(failed));
    }
  }
}

const isClose = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= 2e-4 * Math.max(1e-3, Math.abs(b[i])));

/** One row on a cluster, in turns with as many independent workers. */
async function measure(context: Context, id: string, cluster: Runner, singles: readonly Runner[]): Promise<object> {
  const workers = singles.length;
  const all = [...singles, cluster].map((runner) => runner.prepared.get(id)!);
  const failed = all.find((p) => "failed" in p);
  if (failed !== undefined) return { workers, ...failed };
  const [expected, own] = [all[0], all.at(-1)!] as Exclude<Prepared, { failed: string }>[];
  const seconds = context.number("seconds");
  const independent: number[][] = singles.map(() => []);
  const shared: number[] = [];
  const efficiencies: number[] = [];
  for (let turn = 0; turn < context.number("rounds"); turn++) {
    const each = await Promise.all(singles.map((single) => single.process.time(id, seconds, 2)));
    const together = await cluster.process.time(id, seconds, 2);
    for (const [i, samples] of each.entries()) independent[i].push(...samples);
    shared.push(...together);
    efficiencies.push(Math.max(...each.map(median)) / (workers * median(together)));
  }
  const { alone, ...info } = own.info;
  return {
    workers,
    seconds: spreadOf(shared),
    samples: shared,
    alone: spreadOf(alone as number[]),
    independent: independent.map(median),
    efficiencies,
    efficiency: median(efficiencies),
    right: isClose(own.check, expected.check),
    numbers: own.check,
    ...info,
  };
}

const suite: Suite = {
  defaults: { rounds: "2", seconds: "0.2" },
  options: {
    counts: { value: "1,2,4,8", help: "numbers of workers" },
    all: { flag: true, help: "also rows that are too small to divide" },
    limit: { value: "600", help: "seconds for a request to a process" },
    workers: { help: "serve a cluster of so many workers" },
    core: { help: "serve one core" },
  },
  async run(context) {
    // The cluster pins its workers in this order; independent workers get the same cores.
    const cores = coreOrder();
    const counts = context.numbers("counts").filter((n) => n <= cores.length);
    const all = tableOf(context.quick);
    const chosen = context.choose(all);
    const rows = context.rows || context.quick || context.flag("all") ? chosen : chosen.filter((r) => !r.small);
    const { record, save } = context.open("quantum-shard", {
      format: "weft-quantum-shard",
      wanted: 0.9,
      rows: {} as Record<string, { title: string; small?: string; counts: object[] }>,
    });
    const clusters = counts.map((count) => new Runner(context, ["--workers", String(count)]));
    // One after the other: workers that measure their rates for the first time must not disturb each other.
    for (const cluster of clusters) await cluster.process.versions();
    const singles = cores.slice(0, Math.max(...counts)).map((core) => new Runner(context, ["--core", String(core)]));
    const runners = [...clusters, ...singles];
    await Promise.all(runners.map((runner) => runner.prepare(rows)));
    try {
      for (const { id, title, small } of rows) {
        const results: object[] = [];
        record.rows[id] = { title, ...(small !== undefined && { small }), counts: results };
        for (const [i, cluster] of clusters.entries()) {
          const row = await measure(context, id, cluster, singles.slice(0, counts[i]));
          results.push(row);
          console.log(JSON.stringify({ id, ...row, samples: undefined, numbers: undefined }));
          if ("failed" in row || !(row as { right: boolean }).right) process.exitCode = 1;
        }
        save();
      }
    } finally {
      for (const runner of runners) runner.process.stop();
    }
  },
  async serve(context) {
    const [workers, core] = [context.text("workers"), context.text("core")];
    const cluster = workers === undefined ? null : await connect({ devices: Number(workers), cores: 1, pin: true });
    if (cluster === null) weft.useDevice(new weft.CpuDevice({ cores: [Number(core)] }));
    await serveContestant(new PipelinedContestant(tableOf(context.quick), cluster));
    await cluster?.close();
  },
};

export default suite;
