// Records what runs as a Chrome trace (chrome://tracing, Perfetto): compiles, runs, and kernels where they are timed.
import { writeFileSync } from "node:fs";
import type { Executable, NamedRanges } from "../device/index.js";

interface TraceEvent {
  name: string;
  ph: "X";
  ts: number;
  dur: number;
  pid: number;
  tid: number;
  args?: Record<string, unknown>;
}

class Profiler {
  active = false;
  /** Of the current device. */
  ranges: NamedRanges | null = null;
  #events: TraceEvent[] = [];

  start(): void {
    this.#events = [];
    this.active = true;
  }

  /** Stops and writes the trace; returns the number of events. */
  stop(path: string): number {
    this.active = false;
    writeFileSync(path, JSON.stringify({ traceEvents: this.#events, displayTimeUnit: "ms" }));
    return this.#events.length;
  }

  #add(name: string, start: number, milliseconds: number, tid: number, args?: Record<string, unknown>): void {
    this.#events.push({ name, ph: "X", ts: start * 1e3, dur: milliseconds * 1e3, pid: process.pid, tid, args });
  }

  /** Names what happens inside: in the trace, and in the profiler of the device's vendor where one listens. */
  span<T>(name: string, body: () => T): T {
    if (!this.active && this.ranges === null) return body();
    const start = performance.now();
    this.ranges?.push(name);
    try {
      return body();
    } finally {
      this.ranges?.pop();
      if (this.active) this.#add(name, start, performance.now() - start, 1);
    }
  }

  record(executable: Executable, start: number, milliseconds: number): void {
    if (!this.active) return;
    this.#add(`run (${executable.kernels.length} kernels)`, start, milliseconds, 1);
    let at = start;
    executable.kernels.forEach((kernel, i) => {
      const took = (executable.lastTimes?.[i] ?? 0) * 1e3;
      if (took === 0) return;
      this.#add(kernel.name, at, took, 2, { kind: kernel.kind, flops: kernel.flops, bytes: kernel.bytes });
      at += took;
    });
  }
}

/** Records compilations and runs, and writes them as a Chrome trace. */
export const profiler = new Profiler();
