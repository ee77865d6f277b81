// The GPU part of weft doctor on simulated machines: every missing library states its cost, every reading has a line.
import assert from "node:assert/strict";
import { test } from "node:test";
import { describeCuda, describeGpu, type GpuReport, gpuChecks, missingLibraries } from "./doctor-gpu.js";

const paths = {
  driver: "libcuda.so.1",
  nvrtc: "libnvrtc.so.13",
  cublas: "libcublas.so.13",
  cublasLt: "libcublasLt.so.13",
  cusolver: "libcusolver.so.12",
  cudnn: "libcudnn.so.9",
  cufft: "libcufft.so.12",
  nvml: "libnvidia-ml.so.1",
  nvtx: "libnvtx3interop.so.1",
  nccl: "libnccl.so.2",
};

const gpu: GpuReport = {
  architecture: "sm_90",
  multiprocessors: 132,
  memoryBytes: { total: 150e9, free: 149e9 },
  transferGBs: {
    pinned: { toDevice: 55.2, fromDevice: 54.1 },
    pageable: { toDevice: 11.5, fromDevice: 12.25 },
    onDevice: 4012,
  },
  matmulTFLOPs: { float32: 51.5, tf32: 398, bfloat16: 778 },
  readings: {
    gpuUtilization: 3,
    memoryUtilization: 1,
    memoryBytes: { total: 150e9, free: 149e9, used: 1e9 },
    watts: 120,
    wattsLimit: 700,
    celsius: 33,
    clocks: { sm: 1980, smMax: 1980, memory: 3201 },
    processes: [{ pid: process.pid, name: "node", bytes: 1e9 }],
  },
};

test("a complete machine has no findings", () => {
  assert.deepEqual(missingLibraries(paths), []);
  assert.deepEqual(gpuChecks("cuda", gpu), []);
});

test("each missing library has a severity, a cost and a remedy", () => {
  const without = { ...paths, nvrtc: null, cusolver: null, cudnn: null, cufft: null, nccl: null };
  const found = missingLibraries(without);
  assert.deepEqual(
    found.map(({ severity, what }) => `${severity}: ${what}`),
    [
      "error: NVRTC was not found",
      "warning: cuSOLVER was not found",
      "warning: cuDNN was not found",
      "warning: cuFFT was not found",
      "note: NCCL was not found",
    ],
  );
  assert.match(found[1].costs, /on the host: correct, but slow/);
  assert.match(found[1].fix, /pip install nvidia-cusolver/);
});

test("a busy GPU, a full one and a slow link are reported", () => {
  const busy = {
    ...gpu,
    memoryBytes: { total: 150e9, free: 2e9 },
    transferGBs: { ...gpu.transferGBs!, pinned: { toDevice: 3, fromDevice: 3 } },
    readings: { ...gpu.readings!, processes: [{ pid: 1, name: "python3", bytes: 148e9 }] },
  };
  const found = gpuChecks("cuda:1", busy);
  assert.deepEqual(
    found.map(({ severity }) => severity),
    ["note", "warning", "warning"],
  );
  assert.match(found[0].what, /1 other process uses cuda:1: python3 \(1\)/);
  assert.match(found[1].what, /only 2 GB of 150 GB are free/);
  assert.match(found[2].what, /results come from cuda:1 at 3 GB\/s/);
});

test("a GPU is described in a few lines, and missing readings are a dash", () => {
  const text = describeGpu("cuda", gpu)
    .map(([name, value]) => `${name}|${value}`)
    .join("\n");
  assert.match(text, /^cuda\|132 multiprocessors, 150 GB, 149 GB free$/m);
  assert.match(text, /^ {2}copies\|host to GPU 55\.20 GB\/s pinned, 11\.50 GB\/s ordinary memory$/m);
  assert.match(text, /^\|GPU to host 54\.10 GB\/s pinned, 12\.25 GB\/s ordinary memory$/m);
  assert.match(text, /^ {2}products\|float32 51\.50 TFLOP\/s, tf32 398 TFLOP\/s, bfloat16 778 TFLOP\/s$/m);
  assert.match(text, /^ {2}now\|load 3 %, 120 W of 700 W, 33 degrees C, 1980 MHz of 1980 MHz$/m);
  const bare = describeGpu("cuda", { ...gpu, matmulTFLOPs: { tf32: 1 }, readings: null });
  assert.match(bare.map(([, value]) => value).join("\n"), /float32 -, tf32 1 TFLOP\/s, bfloat16 -/);
  assert.deepEqual(describeGpu("cpu", undefined), []);
});

test("libraries are listed with version and path", () => {
  assert.deepEqual(describeCuda(null), [["CUDA", "none"]]);
  const lines = describeCuda({ paths: { ...paths, nccl: null }, versions: { driver: "13.0", nvrtc: "13.0" }, gpus: 1 });
  assert.deepEqual(lines[0], ["CUDA driver", "13.0, libcuda.so.1"]);
  assert.deepEqual(
    lines.find(([name]) => name === "  NCCL"),
    ["  NCCL", "none"],
  );
  assert.deepEqual(
    lines.find(([name]) => name === "  NVML"),
    ["  NVML", "libnvidia-ml.so.1"],
  );
});
