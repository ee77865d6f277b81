// What times and losses say about undivided work when nothing was counted: the likelihood of both readings. They never prove
// anything: communication alone can make more devices slower than one.
import { halfWidth95 } from "@weft/formats/stats";
import type { CountSummary, RunSummary } from "../metrics/index.js";
import { disturbanceIn, type Evidence, evidence, type Reading } from "../model/index.js";
import type { WorkShare } from "./work.js";

/**
 * Scale, in doublings of the step time, of the heavy-tailed (half-Cauchy) distribution of how much a step slows down on more
 * devices. An assumption: published series slow down by a few percent per doubling, failed ones by factors.
 */
const slowdownScale = 0.5;
/** A change of the first epoch's loss below this share says nothing. */
const lossChange = 0.05;
/** Assumed probabilities of a first-epoch loss that falls or rises: fewer steps per rank make it rise. */
const lossLikelihood = {
  fallen: { divided: 0.04, undivided: 0.6 },
  risen: { divided: 0.6, undivided: 0.02 },
  same: { divided: 0.36, undivided: 0.38 },
};
/** Likelihood of a sampler that divides nothing, or of equal indices, if the data set was divided by other means. */
const samplerLikelihood = { divided: 0.1, undivided: 0.9 };

function slowdownDensity(ratio: number): number {
  // Faster steps on more devices happen (caches, other clocks), but not by much.
  const doublings = Math.log2(ratio);
  const x = doublings >= 0 ? doublings / slowdownScale : (-doublings * 10) / slowdownScale;
  return 1 / (1 + x * x);
}

function lossEvidence(
  here: RunSummary,
  base: RunSummary,
): { kind: keyof typeof lossLikelihood; text: Evidence } | null {
  const a = base.epochs?.firstLoss ?? null;
  const b = here.epochs?.firstLoss ?? null;
  const rates = [base.run.workload.learningRate, here.run.workload.learningRate];
  if (a === null || b === null || a <= 0 || (rates[0] !== undefined && rates[1] !== undefined && rates[0] !== rates[1]))
    return null;
  const kind = b < a * (1 - lossChange) ? "fallen" : b > a * (1 + lossChange) ? "risen" : "same";
  const row = (s: RunSummary) =>
    `${s.run.id}:${s.epochs?.jobs.flat().find((r) => r.trainLoss === s.epochs?.firstLoss)?.line ?? "?"}`;
  const words = {
    fallen: "falls with the devices; with a divided data set each rank takes fewer steps and it usually rises",
    risen: "rises with the devices, as it does when each rank takes fewer steps",
    same: "hardly changes",
  };
  return {
    kind,
    text: evidence("training loss after the first epoch", b, {
      rank: "inferred",
      rows: [row(base), row(here)],
      text: `training loss after the first epoch ${words[kind]} (${a.toFixed(3)} -> ${b.toFixed(3)})`,
    }),
  };
}

/** Steps of a rank per epoch if it took all of them, and if it took its share; null where the study does not say. */
function stepCounts(here: RunSummary, ratio: number): { whole: number; part: number } | null {
  const { datasetSamples, batchPerRank } = here.run.workload;
  if (datasetSamples === undefined || batchPerRank === undefined || batchPerRank === 0) return null;
  const whole = Math.ceil(datasetSamples / batchPerRank);
  return { whole, part: Math.ceil(whole / ratio) };
}

type Share = (
  ratio: number,
  known: WorkShare["known"],
  divided: boolean,
  list: Evidence[],
  readings?: Reading[],
) => WorkShare;

/** Judges a count without counted work: assumed to be divided unless the times speak against it. */
export function readingsOfTimes(
  here: RunSummary,
  count: CountSummary,
  baseline: CountSummary,
  samplers: Evidence[],
  share: Share,
): WorkShare {
  const base = baseline.runs[0]!;
  const ratio = count.devices / baseline.devices;
  const slower = count.seconds.mean / baseline.seconds.mean;
  const spread = Math.hypot(halfWidth95(count.seconds) ?? 0, halfWidth95(baseline.seconds) ?? 0);
  // Times that were measured once have no spread: a small difference between them says nothing.
  const known = count.seconds.n > 1 && baseline.seconds.n > 1;
  // Others may have made either of them slow.
  const disturbed = disturbanceIn(here.run) !== null || disturbanceIn(base.run) !== null;
  const isSlower =
    !disturbed && count.seconds.mean - baseline.seconds.mean > (known ? spread : 0.1 * baseline.seconds.mean);
  const loss = lossEvidence(here, base);
  const suspicious = isSlower || samplers.length > 0 || (loss?.kind === "fallen" && count.speedup < 1.2);
  if (!suspicious) return share(1, "assumed", true, []);
  const likelihood = (divided: boolean): number => {
    const key = divided ? "divided" : "undivided";
    const ofLoss = loss === null ? 1 : lossLikelihood[loss.kind][key];
    const ofSampler = samplers.length === 0 ? 1 : samplerLikelihood[key];
    const ofTime = disturbed ? 1 : slowdownDensity(divided ? slower * ratio : slower);
    return ofTime * ofLoss * ofSampler;
  };
  const undivided = likelihood(false) / (likelihood(false) + likelihood(true));
  const list = [
    evidence("ratio of times", count.speedup, {
      rank: "inferred",
      text: `the time at ${count.devices} devices is ${slower.toFixed(2)} times that at ${baseline.devices} (a ratio of ${count.speedup.toFixed(2)}); slower than one device is possible with divided work, when communication or the host costs more than it saves`,
    }),
    ...(loss === null ? [] : [loss.text]),
    ...samplers,
  ];
  const steps = stepCounts(here, ratio);
  if (steps !== null) {
    const ms = (seconds: number, n: number) => ((seconds * 1000) / n).toFixed(2);
    list.push(
      evidence("step time by reading", slower, {
        rank: "inferred",
        text: `a step takes ${ms(count.seconds.mean, steps.whole)} ms if each rank takes all ${steps.whole} steps (baseline ${ms(baseline.seconds.mean, steps.whole)} ms), and ${ms(count.seconds.mean, steps.part)} ms if it takes its share of ${steps.part}`,
      }),
    );
  }
  const readings: Reading[] = [
    {
      text: `each rank does all of the work: work per second ${(count.speedup * ratio).toFixed(2)}x`,
      likelihood: undivided,
      speedup: count.speedup * ratio,
    },
    {
      text: `the work is divided: speedup ${count.speedup.toFixed(2)}x`,
      likelihood: 1 - undivided,
      speedup: count.speedup,
    },
  ];
  return undivided >= 0.5 ? share(ratio, "inferred", false, list, readings) : share(1, "assumed", true, list, readings);
}
