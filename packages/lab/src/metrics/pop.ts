// POP efficiencies, computed from the useful time of each rank. A value of 0.8 is acceptable.

/** The POP efficiencies of a run. */
export interface PopEfficiencies {
  /** Mean useful time over the largest. */
  loadBalance: number;
  /** Largest useful time over the run time. */
  communication: number;
  /** Their product. */
  parallel: number;
  /** Total useful time relative to the baseline; null without a baseline. */
  computation: number | null;
  /** Parallel efficiency times computational scaling. */
  global: number | null;
}

/** `useful` is the computing time of each rank, `runtime` the wall time, in one unit. */
export function popEfficiencies(
  useful: readonly number[],
  runtime: number,
  baselineUsefulTotal?: number,
): PopEfficiencies | null {
  if (useful.length === 0 || !(runtime > 0) || useful.some((u) => !(u >= 0))) return null;
  const largest = useful.reduce((a, b) => Math.max(a, b));
  if (largest === 0) return null;
  const total = useful.reduce((a, b) => a + b, 0);
  const loadBalance = total / useful.length / largest;
  const communication = largest / runtime;
  const parallel = loadBalance * communication;
  const computation = baselineUsefulTotal === undefined ? null : baselineUsefulTotal / total;
  return {
    loadBalance,
    communication,
    parallel,
    computation,
    global: computation === null ? null : parallel * computation,
  };
}
