// The machine as a witness: what else used the processor and the GPUs while something was measured. Processor time is
// cumulative in /proc, so that the answer is right even if no timer could fire in between.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import { plainText } from "@weft/formats/text";
import { nvidiaSmi } from "./machine.js";

/** A process that is not part of the measurement, and what it used. */
interface OtherProcess {
  pid: number;
  name: string;
  /** Percent of all cores. */
  percent: number;
}

/** What the machine did beside a measurement. */
export interface MachineReport {
  /** How long the machine was watched. */
  seconds: number;
  /** Number of cores of the machine. */
  cores: number;
  /** Percent of all cores: the measured processes, and all others. */
  ownPercent: number;
  /** Percent of all cores that other processes used. */
  foreignPercent: number;
  /** Percent of the time that the hypervisor gave to others. */
  stealPercent: number;
  /** Percent of the time in which a quota stopped the processes of this container. */
  throttledPercent: number;
  /** Runnable processes, mean of the samples. */
  runQueue: number | null;
  /** Slowest core's clock over the fastest, where the machine tells; below 1 when it is hot or saves power. */
  clockRatio: number | null;
  /** The largest other users of the processor. */
  others: OtherProcess[];
  /** Processes of others on the GPUs. */
  gpuOthers: { pid: number; name: string; memoryMiB: number | null }[];
  /** Why the measurement cannot be trusted; null if the machine was quiet. */
  disturbance: string | null;
}

/** Above these shares of the machine a measurement is disturbed. */
const limits = { foreignPercent: 15, stealPercent: 5, throttledPercent: 5 };

interface ProcessTimes {
  parent: number;
  /** Processor time of the process itself, and of its children that ended. */
  ticks: number;
  childTicks: number;
  /** Start of the process: a process id that is used again has another. */
  started: string;
  name: string;
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}

/** Processor ticks of every visible process. */
function processTimes(): Map<number, ProcessTimes> {
  const found = new Map<number, ProcessTimes>();
  let names: string[] = [];
  try {
    names = readdirSync("/proc");
  } catch {
    return found;
  }
  for (const entry of names) {
    if (!/^\d+$/.test(entry)) continue;
    const text = readText(`/proc/${entry}/stat`);
    if (text === null) continue;
    // The name is in parentheses and may contain anything.
    const end = text.lastIndexOf(")");
    const fields = text.slice(end + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    if (Number.isFinite(ticks))
      found.set(Number(entry), {
        parent: Number(fields[1]),
        ticks,
        childTicks: Number(fields[13]) + Number(fields[14]),
        started: fields[19] ?? "",
        name: text.slice(text.indexOf("(") + 1, end),
      });
  }
  return found;
}

/** The same process in another table, or undefined. */
const sameIn = (table: ReadonlyMap<number, ProcessTimes>, pid: number, process: ProcessTimes) => {
  const found = table.get(pid);
  return found?.started === process.started ? found : undefined;
};

/**
 * Ticks that each process spent between two tables, with those of children that ended in between: a compiler that ran for a
 * second is in neither table, but in the account of the process that waited for it. The first process waits for orphans of
 * everybody, ours too, and is asked about itself alone.
 */
function ticksBetween(
  before: ReadonlyMap<number, ProcessTimes>,
  after: ReadonlyMap<number, ProcessTimes>,
): Map<number, number> {
  const used = new Map<number, number>();
  for (const [pid, process] of after) {
    const then = sameIn(before, pid, process);
    const children = pid === 1 ? 0 : process.childTicks - (then?.childTicks ?? 0);
    used.set(pid, process.ticks - (then?.ticks ?? 0) + children);
  }
  // What a child had used before it was watched came into the account of its parent as well.
  for (const [pid, process] of before) {
    if (sameIn(after, pid, process) !== undefined) continue;
    let { parent } = process;
    for (
      let up = before.get(parent);
      up !== undefined && sameIn(after, parent, up) === undefined;
      up = before.get(parent)
    )
      parent = up.parent;
    if (parent !== 1 && used.has(parent)) used.set(parent, used.get(parent)! - process.ticks - process.childTicks);
  }
  return used;
}

/** This process and everything that it started. */
function descendants(table: ReadonlyMap<number, ProcessTimes>, root: number): Set<number> {
  const children = new Map<number, number[]>();
  for (const [pid, { parent }] of table) children.set(parent, [...(children.get(parent) ?? []), pid]);
  const own = new Set<number>();
  const queue = [root];
  for (let pid = queue.pop(); pid !== undefined; pid = queue.pop()) {
    if (own.has(pid)) continue;
    own.add(pid);
    queue.push(...(children.get(pid) ?? []));
  }
  return own;
}

/** Busy, stolen and total ticks of the whole machine. */
function machineTicks(): { busy: number; steal: number; total: number } | null {
  const line = readText("/proc/stat")?.split("\n", 1)[0];
  if (line === undefined) return null;
  const times = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const total = times.reduce((a, b) => a + b, 0);
  return { busy: total - times[3]! - times[4]! - times[7]!, steal: times[7]!, total };
}

function throttledMicroseconds(): number {
  return Number(/throttled_usec (\d+)/.exec(readText("/sys/fs/cgroup/cpu.stat") ?? "")?.[1] ?? 0);
}

function clockRatio(): number | null {
  const clocks = [...(readText("/proc/cpuinfo") ?? "").matchAll(/cpu MHz\s*:\s*([\d.]+)/g)].map((m) => Number(m[1]));
  if (clocks.length < 2) return null;
  return clocks.reduce((a, b) => Math.min(a, b)) / clocks.reduce((a, b) => Math.max(a, b));
}

function gpuProcesses(own: ReadonlySet<number>): MachineReport["gpuOthers"] {
  let text: string;
  try {
    text = execFileSync(
      nvidiaSmi(),
      ["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"],
      { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], timeout: 5000 },
    );
  } catch {
    return [];
  }
  return text.split("\n").flatMap((line) => {
    const [pid, name, memory] = line.split(",").map((part) => part.trim());
    if (!/^\d+$/.test(pid ?? "") || own.has(Number(pid))) return [];
    const memoryMiB = Number(memory);
    return [{ pid: Number(pid), name: name ?? "?", memoryMiB: Number.isFinite(memoryMiB) ? memoryMiB : null }];
  });
}

/** Options of `MachineWitness`. @inline */
interface WitnessOptions {
  /** Processes of the measurement, beside this one and everything that it started. */
  own?: () => Iterable<number>;
  /** Ask for other users of the GPUs; default false, because it takes a process. */
  gpus?: boolean;
  /** How many of the other processes to list; default the five largest. */
  listed?: number;
}

/**
 * Watches the machine from its creation until `report`: processor time of others, steal, quotas and clocks.
 *
 * @example
 * ```ts
 * import { MachineWitness } from "@weft/lab";
 *
 * const witness = new MachineWitness();
 * // ... measure something ...
 * const { disturbance } = witness.report();
 * console.log(disturbance ?? "the machine was quiet");
 * ```
 */
export class MachineWitness {
  readonly #options: WitnessOptions;
  readonly #before = processTimes();
  readonly #machine = machineTicks();
  readonly #throttled = throttledMicroseconds();
  readonly #began = performance.now();
  readonly #own = new Set<number>();
  readonly #queues: number[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(options: WitnessOptions = {}) {
    this.#options = options;
    this.#sample();
    this.#timer = setInterval(() => this.#sample(), 500);
    this.#timer.unref();
  }

  #sample(): void {
    const queue = Number(readText("/proc/loadavg")?.split(" ")[3]?.split("/")[0]);
    // This process itself is runnable while it reads.
    if (Number.isFinite(queue)) this.#queues.push(Math.max(0, queue - 1));
    for (const pid of this.#options.own?.() ?? []) this.#own.add(pid);
  }

  /** What happened since the creation. Stops watching. */
  report(): MachineReport {
    clearInterval(this.#timer);
    this.#sample();
    const after = processTimes();
    const now = machineTicks();
    const own = new Set([...descendants(after, process.pid), ...descendants(this.#before, process.pid), ...this.#own]);
    const seconds = (performance.now() - this.#began) / 1000;
    const cores = cpus().length;
    const total = now === null || this.#machine === null ? 0 : now.total - this.#machine.total;
    const percent = (ticks: number): number => (total > 0 ? (100 * ticks) / total : 0);
    const others: OtherProcess[] = [];
    const ticks = ticksBetween(this.#before, after);
    let visible = 0;
    for (const [pid, used] of ticks) {
      if (own.has(pid) || used <= 0) continue;
      visible += used;
      others.push({ pid, name: plainText(after.get(pid)!.name), percent: percent(used) });
    }
    let ownTicks = 0;
    for (const pid of own) ownTicks += Math.max(0, ticks.get(pid) ?? 0);
    const busy = now === null || this.#machine === null ? 0 : now.busy - this.#machine.busy;
    // What other containers use is in no list, so that only what is visible is called foreign.
    const foreignPercent = percent(visible);
    const report: MachineReport = {
      seconds,
      cores,
      ownPercent: Math.max(percent(ownTicks), percent(Math.max(0, busy - visible))),
      foreignPercent,
      stealPercent: now === null || this.#machine === null ? 0 : percent(now.steal - this.#machine.steal),
      throttledPercent: Math.min(
        100,
        ((throttledMicroseconds() - this.#throttled) / 1e6 / Math.max(seconds, 1e-3)) * 100,
      ),
      runQueue: this.#queues.length === 0 ? null : this.#queues.reduce((a, b) => a + b, 0) / this.#queues.length,
      clockRatio: clockRatio(),
      others: others.sort((a, b) => b.percent - a.percent).slice(0, this.#options.listed ?? 5),
      gpuOthers: this.#options.gpus === true ? gpuProcesses(own) : [],
      disturbance: null,
    };
    return { ...report, disturbance: disturbanceOf(report) };
  }
}

/** Why a measurement beside this cannot be trusted, or null. */
export function disturbanceOf(report: Omit<MachineReport, "disturbance">): string | null {
  const reasons: string[] = [];
  const named = report.others
    .filter((o) => o.percent >= 3)
    .map((o) => `${o.name} (pid ${o.pid}) ${o.percent.toFixed(0)}%`);
  if (report.foreignPercent > limits.foreignPercent)
    reasons.push(
      `others used ${report.foreignPercent.toFixed(0)}% of the cores${named.length === 0 ? "" : `: ${named.slice(0, 3).join(", ")}`}`,
    );
  if (report.stealPercent > limits.stealPercent)
    reasons.push(`the hypervisor gave ${report.stealPercent.toFixed(0)}% of the time to others`);
  if (report.throttledPercent > limits.throttledPercent)
    reasons.push(`a quota stopped this container ${report.throttledPercent.toFixed(0)}% of the time`);
  if (report.gpuOthers.length > 0)
    reasons.push(
      `others used the GPU: ${report.gpuOthers
        .slice(0, 3)
        .map((p) => `${plainText(p.name)} (pid ${p.pid})`)
        .join(", ")}`,
    );
  return reasons.length === 0 ? null : reasons.join("; ");
}
