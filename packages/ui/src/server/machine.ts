// The status strip of the web app: the load of the machine, and whether a measurement now would be valid. The lab samples the load once per
// interval. Trainings of the runs folder do not count as disturbance: their processes are passed as own.
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { cpus, hostname, totalmem } from "node:os";
import { plainText } from "@weft/formats/text";
import type { MachineNow, UtilizationHistory } from "../wire/index.js";

const intervalMs = 2000;
/** Ten minutes. */
const mostKept = 300;

type Witness = import("@weft/lab/internal/runner").MachineWitness;
type Gpu = MachineNow["devices"][number];

function memoryUsed(): number | null {
  try {
    const text = readFileSync("/proc/meminfo", "latin1");
    const of = (name: string): number => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(text)?.[1]) * 1024;
    const used = of("MemTotal") - of("MemAvailable");
    return Number.isFinite(used) ? used : null;
  } catch {
    return null;
  }
}

/** Watches the machine while somebody looks. */
export class MachineMonitor {
  #history: MachineNow[] = [];
  #nvidiaSmi = "nvidia-smi";
  #timer: NodeJS.Timeout | null = null;
  #witness: Witness | null = null;
  #gpus: Gpu[] = [];
  readonly #listeners = new Set<(now: MachineNow) => void>();

  /** @param own - Processes that belong to the runs: their load is not that of others. */
  constructor(private readonly own: () => Iterable<number>) {}

  /** Calls back with the newest state and every later one; returns a function that ends it. */
  listen(listener: (now: MachineNow) => void): () => void {
    this.#listeners.add(listener);
    const last = this.#history.at(-1);
    if (last !== undefined) listener(last);
    if (this.#timer === null) {
      void this.#start();
      this.#timer = setInterval(() => this.#sample(), intervalMs);
      this.#timer.unref();
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.close();
    };
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#witness = null;
  }

  async #start(): Promise<void> {
    // Loading the lab takes a while; the first picture comes first.
    if (this.#history.length === 0) await new Promise((resolve) => setTimeout(resolve, 700).unref());
    const { MachineWitness, nvidiaSmi } = await import("@weft/lab/internal/runner");
    this.#nvidiaSmi = nvidiaSmi();
    if (this.#timer !== null && this.#witness === null) this.#witness = new MachineWitness({ own: this.own });
    // The first sample needs an interval; a short one shows something soon.
    setTimeout(() => this.#history.length === 0 && this.#sample(), 400).unref();
  }

  #sample(): void {
    const witness = this.#witness;
    if (witness === null) return;
    const report = witness.report();
    this.#witness = null;
    void this.#start();
    this.#readGpus();
    const now: MachineNow = {
      t: Date.now() / 1000,
      host: hostname(),
      cores: cpus().length,
      cpuPercent: Math.min(100, report.ownPercent + report.foreignPercent),
      ownPercent: report.ownPercent,
      othersPercent: report.foreignPercent,
      memoryBytes: memoryUsed(),
      memoryTotalBytes: totalmem(),
      devices: this.#gpus,
      others: report.others.slice(0, 3).map(({ name, pid, percent }) => ({ name: plainText(name), pid, percent })),
      disturbance: report.disturbance,
    };
    this.#history.push(now);
    if (this.#history.length > mostKept) this.#history.shift();
    for (const listener of this.#listeners) listener(now);
  }

  /** GPUs by nvidia-smi, in the background: it takes a process, which may be slow. */
  #readGpus(): void {
    // A command of its own may stand for GPUs that this machine does not have.
    if (this.#nvidiaSmi === "nvidia-smi" && !existsSync("/dev/nvidiactl")) return;
    const fields = "index,utilization.gpu,memory.used,power.draw";
    execFile(
      this.#nvidiaSmi,
      [`--query-gpu=${fields}`, "--format=csv,noheader,nounits"],
      { timeout: 1500 },
      (error, text) => {
        if (error !== null) return;
        this.#gpus = text.split("\n").flatMap((line) => {
          const [index, use, memory, power] = line.split(",").map((part) => Number(part.trim()));
          if (!Number.isInteger(index) || line.trim() === "") return [];
          const known = (value: number): number | null => (Number.isFinite(value) ? value : null);
          return [
            { index, utilizationPercent: known(use), memoryBytes: known(memory * 2 ** 20), powerWatts: known(power) },
          ];
        });
      },
    );
  }

  /** What was seen since a time, for a run that records no utilization itself. */
  since(t: number): UtilizationHistory {
    const seen = this.#history.filter((now) => now.t >= t);
    const indices = [...new Set(seen.flatMap((now) => now.devices.map((device) => device.index)))].slice(0, 16);
    return {
      t: seen.map((now) => now.t),
      cpuPercent: seen.map((now) => now.cpuPercent),
      othersPercent: seen.map((now) => now.othersPercent),
      memoryBytes: seen.map((now) => now.memoryBytes),
      devices: indices.map((index) => {
        const of = seen.map((now) => now.devices.find((device) => device.index === index));
        return {
          index,
          utilizationPercent: of.map((device) => device?.utilizationPercent ?? null),
          memoryBytes: of.map((device) => device?.memoryBytes ?? null),
          powerWatts: of.map((device) => device?.powerWatts ?? null),
        };
      }),
    };
  }
}
