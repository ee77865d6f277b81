// What an all-reduce costs: the alpha-beta ring model with the constants of NCCL's own tuning model and the bandwidths
// that were measured on real fabrics. GB = 1e9 bytes. It says where a figure comes from, and refuses sizes nobody measured.

export interface Fabric {
  name: string;
  /** Measured all-reduce bus bandwidth at large messages. */
  busGBps: number;
  /** Latency: a base, and a part per ring step. */
  baseUs: number;
  stepUs: number;
  source: string;
}

const ncclTuning = "NVIDIA/nccl src/graph/tuning.cc: base and per-step latencies (Simple protocol)";
const measuredBandwidth = "stas00/ml-engineering, network benchmarks";

/** Simple-protocol ring latencies; bandwidths as measured, or the model's where nothing was. */
export const fabrics: Record<string, Fabric> = {
  nvlink2: {
    name: "NVLink 2 (V100)",
    busGBps: 120,
    baseUs: 8.4,
    stepUs: 3.4,
    source: `${ncclTuning}; bandwidth modeled`,
  },
  nvlink3: {
    name: "NVLink 3 (A100)",
    busGBps: 235,
    baseUs: 8.4,
    stepUs: 3.4,
    source: `${ncclTuning}; ${measuredBandwidth}`,
  },
  nvlink4: {
    name: "NVLink 4 (H100, H200)",
    busGBps: 367,
    baseUs: 8.4,
    stepUs: 3.4,
    source: `${ncclTuning}; ${measuredBandwidth}`,
  },
  nvlink5: {
    name: "NVLink 5 (B200)",
    busGBps: 682,
    baseUs: 8.4,
    stepUs: 3.4,
    source: `${ncclTuning}; ${measuredBandwidth}`,
  },
  pcie4: {
    name: "PCIe 4 x16, no peer access",
    busGBps: 12.81,
    baseUs: 8.4,
    stepUs: 5.7,
    source: `${ncclTuning}; A100-PCIe over shared memory, measured`,
  },
  hdr100: {
    name: "InfiniBand HDR100, no GPUDirect",
    busGBps: 10.8,
    baseUs: 8.4,
    stepUs: 14,
    source: `${ncclTuning}; measured`,
  },
};

/** Host cost of a collective in PyTorch on top of NCCL's latency. */
export const hostCollectiveUs = 30;

/** Bytes moved over the busiest link, in units of the message size. */
export const busFactor: Record<string, (n: number) => number> = {
  allReduce: (n) => (2 * (n - 1)) / n,
  reduceScatter: (n) => (n - 1) / n,
  allGather: (n) => (n - 1) / n,
  allToAll: (n) => (n - 1) / n,
  broadcast: () => 1,
  reduce: () => 1,
};

/** Bus bandwidth in GB/s, comparable over device counts and with nccl-tests. */
export function busBandwidthGBps(kind: string, bytes: number, durationUs: number, devices: number): number | null {
  const factor = busFactor[kind];
  if (factor === undefined || !(durationUs > 0) || devices < 2) return null;
  return (bytes / (durationUs * 1e3)) * factor(devices);
}

/** Ring all-reduce on one node. */
export function allReduceUs(bytes: number, devices: number, fabric: Fabric): number {
  if (devices <= 1) return 0;
  return (
    fabric.baseUs +
    2 * (devices - 1) * fabric.stepUs +
    (busFactor["allReduce"]!(devices) * bytes) / (fabric.busGBps * 1e3)
  );
}

/** Over nodes: a ring inside each node and one between them over the network card, overlapping; the slower one counts. */
export function hierarchicalAllReduceUs(
  bytes: number,
  perNode: number,
  nodes: number,
  inside: Fabric,
  between: Fabric,
): number {
  if (nodes <= 1) return allReduceUs(bytes, perNode, inside);
  const within = allReduceUs(bytes, perNode, inside);
  const across = allReduceUs(bytes / perNode, nodes, between);
  return Math.max(within, across) + between.baseUs;
}
