// Classifies events by category and name with rule tables that are evaluated from top to bottom.

export type KernelType = "COMMUNICATION" | "MEMORY" | "COMPUTATION" | "OTHER";

/** The classes of device events; columns hold indices into this list. */
export const kernelTypes: readonly KernelType[] = ["COMMUNICATION", "MEMORY", "COMPUTATION", "OTHER"];

const otherWork: [RegExp, KernelType][] = [
  [/^(?:(?:hip)?Memcpy|(?:hip)?Memset|dma)/, "MEMORY"],
  [
    /^(?:.*Memcpy|.*Memset|.*dma|.*Sync|Stream Wait Event|cuda.*LaunchKernel|runFunction|job_exe|packet|pe_exe|cpum_exe_subgraph|collective_subgraph_execution)/,
    "OTHER",
  ],
];

const gpuRules: [RegExp, KernelType][] = [
  [/^(?:nccl|rccl|msccl|hccl|oneccl|.*ncclKernel|.*ncclDevKernel)/, "COMMUNICATION"],
  ...otherWork,
];

/** Holistic Trace Analysis takes every kernel that begins with "hip" for a collective. */
const htaRules: [RegExp, KernelType][] = [[/^(?:nccl|hip|hccl|.*ncclKernel)/, "COMMUNICATION"], ...otherWork];

/** Class of a GPU event: of copies by their category, because the vendors name them differently. */
export function gpuKernelType(name: string, category: Category, asHta: boolean): KernelType {
  if (!asHta && (category === "memcpy" || category === "memset")) return "MEMORY";
  for (const [pattern, type] of asHta ? htaRules : gpuRules) if (pattern.test(name)) return type;
  return "COMPUTATION";
}

const xlaRules: [RegExp, KernelType][] = [
  [/^(?:nccl|.*ncclKernel|.*ncclDevKernel)/, "COMMUNICATION"],
  [
    /^(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast|ragged-all-to-all|send|recv)\b/,
    "COMMUNICATION",
  ],
  [/^(?:copy|copy-start|copy-done|Memcpy|Memset|memcpy|memset)(?:[.\-_ ]?\d*$|[A-Z0-9])/, "MEMORY"],
];

/** Class of an XLA operation, by its HLO name. */
export function xlaKernelType(name: string): KernelType {
  for (const [pattern, type] of xlaRules) if (pattern.test(name)) return type;
  return "COMPUTATION";
}

const hostCommunication =
  /^(?:gloo:|nccl:|mpi:|ucc:|xccl:|c10d::|record_param_comms|torch\.distributed\.|torch::distributed::)/;

/** Whether a host event belongs to communication: the work of gloo and the calls that start it. */
export function isHostCommunication(name: string): boolean {
  return hostCommunication.test(name);
}

/** Whether a host event is the collective itself, not the call that queues it. */
export function isHostCollective(name: string): boolean {
  return /^(?:gloo|mpi|ucc):/.test(name);
}

export type Category =
  | "cpu_op"
  | "user_annotation"
  | "runtime"
  | "kernel"
  | "memcpy"
  | "memset"
  | "sync"
  | "gpu_user_annotation"
  | "python_function"
  | "trace"
  | "none"
  | "other";

export const categories: readonly Category[] = [
  "cpu_op",
  "user_annotation",
  "runtime",
  "kernel",
  "memcpy",
  "memset",
  "sync",
  "gpu_user_annotation",
  "python_function",
  "trace",
  "none",
  "other",
];

export const categoryIndex = Object.fromEntries(categories.map((c, i) => [c, i])) as Record<Category, number>;

const categoryRules: [RegExp, Category][] = [
  [/^(?:cpu_op|Operator)$/, "cpu_op"],
  [/^user_annotation$/, "user_annotation"],
  [/_runtime$|_driver$|^Runtime$/, "runtime"],
  [/^(?:kernel|Kernel|mtia_ccp_events)$/, "kernel"],
  [/^(?:gpu_memcpy|Memcpy)$/, "memcpy"],
  [/^(?:gpu_memset|Memset)$/, "memset"],
  [/^cuda_sync$/, "sync"],
  [/^gpu_user_annotation$/, "gpu_user_annotation"],
  [/^python_function$/, "python_function"],
  [/^Trace$/, "trace"],
];

export function categoryOf(text: string): Category {
  for (const [pattern, category] of categoryRules) if (pattern.test(text)) return category;
  return "other";
}

/** Runtime calls that launch work on a stream. */
export const launchCalls = new Set([
  "cudaLaunchKernel",
  "cudaLaunchKernelExC",
  "cuLaunchKernel",
  "cuLaunchKernelEx",
  "cudaMemcpyAsync",
  "cudaMemsetAsync",
  "runFunction - job_prep_and_submit_for_execution",
  "hipLaunchKernel",
  "hipModuleLaunchKernel",
  "hipExtLaunchKernel",
  "hipExtModuleLaunchKernel",
  "hipMemsetAsync",
  "hipMemcpyAsync",
  "hipMemcpyWithStream",
]);

/** Runtime calls that block until device work has finished. */
export const blockingCalls = new Set([
  "cudaDeviceSynchronize",
  "cudaStreamSynchronize",
  "cudaEventSynchronize",
  "cudaEventQuery",
  "cudaMemcpy",
  "cudaMemcpyAsync",
  "hipDeviceSynchronize",
  "hipStreamSynchronize",
  "hipEventSynchronize",
  "hipMemcpy",
  "hipMemcpyWithStream",
]);

/** Kernels of matrix products, convolutions and attention, and those of them that run on tensor cores. */
export const matrixKernel =
  /^(?!.*(?:bn_[fb]w|batch_?norm|pooling)).*(?:gemm|nvjet|cudnn|winograd|_conv|conv2d|convolve|dgrad|wgrad|fprop|cutlass|xmma|attention|flash)/i;
export const tensorCoreKernel =
  /tensorop|h(?:884|1688|16816|gmma)|s(?:884|1688|16816)|i8816|bf16|fp8|e4m3|tf32|wgmma|hmma|_mma_|xmma_(?:gemm|fprop|dgrad|wgrad)_(?:f16|bf16|tf32)|flash|nvjet|fmha/i;

const libraryFrame =
  /site-packages|dist-packages|^<|torch\/|threading\.py|runpy\.py|torchinductor|weft_probe|<built-in/;

/** Whether a Python frame of the profiler ("train.py(42): main") is a line of the user's program. */
export const isUserLine = (name: string): boolean => /\.py\(\d+\): /.test(name) && !libraryFrame.test(name);

/** Host waits for its next batch. */
export const dataLoaderName = /^enumerate\(DataLoader\)|DataLoader.*__next__/;

/** Bytes per element, by the type names of Kineto and HLO. */
const dtypeBytes: Record<string, number> = {
  byte: 1,
  char: 1,
  bool: 1,
  int8: 1,
  uint8: 1,
  float8_e4m3fn: 1,
  float8_e5m2: 1,
  half: 2,
  bfloat16: 2,
  "c10::half": 2,
  "c10::bfloat16": 2,
  short: 2,
  int: 4,
  float: 4,
  long: 8,
  "long int": 8,
  double: 8,
  complexfloat: 8,
  complexdouble: 16,
};

export function bytesOfDtype(name: string): number | null {
  return dtypeBytes[name.toLowerCase()] ?? null;
}

export type Collective =
  | "allreduce"
  | "allgather"
  | "reducescatter"
  | "alltoall"
  | "broadcast"
  | "reduce"
  | "sendrecv"
  | "barrier"
  | "other";

const collectiveRules: [RegExp, Collective][] = [
  [/all_?-?reduce/i, "allreduce"],
  [/all_?-?gather/i, "allgather"],
  [/reduce_?-?scatter/i, "reducescatter"],
  [/all_?-?to_?-?all/i, "alltoall"],
  [/broadcast/i, "broadcast"],
  [/send|recv|permute/i, "sendrecv"],
  [/barrier/i, "barrier"],
  [/reduce/i, "reduce"],
];

export function collectiveOfKernel(name: string): Collective {
  for (const [pattern, collective] of collectiveRules) if (pattern.test(name)) return collective;
  return "other";
}
