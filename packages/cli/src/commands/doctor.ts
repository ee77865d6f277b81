// weft doctor: reports which devices and libraries Weft finds, the effect of what is missing, and the fix. Measures the devices
// and checks their results.
import { accessSync } from "node:fs";
import { arch, availableParallelism, cpus, freemem, platform, release, totalmem } from "node:os";
import type { Tensor } from "@weft/core";
import type { MachineWitness } from "@weft/lab/internal/runner";
import type { Command } from "commander";
import {
  attempt,
  failed,
  ProgressLine,
  printJson,
  printText,
  significant,
  size,
  table,
  warn,
  writeFiles,
} from "../terminal/index.js";
import {
  type CudaReport,
  cudaFacts,
  describeCuda,
  describeGpu,
  type GpuReport,
  gpuChecks,
  inspectGpu,
  missingLibraries,
} from "./doctor-gpu.js";

interface Options {
  json?: boolean;
  out?: string;
  measure: boolean;
}

export type Weft = typeof import("@weft/core");
export type SecondsOf = typeof secondsOf;

/** Rates of one device, or why there are none. */
interface DeviceReport {
  name: string;
  what: string;
  /** How the CPU device's OpenBLAS uses threads: "openmp", "threads", or "none" for the built-in fallback. */
  blas?: string;
  copyGBs?: number;
  matmulGFLOPs?: number;
  /** GPU only. */
  gpu?: GpuReport;
  /** Set when the device could not be used or computed something wrong. */
  problem?: string;
}

/** Something missing: what, its effect, and the fix. */
export interface DoctorCheck {
  severity: "error" | "warning" | "note";
  what: string;
  costs: string;
  fix: string;
}

interface Report {
  node: string;
  system: string;
  processor: string;
  cores: { present: number; usable: number };
  memoryBytes: { total: number; free: number };
  compiler: { command: string; version: string; selfTest: { flags: string; failure: string | null } } | null;
  openBlas: { path: string; threading: string } | null;
  cache: { folder: string; files: number; bytes: number; limitBytes: number; writable: boolean };
  cuda: CudaReport | null;
  devices: DeviceReport[];
  /** What else used the machine while the devices were measured. */
  disturbance: string | null;
  /** The planner's rates of this machine. */
  planner: PlannerReport[];
  findings: DoctorCheck[];
}

/** Measured rates of workers of one kind, separately and all at once. */
interface PlannerReport {
  device: string;
  threads: number;
  workers: number;
  measured: string;
  /** Other processes used the machine during the measurement. */
  disturbed: boolean;
  matmulGFLOPs: number;
  memoryGBs: number;
  crowded?: { matmulGFLOPs: number; memoryGBs: number };
  allReduceGBs?: number;
}

type Saved = ReturnType<Weft["system"]["rates"]>[number];

/** The last points of the curves: large products, memory outside caches. */
function plannerReport({ key, measured, rates }: Saved): PlannerReport {
  const brief = (of: Pick<Saved["rates"], "matmul" | "bandwidth">): { matmulGFLOPs: number; memoryGBs: number } => ({
    matmulGFLOPs: (of.matmul.float32?.at(-1)?.[1] ?? 0) / 1e9,
    memoryGBs: (of.bandwidth.at(-1)?.[1] ?? 0) / 1e9,
  });
  const { crowded, links } = rates;
  const all = links.allReduce.at(-1);
  return {
    device: key.device,
    threads: key.threads,
    workers: key.neighbors,
    measured,
    disturbed: rates.disturbed === true || crowded?.rates.disturbed === true,
    ...brief(rates),
    ...(crowded === undefined ? {} : { crowded: brief(crowded.rates) }),
    ...(all === undefined || all.members < 2 ? {} : { allReduceGBs: all.bandwidth / 1e9 }),
  };
}

const help = `
Examples:
  weft doctor               devices, their rates, and what is missing
  weft doctor --no-measure  without measuring the devices
  weft doctor --json | jq '.devices'

Exits with 1 if a device does not work, with 0 otherwise.`;

export default function add(program: Command): void {
  program
    .command("doctor")
    .description("Report which devices and libraries Weft finds on this machine, what is missing, and how to fix it.")
    .option("--no-measure", "do not measure the devices")
    .option("--json", "the report as JSON on standard output")
    .option("--out <dir>", "write doctor.json into a directory")
    .addHelpText("after", help)
    .action((options: Options) => attempt(() => run(options)));
}

async function run(options: Options): Promise<void> {
  // Loaded here, because they load native code.
  const weft = await import("@weft/core");
  const { MachineWitness } = await import("@weft/lab/internal/runner");
  const report = examine(weft, options.measure ? new MachineWitness({ gpus: true }) : null);
  if (options.out !== undefined) writeFiles(options.out, { "doctor.json": `${JSON.stringify(report, null, 2)}\n` });
  if (options.json) printJson(report);
  else printText(show(report));
  const broken = report.devices.filter(({ problem }) => problem !== undefined);
  for (const { name, problem } of broken) warn(`${name}: ${problem}`);
  if (broken.length > 0) process.exitCode = failed;
}

/** Devices are measured where a witness watches the machine. */
function examine(weft: Weft, witness: MachineWitness | null): Report {
  const progress = new ProgressLine();
  const found = weft.system.compiler();
  const compiler = found === null ? null : { ...found, selfTest: selfTest(weft) };
  const path = weft.system.openBlas();
  const devices = weft.system.devices().map((name) => {
    progress.note(`measuring ${name} ...`);
    return inspect(weft, name, witness !== null);
  });
  progress.clear();
  const threading = devices.find(({ blas }) => blas !== undefined)?.blas ?? "not loaded";
  const facts = {
    node: process.version,
    system: `${platform()} ${release()} ${arch()}`,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: { present: cpus().length, usable: availableParallelism() },
    memoryBytes: { total: totalmem(), free: freemem() },
    compiler,
    openBlas: path === null ? null : { path, threading },
    cache: weft.system.cache(),
    cuda: cudaFacts(weft),
    devices,
    disturbance: witness?.report().disturbance ?? null,
    planner: weft.system.rates().map(plannerReport),
  };
  return { ...facts, findings: findings(facts) };
}

function selfTest(weft: Weft): { flags: string; failure: string | null } {
  try {
    return weft.system.compilerTest()!;
  } catch (error) {
    return { flags: "none", failure: (error as Error).message.split("\n")[0] };
  }
}

const threadingWords: Record<string, string> = {
  openmp: "OpenMP build: shares Weft's threads",
  threads: "pthread build: has threads of its own",
  none: "built-in fallback",
};

function inspect(weft: Weft, name: string, measure: boolean): DeviceReport {
  try {
    const device = weft.setDevice(name);
    const what =
      device instanceof weft.CpuDevice
        ? `${device.threads} threads, ${threadingWords[device.blas]}`
        : device instanceof weft.CudaDevice
          ? `${device.context.name}, ${device.context.architecture}`
          : "plain TypeScript, for checking";
    const blas = device instanceof weft.CpuDevice ? { blas: device.blas } : {};
    const gpu = device instanceof weft.CudaDevice ? { gpu: inspectGpu(weft, device, measure, secondsOf) } : {};
    return { name, what, ...blas, ...(measure ? rates(weft, name) : {}), ...gpu };
  } catch (error) {
    return { name, what: "cannot be used", problem: (error as Error).message.split("\n")[0] };
  }
}

/** Copy and matrix rates of the current device; a wrong result is an error. */
function rates(weft: Weft, name: string): { copyGBs: number; matmulGFLOPs: number } {
  const small = name === "reference";
  const length = small ? 1 << 18 : 1 << 24;
  const n = small ? 96 : name.startsWith("cuda") ? 4096 : 1024;
  const copied = secondsOf(
    weft,
    (x) => x.add(1),
    [weft.zeros([length])],
    (value) => value === 1,
  );
  const matrix = weft.ones([n, n]);
  const product = secondsOf(
    weft,
    (a) => a.matmul(a),
    [matrix],
    (value) => value === n,
  );
  return { copyGBs: (8 * length) / copied / 1e9, matmulGFLOPs: (2 * n ** 3) / product / 1e9 };
}

/** Seconds of one call: the fastest within a third of a second. */
function secondsOf(
  weft: Weft,
  fn: (x: Tensor) => Tensor,
  inputs: [Tensor],
  isRight: (value: number) => boolean,
): number {
  const program = weft.jit(fn);
  const { device } = weft.session();
  const values = program(...inputs).dataSync() as Float32Array;
  const wrong = values.findIndex((value) => !isRight(value));
  if (wrong >= 0) throw new Error(`it computes wrong results (element ${wrong} is ${values[wrong]})`);
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + 333;
  while (performance.now() < end) {
    const start = performance.now();
    program(...inputs).dispose();
    device.synchronize();
    best = Math.min(best, performance.now() - start);
  }
  return best / 1e3;
}

/** How to install something here. */
function install(debian: string, fedora: string, mac: string): string {
  if (platform() === "darwin") return `brew install ${mac}`;
  return hasFile("/etc/debian_version") ? `apt install ${debian}` : `apt install ${debian}, or dnf install ${fedora}`;
}

function hasFile(path: string): boolean {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

/** The rules: the effect of each missing component. */
function findings(facts: Omit<Report, "findings">): DoctorCheck[] {
  const list: (DoctorCheck | false)[] = [
    facts.compiler === null && {
      severity: "error",
      what: "no C compiler (tried $CC, cc, gcc, clang)",
      costs: "everything runs on the reference device, hundreds of times slower",
      fix: install("gcc", "gcc", "gcc"),
    },
    facts.compiler !== null &&
      facts.compiler.selfTest.failure !== null && {
        severity: facts.compiler.selfTest.flags === "safe" ? "warning" : "error",
        what: `the C compiler fails its self-test (${facts.compiler.selfTest.failure})`,
        costs: "kernels are compiled without vectors (several times slower), or not at all where that is wrong too",
        fix: "set WEFT_CC to another compiler, or update this one",
      },
    facts.openBlas === null && {
      severity: "warning",
      what: "OpenBLAS was not found",
      costs: "matrix products run on the built-in fallback, several times slower; solvers too",
      fix: `${install("libopenblas0-openmp", "openblas-openmp", "openblas")}, or set WEFT_OPENBLAS to its path`,
    },
    facts.openBlas?.threading === "threads" && {
      severity: "warning",
      what: "this OpenBLAS has threads of its own",
      costs:
        "they fight with Weft's over the cores: programs that mix products and kernels take up to three times as long",
      fix: install("libopenblas0-openmp", "openblas-openmp", "openblas"),
    },
    facts.disturbance !== null && {
      severity: "note",
      what: `the devices were measured beside other work: ${facts.disturbance}`,
      costs: "the rates above say little about the devices",
      fix: "run weft doctor again when the machine is quiet",
    },
    !facts.cache.writable && {
      severity: "warning",
      what: `the kernel cache ${facts.cache.folder} cannot be written`,
      costs: "every process compiles its programs again, in a private temporary folder",
      fix: "set WEFT_CACHE_DIR to a folder that can be written",
    },
    facts.cores.usable < facts.cores.present && {
      severity: "note",
      what: `${facts.cores.usable} of ${facts.cores.present} cores may be used by this process`,
      costs: "the CPU device uses just these",
      fix: "see taskset, cgroups or your job's settings; WEFT_THREADS sets another number",
    },
    facts.cuda === null && {
      severity: "note",
      what: "no NVIDIA driver (libcuda.so.1)",
      costs: "no GPU device",
      fix: "on a machine with an NVIDIA GPU, install its driver",
    },
    facts.cuda !== null &&
      facts.cuda.gpus === 0 && {
        severity: "warning",
        what: "an NVIDIA driver, but no GPU that this process may use",
        costs: "no GPU device",
        fix: "look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and at your job's or container's settings",
      },
    ...(facts.cuda === null ? [] : missingLibraries(facts.cuda.paths)),
    ...facts.devices.flatMap(({ name, gpu }) => (gpu === undefined ? [] : gpuChecks(name, gpu))),
  ];
  return list.filter((finding) => finding !== false);
}

/** The most important sentence: the devices that Weft can use on this machine, and the number of errors and warnings. */
function summary({ devices, findings }: Report): string {
  const usable = devices.filter(({ name, problem }) => problem === undefined && name !== "reference");
  const count = (severity: DoctorCheck["severity"]): number => findings.filter((f) => f.severity === severity).length;
  const [errors, warnings] = [count("error"), count("warning")];
  const on =
    usable.length === 0 ? "only on the slow reference device" : `on ${usable.map(({ name }) => name).join(" and ")}`;
  const plural = (n: number, what: string): string => (n === 0 ? "" : `, ${n} ${what}${n === 1 ? "" : "s"}`);
  return `Weft runs ${on}${errors + warnings === 0 ? "; nothing has to be fixed" : plural(errors, "error") + plural(warnings, "warning")}.`;
}

function show(report: Report): string {
  const { cores, memoryBytes, compiler, openBlas, cache, cuda } = report;
  const lines: [string, string][] = [
    ["Node", report.node],
    ["system", report.system],
    ["processor", `${report.processor}, ${cores.usable} of ${cores.present} cores`],
    ["memory", `${size(memoryBytes.total)}, ${size(memoryBytes.free)} free`],
    [
      "C compiler",
      compiler === null
        ? "none"
        : `${compiler.command}: ${compiler.version}, self-test ${compiler.selfTest.failure === null ? "passed" : "FAILED"}`,
    ],
    ["OpenBLAS", openBlas === null ? "none" : openBlas.path],
    ...describeCuda(cuda),
    ["kernel cache", `${cache.folder}: ${cache.files} programs, ${size(cache.bytes)} of ${size(cache.limitBytes)}`],
  ];
  const gpus = report.devices.flatMap(({ name, gpu }) => describeGpu(name, gpu));
  const width = Math.max(...[...lines, ...gpus].map(([name]) => name.length));
  const rate = (value: number | undefined): string => (value === undefined ? "-" : significant(value));
  const rows = report.devices.map((d) => [d.name, d.what, rate(d.copyGBs), rate(d.matmulGFLOPs)]);
  const both = (alone: number, crowded: number | undefined): string =>
    crowded === undefined ? rate(alone) : `${rate(alone)} / ${rate(crowded)}`;
  const planner = report.planner.map((p) => [
    `${p.workers} x ${p.device}, ${p.threads} thread${p.threads === 1 ? "" : "s"}`,
    both(p.matmulGFLOPs, p.crowded?.matmulGFLOPs),
    both(p.memoryGBs, p.crowded?.memoryGBs),
    rate(p.allReduceGBs),
    `${p.measured.slice(0, 16)}${p.disturbed ? ", disturbed" : ""}`,
  ]);
  const head = ["for the planner", "matmul GFLOP/s", "memory GB/s", "all-reduce GB/s", "measured"];
  const found = report.findings.map(
    ({ severity, what, costs, fix }) => `${severity}: ${what}\n    effect: ${costs}\n    fix:    ${fix}`,
  );
  return [
    summary(report),
    "",
    ...lines.map(([name, value]) => `${name.padEnd(width)}  ${value}`),
    "",
    table(["device", "", "copy GB/s", "matmul f32 GFLOP/s"], rows, 2),
    "",
    ...(planner.length > 0
      ? [table(head, planner, 1), ""]
      : ["The planner assumes rates of workers until they are measured at their first start.", ""]),
    ...gpus.map(([name, value]) => `${name.padEnd(width)}  ${value}`),
    ...(gpus.length > 0 ? [""] : []),
    ...(found.length > 0 ? found : ["Nothing is missing."]),
    "",
  ].join("\n");
}
