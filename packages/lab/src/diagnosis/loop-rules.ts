// Rules about the training loop itself, from what the probe counts inside it: garbage collection, messages, checkpoints and
// evaluation between steps, loaders that start again, gradients that are exchanged too often, steps that get slower.
import { mean, median, sum, type Weighted, weightedMedian } from "@weft/formats/stats";
import { imbalance, stepWeight, weightedTimes } from "../metrics/index.js";
import { evidence } from "../model/index.js";
import { type EffectEstimate, estimateRemoved } from "../predict/index.js";
import { type DiagnosisRule, graded, toPercent } from "./catalog.js";
import type { RunView } from "./view.js";

const counter = "counted by the probe inside the loop";

/** Seconds of training of the rank with the most: the whole of its epochs, else of its steps. */
function trainingSeconds({ run }: RunView): number | null {
  const first = run.ranks[0]?.rank ?? 0;
  const epochs = run.epochs.filter((e) => (e.rank ?? first) === first && e.seconds !== undefined);
  const byEpochs = epochs.reduce((a, e) => a + e.seconds!, 0);
  const bySteps = run.steps.reduce((a, s) => a + (s.rank === first ? s.durationUs * stepWeight(s) : 0), 0) / 1e6;
  return Math.max(byEpochs, bySteps) || null;
}

type SideFact = "gcSeconds" | "loggingSeconds" | "saveSeconds" | "evaluationSeconds" | "afterUpdateSeconds";

/** Share of the training in a kind of side work: of the rank that has most of it, because the others wait for that one. */
function sideShare(r: RunView, fact: SideFact): { share: number; seconds: number } | null {
  const whole = trainingSeconds(r);
  const seconds = r.run.ranks.reduce((a, { facts }) => Math.max(a, facts[fact] ?? 0), 0);
  // More than the whole training is a broken counter, not evidence.
  if (whole === null || seconds === 0 || seconds > 1.1 * whole) return null;
  return { share: Math.min(0.99, seconds / whole), seconds };
}

/** Share of the step that a rank waits for others, inferred from the backward passes: side work comes at other times on each. */
function waitShare(r: RunView): number {
  const found = imbalance(r.run.steps, r.summary.steps?.warmupSteps ?? 0, r.facts.parallelism === "ddp");
  if (found === null || found.recorded) return 0;
  const whole = mean(found.own.map((o) => o.us + o.waitUs));
  return whole > 0 ? found.own.reduce((a, o) => Math.min(a, o.waitUs), Number.POSITIVE_INFINITY) / whole : 0;
}

/** A rule about one kind of side work. */
function sideRule(row: {
  id: string;
  title: string;
  fact: SideFact;
  what: string;
  cause: string;
  fix: string;
  refutedBy: string;
}): DiagnosisRule {
  const { id, title, fact, what, ...text } = row;
  return {
    id,
    title,
    source: `${counter}; host work at 3% moderate, 15% high (XProf)`,
    run: (r) => {
      const side = sideShare(r, fact);
      if (side === null || side.share < 0.05) return null;
      return {
        severity: graded(side.share, 0.15),
        evidence: [
          evidence(what, toPercent(side.share), { rank: "counted", unit: "% of the training", threshold: 5 }),
          evidence("seconds of it", side.seconds, { rank: "counted", unit: "s" }),
        ],
        ...text,
        predicted: r.effect(
          estimateRemoved(
            Math.min(0.97, side.share + waitShare(r)),
            `the training without ${what}, and without waiting for that of other ranks`,
          ),
        ),
      };
    },
  };
}

/** Medians of equal parts of a rank's steps, in order. */
function partMedians(times: readonly Weighted[], parts: number): number[] {
  const size = sum(times.map(({ weight }) => weight)) / parts;
  const lists: Weighted[][] = Array.from({ length: parts }, () => []);
  let before = 0;
  for (const time of times) {
    lists[Math.min(parts - 1, Math.floor(before / size))]!.push(time);
    before += time.weight;
  }
  return lists.map((list) => (list.length === 0 ? Number.NaN : weightedMedian(list)));
}

/**
 * First and last quarter of a rank's steps if these get slower for good, else null. A machine whose speed wanders gives
 * single slow parts: every part of the second half must be above the first quarter, and the rise above what
 * neighboring parts differ by.
 */
function slowdown(times: readonly Weighted[]): { start: number; end: number } | null {
  if (times.length < 24) return null;
  const [start, , , end] = partMedians(times, 4) as [number, number, number, number];
  const eighths = partMedians(times, 8);
  const jumps = eighths.slice(1).map((us, k) => Math.abs(Math.log(us / eighths[k]!)));
  const before = Math.max(eighths[0]!, eighths[1]!);
  const lasting = eighths.slice(4).every((us) => us > 1.05 * before);
  return lasting && Math.log(end / start) > Math.max(Math.log(1.15), 4 * median(jumps)) ? { start, end } : null;
}

export const loopRules: readonly DiagnosisRule[] = [
  sideRule({
    id: "evaluation-in-loop",
    title: "Evaluation runs inside the timed epochs",
    fact: "evaluationSeconds",
    what: "evaluation inside epochs",
    cause:
      "Another loader is read without training in the middle of an epoch, usually whole on every rank: it does not shrink with the devices.",
    fix: "Evaluate after the epoch and outside of the timed part, divided over the ranks, or less often.",
    refutedBy: "The same epoch time without the evaluation.",
  }),
  sideRule({
    id: "garbage-collection",
    title: "Garbage collection pauses the loop",
    fact: "gcSeconds",
    what: "garbage collection",
    cause: "Python's garbage collector runs between launches, on every rank at another time.",
    fix: "gc.freeze() after set-up and gc.disable() with a manual gc.collect() between epochs.",
    refutedBy: "The same step time with gc.disable().",
  }),
  sideRule({
    id: "logging-in-loop",
    title: "Messages are written in every step",
    fact: "loggingSeconds",
    what: "messages (print, logging, fsync)",
    cause: "Messages are formatted and written between the steps.",
    fix: "Log every hundredth step, on rank 0, without flushing.",
    refutedBy: "The same step time without messages.",
  }),
  sideRule({
    id: "checkpoint-in-loop",
    title: "Checkpoints are written between steps",
    fact: "saveSeconds",
    what: "checkpoints (torch.save)",
    cause: "The loop waits until the checkpoint is written.",
    fix: "Save less often, on rank 0, or in the background (torch.distributed.checkpoint.async_save).",
    refutedBy: "The same epoch time without checkpoints.",
  }),
  {
    id: "work-after-update",
    title: "The loop does other work after the update",
    source: counter,
    run: (r) => {
      const side = sideShare(r, "afterUpdateSeconds");
      // A host that is ahead of its GPU waits for it in any call.
      if (side === null || r.onGpu) return null;
      // What is explained by a rule of its own is not reported twice.
      const known = (["gcSeconds", "loggingSeconds", "saveSeconds"] as const)
        .map((fact) => sideShare(r, fact)?.share ?? 0)
        .reduce((a, b) => a + b, 0);
      const share = side.share - known;
      if (share < 0.15) return null;
      return {
        severity: graded(share, 0.3),
        evidence: [
          evidence("time from the optimizer step to the next batch", toPercent(share), {
            rank: "counted",
            unit: "% of the training",
            threshold: 15,
          }),
        ],
        cause: "Metrics, transfers to the host or other Python work follow every update.",
        fix: "Do it every hundredth step, or beside the next one.",
        predicted: r.effect(estimateRemoved(share, "the training without it")),
        refutedBy: "The same step time without the code after optimizer.step().",
      };
    },
  },
  {
    id: "loaders-restarted",
    title: "Loader processes start again in every epoch",
    source: `${counter}; persistent_workers (the DDP optimization guide)`,
    run: (r) => {
      const { loaderStarts = 0, loaderStartSeconds = 0, loaderWorkers = 0 } = r.facts;
      const whole = trainingSeconds(r);
      if (loaderStarts < 2 || loaderWorkers === 0 || whole === null) return null;
      // The first batch of an epoch waits for processes that have just started; the others show the usual wait.
      const first = r.run.ranks[0]?.rank ?? 0;
      const own = r.run.steps.filter((s) => s.rank === first && s.dataWaitUs !== undefined && s.epoch !== undefined);
      const opening = own.filter((s, i) => i === 0 || own[i - 1]!.epoch !== s.epoch).map((s) => s.dataWaitUs!);
      const usual = own.length === 0 ? 0 : weightedMedian(weightedTimes(own, "dataWaitUs"));
      const waited = opening.reduce((a, us) => a + Math.max(0, us - usual), 0) / 1e6;
      const share = (loaderStartSeconds + waited) / (whole + loaderStartSeconds);
      if (share < 0.05) return null;
      // The start itself lies between the epochs; only the waits for first batches are part of an epoch.
      const inside: EffectEstimate = estimateRemoved(
        Math.min(0.9, (waited / whole) * (1 - 1 / loaderStarts)),
        "first batches wait once instead of once per epoch; the starts between the epochs are saved as well",
      );
      return {
        severity: graded(share, 0.2),
        evidence: [
          evidence("starts of the loader processes", loaderStarts, { rank: "counted", threshold: 1 }),
          evidence("starting and waiting for first batches", toPercent(share), {
            rank: "counted",
            unit: "% of the training",
            threshold: 5,
          }),
        ],
        cause:
          "The loader is built again, or its processes do not persist: every epoch starts them and waits for the first batch.",
        fix: "Build the DataLoader once, with persistent_workers=True.",
        predicted: r.effect(inside),
        refutedBy: "First batches that wait as long with persistent_workers=True.",
      };
    },
  },
  {
    id: "forgotten-no-sync",
    timeless: true,
    title: "Gradients are exchanged in every micro-step",
    source: `${counter}; no_sync() (PyTorch's documentation of DistributedDataParallel)`,
    run: (r) => {
      const { backwardPasses = 0, gradientSyncs = 0, updates = 0, accumulation = 1 } = r.facts;
      // Optimizers that evaluate one batch several times need each of these exchanges; accumulation takes several batches.
      const passes = backwardPasses >= 1.9 * updates;
      const several = accumulation >= 2 && passes;
      if (r.devices === 1 || updates === 0 || !passes || gradientSyncs < (several ? 1.2 : 1.9) * updates) return null;
      const kept = updates / gradientSyncs;
      const exposed = r.parts === null ? 0 : r.parts.exposedUs / r.parts.stepUs;
      return {
        severity: !several ? "low" : exposed >= 0.3 ? "high" : "moderate",
        evidence: [
          evidence("exchanges of gradients per update", gradientSyncs / updates, { rank: "counted", threshold: 1 }),
          evidence("backward passes per update", backwardPasses / updates, { rank: "counted" }),
        ],
        cause: several
          ? "Gradients are accumulated, but every backward pass exchanges them: all exchanges but the last are wasted."
          : "Every batch has several backward passes, and each exchanges gradients. If they accumulate one update, all exchanges but the last are wasted; if each needs its own (SAM, several losses), none is.",
        fix: "Run all backward passes but the last of an update inside model.no_sync().",
        predicted:
          exposed === 0 || !several
            ? null
            : r.effect(estimateRemoved(exposed * (1 - kept), "one exchange per update instead of one per pass")),
        refutedBy: "The same step time with no_sync() around the first backward passes.",
      };
    },
  },
  {
    id: "slowing-down",
    title: "Steps get slower during the run",
    source:
      "the last quarter of a run above the first by more than 15% and by more than its parts scatter (clocks, memory)",
    run: (r) => {
      const skip = r.summary.steps?.warmupSteps ?? 0;
      const ranks = r.summary.steps?.perRank.map(({ rank }) => rank) ?? [];
      const trends = ranks.map((rank) =>
        slowdown(weightedTimes(r.run.steps.filter((s) => s.rank === rank && s.step >= skip && s.compile !== true))),
      );
      const rising = trends.flatMap((t) => t ?? []);
      if (r.disturbed || rising.length === 0 || rising.length < trends.length) return null;
      const start = mean(rising.map((t) => t.start));
      const end = mean(rising.map((t) => t.end));
      const all = r.summary.steps!.durationUs.mean;
      return {
        severity: graded(end / start - 1, 0.3),
        evidence: [
          evidence("last quarter over the first", end / start, { rank: "inferred", threshold: 1.15 }),
          evidence("median step at the start", start / 1000, { unit: "ms" }),
          evidence("median step at the end", end / 1000, { unit: "ms" }),
        ],
        cause:
          "The devices lose speed (heat, power or a quota), or every step does more than the one before (memory, logs).",
        fix: "Look at clocks and temperature (weft scale samples them); limit the power evenly, or find what grows in the loop.",
        predicted: r.effect({ ratio: Math.min(1, start / all), reason: "all steps as fast as in the first quarter" }),
        refutedBy: "A second run after a pause that starts as slow as this one ended.",
      };
    },
  },
  {
    id: "small-buckets",
    timeless: true,
    title: "Gradients travel in many small buckets",
    source:
      "bucket_cap_mb far below DDP's 25 MiB pays the latency of every bucket (pytorch#118421 asks for larger ones)",
    run: (r) => {
      const { ddpBucketBytes = [], ddpBucketCapBytes, gradientBytes } = r.facts;
      const cap = ddpBucketCapBytes ?? 25 * 2 ** 20;
      if (r.devices === 1 || ddpBucketBytes.length < 8 || cap >= 2 ** 20 || gradientBytes === undefined) return null;
      const needed = Math.max(1, Math.ceil(gradientBytes / (25 * 2 ** 20)));
      const exposed = r.parts === null ? 0 : r.parts.exposedUs / r.parts.stepUs;
      return {
        severity: exposed >= 0.1 ? "high" : "moderate",
        evidence: [
          evidence("buckets per backward pass", ddpBucketBytes.length, { rank: "counted", threshold: 8 }),
          evidence("bucket cap", cap / 1024, { rank: "counted", unit: "KiB", threshold: 1024 }),
          evidence("gradient", gradientBytes / 1e6, { rank: "counted", unit: "MB" }),
        ],
        cause: "Every bucket is a collective of its own, and small ones cost latency, not bandwidth.",
        fix: "DDP(bucket_cap_mb=25), the default.",
        predicted:
          exposed === 0
            ? null
            : r.effect(
                estimateRemoved(
                  Math.min(0.9, exposed * (1 - needed / ddpBucketBytes.length)),
                  `${needed} bucket${needed === 1 ? "" : "s"} instead of ${ddpBucketBytes.length}`,
                ),
              ),
        refutedBy: "The same step time with the default buckets.",
      };
    },
  },
];
