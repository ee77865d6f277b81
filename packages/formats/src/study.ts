// Schemas of study.json and run.json (the folder of `weft scale`), of study.yaml (which runs make up a study) and of points
// files (device counts and measurements).
import { z } from "zod";
import { countSchema, deviceCountSchema, machineFactsSchema, type Workload, workloadSchema } from "./facts.js";
import { mostDevices } from "./limits.js";
import { recordVersion, runStatusSchema } from "./records.js";

/** Schema of study.json in the folder that `weft scale` makes. */
export const studyFileSchema = z.object({
  v: z.literal(recordVersion),
  name: z.string(),
  command: z.array(z.string()).describe("The command template, with {n}"),
  counts: z.array(deviceCountSchema).describe("Device counts"),
  repeats: countSchema,
  launcher: z.string(),
  warmup: countSchema.optional().describe("Steps or epochs at the start of every run that are excluded"),
  machine: machineFactsSchema.optional(),
  workload: workloadSchema.optional(),
  createdAt: z.number().optional().describe("Unix time in seconds"),
});
/** study.json in the folder that `weft scale` makes. */
export type StudyFile = z.infer<typeof studyFileSchema>;

/** Schema of runs/ID/run.json. */
export const runFileSchema = z.object({
  v: z.literal(recordVersion),
  id: z.string(),
  devices: deviceCountSchema,
  repeat: countSchema.describe("From 0"),
  order: countSchema.describe("Position in the interleaved order of the study, from 0"),
  command: z.array(z.string()).describe("The command as it was started"),
  nodes: deviceCountSchema.optional(),
  startedAt: z.number().optional().describe("Unix time in seconds"),
  endedAt: z.number().optional().describe("Unix time in seconds"),
  seconds: z.number().optional(),
  status: z.enum([...runStatusSchema.options, "running"]),
  exitCode: z.int().optional(),
  signal: z.string().optional(),
  message: z.string().optional(),
  machine: machineFactsSchema.optional(),
  workload: workloadSchema.optional(),
  steps: countSchema.optional().describe("Steps that the run will take, if it is not stopped"),
  lossName: z
    .string()
    .optional()
    .describe("What the loss of the steps is, such as infidelity; the loss of a training otherwise"),
  job: z.string().optional().describe("SLURM job id"),
  test: z
    .object({ loss: z.number(), accuracy: z.number(), samples: z.number().optional() })
    .optional()
    .describe("Evaluation on the test split after training"),
});
/** runs/ID/run.json: written when the run starts and replaced when it ends. */
export type RunFile = z.infer<typeof runFileSchema>;

const count = z.int("must be a count").min(0, "must be a count").nullish();
const number = z.number("must be a number").nullish();
const string = z.string("must be a string").nullish();
const positive = z
  .int("must be a positive integer")
  .min(1, "must be a positive integer")
  .max(mostDevices, `must be at most ${mostDevices}`);

/** The keys of study.yaml that describe the work, the field of `Workload` that each one sets, and its schema. */
export const workloadKeys = {
  dataset: ["dataset", string],
  samples: ["datasetSamples", count],
  batch_per_rank: ["batchPerRank", count],
  accumulation: ["accumulation", count],
  steps_per_epoch: ["stepsPerEpoch", count],
  drop_last: ["dropLast", z.boolean("must be a boolean").nullish()],
  sequence_length: ["sequenceLength", count],
  model: ["model", string],
  parameters: ["parameters", count],
  gradient_bytes: ["gradientBytes", count],
  precision: ["precision", string],
  learning_rate: ["learningRate", number],
  optimizer: ["optimizer", string],
  seed: ["seed", number],
  scaling: ["scaling", z.enum(["strong", "weak"], "must be strong or weak").nullish()],
} as const satisfies Record<string, readonly [keyof Workload, z.ZodType]>;

type WorkloadShape = { [K in keyof typeof workloadKeys]: (typeof workloadKeys)[K][1] };
const described = {
  ...(Object.fromEntries(Object.entries(workloadKeys).map(([key, [, schema]]) => [key, schema])) as WorkloadShape),
  cores: count,
  devices_per_node: count,
  loader_workers: count,
};

/** Schema of one run of study.yaml. */
export const yamlRunSchema = z.object(
  {
    dir: string.describe("Directory with metrics.csv or records.jsonl"),
    file: string.describe("File with the measurements, instead of dir"),
    devices: positive,
    nodes: positive.optional(),
    id: string,
    label: string,
    ...described,
  },
  "must be a mapping {dir, devices}",
);
/** One run of study.yaml. */
export type YamlRun = z.infer<typeof yamlRunSchema>;

/** Schema of one study of study.yaml. */
export const yamlStudySchema = z.object(
  {
    name: z.string("must be a string").optional(),
    warmup: count,
    runs: z.array(yamlRunSchema, "must be a list of {dir, devices}").nullish(),
    ...described,
  },
  "must be a mapping {name, runs}",
);
/** One study of study.yaml. */
export type YamlStudy = z.infer<typeof yamlStudySchema>;

/** Schema of study.yaml. */
export const studyYamlSchema = z.object({ studies: z.array(yamlStudySchema) });

/** Schema of a points file. Points are checked one by one by the reader, so that a bad one is reported and left out. */
export const pointsSchema = z.object({
  metric: z.enum(["throughput", "seconds"]).optional(),
  points: z
    .array(
      z.union([
        z.tuple([z.int().min(1), z.number().gt(0)]),
        z.object({
          devices: z.int().min(1),
          throughput: z.number().gt(0).optional(),
          seconds: z.number().gt(0).optional(),
          globalBatch: z.number().gt(0).optional().describe("Samples per step over all devices"),
          devicesPerNode: z.int().min(1).optional(),
          nodes: z.int().min(1).optional(),
          watts: z.number().gt(0).optional().describe("Mean power per device"),
          precision: z.string().optional(),
          parallelism: z.string().optional(),
          linkDomain: z.int().min(1).optional().describe("Devices that one fast link connects"),
        }),
      ]),
    )
    .describe("[devices, value] or objects; repeats are allowed"),
  devicesPerNode: z.int().min(1).optional().describe("Predictions across nodes need a measurement across nodes"),
});
/** Measurements by device count. */
export type PointSet = z.infer<typeof pointsSchema>;
/** What the values of a points file measure. */
export type PointMetric = NonNullable<PointSet["metric"]>;
