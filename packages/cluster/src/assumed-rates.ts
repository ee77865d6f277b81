// Assumed rates of workers that were not measured: CPU workers by their number of cores, GPU workers by the hardware that
// they report. Their names say "assumed", and explanations of plans repeat it.
import { h200, type Link, type Rates, sameLinks } from "@weft/core/internal/cost";
import type { WorkerInfo } from "./protocol.js";

/** Links over shared memory: members read each other directly and share memory bandwidth. */
const sharedMemory = (members: number): Link => ({
  members,
  latency: 5e-6 * members,
  bandwidth: 6e9 / Math.sqrt(members / 2),
});

export const hostLinks: Rates["links"] = sameLinks([2, 4, 8].map(sharedMemory));

/** Links between hosts: encrypted, forwarded by a thread on either side. */
const network = (members: number): Link => ({ members, latency: 250e-6 + 20e-6 * members, bandwidth: 0.4e9 });

export const networkLinks: Rates["links"] = sameLinks([2, 4, 8, 16].map(network));

const scaled = (points: [number, number][], by: number): [number, number][] => points.map(([x, y]) => [x, y * by]);

function cpuRates(threads: number): Rates {
  const bandwidth = Math.min(threads, 4);
  const products = scaled(
    [
      [32, 5e9],
      [128, 30e9],
      [512, 70e9],
      [2048, 90e9],
    ],
    threads,
  );
  return {
    name: `CPU workers of ${threads} core${threads === 1 ? "" : "s"} (assumed)`,
    assumed: true,
    matmul: {
      float32: products,
      float64: scaled(products, 0.5),
      complex64: scaled(products, 0.25),
      complex128: scaled(products, 0.12),
    },
    linalg: 2e9 * threads,
    bandwidth: scaled(
      [
        [1e5, 20e9],
        [1e7, 10e9],
        [1e8, 8e9],
      ],
      bandwidth,
    ),
    simple: 4e9 * threads,
    special: 0.8e9 * threads,
    lookup: 0.4e9 * threads,
    random: 0.15e9 * threads,
    kernel: 2e-6,
    call: 250e-6,
    links: hostLinks,
  };
}

/** Floating-point operations per multiprocessor and clock cycle, and NVLink bandwidth relative to NVLink 4. */
interface Generation {
  float32: number;
  float64: number;
  /** Dense products of 16-bit floats on tensor cores. */
  half: number;
  nvlink: number;
}

/** By compute capability, or by its major number; figures of the CUDA programming guide and vendor data sheets. */
const generations: Readonly<Record<string, Generation>> = {
  "7": { float32: 128, float64: 4, half: 1024, nvlink: 0.33 },
  "7.0": { float32: 128, float64: 64, half: 1024, nvlink: 0.33 },
  "8": { float32: 256, float64: 4, half: 1024, nvlink: 0.67 },
  "8.0": { float32: 128, float64: 128, half: 2048, nvlink: 0.67 },
  "9": { float32: 256, float64: 256, half: 4096, nvlink: 1 },
  "10": { float32: 256, float64: 128, half: 8192, nvlink: 2 },
  "12": { float32: 256, float64: 4, half: 2048, nvlink: 1 },
};
const oldest = generations["7"];

/** The machine that `h200` describes. Other GPUs are scaled from it. */
const reference = { multiprocessors: 132, clockHz: 1.98e9, memoryBandwidth: 4.8e12, generation: generations["9"] };
/** For what the driver does not report: values of a small GPU. */
const defaultClock = 1.4e9;
const defaultBandwidth = 0.4e12;
/** GPUs with at least this memory bandwidth (HBM) are taken to be linked by NVLink, others by PCI Express. */
const nvlinkBandwidth = 0.8e12;

const pciExpress = (members: number): Link => ({ members, latency: 10e-6 * members, bandwidth: 12e9 });

type Accelerator = NonNullable<WorkerInfo["accelerator"]>;

function gpuRates({ capability, multiprocessors, clockHz, memoryBandwidth }: Accelerator): Rates {
  const generation = generations[capability] ?? generations[capability.split(".")[0]] ?? oldest;
  const cores = (multiprocessors * (clockHz ?? defaultClock)) / (reference.multiprocessors * reference.clockHz);
  const bytes = (memoryBandwidth ?? defaultBandwidth) / reference.memoryBandwidth;
  const products = (kind: "float32" | "float64" | "half"): number =>
    (cores * generation[kind]) / reference.generation[kind];
  const curve = (points: Rates["bandwidth"] = [], by: number): [number, number][] =>
    points.map(([x, y]) => [x, y * by]);
  const { matmul, links } = h200;
  const linked = (memoryBandwidth ?? 0) >= nvlinkBandwidth;
  const nvlink = links.allReduce.map((link) => ({ ...link, bandwidth: link.bandwidth * generation.nvlink }));
  const simple = products("float32");
  const gigabytes = memoryBandwidth === null ? "unknown" : `${Math.round(memoryBandwidth / 1e9)} GB/s`;
  return {
    ...h200,
    name: `GPU workers of ${multiprocessors} multiprocessors, compute capability ${capability}, ${gigabytes} memory (assumed)`,
    matmul: {
      float32: curve(matmul.float32, simple),
      float64: curve(matmul.float64, products("float64")),
      bfloat16: curve(matmul.bfloat16, products("half")),
      float16: curve(matmul.float16, products("half")),
    },
    linalg: h200.linalg * products("float64"),
    bandwidth: curve(h200.bandwidth, bytes),
    simple: h200.simple * simple,
    special: h200.special * cores,
    lookup: h200.lookup * bytes,
    random: h200.random * cores,
    call: 250e-6,
    links: sameLinks(linked ? nvlink : [2, 4, 8].map(pciExpress)),
  };
}

/** Rates of a worker that was not measured, from what it reports about itself. */
export function assumedRates({ accelerator, threads }: Pick<WorkerInfo, "accelerator" | "threads">): Rates {
  return accelerator === null || accelerator.multiprocessors === 0
    ? cpuRates(Math.max(1, threads))
    : gpuRates(accelerator);
}
