// Rates of known GPUs, from the vendors' data sheets: dense (not sparse) operations per second in units of 1e12, and memory
// bandwidth in units of 1e9 bytes per second. Measured rates can be given instead.

export type GpuPrecision = "fp64" | "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8";

/** What a device can do at most: TFLOP/s per precision and GB/s of its memory. */
export interface DevicePeaks {
  name: string;
  /** Source of the rates. */
  from: "data sheet" | "measured";
  tflops: Partial<Record<GpuPrecision, number>>;
  bandwidthGBps: number;
}

type Row = [pattern: RegExp, bandwidth: number, tflops: Partial<Record<GpuPrecision, number>>];

const hopper = { fp64: 67, fp32: 67, tf32: 495, fp16: 989, bf16: 989, fp8: 1979, int8: 1979 };
const ampere = { fp64: 19.5, fp32: 19.5, tf32: 156, fp16: 312, bf16: 312, int8: 624 };

/** The first matching row counts. Half-precision rates are those of tensor cores. */
const rows: Row[] = [
  [/\bB200\b/, 8000, { fp64: 40, fp32: 80, tf32: 1125, fp16: 2250, bf16: 2250, fp8: 4500, int8: 4500 }],
  [/\bH200\b/, 4800, hopper],
  [/\bH20\b/, 4000, { fp64: 1, fp32: 44, tf32: 74, fp16: 148, bf16: 148, fp8: 296, int8: 296 }],
  [/\bH100 PCIe\b/, 2000, { fp64: 51, fp32: 51, tf32: 378, fp16: 756, bf16: 756, fp8: 1513, int8: 1513 }],
  [/\bH100 NVL\b/, 3900, { fp64: 60, fp32: 60, tf32: 418, fp16: 835, bf16: 835, fp8: 1670, int8: 1670 }],
  [/\bH100\b|\bH800\b/, 3350, hopper],
  [/\bA100.*80GB PCIe\b/, 1935, ampere],
  [/\bA100.*80GB\b|\bA800\b/, 2039, ampere],
  [/\bA100\b|\bGRID A100/, 1555, ampere],
  [/\bA30\b/, 933, { fp64: 10.3, fp32: 10.3, tf32: 82, fp16: 165, bf16: 165, int8: 330 }],
  [/\bA40\b|RTX A6000\b/, 696, { fp32: 37.4, tf32: 74.8, fp16: 149.7, bf16: 149.7, int8: 299.3 }],
  [/\bA10G?\b/, 600, { fp32: 31.2, tf32: 62.5, fp16: 125, bf16: 125, int8: 250 }],
  [/\bL40S\b/, 864, { fp32: 91.6, tf32: 183, fp16: 362, bf16: 362, fp8: 733, int8: 733 }],
  [/\bL40\b/, 864, { fp32: 90.5, tf32: 90.5, fp16: 181, bf16: 181, fp8: 362, int8: 362 }],
  [/\bL4\b/, 300, { fp32: 30.3, tf32: 60, fp16: 121, bf16: 121, fp8: 242, int8: 242 }],
  [/\bV100.*(?:PCIE|PCIe)/, 900, { fp64: 7, fp32: 14, fp16: 112 }],
  [/\bV100\b/, 900, { fp64: 7.8, fp32: 15.7, fp16: 125 }],
  [/\bP100\b/, 732, { fp64: 5.3, fp32: 10.6, fp16: 21.2 }],
  [/\bT4\b/, 320, { fp32: 8.1, fp16: 65, int8: 130 }],
  [/RTX 4090\b/, 1008, { fp32: 82.6, tf32: 82.6, fp16: 165.2, bf16: 165.2, fp8: 330.3, int8: 660.6 }],
  [/RTX 3090\b/, 936, { fp32: 35.6, tf32: 35.6, fp16: 71, bf16: 71, int8: 284 }],
  [
    /\bMI300X\b/,
    5300,
    { fp64: 163.4, fp32: 163.4, tf32: 653.7, fp16: 1307.4, bf16: 1307.4, fp8: 2614.9, int8: 2614.9 },
  ],
  // One of the two dies, which are separate devices.
  [/\bMI250X\b/, 1638, { fp64: 47.9, fp32: 47.9, fp16: 191.5, bf16: 191.5, int8: 191.5 }],
];

/** Rates of a device by the name that its driver reports; null for an unknown one. */
export function peaksOf(name: string): DevicePeaks | null {
  const row = rows.find(([pattern]) => pattern.test(name));
  return row === undefined ? null : { name, from: "data sheet", tflops: row[2], bandwidthGBps: row[1] };
}

const precisions: readonly GpuPrecision[] = ["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"];

/**
 * Measured rates from a text such as `bf16=790,tf32=420,bandwidth=4200`: TFLOP/s per precision, and GB/s.
 * @throws Error where a name is unknown, a rate is not a positive number, or the bandwidth is missing.
 */
export function parsePeaks(text: string): DevicePeaks {
  const peaks: DevicePeaks = { name: "as given", from: "measured", tflops: {}, bandwidthGBps: 0 };
  for (const part of text.split(",")) {
    const [name, value] = part.split("=").map((one) => one.trim());
    const rate = Number(value);
    if (!(rate > 0 && rate < 1e9)) throw new Error(`${part.trim()} is not NAME=RATE with a positive rate`);
    if (name === "bandwidth") peaks.bandwidthGBps = rate;
    else if ((precisions as readonly string[]).includes(name)) peaks.tflops[name as GpuPrecision] = rate;
    else throw new Error(`${name} is neither bandwidth nor one of ${precisions.join(", ")}`);
  }
  if (peaks.bandwidthGBps === 0) throw new Error("bandwidth=GB/s is missing");
  return peaks;
}
