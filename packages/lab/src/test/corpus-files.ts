// For tests: writes studies as the files that users have: directories of `weft scale`, and study.yaml with metrics.csv.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { formatMetrics } from "@weft/formats";
import type { ProbeFacts, RunFile, RunLogRecord, StudyFile, TrainingStep, Workload } from "@weft/formats/internal";
import { seededRandom } from "@weft/formats/stats";

/** A job as `weft scale` records it. Functions receive the device count. */
export interface CorpusJob {
  counts?: number[];
  repeats?: number;
  epochs?: number;
  /** Seconds of an epoch. */
  seconds: (devices: number, repeat: number) => number;
  noise?: number;
  samples?: number;
  batch?: (devices: number) => number;
  /** Processes; default one per device. */
  ranks?: (devices: number) => number;
  worldSize?: (devices: number) => number | undefined;
  /** Samples of one rank in an epoch; default its share. */
  share?: (devices: number, rank: number, repeat: number) => number;
  facts?: (devices: number, rank: number) => ProbeFacts;
  device?: (devices: number, rank: number) => string | undefined;
  host?: (devices: number, rank: number) => string;
  nodes?: (devices: number) => number;
  workload?: (devices: number) => Workload;
  loss?: (devices: number, epoch: number) => number;
  cores?: number;
  sample?: (devices: number) => { runQueue?: number; foreignCpuPercent?: number };
  /** Without steps only epochs are written; without epochs only the time of the run. */
  records?: "steps" | "epochs" | "run";
  command?: string[];
  /** Further fields of a step, or other values of the usual ones. */
  step?: (devices: number, rank: number, step: number, steps: number) => Partial<TrainingStep>;
}

const json = (path: string, value: object): void => writeFileSync(path, JSON.stringify(value));

export function writeJob(folder: string, job: CorpusJob): void {
  const counts = job.counts ?? [1, 2, 4];
  const random = seededRandom(counts.length * 1000 + Math.round(job.seconds(1, 0) * 97));
  const command = job.command ?? ["torchrun", "--nproc_per_node={n}", "train.py"];
  mkdirSync(folder, { recursive: true });
  const study: StudyFile = { v: 1, name: "study", command, counts, repeats: job.repeats ?? 1, launcher: "local" };
  json(join(folder, "study.json"), { ...study, ...(job.cores !== undefined && { machine: { cores: job.cores } }) });
  let order = 0;
  for (let repeat = 0; repeat < (job.repeats ?? 1); repeat++)
    for (const devices of counts) {
      const place = join(folder, "runs", `n${devices}-r${repeat}`);
      mkdirSync(place, { recursive: true });
      writeRun(place, job, devices, repeat, order++, random);
    }
}

function writeRun(
  place: string,
  job: CorpusJob,
  devices: number,
  repeat: number,
  order: number,
  random: () => number,
): void {
  const epochs = job.epochs ?? 5;
  const samples = job.samples ?? 4096;
  const jitter = (): number => 1 + (random() - 0.5) * 2 * (job.noise ?? 0.005);
  const mean = job.seconds(devices, repeat);
  const times = Array.from({ length: epochs }, (_, i) => mean * (i === 0 ? 1.15 : 1) * jitter());
  const run: RunFile = {
    v: 1,
    id: `n${devices}-r${repeat}`,
    devices,
    repeat,
    order,
    command: (job.command ?? ["torchrun"]).map((part) => part.replace("{n}", String(devices))),
    status: "ok",
    exitCode: 0,
    seconds: times.reduce((a, b) => a + b, 0) + 2,
    workload: job.workload?.(devices) ?? {},
    ...(job.nodes !== undefined && { nodes: job.nodes(devices) }),
    ...(job.cores !== undefined && { machine: { cores: job.cores } }),
  };
  json(join(place, "run.json"), run);
  const hosts: RunLogRecord[] = [1, 2, 3, 4].map((t) => ({
    v: 1,
    type: "sample",
    t,
    host: { cpuPercent: 60, ...job.sample?.(devices) },
  }));
  writeFileSync(join(place, "records.jsonl"), hosts.map((r) => `${JSON.stringify(r)}\n`).join(""));
  if (job.records === "run") return;
  const ranks = job.ranks?.(devices) ?? devices;
  const batch = job.batch?.(devices) ?? 32;
  for (let rank = 0; rank < ranks; rank++) {
    const world = job.worldSize === undefined ? ranks : job.worldSize(devices);
    const share = job.share?.(devices, rank, repeat) ?? Math.ceil(samples / ranks);
    const steps = Math.ceil(share / batch);
    const device = job.device?.(devices, rank);
    const lines: object[] = [
      {
        type: "rank",
        rank,
        ...(world !== undefined && { worldSize: world }),
        host: job.host?.(devices, rank) ?? "host",
        ...(device !== undefined && { device }),
      },
      {
        type: "facts",
        facts: {
          framework: "torch",
          ...(world !== undefined && { worldSize: world }),
          datasetSamples: samples,
          batchPerRank: batch,
          ...(device !== undefined && { device }),
          ...job.facts?.(devices, rank),
        },
      },
    ];
    let step = 0;
    times.forEach((seconds, e) => {
      const last = share - (steps - 1) * batch;
      if (job.records !== "epochs")
        for (let s = 0; s < steps; s++)
          lines.push({
            type: "step",
            rank,
            step: step++,
            epoch: e + 1,
            durationUs: (seconds * 1e6) / steps,
            samples: s === steps - 1 ? last : batch,
            ...job.step?.(devices, rank, step - 1, steps * epochs),
          });
      const loss = job.loss?.(devices, e + 1);
      lines.push({
        type: "epoch",
        epoch: e + 1,
        seconds,
        ...(job.records !== "epochs" && { samples: share, steps }),
        ...(loss !== undefined && { trainLoss: loss }),
      });
    });
    writeFileSync(
      join(place, `rank${rank}.jsonl`),
      lines.map((line) => `${JSON.stringify({ v: 1, ...line })}\n`).join(""),
    );
  }
}

export interface CsvRun {
  devices: number;
  seconds: number[];
  losses?: number[];
  /** Rows instead of `seconds`: [epoch, seconds]. */
  rows?: [number, number][];
  fields?: Record<string, unknown>;
}

/** A study.yaml with one metrics.csv per run: what a published study leaves behind. */
export function writeCsv(folder: string, study: Record<string, unknown>, runs: CsvRun[]): void {
  mkdirSync(folder, { recursive: true });
  runs.forEach((run, k) => {
    const place = join(folder, `run${k}`);
    mkdirSync(place);
    const rows = run.rows ?? run.seconds.map((s, i): [number, number] => [i + 1, s]);
    writeFileSync(
      join(place, "metrics.csv"),
      formatMetrics(rows.map(([epoch, seconds], i) => ({ epoch, seconds, trainLoss: run.losses?.[i] ?? null }))),
    );
  });
  const list = runs.map((run, k) => ({ dir: `run${k}`, devices: run.devices, ...run.fields }));
  // JSON is YAML.
  json(join(folder, "study.yaml"), { studies: [{ name: "study", ...study, runs: list }] });
}

export const epochs = (mean: number, count = 6): number[] =>
  Array.from({ length: count }, (_, i) => mean * (i === 0 ? 1.1 : 1 + 0.004 * ((i * 7) % 3) - 0.004));
export const amdahl = (one: number, serial: number) => (n: number) => one * (serial + (1 - serial) / n);
export const same = (d: number, f: ProbeFacts) => (d > 1 ? f : {});
export const ddp: ProbeFacts = {
  parallelism: "ddp",
  samplerSharded: true,
  samplerClass: "DistributedSampler",
  backend: "gloo",
};
export const sums = (at: (step: number) => number[]) => [1, 2, 4, 8].map((step) => ({ step, sums: at(step) }));
