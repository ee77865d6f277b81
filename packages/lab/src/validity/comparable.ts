// The validity rule that compares settings: two runs that differ in more than their device count have no speedup.

import type { Workload } from "@weft/formats/internal";
import type { CountSummary, RunSummary } from "../metrics/index.js";
import { type Evidence, evidence, type RuleFinding } from "../model/index.js";
import type { StudyView, ValidityRule } from "./rule.js";
import { publishedStudy as study } from "./source.js";
import { isWeak, partialBaseline } from "./work.js";

/** Most severe first. */
const weights: readonly Weight[] = ["invalid", "moderate", "low"];

/** Parameters that a run counted: of the wrapped model and of the optimizer, which may hold a part, or another model's. */
const parameterCounts = ({ run }: RunSummary): number[] =>
  [run.workload.parameters, run.ranks[0]?.facts.optimizerParameters].filter((n) => n !== undefined);

const scaled = (view: StudyView): CountSummary[] => view.counts.filter((count) => count !== view.baseline);

type Weight = "invalid" | "moderate" | "low";

/** Fields that must agree. Learning rates are scaled with the batch on purpose and take no time. */
const comparable: { field: keyof Workload; name: string; severity: Weight }[] = [
  { field: "precision", name: "precision", severity: "invalid" },
  { field: "sequenceLength", name: "sequence length", severity: "invalid" },
  { field: "optimizer", name: "optimizer", severity: "moderate" },
  { field: "learningRate", name: "learning rate", severity: "low" },
];

/** Names of one precision in different frameworks. */
const precisions: [RegExp, string][] = [
  [/^(torch\.)?(float32|fp32|f32|32|32-true)$/i, "fp32"],
  [/^(torch\.)?(float64|fp64|f64|double|64|64-true)$/i, "fp64"],
  [/^(torch\.)?(bfloat16|bf16|bf16-true)$/i, "bf16"],
  [/^(torch\.)?(float16|fp16|f16|half|16-true)$/i, "fp16"],
  [/^(amp-bf16|bf16-mixed|mixed-bf16)$/i, "amp-bf16"],
  [/^(amp-fp16|16-mixed|fp16-mixed|mixed-fp16|amp)$/i, "amp-fp16"],
];
const precisionName = (text: unknown): unknown =>
  typeof text === "string" ? (precisions.find(([pattern]) => pattern.test(text.trim()))?.[1] ?? text) : text;

const ranksOf = ({ run }: RunSummary): number => run.processes ?? run.devices;
/** Whether each rank holds only a part of the parameters. */
const shardsModel = ({ run }: RunSummary): boolean =>
  run.ranks.some((r) => r.facts.parallelism === "fsdp" || r.facts.parallelism === "sharding");

/** Samples per optimizer step over all ranks; null where the batch is not known. */
function globalBatch(summary: RunSummary): number | null {
  const { batchPerRank, accumulation = 1 } = summary.run.workload;
  return batchPerRank === undefined ? null : batchPerRank * Math.max(1, accumulation) * ranksOf(summary);
}

function softwareOf(summary: RunSummary): Record<string, string | undefined> {
  const facts = summary.run.ranks[0]?.facts;
  return {
    framework: facts?.frameworkVersion,
    CUDA: facts?.cudaVersion,
    device: facts?.deviceName,
    processor: summary.run.machine?.cpuModel,
  };
}

export const baselineMismatch: ValidityRule = {
  id: "baseline-mismatch",
  title: "The baseline is not comparable",
  source: `model, precision, batch, length, rate, data and software must agree between the counts (${study})`,
  find: (view) =>
    scaled(view).flatMap((count): RuleFinding[] => {
      const here = count.runs[0]!;
      const base = view.baseline!.runs[0]!;
      const [a, b] = [base.run.workload, here.run.workload];
      const differences: { evidence: Evidence; severity: Weight }[] = [];
      const differ = (name: string, x: unknown, y: unknown, severity: Weight): void => {
        if (x === undefined || y === undefined || x === y) return;
        differences.push({
          severity,
          evidence: evidence(name, String(y), {
            rank: "counted",
            rows: [base.run.id, here.run.id],
            text: `${name}: ${String(x)} at ${view.baseline!.devices}, ${String(y)} at ${count.devices}`,
          }),
        });
      };
      for (const { field, name, severity } of comparable)
        if (precisionName(a[field]) !== precisionName(b[field])) differ(name, a[field], b[field], severity);

      // The data set: a rank that holds its own part of it, or a problem that grows with the devices, is fair.
      const work = view.work[view.counts.indexOf(count)]!;
      const counted = work.known === "counted" || work.known === "derived";
      const sameWork = counted && work.divided && Math.abs(work.ratio - 1) <= 0.05;
      const sameSamples = a.datasetSamples === b.datasetSamples && a.datasetSamples !== undefined;
      if (!sameWork && !isWeak(here, base))
        differ("samples in the data set", a.datasetSamples, b.datasetSamples, "invalid");
      const part = partialBaseline(here, base);
      if (part !== null) differ("samples per epoch", Math.round(part.counted), part.dataset, "invalid");
      differ("data set", a.dataset, b.dataset, sameSamples || sameWork ? "moderate" : "invalid");

      // The model: a rank of sharded parameters holds only a part of them, and a wrapper changes the name of the class.
      const sameCount = parameterCounts(here).some((n) => parameterCounts(base).includes(n));
      const sameSize = a.parameters !== undefined && sameCount;
      if (!shardsModel(here) && !shardsModel(base) && !sameCount)
        differ("parameters", a.parameters, b.parameters, "invalid");
      differ("model", a.model, b.model, sameSize ? "moderate" : "invalid");

      // A fixed global batch is strong scaling; a fixed batch per rank is weak scaling; others are not comparable.
      const globals = [globalBatch(base), globalBatch(here)] as const;
      const rounding = ranksOf(here) + ranksOf(base);
      const globalFixed =
        globals[0] !== null && globals[1] !== null
          ? Math.abs(globals[0] - globals[1]) <= rounding
          : (a.accumulation ?? 1) * ranksOf(base) === (b.accumulation ?? 1) * ranksOf(here);
      if (!globalFixed) {
        differ("batch per rank", a.batchPerRank, b.batchPerRank, "invalid");
        differ("gradient accumulation", a.accumulation, b.accumulation, "invalid");
      }
      const [softwareThere, softwareHere] = [softwareOf(base), softwareOf(here)];
      for (const name of Object.keys(softwareThere))
        differ(name, softwareThere[name], softwareHere[name], name === "device" ? "invalid" : "moderate");
      if (differences.length === 0) return [];
      const invalid = differences.some((d) => d.severity === "invalid");
      return [
        {
          severity: weights.find((w) => differences.some((d) => d.severity === w))!,
          devices: count.devices,
          run: here.run.id,
          evidence: differences.map((d) => d.evidence),
          cause: invalid
            ? "The two runs differ in more than their device count, so their ratio is not a speedup."
            : "The two runs differ in more than their device count; these differences rarely change the time.",
          fix: `Measure the baseline again with the settings of the ${count.devices}-device run.`,
          predicted: null,
          refutedBy: "A baseline run with equal settings that gives the same time.",
        },
      ];
    }),
};
