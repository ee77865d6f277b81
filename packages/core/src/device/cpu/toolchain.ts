// The system's C compiler and the on-disk cache of its output. Files enter the cache by rename, so that several processes
// may write it at once and a killed process leaves no partial file. If several processes need the same file, one compiles and
// the others wait. The compiler may use all cores that the process started with, even if the process has pinned itself since.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { hostname, totalmem } from "node:os";
import { basename, dirname, join } from "node:path";
import { WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import { inWritableFolder, inWritableFolderAsync, noticeOnce } from "../cache-root.js";
import { addedToCache, cachePlaces, isCached } from "../kernel-cache.js";
import { isIntact, seal } from "../sealed-file.js";
import { takeTurn, takeTurnInBackground } from "./compile-lock.js";
import {
  allLibraries,
  type Compiler,
  findCompiler,
  InterruptedError,
  processorKey,
  vectorMathFlag,
} from "./compiler.js";
import { callsVectorMath, vectorMathUnits } from "./native-units.js";
import { selfTestFailure, selfTestSource } from "./self-test.js";

function fail(message: string, detail: string): never {
  throw new WeftError(`${message}\n${detail.split("\n").slice(0, 12).join("\n")}`);
}

/** The cores that this thread may use, as Linux lists them. */
function ownCores(): string | null {
  try {
    return /^Cpus_allowed_list:\s*([\d,-]+)/m.exec(readFileSync("/proc/thread-self/status", "utf8"))?.[1] ?? null;
  } catch {
    return null;
  }
}
/** Those that the process was started with; workers pin themselves to one of them later. */
const firstCores = ownCores();

/** Arguments of the compiler that make one file of objects or sources: a shared object, or one object file for later links. */
type Join = (out: string, objects: readonly string[]) => string[];
const shared =
  (linkFlags: readonly string[], libraries: readonly string[] = [], system = allLibraries): Join =>
  (out, objects) => [
    ...["-shared", ...linkFlags, ...(libraries.length > 0 ? ["-Wl,--gc-sections"] : [])],
    ...["-o", out, ...objects, ...libraries, ...system],
  ];
const merged: Join = (out, objects) => ["-r", "-nostdlib", "-o", out, ...objects];

interface Job {
  folder: string;
  out: string;
  /** Shell script that runs the compiler on several units at once and joins them. */
  script: string;
}

const quote = (s: string): string => `'${s.replaceAll("'", "'\\''")}'`;
const slowNotice = (compiler: Compiler, seconds: number): string =>
  `weft: the C compiler ${compiler.command} has been running for ${seconds} s on one program and continues; its result is cached`;

/** Address space of each of several compiler processes: whoever sends programs must not use up the memory of the machine. */
function memoryEach(processes: number): number {
  const given = settings.compileBytes.get();
  if (given > 0) return given;
  const allowed = process.constrainedMemory?.() ?? 0;
  const all = allowed > 0 ? Math.min(allowed, totalmem()) : totalmem();
  return Math.max(2 ** 30, Math.floor(all / 2 / processes));
}
const outOfMemory = /out of memory|memory exhausted|Cannot allocate memory|bad_alloc/i;

/**
 * A process beside the compiler: it reports on standard error (3) that this takes long, and ends everything when the process that needs
 * the result is gone, however that ended. It holds no other open file: nobody must wait for it.
 */
function guard(compiler: Compiler): string {
  const seconds = settings.compileNotice.get();
  const tick = seconds > 0 ? Math.min(1, seconds) : 1;
  const notice = `[ $n = ${Math.ceil(seconds / tick)} ] && echo ${quote(slowNotice(compiler, seconds))} >&3`;
  const wait = `${notice}; sleep ${tick} 3>&- & s=$!; wait $s; n=$((n+1))`;
  const watch = `while kill -0 ${process.pid} && kill -0 $$; do ${wait}; done; kill -TERM $$`;
  return `(trap 'kill $s; exit' TERM; n=0; ${watch}) >/dev/null 2>&1 &\nclock=$!`;
}

/** Marks folders of running compilations: the host, because several may share a cache, and the process. */
const ownMark = `.tmp-${createHash("sha256").update(hostname()).digest("hex").slice(0, 8)}-`;
const cleaned = new Set<string>();

/** Removes folders of compilations whose process is gone, such as one that was killed before its compiler started. */
function removeAbandoned(cache: string): void {
  if (cleaned.has(cache)) return;
  cleaned.add(cache);
  for (const name of readdirSync(cache)) {
    const at = name.lastIndexOf(ownMark);
    const pid = at < 0 ? Number.NaN : Number.parseInt(name.slice(at + ownMark.length), 10);
    if (pid > 0 && !isRunning(pid)) rmSync(join(cache, name), { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function startJob(compiler: Compiler, units: readonly string[], target: string, linked: Join): Job {
  removeAbandoned(dirname(target));
  const folder = mkdtempSync(`${target}${ownMark}${process.pid}-`);
  const sources = units.map((source, i) => {
    const path = join(folder, `${i}.c`);
    writeFileSync(path, source);
    return path;
  });
  const out = join(folder, "out");
  const objects = units.map((_, i) => join(folder, `${i}.o`));
  // A single unit becomes a shared object in one run of the compiler: starting another one for the linker takes as long as linking.
  const inOne = units.length === 1;
  const command = (i: number): string[] =>
    inOne
      ? [compiler.command, ...compiler.flags, ...linked(out, sources)]
      : [compiler.command, ...compiler.flags, "-c", sources[i], "-o", objects[i]];
  const quoted = (words: readonly string[]): string => words.map(quote).join(" ");
  // Messages go to files: whoever reads a pipe would wait for every process that holds it, also after Ctrl-C.
  const messages = (name: string | number): string => `>/dev/null 2>${quote(join(folder, `${name}.err`))} 3>&-`;
  // All units start together; the shell waits for each and keeps the first failure.
  const jobs = units.map((_, i) => `${quoted(command(i))} ${messages(i)} & p${i}=$!`).join("\n");
  const waits = units.map((_, i) => `wait $p${i} || failed=1`).join("\n");
  // The units of a worker that stays on one core would be compiled one after the other.
  const spread = firstCores === ownCores() ? "" : `taskset -cp ${firstCores} $$ >/dev/null 2>&1`;
  // Ctrl-C reaches every process of the terminal. Background jobs of a shell ignore it, so the shell ends them and removes
  // their files; it also removes them if this process was killed meanwhile.
  const pids = units.map((_, i) => `$p${i}`).join(" ");
  const clean = `rm -rf ${quote(folder)}`;
  const onSignal = `trap 'trap "" INT TERM HUP; for i in ${pids} $p; do pkill -P $i; kill $i; done 2>/dev/null; kill $clock 2>/dev/null; ${clean.replaceAll("'", "'\\''")}; exit ${interruptedStatus}' INT TERM HUP`;
  const linking = inOne
    ? "true"
    : `{ ${quoted([compiler.command, ...linked(out, objects)])} ${messages("link")} & p=$!; wait $p; }`;
  const orphaned = `ended=$?; [ $ended = 0 ] || cat ${quote(folder)}/*.err >&2; kill -0 ${process.pid} 2>/dev/null || ${clean}; (exit $ended)`;
  const limit = `ulimit -v ${Math.ceil(memoryEach(units.length) / 1024)} 2>/dev/null`;
  // The compiler's own temporary files go with the folder, however it ends.
  const temporary = `export TMPDIR=${quote(folder)}`;
  const work = `${spread}\n${limit}\n${temporary}\nfailed=0\n${jobs}\n${waits}\n[ $failed = 0 ] && ${linking}\n${orphaned}`;
  return {
    folder,
    out,
    script: `${onSignal}\n${guard(compiler)}\n{ ${work}\n}\nended=$?\nkill $clock 2>/dev/null\nexit $ended`,
  };
}

/** Whether a disk is full: messages of the compiler that say so do not fit on it either. */
function isFull(folder: string): boolean {
  try {
    const { bavail, bsize, files, ffree } = statfsSync(folder);
    return bavail * bsize < 1 << 20 || (files > 0 && ffree === 0);
  } catch {
    return false;
  }
}

/** Exit code of a compilation that a signal ended. */
const interruptedStatus = 130;

/** Called before and after each run of the compiler; the command line shows progress. */
export const compileListeners = new Set<(event: "start" | "end") => void>();
const notify = (event: "start" | "end"): void => {
  for (const listener of compileListeners) listener(event);
};

/** Puts the result of a job into its place; only a finished file enters the cache. */
function finishJob(
  compiler: Compiler,
  { folder, out }: Job,
  target: string,
  ended: { error?: Error; status: string | number | null; stderr: string },
): void {
  if (ended.status === interruptedStatus || ended.status === "SIGINT" || ended.status === "SIGTERM")
    throw new InterruptedError("interrupted while a program was compiled");
  if (ended.error) fail(`the C compiler could not be started (${compiler.command})`, String(ended.error.message));
  if (ended.status !== 0 && outOfMemory.test(ended.stderr))
    fail(`the C compiler ${compiler.command} needs more memory for one program than it may use (WEFT_CC_BYTES)`, "");
  if (ended.status !== 0 && isFull(folder))
    fail(`no space left on device for what the C compiler ${compiler.command} writes`, ended.stderr);
  if (ended.status !== 0) fail(`the C compiler failed (${compiler.command}, exit ${ended.status})`, ended.stderr);
  seal(out);
  renameSync(out, target);
}

function build(compiler: Compiler, units: readonly string[], target: string, linked: Join): void {
  const job = startJob(compiler, units, target, linked);
  notify("start");
  try {
    const done = spawnSync("/bin/sh", ["-c", job.script], {
      encoding: "utf8",
      maxBuffer: 1 << 26,
      stdio: ["ignore", "pipe", "pipe", 2],
    });
    finishJob(compiler, job, target, { ...done, status: done.status ?? done.signal });
  } finally {
    notify("end");
    rmSync(job.folder, { recursive: true, force: true });
  }
}

/** Folders of compilations that run in the background; a process that ends leaves none behind. */
const backgroundFolders = new Set<string>();
process.on("exit", () => {
  for (const folder of backgroundFolders) rmSync(folder, { recursive: true, force: true });
});

async function buildInBackground(
  compiler: Compiler,
  units: readonly string[],
  target: string,
  linked: Join,
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted();
  const job = startJob(compiler, units, target, linked);
  backgroundFolders.add(job.folder);
  notify("start");
  try {
    const ended = await new Promise<Parameters<typeof finishJob>[3]>((resolve) => {
      const child = spawn("/bin/sh", ["-c", job.script], { stdio: ["ignore", "ignore", "pipe", 2] });
      signal?.addEventListener("abort", () => child.kill("SIGTERM"), { once: true });
      let stderr = "";
      child.stderr!.on("data", (data) => {
        if (stderr.length < 1 << 20) stderr += data;
      });
      child.on("error", (error) => resolve({ error, status: null, stderr }));
      child.on("close", (code, signal) => resolve({ status: code ?? signal, stderr }));
    });
    finishJob(compiler, job, target, ended);
  } finally {
    notify("end");
    backgroundFolders.delete(job.folder);
    rmSync(job.folder, { recursive: true, force: true });
  }
}

const identityOf = ({ command, version, flags, programFlags: own, programLibraries }: Compiler): string =>
  [command, version, flags.join(" "), own.join(" "), programLibraries.join(" "), processorKey()].join("\0");

/** Everything that compiled code depends on except its source; null without a compiler. */
export function compilerIdentity(): string | null {
  const compiler = testedCompiler();
  return compiler === null ? null : identityOf(compiler);
}

export interface SelfTest {
  /** "usual": loops are vectorized. "safe": the usual flags gave wrong results, so that kernels are compiled without vectors. */
  flags: "usual" | "safe";
  /** The failure with the usual flags. */
  failure: string | null;
  /** Whether programs need the C library as an argument of the linker: the process does not have it for them. */
  linked: boolean;
}

let tested: { compiler: Compiler; result: SelfTest } | null = null;

/** The result of the compiler's self-test, which runs if it has not run before; null without a compiler. */
export function compilerSelfTest(): SelfTest | null {
  testedCompiler();
  return tested?.result ?? null;
}

/** The compiler with the flags that passed the self-test: which runs at first use; its result is cached on disk. */
function testedCompiler(): Compiler | null {
  const compiler = findCompiler();
  if (compiler === null || tested !== null) return tested?.compiler ?? null;
  const hash = createHash("sha256").update("self-test\0").update(selfTestSource());
  const file = `${hash.update(identityOf(compiler)).update(compiler.safeFlags.join(" ")).digest("hex").slice(0, 40)}.self-test`;
  const result = keptSelfTest(file) ?? inWritableFolder("cpu", (folder) => selfTestIn(folder, file, compiler));
  if (result.flags === "safe")
    noticeOnce(
      `the C compiler ${compiler.command} (${compiler.version}) gives wrong results with the usual flags (${result.failure}); ` +
        "kernels are compiled without vectors, which is slower. Set WEFT_CC to another compiler",
    );
  const flags = result.flags === "usual" ? compiler.flags : compiler.safeFlags;
  tested = { compiler: { ...compiler, flags, ...(result.linked && { programLibraries: allLibraries }) }, result };
  return tested.compiler;
}

function keptSelfTest(file: string): SelfTest | null {
  for (const path of cachePlaces("cpu", file)) {
    try {
      if (!isCached(path)) continue;
      const { flags, failure, linked } = JSON.parse(readFileSync(path, "utf8")) as SelfTest;
      if (typeof linked !== "boolean") continue;
      if (flags === "usual" && failure === null) return { flags, failure, linked };
      if (flags === "safe" && typeof failure === "string") return { flags, failure, linked };
    } catch {
      // Unreadable: test again.
    }
  }
  return null;
}

/** If several processes start together, one runs the test and the others wait for the result. */
function selfTestIn(folder: string, file: string, compiler: Compiler): SelfTest {
  const path = join(folder, file);
  const turn = takeTurn(path);
  try {
    const known = keptSelfTest(file);
    if (known !== null) return known;
    const result = runSelfTest(compiler, folder);
    const temporary = `${path}.${process.pid}.tmp`;
    writeFileSync(temporary, JSON.stringify(result));
    renameSync(temporary, path);
    return result;
  } finally {
    turn.release();
  }
}

function runSelfTest(compiler: Compiler, folder: string): SelfTest {
  const failureWith = (flags: string[], libraries: string[]): string | null => {
    removeAbandoned(folder);
    const target = join(mkdtempSync(join(folder, `self-test${ownMark}${process.pid}-`)), "loops.so");
    try {
      build({ ...compiler, flags }, [selfTestSource()], target, shared(residentFlags, [], libraries));
      return selfTestFailure(target);
    } finally {
      rmSync(dirname(target), { recursive: true, force: true });
    }
  };
  let linked = false;
  let failure: string | null;
  try {
    failure = failureWith(compiler.flags, compiler.programLibraries);
  } catch (error) {
    if (error instanceof InterruptedError) throw error;
    // It cannot be linked or loaded this way.
    linked = true;
    failure = failureWith(compiler.flags, allLibraries);
  }
  if (failure === null) return { flags: "usual", failure, linked };
  const still = failureWith(compiler.safeFlags, allLibraries);
  if (still !== null)
    throw new WeftError(
      `the C compiler ${compiler.command} (${compiler.version}) gives wrong results, also without optimizations that often do (${still}); ` +
        "set WEFT_CC to another compiler, or use WEFT_DEVICE=reference",
    );
  return { flags: "safe", failure, linked };
}

interface BuiltLibrary {
  path: string;
  /** True when the compiler had to run. */
  fresh: boolean;
}

export interface LinkOptions {
  /**
   * Whether the library stays loaded until the process ends, whoever closes it. Libraries that start threads, or hold the
   * OpenMP runtime for others, must: idle threads of the OpenMP runtime wait inside it.
   */
  resident?: boolean;
  /** Whether it has parallel regions of OpenMP. */
  openmp?: boolean;
}
const residentFlags = ["-Wl,-z,nodelete"];

/** What is compiled: its file in the cache follows from this. */
interface Target {
  compiler: Compiler;
  units: readonly string[];
  joined: Join;
  file: string;
}

function targetOf(
  compiler: Compiler,
  ending: "so" | "o",
  identity: readonly string[],
  units: readonly string[],
  joined: Join,
): Target {
  const hash = createHash("sha256");
  for (const part of [identityOf(compiler), ...identity, ...units]) hash.update(part).update("\0");
  return { compiler, units, joined, file: `${hash.digest("hex").slice(0, 40)}.${ending}` };
}

function requireCompiler(): Compiler {
  const compiler = testedCompiler();
  if (compiler === null)
    throw new WeftError(
      "no C compiler was found (tried $CC, cc, gcc, clang); install one (Debian: apt install gcc), or use WEFT_DEVICE=reference",
    );
  return compiler;
}

/** Multiplications and additions are fused: the digits of some functions depend on it. */
const vectorMathFlags = ["-O2", "-ffp-contract=fast"];

/** The vector forms of mathematical functions, compiled once. What users add to the flags must not change their accuracy. */
const vectorMath = (compiler: Compiler): Target =>
  targetOf({ ...compiler, flags: [...compiler.flags, ...vectorMathFlags] }, "o", [], vectorMathUnits(), merged);

const needsVectorMath = (compiler: Compiler, units: readonly string[]): boolean =>
  compiler.flags.includes(vectorMathFlag) && units.some(callsVectorMath);

function libraryTarget(
  compiler: Compiler,
  units: readonly string[],
  { resident = false, openmp = false }: LinkOptions,
  libraries: readonly string[],
): Target {
  const threads = openmp ? ["-fopenmp"] : [];
  const linkFlags = [...(resident ? residentFlags : []), ...threads];
  const identity = [...linkFlags, ...libraries.map((path) => basename(path))];
  const system = resident ? allLibraries : compiler.programLibraries;
  const own = { ...compiler, flags: [...compiler.flags, ...(resident ? [] : compiler.programFlags), ...threads] };
  return targetOf(own, "so", identity, units, shared(linkFlags, libraries, system));
}

/** The shared object of these C units, from the cache or from the compiler. */
export function sharedObject(units: readonly string[], options: LinkOptions = {}): BuiltLibrary {
  const compiler = requireCompiler();
  const libraries = needsVectorMath(compiler, units) ? [cached(vectorMath(compiler)).path] : [];
  return cached(libraryTarget(compiler, units, options, libraries));
}

/** Compiles units that are not in the cache without blocking the event loop; `sharedObject` finds the result there. `signal` ends it. */
export async function compileInBackground(
  units: readonly string[],
  options: LinkOptions = {},
  signal?: AbortSignal,
): Promise<void> {
  const compiler = requireCompiler();
  const libraries = needsVectorMath(compiler, units) ? [await cachedInBackground(vectorMath(compiler))] : [];
  await cachedInBackground(libraryTarget(compiler, units, options, libraries), signal);
}

const running = new Map<string, Promise<string>>();

/** The path of a file; callers that need the same file wait for one compilation. */
async function cachedInBackground(target: Target, signal?: AbortSignal): Promise<string> {
  const { compiler, units, joined, file } = target;
  const made = cachedLibrary(file);
  if (made !== null) return made;
  const compile = (): Promise<string> =>
    inWritableFolderAsync("cpu", async (folder) => {
      const path = join(folder, file);
      const turn = await takeTurnInBackground(path, signal);
      try {
        if (isUsable(path)) return path;
        await buildInBackground(compiler, units, path, joined, signal);
        addedToCache(path);
        return path;
      } finally {
        turn.release();
      }
    });
  const others = running.get(file);
  const found = others ?? compile().finally(() => running.delete(file));
  running.set(file, found);
  try {
    return await found;
  } catch (error) {
    // Somebody else had no use for it any more.
    if (others === undefined || signal?.aborted === true || !(error instanceof InterruptedError)) throw error;
    return cachedInBackground(target, signal);
  }
}

/** The file that the compiler makes of these units, from the cache or from the compiler. */
function cached({ compiler, units, joined, file }: Target): BuiltLibrary {
  const made = cachedLibrary(file);
  if (made !== null) return { path: made, fresh: false };
  return inWritableFolder("cpu", (folder) => {
    const path = join(folder, file);
    const turn = takeTurn(path);
    try {
      if (isUsable(path)) return { path, fresh: false };
      build(compiler, units, path, joined);
      addedToCache(path);
      return { path, fresh: true };
    } finally {
      turn.release();
    }
  });
}

const isUsable = (path: string): boolean => isCached(path) && isIntact(path);

/** The path of an intact shared object of this name; null if it must be compiled. */
export const cachedLibrary = (file: string): string | null => cachePlaces("cpu", file).find(isUsable) ?? null;

/** Removes a cached file that could not be loaded. */
export function discard(path: string): void {
  rmSync(path, { force: true });
}
