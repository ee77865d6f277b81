// Models the gradient buckets of PyTorch's DistributedDataParallel and how much of their all-reduces the backward pass hides.

interface BucketOptions {
  elementBytes?: number;
  firstCapBytes?: number;
  capBytes?: number;
}

const mebibyte = 1024 * 1024;

/** Elements per bucket in launch order: parameters in reverse registration order, a bucket closed once it reaches its cap. */
export function ddpBuckets(parameterElements: readonly number[], options: BucketOptions = {}): number[] {
  const { elementBytes = 4, firstCapBytes = mebibyte, capBytes = 25 * mebibyte } = options;
  const buckets: number[] = [];
  let elements = 0;
  for (let i = parameterElements.length - 1; i >= 0; i--) {
    elements += parameterElements[i]!;
    const cap = buckets.length === 0 ? firstCapBytes : capBytes;
    if (elements * elementBytes >= cap) {
      buckets.push(elements);
      elements = 0;
    }
  }
  if (elements > 0) buckets.push(elements);
  return buckets;
}

interface OverlapResult {
  /** When each bucket's all-reduce ends, counted from the start of the backward pass. */
  endsUs: number[];
  communicationUs: number;
  /** Communication that remains after the backward pass. */
  exposedUs: number;
}

/**
 * Simulates a serial communication stream next to the backward pass. A bucket is ready when the share of the backward pass that produces
 * it has run; without `workShares` that share is its part of the elements.
 */
export function simulateOverlap(
  bucketBytes: readonly number[],
  backwardUs: number,
  allReduceUs: (bytes: number) => number,
  { overlap = true, workShares }: { overlap?: boolean; workShares?: readonly number[] } = {},
): OverlapResult {
  const total = bucketBytes.reduce((a, b) => a + b, 0);
  const shares = workShares ?? bucketBytes.map((bytes) => (total > 0 ? bytes / total : 0));
  let ready = 0;
  let free = overlap ? 0 : backwardUs;
  let communicationUs = 0;
  const endsUs = bucketBytes.map((bytes, i) => {
    ready += shares[i]! * backwardUs;
    const duration = allReduceUs(bytes);
    communicationUs += duration;
    free = Math.max(free, ready) + duration;
    return free;
  });
  return { endsUs, communicationUs, exposedUs: Math.max(0, (endsUs.at(-1) ?? backwardUs) - backwardUs) };
}
