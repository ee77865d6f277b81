// The soak: a random program of integer matrices computes for minutes while workers are killed, stopped and replaced at random,
// two at once and again during repairs. A model in plain JavaScript knows every value; whatever is fetched is compared with it.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ClusterError, connect, Dispatcher, groupFiles } from "@weft/cluster/internal";
import * as weft from "@weft/core";
import { median, quantile, seededRandom } from "@weft/formats/stats";
import type { Context, Suite } from "./context.js";

const main = fileURLToPath(new URL("./main.js", import.meta.resolve("@weft/cluster")));

export interface SoakRecord {
  seconds: number;
  seed: number;
  /** Random operations, and fetched tensors that were compared. */
  operations: number;
  compared: number;
  wrong: string[];
  /** Errors that named lost data; the program began again with new data. */
  errors: string[];
  faults: Record<string, number>;
  recomputed: number;
  /** Seconds of every fetch: the longest ones contain a fault and its repair. */
  fetches: { median: number; p99: number; longest: number };
  left: string[];
}

const side = 24;
const modulus = 97;
const live = 6;
/** Operations after which a value begins again from an array: lineage is bounded. */
const maxDepth = 150;

/** A matrix on the cluster, and what it should be. */
interface Value {
  tensor: weft.Tensor;
  expected: Int32Array;
  depth: number;
}

type Model = (a: Int32Array, b: Int32Array) => Int32Array;
const each = (of: (i: number, j: number) => number): Int32Array =>
  Int32Array.from(
    { length: side * side },
    (_, k) => ((of(Math.floor(k / side), k % side) % modulus) + modulus) % modulus,
  );
const rem = (x: weft.Tensor): weft.Tensor => weft.mod(x, modulus);

/** Operations on two matrices, and the same in plain arithmetic. */
const operations: [(a: weft.Tensor, b: weft.Tensor) => weft.Tensor, Model][] = [
  [(a, b) => rem(a.add(b)), (a, b) => each((i, j) => a[i * side + j] + b[i * side + j])],
  [(a, b) => rem(a.mul(b).sub(3)), (a, b) => each((i, j) => a[i * side + j] * b[i * side + j] - 3)],
  [
    (a, b) => rem(a.matmul(b)),
    (a, b) =>
      each((i, j) => {
        let sum = 0;
        for (let k = 0; k < side; k++) sum += a[i * side + k] * b[k * side + j];
        return sum;
      }),
  ],
  [
    (a, b) => rem(a.transpose().add(b.sum(0))),
    (a, b) =>
      each((i, j) => {
        let sum = a[j * side + i];
        for (let k = 0; k < side; k++) sum += b[k * side + j];
        return sum;
      }),
  ],
];

/** Workers that are killed, stopped and replaced. */
class Herd {
  readonly children: ChildProcess[] = [];
  readonly all: ChildProcess[] = [];

  constructor(
    readonly port: number,
    readonly size: number,
  ) {}

  async add(): Promise<void> {
    const line = [main, "worker", JSON.stringify({ port: this.port, cores: 1, host: "localhost" })];
    const env = { ...process.env, WEFT_RATES: "assumed" };
    const child = spawn(process.execPath, line, { stdio: ["pipe", "pipe", "ignore"], env });
    this.all.push(child);
    await once(child.stdout!, "data");
    this.children.push(child);
  }

  async fill(): Promise<void> {
    while (this.children.length < this.size) await this.add();
  }

  take(random: () => number): ChildProcess {
    return this.children.splice(Math.floor(random() * this.children.length), 1)[0];
  }
}

const faults: Record<string, (herd: Herd, random: () => number) => Promise<void>> = {
  async "one killed"(herd, random) {
    herd.take(random).kill("SIGKILL");
  },
  async "two killed at once"(herd, random) {
    herd.take(random).kill("SIGKILL");
    herd.take(random).kill("SIGKILL");
  },
  async "another killed during the repair"(herd, random) {
    herd.take(random).kill("SIGKILL");
    await delay(50 + 500 * random());
    herd.take(random).kill("SIGKILL");
  },
  async "one replaced"(herd, random) {
    await herd.add();
    herd.take(random).kill("SIGKILL");
  },
  async "one stopped for seconds"(herd, random) {
    const child = herd.children[Math.floor(random() * herd.children.length)];
    child.kill("SIGSTOP");
    await delay(500 + 6000 * random());
    child.kill("SIGCONT");
  },
  async "one killed while it is stopped"(herd, random) {
    const child = herd.take(random);
    child.kill("SIGSTOP");
    await delay(300 * random());
    child.kill("SIGKILL");
  },
};

async function soak(context: Context, record: SoakRecord, save: () => void): Promise<void> {
  const random = seededRandom(record.seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)];
  const before = new Set(groupFiles());
  const dispatcher = await Dispatcher.start({ port: 0 });
  const herd = new Herd(dispatcher.port, context.quick ? 3 : 4);
  const times: number[] = [];
  let over = false;
  let hurting: Promise<void> = Promise.resolve();
  try {
    await herd.fill();
    const cluster = await connect(`localhost:${dispatcher.port}`);
    const fresh = (): Value => {
      const expected = each(() => Math.floor(random() * modulus));
      return { tensor: weft.shard(weft.tensor(expected).reshape([side, side]), { 0: "d" }), expected, depth: 0 };
    };
    const values = Array.from({ length: live }, fresh);
    const jitted = operations.map(([run]) => weft.jit(run));
    hurting = (async () => {
      const dice = seededRandom(record.seed + 1);
      while (!over) {
        await delay(400 + 1500 * dice());
        const [name, act] = Object.entries(faults)[Math.floor(dice() * Object.keys(faults).length)];
        record.faults[name] = (record.faults[name] ?? 0) + 1;
        await act(herd, dice);
        await herd.fill();
      }
    })();
    const end = performance.now() + record.seconds * 1e3;
    for (let turn = 0; performance.now() < end; turn++) {
      const at = Math.floor(random() * live);
      const kind = Math.floor(random() * operations.length);
      const [a, b] = [pick(values), pick(values)];
      const old = values[at];
      const depth = 1 + Math.max(a.depth, b.depth);
      if (depth > maxDepth) values[at] = fresh();
      else {
        const run = random() < 0.5 ? jitted[kind] : operations[kind][0];
        values[at] = { tensor: run(a.tensor, b.tensor), expected: operations[kind][1](a.expected, b.expected), depth };
      }
      old.tensor.dispose();
      record.operations++;
      if (turn % 5 !== 4) continue;
      const index = Math.floor(random() * live);
      const checked = values[index];
      const begin = performance.now();
      try {
        const got = await checked.tensor.data();
        const bad = got.findIndex((x, i) => Number(x) !== checked.expected[i]);
        record.compared++;
        if (bad >= 0)
          record.wrong.push(
            `operation ${record.operations}: element ${bad} is ${got[bad]}, not ${checked.expected[bad]}`,
          );
      } catch (error) {
        if (!(error instanceof ClusterError)) throw error;
        record.errors.push(error.message.split("\n")[0]);
        for (let i = 0; i < live; i++) values[i] = fresh();
      }
      times.push((performance.now() - begin) / 1e3);
    }
    over = true;
    await hurting;
    record.recomputed = cluster.device.counts.recomputed;
    await cluster.close();
  } finally {
    over = true;
    await hurting.catch(() => {});
    weft.setDevice("cpu");
    dispatcher.stop();
    for (const child of herd.all) child.kill("SIGKILL");
  }
  record.fetches = { median: median(times), p99: quantile(times, 0.99), longest: Math.max(...times) };
  await delay(500);
  record.left = groupFiles().filter((file) => !before.has(file));
  save();
}

const suite: Suite = {
  defaults: { seconds: "180" },
  options: { seed: { value: "1", help: "seed of the program and of the faults" } },
  async run(context) {
    const start: SoakRecord = {
      ...{ seconds: context.quick ? 5 : context.number("seconds"), seed: context.number("seed") },
      ...{ operations: 0, compared: 0, wrong: [], errors: [], faults: {}, recomputed: 0 },
      ...{ fetches: { median: 0, p99: 0, longest: 0 }, left: [] },
    };
    const { record, save } = context.open<SoakRecord>("soak", start);
    process.env.WEFT_FORCE_SHARD = "1";
    try {
      await soak(context, record, save);
    } finally {
      delete process.env.WEFT_FORCE_SHARD;
    }
    const { operations: count, compared, wrong, errors, recomputed, fetches } = record;
    context.log(
      `${count} operations, ${compared} compared, ${wrong.length} wrong, ${errors.length} errors, ${recomputed} recomputed; the longest fetch took ${fetches.longest.toFixed(1)} s`,
    );
    if (wrong.length > 0) throw new Error(wrong[0]);
  },
};

export default suite;
