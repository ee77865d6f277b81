// Validity rules about the work: is it divided, is all of it done, and do the ranks train one model?
import { shortNumber } from "@weft/formats/text";
import type { CountSummary } from "../metrics/index.js";
import { evidence, isHard, type PredictedEffect, type RuleFinding } from "../model/index.js";
import { effectOf } from "../predict/index.js";
import type { StudyView, ValidityRule } from "./rule.js";
import { publishedStudy as study } from "./source.js";
import type { WorkShare } from "./work.js";

/** Predicts the epoch time after sharding the data: the same step time, fewer steps. */
function estimateSharding(count: CountSummary, ratio: number, condition = ""): PredictedEffect {
  const { mean, sampleStd, n } = count.seconds;
  const noise = n < 2 ? null : sampleStd / mean / Math.sqrt(n);
  return effectOf(
    { ratio: 1 / ratio, reason: `${condition}the same step, ${shortNumber(ratio)} times fewer of them` },
    mean,
    "s",
    "epochSeconds",
    count.devices,
    noise,
  );
}

function stepsText(count: CountSummary, ratio: number): string {
  const { datasetSamples, batchPerRank } = count.runs[0]!.run.workload;
  if (datasetSamples === undefined || batchPerRank === undefined) return `1/${ratio} of the baseline's`;
  const whole = Math.ceil(datasetSamples / batchPerRank);
  return `${Math.ceil(whole / ratio)} of ${whole}`;
}

const frameworkOf = (count: CountSummary): string | undefined => count.runs[0]!.run.ranks[0]?.facts.framework;
/** Whether a job trains on samples; the time of a whole command says nothing about samplers. */
const trains = (view: StudyView): boolean => view.basis !== "run";

/** The fix in the words of the framework that ran. */
const shardingFix: Record<string, string> = {
  weft: "Divide the data set over the ranks (weft train does so by default); then measure again.",
  jax: "Give each process its own part of the data (jax.process_index()), or shard the batch over the devices; then measure again.",
  torch:
    "Give each rank its own part: DistributedSampler(dataset, num_replicas=world_size, rank=rank) on the training loader, and set_epoch(epoch) each epoch; then measure again.",
};

const separating =
  "weft scale --devices COUNTS -- YOUR COMMAND counts what each rank works on (PyTorch: by itself; other loops: weft_probe.step(samples=...))";

function foundBy(work: WorkShare, count: CountSummary, view: StudyView): RuleFinding {
  const ratio = count.devices / view.baseline!.devices;
  const normalized = count.speedup * work.done;
  const hard = work.evidence.some(isHard);
  const framework = frameworkOf(count) ?? "torch";
  const whole = work.ratio >= ratio * 0.95 ? "the whole data set" : `${shortNumber(work.ratio)} times its share`;
  const same = work.divided === false && work.ratio <= 1.05;
  const normalizedText = evidence("work-normalized speedup", normalized, {
    rank: hard ? "derived" : "inferred",
    text: `work-normalized speedup: ${normalized.toFixed(2)}x (${((normalized / ratio) * 100).toFixed(0)}%), work per second relative to the baseline${hard ? "" : ", if every rank did all of the work"}`,
  });
  const common = {
    devices: count.devices,
    run: work.run,
    refutedBy: !trains(view)
      ? `A count of the work that each process does. ${separating}.`
      : `Count the batches of one rank in one epoch: a divided data set gives ${stepsText(count, ratio)}. ${hard ? "" : `Nothing in these files counts them. ${separating}.`}`.trim(),
  };
  if (!hard)
    return {
      ...common,
      title: "Nothing shows whether the work is divided",
      severity: "unresolved",
      evidence: [...work.evidence, normalizedText],
      cause: work.readings.some((r) => /weak scaling/.test(r.text))
        ? `Two readings fit: each of the ${count.devices} ranks works on the whole data set, or each holds data of its own (weak scaling).`
        : trains(view)
          ? `Two readings fit: each of the ${count.devices} ranks works on the whole data set, or the work is divided and the devices cost more than they save.`
          : "Two readings fit: each process repeats the whole work, or the work is divided and the devices cost more than they save. Only the time of the whole command is known.",
      readings: work.readings,
      alternatives: [
        "likelihoods assume even odds beforehand, and that steps slow down by factors less often than by percents",
      ],
      fix: `Find out which: ${separating}.${trains(view) ? ` If the data set is not divided: ${shardingFix[framework] ?? shardingFix.torch}` : ""}`,
      predicted: trains(view) ? estimateSharding(count, work.ratio, "if the data set is not divided: ") : null,
    };
  return {
    ...common,
    severity: "invalid",
    evidence: [...work.evidence, normalizedText],
    cause: same
      ? `All ${count.devices} ranks work on the same samples: an epoch covers a fraction of the data set.`
      : `Each of the ${count.devices} ranks works on ${whole}: no sampler divides it${framework === "torch" ? " (in PyTorch: no DistributedSampler reaches the loader)" : ""}.`,
    alternatives: ["none needed: what each rank worked on was counted"],
    fix: shardingFix[framework] ?? shardingFix.torch!,
    predicted: same ? null : estimateSharding(count, work.ratio),
  };
}

export const workNotDivided: ValidityRule = {
  id: "work-not-divided",
  title: "The work is not divided",
  source: `ranks x steps x batch / data set > 1.05, or equal batches on all ranks; times and losses only raise the question (${study})`,
  find: (view) =>
    view.work.flatMap((work, i): RuleFinding[] => (work.divided ? [] : [foundBy(work, view.counts[i]!, view)])),
};

export const workLeftOut: ValidityRule = {
  id: "work-left-out",
  title: "Part of the work is left out",
  source: "the samples of all ranks in an epoch must add up to those of the baseline",
  find: (view) =>
    view.work.flatMap((work, i): RuleFinding[] => {
      const count = view.counts[i]!;
      const hard = work.evidence.some(isHard);
      const { batchPerRank = 0, datasetSamples } = count.runs[0]!.run.workload;
      const processes = count.runs[0]!.run.processes ?? count.devices;
      // Dropping the last batch of each rank leaves out that much.
      const dropped =
        datasetSamples === undefined || datasetSamples === 0 ? 0 : (processes * batchPerRank) / datasetSamples;
      if (!work.divided || !hard || work.ratio >= 0.95 - dropped) return [];
      return [
        {
          severity: "invalid",
          devices: count.devices,
          run: work.run,
          evidence: work.evidence,
          cause: `An epoch at ${count.devices} devices covers ${shortNumber(work.ratio * 100)}% of the baseline's samples: the data set was divided twice, or a limit ended the epoch.`,
          fix: "Divide the data set once: either by a DistributedSampler or by a subset per rank, and compare whole epochs.",
          predicted: null,
          refutedBy: "Samples of all ranks that add up to those of the baseline.",
        },
      ];
    }),
};

/** Differences below this share of a sum are rounding: replicas apply the same update. */
const rounding = 1e-8;
/** Differences between the ranks are compared with what training has changed since the first sum. */
const differingShare = 1e-3;

const spread = (values: readonly number[]): number =>
  values.reduce((a, v) => Math.max(a, v), Number.NEGATIVE_INFINITY) -
  values.reduce((a, v) => Math.min(a, v), Number.POSITIVE_INFINITY);

/** Sums of one parameter on all ranks, now and at first: equal, different, or not trained in between. */
function compareSums(now: readonly number[], first: readonly number[]): "equal" | "different" | "untouched" {
  const scale = [...now, ...first].reduce((a, v) => Math.max(a, Math.abs(v)), 1e-30);
  const change = now.reduce((a, v, i) => Math.max(a, Math.abs(v - first[i]!)), 0);
  const apart = spread(now);
  if (apart > rounding * scale && apart > differingShare * change) return "different";
  return change > rounding * scale ? "equal" : "untouched";
}

export const modelsDiffer: ValidityRule = {
  id: "ranks-train-different-models",
  title: "The ranks train different models",
  source: "data parallelism keeps the parameters of all ranks equal; the probe sums them after some steps",
  find: (view) =>
    view.runs.flatMap(({ run }): RuleFinding[] => {
      // Stages of a pipeline and shards of parameters differ on purpose.
      const sharded = run.ranks.some(
        (r) => ["fsdp", "sharding"].includes(r.facts.parallelism ?? "") || r.facts.pointToPoint === true,
      );
      const checked = run.ranks.flatMap((r) => (r.facts.parameterSums === undefined ? [] : [r.facts.parameterSums]));
      if (sharded || checked.length < 2 || checked.length !== (run.processes ?? run.devices)) return [];
      const steps = checked[0]!
        .map((c) => c.step)
        .filter((step) => checked.every((list) => list.some((c) => c.step === step)));
      const sumsAt = (step: number): number[][] => checked.map((list) => list.find((c) => c.step === step)!.sums);
      const first = steps.length === 0 ? [] : sumsAt(steps[0]!);
      const judged = steps.length < 2 ? steps : steps.slice(1);
      const differing = judged.filter((step) => {
        const sums = sumsAt(step);
        if ([...sums, ...first].some((s) => s.length !== sums[0]!.length || s.length === 0)) return false;
        const found = sums[0]!.map((_, k) =>
          compareSums(
            sums.map((s) => s[k]!),
            first.map((s) => s[k]!),
          ),
        );
        // Expert or tensor parallelism: some parameters differ on purpose. Without any exchange all that are trained do; rows
        // of an embedding that no sample uses are not.
        return found.includes("different") && !found.includes("equal");
      });
      // Local SGD averages now and then; only ranks that never agree train models of their own.
      if (judged.length === 0 || differing.length < judged.length) return [];
      const text = judged.slice(0, 4).join(", ");
      // Averages may fall between the steps that were compared: ranks that communicate while they train may be of that kind.
      const communicates = checked.some((list) => (list.at(-1)?.collectives ?? 0) > (list[0]?.collectives ?? 0));
      const ddp = run.ranks.some((r) => r.facts.parallelism === "ddp");
      return [
        {
          severity: "invalid",
          devices: run.devices,
          run: run.id,
          evidence: [
            evidence("parameters of the ranks", "different", {
              rank: communicates && !ddp ? "inferred" : "counted",
              rows: [run.id],
              text: `the parameters of ${checked.length} ranks differ after step ${text}; replicas of one model agree${communicates && !ddp ? ", unless they are averaged now and then: the ranks do issue collectives between steps" : ""}`,
            }),
          ],
          cause: ddp
            ? "The ranks do not exchange gradients, although the model is wrapped (no_sync around every step, or another copy of it is trained)."
            : "The ranks exchange no gradients: each trains a model of its own (in PyTorch: the model is not wrapped in DistributedDataParallel).",
          fix: "Wrap the model in DistributedDataParallel and call the wrapper in the training loop; then measure again.",
          predicted: null,
          refutedBy:
            "Parameter sums of all ranks that agree after an optimizer step, or after an average that the job makes itself.",
        },
      ];
    }),
};

export const repeatedOrder: ValidityRule = {
  id: "same-order-every-epoch",
  title: "Every epoch has the same order",
  source: "DistributedSampler repeats its shuffle unless set_epoch is called",
  find: (view) =>
    view.runs.flatMap(({ run }): RuleFinding[] => {
      const facts = run.ranks[0]?.facts;
      const orders = facts?.epochIndexHashes ?? [];
      if (facts?.shuffle !== true || orders.length < 2 || new Set(orders).size > 1) return [];
      return [
        {
          severity: "high",
          devices: run.devices,
          run: run.id,
          evidence: [
            evidence("first indices of the epochs", "identical", {
              rank: "counted",
              rows: [run.id],
              text: `the first batches of ${orders.length} epochs have the same indices, although the sampler shuffles`,
            }),
          ],
          cause: `${facts.samplerClass ?? "The sampler"} shuffles with the same seed in every epoch: set_epoch is not called. Times are not affected, the training is.`,
          fix: "Call sampler.set_epoch(epoch) at the start of every epoch.",
          predicted: null,
          refutedBy: "Epochs that start with different indices.",
        },
      ];
    }),
};
