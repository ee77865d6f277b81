// Runs small functions on chosen workers and returns what the workers' own clocks say: queues, messages and the client's load
// are not part of it.
import { type CollectiveKind, type GraphFn, range, type Shape, WeftError } from "@weft/core/internal/graph";
import { build, make } from "@weft/core/internal/ops";
import { collectiveProbe } from "@weft/core/internal/runtime";
import { ClusterBuffer } from "./buffer.js";
import type { Measurement } from "./clocks.js";
import type { Cluster } from "./connect.js";

/** A function on some workers, with its operand there. */
export interface Probe {
  ranks: readonly number[];
  program: number;
  /** Id of the operand; it exists on every worker. */
  operand: number;
}

const fillWith = 1 / 512;

/** A chain of products of n x n matrices; its values stay those of the operand if that is 1 / n everywhere. */
export function productsFn(n: number, times: number): GraphFn {
  const x = build.input([n, n], "float32");
  let y = x;
  for (const _ of range(times)) y = build.matmul(y, x);
  return { params: [x], outputs: [build.slice(y, [0, 0], [1, 1])] };
}

/** Reads n float32 from memory. */
export function streamFn(n: number): GraphFn {
  const x = build.input([n], "float32");
  return { params: [x], outputs: [build.reduce("sum", build.add(x, build.full([n], 1, "float32")), [0])] };
}

/** A collective on n x n float32 over these ranks, from one of them. */
function collectiveFn(kind: CollectiveKind, ranks: readonly number[], rank: number, n: number): GraphFn {
  const { attrs, operand } = collectiveProbe(kind, [[...ranks]], rank, n);
  const x = build.input([n, n], "float32");
  // Every rank starts from its part of the same square, so that all of them have one operand.
  const part = build.slice(x, [0, 0], [...operand]);
  const moved = make("collective", [build.add(part, part)], attrs);
  return { params: [x], outputs: [build.slice(moved, [0, 0], [1, 1])] };
}

/** Bytes that a rank receives in such a collective. */
export const collectiveBytes = (kind: CollectiveKind, members: number, n: number): number =>
  collectiveProbe(kind, [range(members)], 0, n).bytes;

export class Prober {
  readonly #measured = new Map<string, Measurement>();
  readonly #programs: number[] = [];
  /** Ids of operands by shape; all workers have them. */
  readonly #operands = new Map<string, number>();
  readonly #waiting = new Map<string, () => void>();
  readonly #ids: readonly string[];
  #next = 1;

  /** `patience`: seconds for one answer. */
  constructor(
    readonly cluster: Cluster,
    readonly patience = 20,
  ) {
    this.#ids = cluster.workers.map(({ id }) => id);
    cluster.device.connection.onMeasured = (worker, value) => {
      const key = `${worker}/${value.measure}`;
      this.#measured.set(key, value);
      this.#waiting.get(key)?.();
    };
  }

  get #connection() {
    return this.cluster.device.connection;
  }

  #define(functions: ReadonlyMap<number, GraphFn>): number {
    const { workers } = this.#connection;
    if (workers.length !== this.#ids.length || workers.some(({ id }, i) => id !== this.#ids[i]))
      throw new WeftError("preflight: workers joined or left while they were measured; run it again");
    const program = this.cluster.device.executables.define(functions, [false]);
    this.#programs.push(program);
    return program;
  }

  #run(program: number, inputs: number[], measure?: number): number {
    const { id } = new ClusterBuffer(4);
    this.#connection.send({ t: "run", program, inputs, outputs: [id], step: 0, site: null, measure });
    return id;
  }

  /** An operand of this shape on every worker, filled with the same number. */
  #operand(shape: Shape): number {
    const key = shape.join("x");
    let id = this.#operands.get(key);
    if (id === undefined) {
      const filled: GraphFn = { params: [], outputs: [build.full(shape, fillWith, "float32")] };
      id = this.#run(this.#define(new Map(this.#ids.map((_, rank) => [rank, filled]))), []);
      this.#operands.set(key, id);
    }
    return id;
  }

  /** Defines functions of one operand, all of the same shape. */
  prepare(functions: ReadonlyMap<number, GraphFn>): Probe {
    const [{ params }] = [...functions.values()];
    const operand = this.#operand(params[0].shape);
    return { ranks: [...functions.keys()], program: this.#define(functions), operand };
  }

  collective(kind: CollectiveKind, ranks: readonly number[], n: number): Probe {
    return this.prepare(new Map(ranks.map((rank) => [rank, collectiveFn(kind, ranks, rank, n)])));
  }

  /** Runs a probe several times in a row; one list per run, with one measurement per worker. */
  async measure({ ranks, program, operand }: Probe, times: number): Promise<Measurement[][]> {
    const runs = range(times).map(() => {
      const measure = this.#next++;
      return { measure, output: this.#run(program, [operand], measure) };
    });
    await this.#finished(
      ranks,
      runs.map(({ output }) => output),
    );
    return runs.map(({ measure }) => ranks.map((rank) => this.#take(this.#ids[rank], measure)));
  }

  /** Seconds from the first message of several runs in a row to the last answer, on this process's clock. */
  async elapsed({ ranks, program, operand }: Probe, times: number): Promise<number> {
    const begin = performance.now();
    const outputs = range(times).map(() => this.#run(program, [operand]));
    await this.#finished(ranks, outputs);
    return (performance.now() - begin) / 1e3;
  }

  /** Waits for the last of some outputs, and frees them. */
  async #finished(ranks: readonly number[], outputs: readonly number[]): Promise<void> {
    const ids = ranks.map((rank) => this.#ids[rank]);
    const last = outputs[outputs.length - 1];
    await this.#within(Promise.all(ids.map((id) => this.#connection.link(id).peek(last))), ids);
    for (const output of outputs) this.#connection.free(output);
  }

  /** How long a worker's host takes to load data. */
  async load(rank: number): Promise<Measurement> {
    const id = this.#ids[rank];
    const measure = this.#next++;
    const arrived = new Promise<void>((resolve) => {
      this.#waiting.set(`${id}/${measure}`, resolve);
    });
    this.#connection.send({ t: "probe", worker: id, measure });
    await this.#within(arrived, [id]);
    this.#waiting.delete(`${id}/${measure}`);
    return this.#take(id, measure);
  }

  #take(worker: string, measure: number): Measurement {
    const key = `${worker}/${measure}`;
    const found = this.#measured.get(key);
    if (found === undefined) throw new WeftError(`preflight: worker ${worker} did not report its time`);
    this.#measured.delete(key);
    return found;
  }

  async #within<T>(work: Promise<T>, ids: readonly string[]): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const why = `preflight: ${ids.join(" and ")} did not answer within ${this.patience} s`;
      timer = setTimeout(() => reject(new WeftError(why)), this.patience * 1e3);
    });
    return Promise.race([work, late]).finally(() => clearTimeout(timer));
  }

  /** Makes the workers forget all functions and operands. */
  close(): void {
    this.#connection.onMeasured = () => {};
    for (const id of this.#operands.values()) this.#connection.free(id);
    for (const program of this.#programs) this.cluster.device.executables.forget(program);
  }
}
