// How fast the ranks of a run are, for batches that are divided by speed.
import { jit, randn, type Tensor } from "@weft/core/internal/tensor";
import { median } from "@weft/formats/stats";
import type { RunConfig } from "./config.js";
import type { RankGroup } from "./group.js";

/** Ranks within this factor are alike: a measurement is no more exact than that. */
const alike = 1.15;

/** Seconds of a product and an element-wise pass, the two things that steps consist of: the median of several. */
async function secondsHere(): Promise<number> {
  const x = randn([512, 512], { seed: 1 }).realize();
  const work = jit((a: Tensor) => a.matmul(a).mul(1e-3).tanh().add(a).sum());
  const times: number[] = [];
  for (let i = 0; i < 12; i++) {
    const start = performance.now();
    const result = work(x);
    await result.data();
    result.dispose();
    // The first ones compile and warm up.
    if (i >= 3) times.push((performance.now() - start) / 1e3);
  }
  x.dispose();
  return median(times);
}

/** Speeds of all ranks relative to the slowest, the same list on every rank; undefined if they are alike. */
async function measureSpeeds(group: RankGroup): Promise<number[] | undefined> {
  group.barrier();
  const own = await secondsHere();
  // One number of every rank: the others give 0.
  const seconds = Array.from({ length: group.size }, (_, rank) => group.most(rank === group.rank ? own : 0));
  const slowest = Math.max(...seconds);
  const speeds = seconds.map((time) => Math.round((100 * slowest) / time) / 100);
  return Math.max(...speeds) < alike ? undefined : speeds;
}

/**
 * Speeds by which a run divides its batches; undefined for equal parts.
 *
 * @param before - Those of the run that is continued: with the same ranks it goes on as it began.
 */
export async function rankSpeeds(
  { distributed: { shares } }: RunConfig,
  group: RankGroup,
  before: readonly number[] | undefined,
): Promise<readonly number[] | undefined> {
  if (group.size === 1 || shares === "even") return undefined;
  if (Array.isArray(shares)) return shares.every((share) => share === shares[0]) ? undefined : shares;
  return before?.length === group.size ? before : measureSpeeds(group);
}
