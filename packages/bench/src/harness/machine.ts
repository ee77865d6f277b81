// The machine under measurement: hardware, versions, the cores that this process may use, and how much of them other
// processes take meanwhile.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg, platform, release, totalmem } from "node:os";

export interface Hardware {
  processor: string;
  cores: number;
  coreNumbers?: number[];
  simd?: string;
  virtual?: boolean;
  memoryGiB?: number;
  system?: string;
  kernel?: string;
  loadBefore?: number;
}

function field(pattern: RegExp, path: string): string | null {
  try {
    return pattern.exec(readFileSync(path, "utf8"))?.[1] ?? null;
  } catch {
    return null;
  }
}

/** Cores that the affinity mask of this process allows. */
export function allowedCores(): number[] {
  const list = field(/^Cpus_allowed_list:\s*(.*)$/m, "/proc/self/status") ?? "0";
  return list.split(",").flatMap((part) => {
    const [from, to = from] = part.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  });
}

export function describeHardware(cores: readonly number[]): Hardware {
  const flags = field(/^flags\s*:(.*)$/m, "/proc/cpuinfo") ?? "";
  return {
    processor: cpus()[0]?.model ?? "unknown",
    cores: cores.length,
    coreNumbers: [...cores],
    simd: ["avx512f", "avx2", "asimd"].find((f) => flags.includes(f)) ?? "unknown",
    virtual: flags.includes("hypervisor"),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: field(/^PRETTY_NAME="(.*)"$/m, "/etc/os-release") ?? platform(),
    kernel: release(),
    loadBefore: loadavg()[0],
  };
}

export const toolVersions = (): { node: string; compiler: string } => ({
  node: process.version,
  compiler: spawnSync("cc", ["--version"], { encoding: "utf8" }).stdout?.split("\n")[0] ?? "",
});

/** Environment that limits every numerical library to as many threads as there are cores. */
export function threadEnvironment(cores: readonly number[]): NodeJS.ProcessEnv {
  const threads = String(cores.length);
  return { OMP_NUM_THREADS: threads, OPENBLAS_NUM_THREADS: threads, MKL_NUM_THREADS: threads, WEFT_THREADS: threads };
}

/** Variables by which libraries take the processor for another one. */
const kernelChoices = [
  ...["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS"],
  ...["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"],
];

/** Every contestant uses the kernels that it chooses on this processor itself: removes variables that say otherwise, and names them. */
export function clearKernelChoices(): string[] {
  const found = kernelChoices.filter((name) => process.env[name] !== undefined);
  for (const name of found) delete process.env[name];
  return found;
}

let hasTaskset: boolean | null = null;

/** Command line that stays on the given cores, where taskset is installed. */
export function pinned(cores: readonly number[], command: string, args: readonly string[]): [string, string[]] {
  hasTaskset ??= spawnSync("taskset", ["--version"], { stdio: "ignore" }).status === 0;
  return hasTaskset ? ["taskset", ["-c", cores.join(","), command, ...args]] : [command, [...args]];
}

const ticksPerSecond = 100;

/** Ticks since boot during which these cores were busy. */
function coreTicks(cores: readonly number[]): number {
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
function processTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** Runs a measurement; also returns the share of the cores that other processes took meanwhile (0 where /proc is missing). */
export async function withForeignLoad<T>(
  cores: readonly number[],
  pid: number,
  body: () => Promise<T>,
): Promise<{ result: T; foreign: number }> {
  let before: { busy: number; own: number; at: number };
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

/** Waits until other processes take at most `limit` of the cores, but no longer than `patience` seconds. */
export async function waitForIdleCores(cores: readonly number[], patience: number, limit: number): Promise<void> {
  const end = performance.now() + patience * 1e3;
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 200));
  while (performance.now() < end) {
    const { foreign } = await withForeignLoad(cores, process.pid, pause);
    if (foreign <= limit) return;
  }
}
