// Cost model of collectives: the alpha-beta ring model with the constants of NCCL's tuning model and bandwidths measured on
// real fabrics. 1 GB = 1e9 bytes.

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

const oneWay = (n: number): number => (n - 1) / n;
const busFactors: Record<string, (ranks: number) => number> = {
  allreduce: (n) => 2 * oneWay(n),
  reducescatter: oneWay,
  allgather: oneWay,
  alltoall: oneWay,
  broadcast: () => 1,
  reduce: () => 1,
  sendrecv: () => 1,
};

/** Bus bandwidth over algorithm bandwidth of a collective (the convention of nccl-tests); null where none is defined. */
export function busFactor(collective: string, ranks: number): number | null {
  const name = collective.toLowerCase();
  return ranks >= 1 && Object.hasOwn(busFactors, name) ? busFactors[name](ranks) : null;
}

/** Bus bandwidth in GB/s, comparable across device counts and with nccl-tests. */
export function busBandwidthGBps(
  collective: string,
  bytes: number,
  durationUs: number,
  devices: number,
): number | null {
  const factor = busFactor(collective, devices);
  return factor === null || !(durationUs > 0) || devices < 2 ? null : (bytes / (durationUs * 1e3)) * factor;
}

/** Time of a ring all-reduce on one node, in microseconds. */
export function allReduceUs(bytes: number, devices: number, fabric: Fabric): number {
  if (devices <= 1) return 0;
  return (
    fabric.baseUs + 2 * (devices - 1) * fabric.stepUs + (busFactors.allreduce(devices) * bytes) / (fabric.busGBps * 1e3)
  );
}
