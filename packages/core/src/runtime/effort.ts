// Whether a measurement had the processor to itself: the time that this process computed, against the time that passed.
/** Below this share, other processes used the core during the measurement. */
const undisturbed = 0.9;

export class Effort {
  #passed = 0;
  #computed = 0;

  /** Runs what is timed. */
  during<T>(body: () => T): T {
    const start = performance.now();
    const before = process.cpuUsage();
    try {
      return body();
    } finally {
      const { user, system } = process.cpuUsage(before);
      this.#passed += performance.now() - start;
      this.#computed += (user + system) / 1e3;
    }
  }

  get isDisturbed(): boolean {
    return this.#computed < undisturbed * this.#passed;
  }
}

/** Whether this process gets the processor that it asks for: it computes for a moment and compares CPU time with wall time. */
export function isQuiet(milliseconds = 40): boolean {
  const effort = new Effort();
  effort.during(() => {
    const end = performance.now() + milliseconds;
    while (performance.now() < end);
  });
  return !effort.isDisturbed;
}
