// The reliability drill: injects faults into real processes on one host and on several (namespaces), while a program computes
// with known integer results. Counts right and wrong results, measures how long a fault delays them, and looks for processes and
// files that remain. docs/reliability.md is generated from the record.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Cluster, ClusterError, connect, Dispatcher, groupFiles } from "@weft/cluster/internal";
import * as weft from "@weft/core";
import { median } from "@weft/formats/stats";
import { Hosts, noHosts } from "@weft/testing/hosts";
import type { Context, Suite } from "./context.js";

const main = fileURLToPath(new URL("./main.js", import.meta.resolve("@weft/cluster")));
const rows = 60;
const columns = 48;
const value = (i: number): number => ((i * 7) % 11) - 5;

/** Result of one trial. */
interface Trial {
  outcome: "right" | "wrong" | "error" | "hang";
  /** Seconds from the fault to the next result or error. */
  seconds: number;
  /** Error message. */
  message?: string;
  /** Processes and files that remained after the program had ended. */
  left: string[];
}

export interface DrillRow {
  id: string;
  title: string;
  /** What should happen: results, or an error that says what to do. */
  expected: "right" | "error";
  trials: Trial[];
  skipped?: string;
}

export interface DrillRecord {
  rows: DrillRow[];
}

/** The running cluster into which a fault is injected. */
interface DrillCluster {
  cluster: Cluster;
  workers: number[];
  hosts: Hosts | null;
  dispatcher: Dispatcher;
  addWorker(): Promise<number>;
}

interface Fault {
  id: string;
  title: string;
  expected: "right" | "error";
  /** Number of workers of each host. */
  workersPerHost: readonly number[];
  env?: Record<string, string>;
  act(target: DrillCluster): void | Promise<void>;
}

const kill = (pid: number, signal: NodeJS.Signals): void => {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended already.
  }
};

const faults: Fault[] = [
  {
    id: "worker-killed",
    title: "one of three workers is killed during a step",
    expected: "right",
    workersPerHost: [3],
    act: ({ workers }) => kill(workers[1], "SIGKILL"),
  },
  {
    id: "two-killed",
    title: "two of four workers are killed at once",
    expected: "right",
    workersPerHost: [4],
    act: ({ workers }) => {
      kill(workers[1], "SIGKILL");
      kill(workers[2], "SIGKILL");
    },
  },
  {
    id: "worker-stopped",
    title: "one of three workers is stopped (SIGSTOP)",
    expected: "right",
    workersPerHost: [3],
    act: ({ workers }) => kill(workers[1], "SIGSTOP"),
  },
  {
    id: "all-replaced",
    title: "all workers are replaced, one after the other",
    expected: "right",
    workersPerHost: [2],
    act: async ({ workers, addWorker }) => {
      for (const old of workers) {
        await addWorker();
        kill(old, "SIGKILL");
        await delay(300);
      }
    },
  },
  {
    id: "dispatcher-lost",
    title: "the dispatcher ends",
    expected: "error",
    workersPerHost: [2],
    act: ({ dispatcher }) => dispatcher.stop(),
  },
  {
    id: "host-killed",
    title: "one of three hosts loses all its processes",
    expected: "right",
    workersPerHost: [1, 2, 1],
    act: ({ hosts }) => hosts!.kill(2),
  },
  {
    id: "host-unplugged",
    title: "one of three hosts is unplugged: nothing arrives, nothing is refused",
    expected: "right",
    workersPerHost: [1, 2, 1],
    act: ({ hosts }) => hosts!.cut(2),
  },
  {
    id: "host-stopped",
    title: "all processes of one of three hosts are stopped",
    expected: "right",
    workersPerHost: [1, 2, 1],
    act: ({ hosts }) => hosts!.stop(2),
  },
];

/** Starts a worker and returns its process id in the namespace of this process. */
async function startWorker(hosts: Hosts | null, host: number, port: number, children: ChildProcess[]): Promise<number> {
  const local = { port, cores: 1, host: "localhost" };
  const options =
    hosts === null ? local : { ...local, host: hosts.address(0), dataHost: hosts.address(host), ...hosts.security };
  const line = [process.execPath, main, "worker", JSON.stringify(options)];
  const env = { WEFT_RATES: "assumed" };
  const child =
    hosts === null
      ? spawn(line[0], line.slice(1), { stdio: ["pipe", "pipe", "ignore"], env: { ...process.env, ...env } })
      : hosts.start(host, line, env);
  children.push(child);
  await once(child.stdout!, "data");
  return child.pid!;
}

/** Runs steps that need a sum over all workers, and returns the final state, whose values are known. */
async function compute(begin: () => Promise<void>, steps: number): Promise<Float32Array> {
  let x = weft.shard(weft.tensor(Float32Array.from({ length: rows * columns }, (_, i) => value(i))), { 0: "d" });
  x = weft.shard(x.reshape([rows, columns]), { 0: "d" });
  let fault: Promise<void> | null = null;
  for (let step = 0; step < steps; step++) {
    x = x.add(x.sum().mul(0)).add(1);
    if (step === Math.floor(steps / 2)) fault = begin();
    if (step % 4 === 3) await x.sum().item();
  }
  await fault;
  return (await x.data()) as Float32Array;
}

async function trial(fault: Fault, limitSeconds: number): Promise<Trial> {
  const hosts = fault.workersPerHost.length > 1 ? new Hosts(fault.workersPerHost.length) : null;
  const children: ChildProcess[] = [];
  const security = hosts === null ? {} : hosts.security;
  const dispatcher = await Dispatcher.start({ host: hosts?.address(0) ?? "localhost", port: 0, ...security });
  const before = new Set(groupFiles());
  const steps = 12;
  let hurt = 0;
  const result: Trial = { outcome: "hang", seconds: limitSeconds, left: [] };
  try {
    const workers: number[] = [];
    for (const [i, count] of fault.workersPerHost.entries())
      for (let k = 0; k < count; k++) workers.push(await startWorker(hosts, i + 1, dispatcher.port, children));
    const cluster = await connect(`${hosts?.address(0) ?? "localhost"}:${dispatcher.port}`, security);
    const addWorker = (): Promise<number> => startWorker(hosts, 1, dispatcher.port, children);
    const target = { cluster, workers, hosts, dispatcher, addWorker };
    const begin = async (): Promise<void> => {
      hurt = performance.now();
      await fault.act(target);
    };
    const limit = delay(limitSeconds * 1e3, null, { ref: false });
    const work = compute(begin, steps).catch((error: unknown) => error as Error);
    const got = await Promise.race([work, limit]);
    result.seconds = (performance.now() - hurt) / 1e3;
    if (got instanceof Error) {
      result.outcome = "error";
      result.message = got.message.split("\n")[0];
      if (!(got instanceof ClusterError)) result.message = `${got.name}: ${result.message}`;
    } else if (got !== null) result.outcome = got.every((x, i) => x === value(i) + steps) ? "right" : "wrong";
    await cluster.close();
  } finally {
    weft.setDevice("cpu");
    dispatcher.stop();
    for (const child of children) {
      kill(child.pid!, "SIGCONT");
      child.stdin?.end();
    }
    hosts?.remove();
  }
  for (const deadline = Date.now() + 8000; Date.now() < deadline; await delay(100))
    if (
      children.every(
        ({ pid, exitCode, signalCode }) => exitCode !== null || signalCode !== null || !existsSync(`/proc/${pid}`),
      )
    )
      break;
  for (const { pid, exitCode, signalCode } of children)
    if (exitCode === null && signalCode === null && existsSync(`/proc/${pid}`)) result.left.push(`process ${pid}`);
  for (const file of groupFiles()) if (!before.has(file)) result.left.push(file);
  return result;
}

async function run(context: Context): Promise<void> {
  const { record, save } = context.open<DrillRecord>("drill", { rows: [] }, { settings: { limitSeconds: 60 } });
  const trials = context.quick ? 1 : context.number("rounds");
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    for (const fault of context.choose(faults)) {
      const row: DrillRow = { id: fault.id, title: fault.title, expected: fault.expected, trials: [] };
      record.rows.push(row);
      if (fault.workersPerHost.length > 1 && noHosts !== false) row.skipped = noHosts;
      else for (let i = 0; i < trials; i++) row.trials.push(await trial(fault, 60));
      const counts = row.trials.map(({ outcome }) => outcome);
      const seconds = row.trials.map((one) => one.seconds);
      const said =
        seconds.length === 0 ? `skipped: ${row.skipped}` : `${counts.join(" ")}, ${median(seconds).toFixed(1)} s`;
      context.log(
        `${fault.id}: ${said}${row.trials.some(({ left }) => left.length > 0) ? ", something was left" : ""}`,
      );
      save();
    }
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
  }
}

const suite: Suite = { defaults: { rounds: "5" }, run };

export default suite;
