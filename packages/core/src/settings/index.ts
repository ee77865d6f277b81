// The settings of this package: every environment variable that it reads. Other packages define theirs in the same table
// (`@weft/core/internal/settings`); docs/settings.md is generated from it.
import { choiceSetting, flagSetting, numberSetting, textSetting } from "./define.js";

export { allSettings, choiceSetting, flagSetting, numberSetting, type Setting, textSetting } from "./define.js";

export const settings = {
  attention: flagSetting("WEFT_ATTENTION", true, {
    summary: "Replaces attention patterns by fused attention kernels where the device has them.",
  }),
  autoShard: flagSetting("WEFT_AUTO_SHARD", true, {
    summary: "Lets the planner divide functions among the workers of a cluster.",
  }),
  cacheBytes: numberSetting("WEFT_CACHE_BYTES", 2 * 1024 ** 3, {
    summary: "Limit of the kernel cache on disk in bytes; the least recently used files are removed first.",
  }),
  cacheDir: textSetting("WEFT_CACHE_DIR", "a folder", {
    summary: "Folder of the kernel cache, saved programs and measured rates.",
    otherwise: "`$XDG_CACHE_HOME/weft` or `~/.cache/weft`",
  }),
  compileNotice: numberSetting("WEFT_COMPILE_NOTICE", 30, {
    most: 86400,
    whole: false,
    summary: "Seconds after which a compilation that is still running is reported on standard error.",
  }),
  compileBytes: numberSetting("WEFT_CC_BYTES", 0, {
    summary: "Memory that one run of the C compiler may use, in bytes; 0 lets its processes use half of the memory.",
  }),
  compiler: textSetting("WEFT_CC", "the command of a C compiler", {
    summary: "C compiler of the CPU device.",
    otherwise: "`$CC`, `cc`, `gcc` or `clang`",
  }),
  compilerFlags: textSetting("WEFT_CC_FLAGS", "flags, separated by spaces", {
    summary: "More flags for the C compiler: with `-O0` it takes less time, and programs take more.",
  }),
  connect: textSetting("WEFT_CONNECT", "HOST:PORT of a dispatcher", {
    summary: "Runs the program on the cluster at this address, without a change to the program.",
  }),
  cpuMemory: numberSetting("WEFT_CPU_MEMORY", 0, {
    summary: "Limit of the memory of one CPU device in bytes; 0 means no limit.",
  }),
  cpuPool: flagSetting("WEFT_CPU_POOL", true, {
    summary:
      "Reuses the memory of freed tensors on CPU devices. Without it every tensor is allocated with its exact size, so that memory checkers see where it ends.",
  }),
  cudaAutotune: flagSetting("WEFT_CUDA_AUTOTUNE", true, {
    summary: "Times the cuBLASLt algorithms for large matrix products and stores the fastest.",
  }),
  cudaGraphs: flagSetting("WEFT_CUDA_GRAPHS", true, { summary: "Records repeated calls as CUDA graphs." }),
  cudaOverlap: flagSetting("WEFT_CUDA_OVERLAP", true, {
    summary: "Kernels of a CUDA graph start while the one before ends (GPUs of compute capability 9.0 and newer).",
  }),
  cudaWithout: textSetting("WEFT_CUDA_WITHOUT", "library names, separated by commas", {
    summary: "CUDA libraries to treat as missing, such as `libcusolver`; for tests of the fallbacks.",
  }),
  cudaWitness: textSetting("WEFT_CUDA_WITNESS", "architectures such as sm_90, separated by commas", {
    summary: "The emulated GPU also compiles every program with NVRTC, which needs no GPU; for tests.",
  }),
  debug: numberSetting("WEFT_DEBUG", 0, {
    most: 4,
    summary:
      "Debug output: 1 prints one line per run, 2 also one line per kernel, 3 also the graph, 4 also the generated source.",
  }),
  device: textSetting("WEFT_DEVICE", "a device name such as cpu, cuda:1 or reference", {
    summary: "Device that programs use unless they choose one.",
    otherwise: "the CPU, or the reference device without a C compiler",
  }),
  group: textSetting("WEFT_GROUP", "a name", {
    summary: "Name of the process group, the same for all processes of a job.",
  }),
  groupTimeout: numberSetting("WEFT_GROUP_TIMEOUT", 300, {
    whole: false,
    summary: "Seconds that a collective waits for the other processes of its group.",
  }),
  ignoreAnnotations: flagSetting("WEFT_IGNORE_ANNOTATIONS", false, {
    summary: "Ignores sharding annotations and rules.",
  }),
  interpret: flagSetting("WEFT_INTERPRET", true, {
    summary:
      "Runs small programs outside `jit` in JavaScript the first times, so that they do not wait for the C compiler.",
  }),
  joinTimeout: numberSetting("WEFT_JOIN_TIMEOUT", 60, {
    whole: false,
    summary: "Seconds that a process waits for the others when it joins a group.",
  }),
  laneForm: choiceSetting("WEFT_LANE_FORM", ["block"], undefined, {
    summary: "Forces the block form of lane kernels; for tests.",
  }),
  laneHistory: choiceSetting("WEFT_LANE_HISTORY", ["local", "memory", "checkpoint"], undefined, {
    summary: "Forces how lane kernels store the history that a gradient needs.",
    otherwise: "chosen by estimated cost",
  }),
  laneTiles: numberSetting("WEFT_LANE_TILES", 16384, {
    summary: "Number of lanes from which lane kernels stage their arrays in tiles.",
  }),
  lanes: choiceSetting("WEFT_LANES", ["1", "0", "why"], "1", {
    summary: "Lane kernels: 0 turns them off, `why` prints why a loop is not compiled as one.",
  }),
  memoryLimit: numberSetting("WEFT_MEMORY_LIMIT", 0, {
    summary: "Bytes of tensors after which unreachable ones are collected; 0 lets the device decide.",
  }),
  memorySites: flagSetting("WEFT_MEMORY_SITES", false, {
    summary: "Records the line that created each tensor, for memory reports.",
  }),
  mpi: textSetting("WEFT_MPI", "the path of libmpi", {
    summary: "Path of the MPI library.",
    otherwise: "beside `mpirun`, or where distributions install it",
  }),
  nccl: flagSetting("WEFT_NCCL", true, { summary: "Uses NCCL for collectives between GPUs." }),
  nvtx: flagSetting("WEFT_NVTX", false, { summary: "Names kernels and spans for NVIDIA profilers." }),
  openBlas: textSetting("WEFT_OPENBLAS", "the path of libopenblas, or none", {
    summary: "Path of OpenBLAS; `none` uses the built-in matrix product.",
    otherwise: "the first that is installed",
  }),
  pinnedLimit: numberSetting("WEFT_PINNED_LIMIT", undefined, {
    summary: "Limit of pinned host memory for GPU transfers in bytes; 0 turns it off.",
    otherwise: "an eighth of the host memory, at most 8 GiB",
  }),
  rank: numberSetting("WEFT_RANK", undefined, {
    summary: "Rank of this process in its process group.",
    otherwise: "from the launcher (OpenMPI, SLURM)",
  }),
  tape: textSetting("WEFT_TAPE", "a file name", {
    summary: "Records every program, run and value to this file; with several ranks, the rank is appended.",
  }),
  tapeMegabytes: numberSetting("WEFT_TAPE_MB", 1024, {
    least: 1,
    summary: "Megabytes of tensor data that a tape may store.",
  }),
  threads: numberSetting("WEFT_THREADS", undefined, {
    least: 1,
    most: 65536,
    summary: "Threads of the CPU device.",
    otherwise: "one per available core",
  }),
} as const;
