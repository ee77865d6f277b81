// Schemas of what is known about a job and the machine it ran on. The probe, the runner, the trainer and the importers fill
// these in. Every field is optional unless marked otherwise; a missing field means "not known", never a default.
import { z } from "zod";
import { mostDevices } from "./limits.js";

/** An integer of zero or more. */
export const countSchema = z.int().min(0);
const bytes = countSchema;

/** A number of devices, ranks or nodes. */
export const deviceCountSchema = z.int().min(0).max(mostDevices);

/** Schema of one accelerator as the machine reports it. */
const deviceFactsSchema = z.object({
  index: countSchema,
  name: z.string(),
  memoryBytes: z.number().min(0).optional(),
  uuid: z.string().optional().describe("Distinguishes two devices of the same name"),
  link: z.enum(["nvlink", "pcie", "shm", "net", "none"]).optional().describe("Interconnect to the other devices"),
});
/** One accelerator as the machine reports it. */
export type DeviceFacts = z.infer<typeof deviceFactsSchema>;

/** Schema of the machine that a run was measured on. */
export const machineFactsSchema = z.object({
  host: z.string().optional(),
  os: z.string().optional(),
  cpuModel: z.string().optional(),
  cores: z.number().min(0).optional().describe("Cores that the job may use, not cores that exist"),
  memoryBytes: z.number().min(0).optional(),
  devices: z.array(deviceFactsSchema).optional(),
  devicesPerNode: deviceCountSchema.optional(),
  driver: z.string().optional(),
  cuda: z.string().optional(),
  slurmPartition: z.string().optional(),
});
/** The machine that a run was measured on. */
export type MachineFacts = z.infer<typeof machineFactsSchema>;

/** Schema of a configuration file that the program opened. */
const configFactsSchema = z.object({
  file: z.string(),
  keys: z.array(z.string()).describe("Every leaf key of the file, dotted: training.batch_size"),
  read: z.array(z.string()).describe("The keys that the program read"),
});
/** A configuration file that the program opened, and the keys that it read. */
export type ConfigFacts = z.infer<typeof configFactsSchema>;

/** Schema of the work of a run. */
export const workloadSchema = z.object({
  dataset: z.string().optional(),
  datasetSamples: countSchema.optional().describe("Samples in the whole training set"),
  batchPerRank: countSchema.optional(),
  accumulation: countSchema.optional().describe("Forward and backward passes per optimizer step"),
  stepsPerEpoch: countSchema.optional().describe("Batches that one rank draws per epoch"),
  dropLast: z.boolean().optional(),
  sequenceLength: countSchema.optional(),
  model: z.string().optional(),
  parameters: countSchema.optional(),
  gradientBytes: bytes.optional(),
  precision: z
    .string()
    .optional()
    .describe("fp32, tf32, fp64, bf16, fp16, amp-bf16, amp-fp16, or the framework's name"),
  learningRate: z.number().optional(),
  optimizer: z.string().optional(),
  seed: z.number().optional(),
  scaling: z.enum(["strong", "weak"]).optional().describe("strong: a fixed problem; weak: it grows with the devices"),
});
/** The work of a run: enough to compute the steps of an epoch and to decide whether two runs compare. */
export type Workload = z.infer<typeof workloadSchema>;

/** Schema of what the probe or the trainer reports from inside one rank. */
export const probeFactsSchema = z.object({
  ...workloadSchema.shape,
  framework: z.enum(["torch", "jax", "weft", "other"]).optional(),
  frameworkVersion: z.string().optional(),
  pythonVersion: z.string().optional(),
  cudaVersion: z.string().optional(),
  ncclVersion: z.string().optional(),
  backend: z
    .string()
    .optional()
    .describe("Communication backend: nccl, gloo, mpi, or shm, where the cores that compute also move the data"),
  worldSize: deviceCountSchema.optional(),
  device: z.string().optional(),
  deviceName: z.string().optional(),
  deviceCount: deviceCountSchema.optional().describe("Devices that this rank sees"),
  deviceUuid: z.string().optional().describe("Distinguishes devices that several ranks know by the same name"),
  deviceMemoryBytes: bytes.optional(),
  peakMemoryBytes: bytes.optional(),
  energyJoules: z.number().optional().describe("Of this rank's device, from the first step to the end"),
  energyJoulesPerStep: z.number().optional(),
  visibleDevices: z.array(z.string()).optional(),
  samplerClass: z.string().optional().describe("Class of the sampler or batch sampler of the training loader"),
  samplerSharded: z.boolean().optional().describe("The sampler gives each rank its own part"),
  samplerLength: countSchema.optional().describe("Length of the sampler on this rank"),
  indexHash: z.string().optional().describe("Hash of the first batches' indices into the whole data set"),
  contentHash: z
    .string()
    .optional()
    .describe("Hash of the values of the first batches; equal ranks work on the same data"),
  datasetHash: z
    .string()
    .optional()
    .describe("Hash of what the data set of this rank holds, where it can be read without drawing samples"),
  epochIndexHashes: z
    .array(z.string())
    .optional()
    .describe("Hash of the first indices of each of the first epochs; equal epochs repeat their order"),
  localSamples: countSchema.optional().describe("Samples in the part of the data set that this rank holds"),
  parameterSums: z
    .array(z.object({ step: countSchema, sums: z.array(z.number()), collectives: countSchema.optional() }))
    .optional()
    .describe(
      "Sums of some parameters after some optimizer steps, and the collectives issued so far; replicas of one model agree over the ranks",
    ),
  optimizerParameters: countSchema
    .optional()
    .describe(
      "Elements of the parameters of the first optimizer that steps; a part of the model's, or another model's",
    ),
  shuffle: z.boolean().optional(),
  loaderWorkers: countSchema.optional(),
  persistentWorkers: z.boolean().optional(),
  pinMemory: z.boolean().optional(),
  prefetchFactor: z.number().min(0).optional(),
  parallelism: z.enum(["ddp", "dp", "fsdp", "pmap", "sharding", "none"]).optional(),
  ddpBucketCapBytes: z.number().min(0).optional(),
  ddpFirstBucketBytes: z.number().min(0).optional(),
  ddpStaticGraph: z.boolean().optional(),
  ddpGradientAsBucketView: z.boolean().optional(),
  ddpFindUnusedParameters: z.boolean().optional(),
  ddpBucketBytes: z.array(z.number().min(0)).optional().describe("Bytes of each gradient bucket in launch order"),
  parameterElements: z.array(countSchema).optional().describe("Elements of each trainable parameter, in order"),
  gradientElementBytes: bytes.optional(),
  syncBatchNorms: countSchema.optional(),
  cudnnBenchmark: z.boolean().optional(),
  tf32: z.boolean().optional(),
  cores: z.number().min(0).optional().describe("CPU affinity of this rank"),
  ompThreads: countSchema.optional(),
  compileSeconds: z.number().min(0).optional().describe("Compilation outside of steady steps"),
  initSeconds: z.number().min(0).optional().describe("Process start to first step"),
  shardedAxes: countSchema.optional().describe("Axes over which arrays are sharded (JAX)"),
  replicatedForDivisibility: z.array(z.string()).optional().describe("Axes whose length the devices do not divide"),
  serialLoopSteps: countSchema.optional().describe("Iterations of the longest serial loop inside the step"),
  serialLoopShare: z.number().min(0).optional(),
  hostToDeviceUs: z.number().min(0).optional(),
  gcSeconds: z.number().min(0).optional().describe("Garbage collection since the first step"),
  gcPauses: countSchema.optional().describe("Garbage collections above 1 ms since the first step"),
  loggingSeconds: z.number().min(0).optional().describe("print, logging and fsync since the first step"),
  loggingCalls: countSchema.optional(),
  saveSeconds: z.number().min(0).optional().describe("torch.save since the first step"),
  evaluationSeconds: z.number().min(0).optional().describe("Batches without training inside training epochs"),
  afterUpdateSeconds: z
    .number()
    .min(0)
    .optional()
    .describe("From the optimizer step to the request for the next batch"),
  backwardPasses: countSchema.optional(),
  gradientSyncs: countSchema.optional().describe("Backward passes in which the ranks exchanged gradients"),
  updates: countSchema.optional().describe("Optimizer steps"),
  pointToPoint: z.boolean().optional().describe("The ranks send to each other one to one, as stages of a pipeline do"),
  loaderStarts: countSchema.optional().describe("How often loader processes were started"),
  loaderStartSeconds: z.number().min(0).optional(),
  ddpCommUs: z.number().min(0).optional().describe("Communication of a backward pass, by DDP's own timers"),
  ddpOverlapUs: z.number().min(0).optional().describe("The part of it beside the computation"),
  ddpBackwardUs: z.number().min(0).optional().describe("Computation of a backward pass, by DDP's own timers"),
  configs: z.array(configFactsSchema).optional(),
  stepSampling: countSchema
    .optional()
    .describe("The probe records one of so many steps, where a record costs too much"),
  probeStepUs: z.number().min(0).optional().describe("What a recorded step costs, by the probe's own clock"),
  probeErrors: z.array(z.string()).optional().describe("What the probe could not determine, and why"),
});
/** What one rank reports about itself. Later records of a rank overwrite earlier ones key by key. */
export type ProbeFacts = z.infer<typeof probeFactsSchema>;
