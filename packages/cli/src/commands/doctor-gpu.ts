// The GPU part of weft doctor: libraries, measured transfers and products, and NVML readings.
import { significant, size } from "../terminal/index.js";
import type { DoctorCheck, SecondsOf, Weft } from "./doctor.js";

type Libraries = NonNullable<ReturnType<Weft["system"]["cuda"]>>;

export interface CudaReport {
  paths: Libraries;
  versions: Record<string, string | null>;
  gpus: number;
}

export interface GpuReport {
  architecture: string;
  multiprocessors: number;
  memoryBytes: { total: number; free: number };
  /** GB/s between host and GPU, through pinned and through ordinary memory, and inside the GPU. */
  transferGBs?: { pinned: Directions; pageable: Directions; onDevice: number };
  /** TFLOP/s of large products. */
  matmulTFLOPs?: { float32?: number; tf32?: number; bfloat16?: number };
  /** Current NVML readings; null without NVML. */
  readings: ReturnType<InstanceType<Weft["CudaDevice"]>["readings"]>;
}

interface Directions {
  toDevice: number;
  fromDevice: number;
}

export function cudaFacts(weft: Weft): CudaReport | null {
  const paths = weft.system.cuda();
  return paths === null ? null : { paths, versions: weft.system.cudaVersions() ?? {}, gpus: weft.system.gpuCount() };
}

export function inspectGpu(
  weft: Weft,
  device: InstanceType<Weft["CudaDevice"]>,
  measure: boolean,
  secondsOf: SecondsOf,
): GpuReport {
  const { context } = device;
  const facts = {
    architecture: context.architecture,
    multiprocessors: context.multiprocessors,
    memoryBytes: context.memoryInfo(),
    readings: device.readings(),
  };
  if (!measure) return facts;
  const { pinned, pageable, onDevice } = device.transferRates();
  const both = ({ toDevice, fromDevice }: Directions): Directions => ({
    toDevice: toDevice / 1e9,
    fromDevice: fromDevice / 1e9,
  });
  const transferGBs = { pinned: both(pinned), pageable: both(pageable), onDevice: onDevice / 1e9 };
  const tensorCores = new weft.CudaDevice(context.ordinal, { precision: "tf32" });
  const product = (on: typeof device, dtype: "float32" | "bfloat16"): number | undefined => {
    weft.setDevice(on);
    try {
      // Every element of the result is a power of two, which all of these types hold exactly.
      const n = 4096;
      const a = weft.ones([n, n]).cast(dtype).realize();
      return (
        (2 * n ** 3) /
        secondsOf(
          weft,
          (x) => x.matmul(x),
          [a],
          (value) => value === n,
        ) /
        1e12
      );
    } catch {
      return undefined;
    } finally {
      weft.setDevice(device);
    }
  };
  const matmulTFLOPs = {
    float32: product(device, "float32"),
    tf32: product(tensorCores, "float32"),
    bfloat16: product(device, "bfloat16"),
  };
  return { ...facts, transferGBs, matmulTFLOPs, readings: device.readings() };
}

/** NVIDIA's libraries and what their absence costs. */
const libraryRoles: Partial<
  Record<keyof Libraries, { name: string; severity: DoctorCheck["severity"]; costs: string; fix: string }>
> = {
  nvrtc: {
    name: "NVRTC",
    severity: "error",
    costs: "no kernel can be compiled: the GPU cannot be used",
    fix: "install the CUDA toolkit, or: pip install nvidia-cuda-nvrtc",
  },
  cublas: {
    name: "cuBLAS",
    severity: "error",
    costs: "matrix products fail on the GPU",
    fix: "install the CUDA toolkit, or: pip install nvidia-cublas",
  },
  cublasLt: {
    name: "cuBLASLt",
    severity: "warning",
    costs: "biases and activations take an extra pass over memory, and product algorithms are not tuned",
    fix: "it comes with cuBLAS: pip install nvidia-cublas",
  },
  cusolver: {
    name: "cuSOLVER",
    severity: "warning",
    costs: "eigenvalues, factorizations and linear systems are computed on the host: correct, but slow",
    fix: "install the CUDA toolkit, or: pip install nvidia-cusolver",
  },
  cudnn: {
    name: "cuDNN",
    severity: "warning",
    costs: "convolutions are matrix products over copied windows, several times slower",
    fix: "pip install nvidia-cudnn-cu13 (or -cu12), or your system's libcudnn9",
  },
  cufft: {
    name: "cuFFT",
    severity: "warning",
    costs: "Fourier transforms fail on the GPU",
    fix: "install the CUDA toolkit, or: pip install nvidia-cufft",
  },
  nccl: {
    name: "NCCL",
    severity: "note",
    costs: "GPUs exchange data through the host's memory; one GPU does not need it",
    fix: "pip install nvidia-nccl-cu13 (or -cu12), or your system's libnccl2",
  },
  nvml: {
    name: "NVML",
    severity: "note",
    costs: "load, power and clocks cannot be shown, and errors do not name other processes on the GPU",
    fix: "it comes with the driver (libnvidia-ml.so.1); in a container, ask for the utility capability",
  },
  nvtx: {
    name: "NVTX",
    severity: "note",
    costs: "Nsight shows kernels by their numbers instead of your names; nothing else",
    fix: "install the CUDA toolkit, or: pip install nvidia-nvtx",
  },
};

export function missingLibraries(paths: Libraries): DoctorCheck[] {
  return Object.entries(libraryRoles).flatMap(([key, { name, severity, costs, fix }]) =>
    paths[key as keyof Libraries] === null ? [{ severity, what: `${name} was not found`, costs, fix }] : [],
  );
}

export function gpuChecks(device: string, { readings, memoryBytes, transferGBs }: GpuReport): DoctorCheck[] {
  const others = (readings?.processes ?? []).filter(({ pid }) => pid !== process.pid);
  const found: (DoctorCheck | false)[] = [
    others.length > 0 && {
      severity: "note",
      what: `${others.length} other ${others.length === 1 ? "process uses" : "processes use"} ${device}: ${others.map(({ pid, name }) => `${name ?? "?"} (${pid})`).join(", ")}`,
      costs: "its memory and its time are shared; the rates above may be too low",
      fix: "wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES",
    },
    memoryBytes.free < 0.1 * memoryBytes.total && {
      severity: "warning",
      what: `only ${size(memoryBytes.free)} of ${size(memoryBytes.total)} are free on ${device}`,
      costs: "larger programs will run out of memory",
      fix: "see which processes use it: nvidia-smi",
    },
    transferGBs !== undefined &&
      transferGBs.pinned.fromDevice < 8 && {
        severity: "warning",
        what: `results come from ${device} at ${significant(transferGBs.pinned.fromDevice)} GB/s`,
        costs: "reading large results takes several times as long as a PCIe 4 or 5 link with 16 lanes would",
        fix: "look at the link in nvidia-smi -q (pcie): generation and width, now and at most",
      },
  ];
  return found.filter((finding) => finding !== false);
}

/** Describes a GPU in a few lines. */
export function describeGpu(name: string, gpu: GpuReport | undefined): [string, string][] {
  if (gpu === undefined) return [];
  const { readings, transferGBs, matmulTFLOPs, memoryBytes } = gpu;
  const known = (value: number | null | undefined, unit: string): string =>
    value === null || value === undefined ? "-" : `${significant(value)} ${unit}`;
  const lines: [string, string][] = [
    [name, `${gpu.multiprocessors} multiprocessors, ${size(memoryBytes.total)}, ${size(memoryBytes.free)} free`],
  ];
  if (transferGBs !== undefined) {
    const { pinned, pageable, onDevice } = transferGBs;
    lines.push(
      [
        "  copies",
        `host to GPU ${known(pinned.toDevice, "GB/s")} pinned, ${known(pageable.toDevice, "GB/s")} ordinary memory`,
      ],
      [
        "",
        `GPU to host ${known(pinned.fromDevice, "GB/s")} pinned, ${known(pageable.fromDevice, "GB/s")} ordinary memory`,
      ],
      ["", `inside the GPU ${known(onDevice, "GB/s")}`],
    );
  }
  if (matmulTFLOPs !== undefined) {
    const { float32, tf32, bfloat16 } = matmulTFLOPs;
    lines.push([
      "  products",
      `float32 ${known(float32, "TFLOP/s")}, tf32 ${known(tf32, "TFLOP/s")}, bfloat16 ${known(bfloat16, "TFLOP/s")}`,
    ]);
  }
  if (readings !== null) {
    const { gpuUtilization, watts, wattsLimit, celsius, clocks } = readings;
    lines.push([
      "  now",
      `load ${known(gpuUtilization, "%")}, ${known(watts, "W")} of ${known(wattsLimit, "W")}, ${known(celsius, "degrees C")}, ${known(clocks.sm, "MHz")} of ${known(clocks.smMax, "MHz")}`,
    ]);
  }
  return lines;
}

export function describeCuda(cuda: CudaReport | null): [string, string][] {
  if (cuda === null) return [["CUDA", "none"]];
  const names: [keyof Libraries, string][] = [
    ["driver", "CUDA driver"],
    ["nvrtc", "  NVRTC"],
    ["cublas", "  cuBLAS"],
    ["cublasLt", "  cuBLASLt"],
    ["cusolver", "  cuSOLVER"],
    ["cudnn", "  cuDNN"],
    ["cufft", "  cuFFT"],
    ["nccl", "  NCCL"],
    ["nvml", "  NVML"],
    ["nvtx", "  NVTX"],
  ];
  return names.map(([key, name]) => {
    const version = cuda.versions[key];
    const path = cuda.paths[key];
    return [name, path === null ? "none" : version === null || version === undefined ? path : `${version}, ${path}`];
  });
}
