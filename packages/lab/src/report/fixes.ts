// Writes configurations and job scripts for fixes: YAML with the changed keys, each with its finding and predicted effect, and a
// SLURM script. Only for valid studies.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { readText } from "@weft/formats/file";
import { isMap, parseDocument } from "yaml";
import type { Analysis } from "../diagnosis/index.js";
import type { Finding } from "../model/index.js";
import { effectText } from "./words.js";

interface Setting {
  /** Dotted key of the configuration. */
  key: string;
  value: string | number | boolean;
}

const leading = (text: string | null, pattern: RegExp): number | null => {
  const match = text === null ? null : pattern.exec(text);
  return match === null ? null : Number(match[1]);
};

/** Finding -> the settings of its fix. */
const settings: Record<string, (f: Finding) => Setting[]> = {
  "small-batch": (f) => one("training.batch_size", leading(f.fix, /batch_size: (\d+)/)),
  "input-bound": (f) => [
    ...one("data.num_workers", leading(f.fix, /num_workers=(\d+)/)),
    { key: "data.persistent_workers", value: true },
    { key: "data.pin_memory", value: true },
  ],
  "communication-cost": (f) => one("training.accumulation_steps", leading(f.fix, /over (\d+) micro-steps/)),
  "bucket-size": (f) => one("distributed.bucket_cap_mb", leading(f.fix, /bucket_cap_mb=(\d+)/)),
  "full-precision": () => [{ key: "training.precision", value: "bf16" }],
  "cheap-switches": (f) =>
    [
      ["persistent_workers=True", "data.persistent_workers"],
      ["pin_memory=True", "data.pin_memory"],
      ["cudnn.benchmark=True", "training.cudnn_benchmark"],
      ["static_graph=True", "distributed.static_graph"],
      ["gradient_as_bucket_view=True", "distributed.gradient_as_bucket_view"],
    ]
      .filter(([text]) => f.fix?.includes(text!))
      .map(([, key]) => ({ key: key!, value: true })),
  "past-the-peak": (f) => one("distributed.devices", leading(f.fix, /Use (\d+) of/)),
};

/** The keys of a Weft configuration for those of the table above; what has none does not apply. */
const weftKeys: Record<string, [key: string, value?: (value: Setting["value"]) => Setting["value"]]> = {
  "training.batch_size": ["training.batch_per_rank"],
  "data.num_workers": ["data.loaders"],
  "training.accumulation_steps": ["training.accumulation"],
  "distributed.bucket_cap_mb": ["distributed.bucket_mb"],
  "training.precision": ["precision.compute", () => "bfloat16"],
  "distributed.devices": ["distributed.devices"],
};

const toWeft = ({ key, value }: Setting): Setting[] => {
  const known = Object.hasOwn(weftKeys, key) ? weftKeys[key] : undefined;
  return known === undefined ? [] : [{ key: known[0], value: known[1]?.(value) ?? value }];
};

/** The configuration that a Weft run was started with, and the changes: a file that `weft train` accepts. */
function weftConfiguration(analysis: Analysis, chosen: { finding: Finding; settings: Setting[] }[]): string | null {
  const { run } = analysis.verdict.view.runs.at(-1)!;
  const path = join(run.source.path, "config.yaml");
  if (run.source.kind !== "scale" || !existsSync(path)) return null;
  const document = parseDocument(readText(path));
  if (document.errors.length > 0 || !isMap(document.contents)) return null;
  const said: string[] = [];
  for (const { finding, settings: list } of chosen)
    for (const { key, value } of list) {
      document.setIn(key.split("."), value);
      if (key === "training.batch_per_rank") document.deleteIn(["training", "global_batch"]);
      said.push(
        `# ${key}: ${finding.id}: ${finding.title}; ${effectText(finding.predicted) ?? "effect not predicted"}`,
      );
    }
  document.delete("output");
  const head = `# The configuration of ${run.id} with the changes that the findings call for. Each is a prediction: measure it.\n`;
  return `${head}${said.join("\n")}\n${document.toString()}`;
}

const one = (key: string, value: number | null): Setting[] => (value === null ? [] : [{ key, value }]);

function yamlOf(report: Analysis["report"], chosen: { finding: Finding; settings: Setting[] }[]): string {
  const sections = new Map<string, string[]>();
  const seen = new Set<string>();
  for (const { finding, settings: list } of chosen)
    for (const { key, value } of list) {
      if (seen.has(key)) continue;
      seen.add(key);
      const [section, name] = key.split(".") as [string, string];
      const lines = sections.get(section) ?? [];
      const effect = effectText(finding.predicted);
      lines.push(`  # ${finding.id}: ${finding.title}${effect === null ? "" : `; ${effect}`}`, `  ${name}: ${value}`);
      sections.set(section, lines);
    }
  const body = [...sections].map(([section, lines]) => `${section}:\n${lines.join("\n")}`).join("\n");
  return `# Changes that the findings on ${report.name} call for. Each is a prediction: measure it, then \`weft ledger --score\`.\n${body}\n`;
}

function slurmScript(report: Analysis["report"], devices: number, cores: number): string {
  const job = report.name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "_");
  return `#!/bin/bash
# One task a node and one process a GPU: torchrun starts the ranks, so SLURM must not.
#SBATCH --job-name=${job}
#SBATCH --output=${job}_%j.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=${cores}
#SBATCH --gres=gpu:${devices}
#SBATCH --time=02:00:00

set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
export OMP_NUM_THREADS=1
srun torchrun --standalone --nnodes=1 --nproc_per_node=${devices} train.py --config "$1"
`;
}

/** File name -> text; empty for an invalid study. */
export function fixFiles(analysis: Analysis): Record<string, string> {
  const { report, verdict } = analysis;
  if (report.valid === false) return {};
  const isWeft = verdict.view.runs.some((r) => r.run.ranks[0]?.facts.framework === "weft");
  const chosen = report.findings.flatMap((finding) => {
    const all = settings[finding.id]?.(finding) ?? [];
    const list = isWeft ? all.flatMap(toWeft) : all;
    return list.length === 0 ? [] : [{ finding, settings: list }];
  });
  const files: Record<string, string> = {};
  const name = report.name.replaceAll(/[^A-Za-z0-9.-]+/g, "_");
  if (chosen.length > 0) {
    const whole = isWeft ? weftConfiguration(analysis, chosen) : null;
    files[`${name}_optimized.yaml`] = whole ?? yamlOf(report, chosen);
  }
  const crowded = report.findings.find((f) => f.id === "cpu-oversubscription");
  const cores = leading(crowded?.fix ?? null, /Ask for (\d+) cores/);
  if (
    crowded?.devices !== undefined &&
    cores !== null &&
    verdict.view.runs.some((r) => r.run.launcher !== undefined || r.run.ranks.length > 0)
  )
    files[`${name}_run.sh`] = slurmScript(report, crowded.devices, cores);
  return files;
}
