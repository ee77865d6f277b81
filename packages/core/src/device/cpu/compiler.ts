// Which C compiler of the system is used, with which flags, and what the processor offers.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";

export const vectorMathFlag = "-DW_VECTOR_MATH";
const baseFlags = [
  "-std=gnu11",
  "-O2",
  "-ftree-vectorize",
  "-fno-math-errno",
  "-fno-trapping-math",
  "-fwrapv",
  "-march=native",
  "-fopenmp-simd",
  "-fPIC",
  "-Werror=implicit-function-declaration",
];
// Flags that only one of the two compilers knows.
const compilerFlags: Record<string, string[]> = {
  // Only gcc calls vector forms of a program's own functions (native/vector-math.c). Processors order instructions by themselves, and
  // kernels call nothing that could be specialized: these passes take a sixth of the compiler's time and change no kernel's.
  gcc: [
    ...["-fvect-cost-model=dynamic", "-mprefer-vector-width=512", "-ffunction-sections", vectorMathFlag],
    ...["-fno-schedule-insns2", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-ipa-icf", "-fno-ipa-ra"],
  ],
  clang: ["-mprefer-vector-width=512"],
};

/**
 * Further flags for programs. Their values are common subexpressions only once: the pass that looks for others takes up to a third of the
 * compiler's time on long straight code, and what it finds there makes registers scarce.
 */
const programFlags: Record<string, string[]> = { gcc: ["-fno-gcse"], clang: [] };

/** Without vectorization, for compilers that fail the self-test. */
const safeFlags = [
  ...["-std=gnu11", "-O1", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fopenmp-simd", "-fPIC"],
  "-Werror=implicit-function-declaration",
];
const noVectors: Record<string, string[]> = {
  gcc: ["-fno-tree-vectorize", "-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize"],
  clang: ["-fno-vectorize", "-fno-slp-vectorize"],
};

/** What programs are linked with. The process has loaded the C library already, and reading its symbols takes linkers most of their time. */
const programLibraries: Record<string, string[]> = {
  gcc: ["-nostdlib", "-fno-use-linker-plugin", "-lgcc"],
  clang: ["-lm"],
};
export const allLibraries = ["-lm", "-ldl"];

/** A compiler of this machine, and how it is called. */
export interface Compiler {
  command: string;
  version: string;
  flags: string[];
  /** Flags for a compiler that fails the self-test with its usual flags. */
  safeFlags: string[];
  /** Flags for programs, beside the others. */
  programFlags: string[];
  /** Arguments of the linker for programs. */
  programLibraries: string[];
}

let found: Compiler | null = null;

/** The first of $CC, cc, gcc, clang that runs; null if there is none. */
export function findCompiler(): Compiler | null {
  if (found !== null) return found;
  const chosen = settings.compiler.get();
  const candidates = chosen !== undefined ? [chosen] : [process.env.CC, "cc", "gcc", "clang"];
  for (const command of candidates) {
    if (command === undefined || command === "") continue;
    const answer = spawnSync(command, ["--version"], { encoding: "utf8" });
    if (answer.status !== 0) continue;
    const family = /clang/i.test(answer.stdout) ? "clang" : "gcc";
    const arm = process.arch === "arm64";
    const extra = arm ? [] : compilerFlags[family];
    const added = (settings.compilerFlags.get() ?? "").split(/\s+/).filter((flag) => flag !== "");
    found = {
      command,
      version: answer.stdout.split("\n")[0],
      flags: [...baseFlags, ...extra, ...added],
      safeFlags: [...safeFlags, ...noVectors[family], ...added],
      programFlags: programFlags[family],
      programLibraries: programLibraries[family],
    };
    return found;
  }
  return null;
}

let cpuKey: string | null = null;

/** What -march=native depends on: machines of several kinds may share a cache. */
export function processorKey(): string {
  if (cpuKey === null) {
    try {
      const info = readFileSync("/proc/cpuinfo", "utf8");
      cpuKey = /^(flags|Features)\s*:.*$/m.exec(info)?.[0] ?? process.arch;
    } catch {
      cpuKey = process.arch;
    }
  }
  return cpuKey;
}

/** Whether the processor lists a feature, under its name in /proc/cpuinfo; the key of the cache includes all of them. */
export const processorHas = (feature: string): boolean => processorKey().split(/\s+/).includes(feature);

/** Ctrl-C or SIGTERM ended a compilation. */
export class InterruptedError extends WeftError {
  override name = "InterruptedError";
}
