// A configuration of a training step over several kinds of parallelism.

/** One configuration of a training step over three kinds of parallelism. */
export interface ParallelConfiguration {
  devices: number;
  globalBatch: number;
  microBatch: number;
  hidden: number;
  heads: number;
  layers: number;
  sequence: number;
  tensor: number;
  data: number;
  pipeline: number;
}
