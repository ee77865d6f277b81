// Timing of calls that are issued back to back, before earlier ones are done, as an optimizer issues its steps.

interface PipelinedCalls<T> {
  /** Issues `count` calls and returns a handle of the last one. */
  issue(count: number): T;
  /** Waits for a handle and returns the time in seconds. */
  finish(handle: T): Promise<number>;
}

/**
 * Seconds per call. Devices continue from sample to sample: `inFlight` calls before the first sample fill the queue, and
 * as many after the last keep it filled; neither count.
 *
 * @param isEnough whether this number of samples is enough
 */
export async function timePipelined<T>(
  calls: PipelinedCalls<T>,
  inFlight: number,
  isEnough: (samples: number) => boolean,
): Promise<number[]> {
  const samples: number[] = [];
  let pending = calls.issue(inFlight);
  let before: number | null = null;
  while (!isEnough(samples.length)) {
    const next = calls.issue(inFlight);
    const end = await calls.finish(pending);
    if (before !== null) samples.push((end - before) / inFlight);
    before = end;
    pending = next;
  }
  await calls.finish(pending);
  return samples;
}
