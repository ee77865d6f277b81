// Samples utilization during a run: CPU and memory from /proc, GPUs from one nvidia-smi process. Costs well under one percent of
// one core; unavailable sources are omitted.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { createInterface } from "node:readline";
import type { DeviceSample, HostSample, RecordOf } from "@weft/formats/internal";
import { nvidiaSmi, usableCores } from "./machine.js";
import type { RunProcesses } from "./processes.js";

const ticksPerSecond = 100;

interface CpuTimes {
  busy: number;
  total: number;
}

function readCpuTimes(): CpuTimes | null {
  try {
    const [, ...fields] = readFileSync("/proc/stat", "latin1").split("\n", 1)[0].trim().split(/\s+/);
    const times = fields.slice(0, 8).map(Number);
    const total = times.reduce((a, b) => a + b, 0);
    return { busy: total - times[3] - times[4], total };
  } catch {
    return null;
  }
}

function memoryUsed(): number | undefined {
  try {
    const text = readFileSync("/proc/meminfo", "latin1");
    const of = (name: string): number => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(text)?.[1] ?? Number.NaN) * 1024;
    const used = of("MemTotal") - of("MemAvailable");
    return Number.isFinite(used) ? used : undefined;
  } catch {
    return undefined;
  }
}

/** Runnable processes beside this one, which runs while it reads. */
function runQueue(): number | undefined {
  try {
    return Math.max(0, Number(readFileSync("/proc/loadavg", "latin1").split(" ")[3].split("/")[0]) - 1);
  } catch {
    return undefined;
  }
}

const gpuFields = [
  "index",
  "utilization.gpu",
  "memory.used",
  "memory.total",
  "power.draw",
  "clocks.sm",
  "temperature.gpu",
] as const;

/** Parses one line of nvidia-smi's CSV; unsupported fields ("[N/A]") are omitted. */
export function parseGpuLine(line: string): DeviceSample | null {
  const values = line.split(",").map((part) => Number(part.trim()));
  if (values.length !== gpuFields.length || !Number.isInteger(values[0])) return null;
  const sample: DeviceSample = { index: values[0] };
  const set = (key: keyof DeviceSample, value: number): void => {
    if (Number.isFinite(value)) sample[key] = value;
  };
  set("utilizationPercent", values[1]);
  set("memoryUsedBytes", values[2] * 2 ** 20);
  set("memoryTotalBytes", values[3] * 2 ** 20);
  set("powerWatts", values[4]);
  set("smClockMHz", values[5]);
  set("temperatureC", values[6]);
  return sample;
}

export class Sampler {
  private timer: NodeJS.Timeout | null = null;
  private smi: ChildProcess | null = null;
  private readonly latest = new Map<number, DeviceSample>();
  private before: CpuTimes | null = null;
  private jobTicks = 0;
  private jobAt = 0;
  private readonly cores = usableCores();

  constructor(
    private readonly processes: RunProcesses,
    private readonly intervalMs: number,
    private readonly write: (sample: RecordOf<"sample">) => void,
    private readonly hasGpus: boolean,
  ) {}

  start(): void {
    this.before = readCpuTimes();
    this.jobTicks = 0;
    this.jobAt = performance.now();
    if (this.hasGpus) this.startGpus();
    this.timer = setInterval(() => this.sample(), this.intervalMs);
    this.timer.unref();
  }

  stop(): void {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.smi?.kill("SIGKILL");
    this.smi = null;
  }

  private startGpus(): void {
    const smi = spawn(
      nvidiaSmi(),
      [
        `--query-gpu=${gpuFields.join(",")}`,
        "--format=csv,noheader,nounits",
        `--loop-ms=${Math.max(100, this.intervalMs)}`,
      ],
      { stdio: ["ignore", "pipe", "ignore"] },
    );
    smi.on("error", () => {});
    createInterface({ input: smi.stdout! }).on("line", (line) => {
      const sample = parseGpuLine(line);
      if (sample !== null) this.latest.set(sample.index, sample);
    });
    this.smi = smi;
  }

  sample(): void {
    const host: HostSample = {};
    const now = readCpuTimes();
    if (now !== null && this.before !== null && now.total > this.before.total) {
      host.cpuPercent = (100 * (now.busy - this.before.busy)) / (now.total - this.before.total);
      this.before = now;
    }
    const queue = runQueue();
    if (queue !== undefined) host.runQueue = queue;
    const memory = memoryUsed();
    if (memory !== undefined) host.memoryUsedBytes = memory;
    const use = this.processes.use();
    const at = performance.now();
    host.processes = use.pids.length;
    host.jobMemoryBytes = use.memoryBytes;
    // A process that exited no longer counts; a smaller sum is not a measurement of this interval.
    if (use.ticks >= this.jobTicks && at > this.jobAt)
      host.jobCpuPercent =
        (100 * (use.ticks - this.jobTicks)) / ticksPerSecond / ((at - this.jobAt) / 1000) / this.cores;
    // What is busy and not the job's belongs to others; `cpuPercent` counts all cores of the machine.
    if (host.cpuPercent !== undefined && host.jobCpuPercent !== undefined)
      host.foreignCpuPercent = Math.max(0, host.cpuPercent - (host.jobCpuPercent * this.cores) / cpus().length);
    this.jobTicks = use.ticks;
    this.jobAt = at;
    const record: RecordOf<"sample"> = { v: 1, type: "sample", t: Date.now() / 1000, host };
    if (this.latest.size > 0) record.devices = [...this.latest.values()].sort((a, b) => a.index - b.index);
    this.write(record);
  }
}
