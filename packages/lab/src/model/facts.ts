// What is known about a job and the machine it ran on. The probe, the runner and the importers fill these in;
// every field may be missing, and a missing field means "not known", never a default. Knows nothing of files.

/** One accelerator as the machine reports it. */
export interface DeviceFacts {
  index: number;
  name: string;
  memoryBytes?: number;
  /** Bus or UUID, to tell two devices of one name apart. */
  uuid?: string;
  /** How it reaches its neighbours, where the machine says so. */
  link?: "nvlink" | "pcie" | "shm" | "net" | "none";
}

/** The machine a run was measured on. `cores` counts those the job may use, not those that exist. */
export interface MachineFacts {
  host?: string;
  os?: string;
  cpuModel?: string;
  cores?: number;
  memoryBytes?: number;
  devices?: DeviceFacts[];
  devicesPerNode?: number;
  driver?: string;
  cuda?: string;
  slurmPartition?: string;
}

/** A configuration file the program opened, and which of its keys it then asked for. */
export interface ConfigFacts {
  file: string;
  /** Every leaf key of the file, dotted: `training.batch_size`. */
  keys: string[];
  /** The keys that the program read. */
  read: string[];
}

/** What the work was: enough to say how many steps an epoch should take and whether two runs compare. */
export interface Workload {
  dataset?: string;
  /** Samples in the training set (not those that one rank sees). */
  datasetSamples?: number;
  batchPerRank?: number;
  /** Forward and backward passes per optimiser step. */
  accumulation?: number;
  /** Batches that one rank draws in an epoch, as the program or its loader says. */
  stepsPerEpoch?: number;
  dropLast?: boolean;
  sequenceLength?: number;
  model?: string;
  parameters?: number;
  gradientBytes?: number;
  precision?: string;
  learningRate?: number;
  optimizer?: string;
  seed?: number;
  /** Whether the problem is fixed (strong scaling) or grows with the devices (weak scaling). */
  scaling?: "strong" | "weak";
}

/** What the probe saw inside one rank. Later records of a rank overwrite earlier ones key by key. */
export interface ProbeFacts extends Workload {
  framework?: "torch" | "jax" | "weft" | "other";
  frameworkVersion?: string;
  pythonVersion?: string;
  cudaVersion?: string;
  ncclVersion?: string;
  /** Communication backend: `nccl`, `gloo`, `mpi`, or `shm`, where the cores that compute also move the data. */
  backend?: string;
  worldSize?: number;
  device?: string;
  deviceName?: string;
  deviceCount?: number;
  deviceMemoryBytes?: number;
  peakMemoryBytes?: number;
  visibleDevices?: string[];
  /** Class name of the sampler or batch sampler that feeds the training loader. */
  samplerClass?: string;
  /** True when that sampler gives each rank its own part. */
  samplerSharded?: boolean;
  /** Length of the sampler on this rank. */
  samplerLength?: number;
  /** A hash over the sample indices of the first batches: equal on two ranks means that both draw the same data. */
  indexHash?: string;
  shuffle?: boolean;
  loaderWorkers?: number;
  persistentWorkers?: boolean;
  pinMemory?: boolean;
  prefetchFactor?: number;
  /** How the model is wrapped: DistributedDataParallel, DataParallel, FSDP, nothing. */
  parallelism?: "ddp" | "dp" | "fsdp" | "pmap" | "sharding" | "none";
  ddpBucketCapBytes?: number;
  ddpFirstBucketBytes?: number;
  ddpStaticGraph?: boolean;
  ddpGradientAsBucketView?: boolean;
  ddpFindUnusedParameters?: boolean;
  /** Bytes of each gradient bucket in launch order. */
  ddpBucketBytes?: number[];
  /** Elements of each trainable parameter in registration order. */
  parameterElements?: number[];
  gradientElementBytes?: number;
  syncBatchNorms?: number;
  cudnnBenchmark?: boolean;
  tf32?: boolean;
  cores?: number;
  ompThreads?: number;
  /** Seconds spent compiling (JAX, torch.compile), apart from steady steps. */
  compileSeconds?: number;
  /** Seconds from the start of the process to its first step. */
  initSeconds?: number;
  /** Axes over which arrays are split (JAX), and those whose length does not divide by the devices. */
  shardedAxes?: number;
  replicatedForDivisibility?: string[];
  /** Longest serial loop inside the step (lax.scan, a time stepper): iterations, and their share of the step. */
  serialLoopSteps?: number;
  serialLoopShare?: number;
  hostToDeviceUs?: number;
  configs?: ConfigFacts[];
  /** Why the probe could not tell something. It fails silent in the job and records it here. */
  probeErrors?: string[];
}
