// Clocks of a worker for measurements: beside the time that passed, how long its threads waited for a processor, and how long
// its control group kept it from running. A process that waits for others is not a slow one.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";

const seconds = z.number().finite().min(-1e6).max(1e9);

/** What a worker measured during one instruction, in seconds. */
export const measurement = z.object({
  /** The number that the client gave to the instruction. */
  measure: z.number().int().nonnegative(),
  wall: seconds,
  /** Processor time of all threads. */
  cpu: seconds,
  /** Time that a thread was ready and other processes ran: that of the thread that waited longest. */
  wait: seconds,
  /** Time that the control group's quota kept the process from running; part of the waiting time above. */
  throttled: seconds,
  /** Time that a processor was idle which this process may use: that of the one that was idle longest. */
  idle: seconds,
  /** Processors that the control groups allow; null without a limit. */
  quota: z.number().positive().nullable(),
});
export type Measurement = z.infer<typeof measurement>;

const read = (file: string): string => {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
};

/** Nanoseconds on a processor and waiting for one, by thread. */
function threadTimes(): Map<string, number> {
  try {
    const tasks = "/proc/self/task";
    return new Map(readdirSync(tasks).map((id) => [id, Number(read(`${tasks}/${id}/schedstat`).split(" ")[1]) || 0]));
  } catch {
    return new Map();
  }
}

/** Folders of this process's control group and its ancestors: version 2, or the processor controller of version 1. */
function controlGroups(): string[] {
  const lines = read("/proc/self/cgroup").split("\n");
  const old = lines.find((line) => /^\d+:([^:]*,)?cpu(,[^:]*)?:/.test(line));
  const line = old ?? lines.find((text) => text.startsWith("0::"));
  if (line === undefined) return [];
  const root = old === undefined ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
  const names = line
    .slice(line.indexOf(":", line.indexOf(":") + 1) + 1)
    .split("/")
    .filter((name) => name !== "" && name !== "..");
  return names.map((_, i) => join(root, ...names.slice(0, i + 1))).concat(root);
}

let folders: string[] | null = null;
const groups = (): string[] => {
  folders ??= controlGroups();
  return folders;
};

/** Seconds that quotas of this process's control groups kept it from running. */
function throttledSeconds(): number {
  const all = groups().map((folder) => {
    const text = read(join(folder, "cpu.stat"));
    const micro = /^throttled_usec (\d+)/m.exec(text);
    const nano = /^throttled_time (\d+)/m.exec(text);
    return micro !== null ? Number(micro[1]) / 1e6 : nano !== null ? Number(nano[1]) / 1e9 : 0;
  });
  return Math.max(0, ...all);
}

/** Processors that the control groups allow; null without a limit. */
function processorQuota(): number | null {
  const all = groups().flatMap((folder) => {
    const [limit, period] = read(join(folder, "cpu.max")).split(" ").map(Number);
    const [old, span] = ["quota", "period"].map((name) =>
      Number(read(join(folder, `cpu.cfs_${name}_us`)) || Number.NaN),
    );
    return [limit / period, old / span].filter((share) => Number.isFinite(share) && share > 0);
  });
  return all.length === 0 ? null : Math.min(...all);
}

/** Seconds that each processor was idle which this process may use. */
function idleSeconds(): Map<number, number> {
  const allowed = /^Cpus_allowed_list:\s*(\S+)/m.exec(read("/proc/self/status"))?.[1] ?? "";
  const ranges = allowed.split(",").map((text) => text.split("-").map(Number));
  const isAllowed = (cpu: number): boolean => ranges.some(([from, to = from]) => cpu >= from && cpu <= to);
  // In hundredths of a second: user, nice, system, idle, waiting for disks.
  const lines = [...read("/proc/stat").matchAll(/^cpu(\d+) \d+ \d+ \d+ (\d+) (\d+)/gm)];
  return new Map(
    lines
      .filter(([, cpu]) => isAllowed(Number(cpu)))
      .map(([, cpu, idle, disk]) => [Number(cpu), (Number(idle) + Number(disk)) / 100]),
  );
}

/** Starts the clocks; the result reads them. */
export function startClocks(): (measure: number) => Measurement {
  const throttled = throttledSeconds();
  const waits = threadTimes();
  const idle = idleSeconds();
  const cpu = process.cpuUsage();
  const begin = performance.now();
  return (measure) => {
    const wall = (performance.now() - begin) / 1e3;
    const { user, system } = process.cpuUsage(cpu);
    const longest = [...threadTimes()].map(([id, time]) => time - (waits.get(id) ?? 0));
    return {
      measure,
      wall,
      cpu: (user + system) / 1e6,
      wait: Math.max(0, ...longest) / 1e9,
      throttled: throttledSeconds() - throttled,
      idle: Math.max(0, ...[...idleSeconds()].map(([cpu, time]) => time - (idle.get(cpu) ?? time))),
      quota: processorQuota(),
    };
  };
}

const loaderLines = 4000;
const loaderWords = 60;

/** Bytes of the file that `load` reads. */
export const loaderBytes = loaderLines * loaderWords * 7;

/**
 * What loading data costs a host: a file is written, read and split into lines and numbers. Only this process's own file in
 * the system's temporary folder is used.
 */
export function loadData(): number {
  const line = Array.from({ length: loaderWords }, (_, i) => String(100_000 + i)).join(" ");
  const file = join(tmpdir(), `weft-preflight-${process.pid}-${Math.random().toString(36).slice(2)}`);
  try {
    writeFileSync(file, `${line}\n`.repeat(loaderLines), { mode: 0o600, flag: "wx" });
    let sum = 0;
    for (const row of readFileSync(file, "utf8").split("\n")) for (const word of row.split(" ")) sum += Number(word);
    return sum;
  } finally {
    rmSync(file, { force: true });
  }
}
