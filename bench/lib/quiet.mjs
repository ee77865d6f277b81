// Was the machine ours while we measured? Compares the time that the cores were busy with the time that the measured
// process used; what is left belongs to others. Linux only: elsewhere every round counts as quiet.
import { readFileSync } from "node:fs";

const ticksPerSecond = 100;

/** Busy and total ticks of these cores since boot. */
function coreTicks(cores) {
  const stat = readFileSync("/proc/stat", "utf8");
  let busy = 0;
  for (const core of cores) {
    const fields = new RegExp(`^cpu${core} (.*)$`, "m").exec(stat)?.[1].split(" ").map(Number) ?? [];
    const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = fields;
    busy += user + nice + system + irq + softirq + steal;
  }
  return busy;
}

/** Ticks that a process and its threads have used. */
function processTicks(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** Runs a measurement; returns its result and the share of the cores that other processes took meanwhile. */
export async function watched(cores, pid, body) {
  let before;
  try {
    before = { busy: coreTicks(cores), own: processTicks(pid), at: performance.now() };
  } catch {
    return { result: await body(), foreign: 0 };
  }
  const result = await body();
  const seconds = (performance.now() - before.at) / 1e3;
  const others = coreTicks(cores) - before.busy - (processTicks(pid) - before.own);
  return { result, foreign: Math.max(0, others / ticksPerSecond / seconds / cores.length) };
}

/** Waits until others leave the cores alone, at most `patience` seconds. */
export async function waitForQuiet(cores, patience, limit) {
  const end = performance.now() + patience * 1e3;
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  for (;;) {
    const { foreign } = await watched(cores, process.pid, () => pause(200));
    if (foreign <= limit || performance.now() > end) return foreign;
  }
}
