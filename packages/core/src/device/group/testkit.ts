// For tests: runs one exported function in several processes, one per rank, and collects what each returned.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

export interface RankContext {
  rank: number;
  size: number;
  name: string;
}
export interface RankResult {
  rank: number;
  code: number | null;
  signal: string | null;
  /** What the function returned; null when the process ended without an answer. */
  value: unknown;
  error: string | null;
  stderr: string;
}

const runner = fileURLToPath(import.meta.url);
let groups = 0;

export const groupName = (): string => `test-${process.pid}-${++groups}`;

export interface Started {
  processes: ChildProcess[];
  results: Promise<RankResult[]>;
}

/** Starts `size` processes that each call `exported` of `module` (a URL) with a context and `args`. */
export function startRanks(
  size: number,
  module: string,
  exported: string,
  args: unknown = null,
  options: { name?: string; env?: Record<string, string>; command?: readonly string[] } = {},
): Started {
  const name = options.name ?? groupName();
  const processes: ChildProcess[] = [];
  const results = Array.from({ length: size }, (_, rank) => {
    const child = spawn(
      process.execPath,
      [runner, module, exported, JSON.stringify(args), String(rank), String(size), name],
      { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, WEFT_THREADS: "1", ...options.env } },
    );
    processes.push(child);
    return collect(child, rank);
  });
  return { processes, results: Promise.all(results) };
}

/** The same under a real mpirun: ranks come from its variables. */
export async function runMpi(
  size: number,
  module: string,
  exported: string,
  args: unknown = null,
  env: Record<string, string> = {},
): Promise<unknown[]> {
  const options = ["--allow-run-as-root", "--oversubscribe", "-n", String(size)];
  const child = spawn(
    "mpirun",
    [...options, process.execPath, runner, module, exported, JSON.stringify(args), "mpi", "mpi", groupName()],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, WEFT_THREADS: "1", ...env } },
  );
  let out = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  await new Promise((resolve) => child.on("close", resolve));
  const answers = out
    .split("\n")
    .filter((line) => line.startsWith(answerMark))
    .map((line) => JSON.parse(line.slice(answerMark.length)) as { value?: unknown; error?: string; rank: number });
  if (answers.length !== size || answers.some((a) => a.error !== undefined))
    throw new Error(`${answers.map((a) => a.error ?? "ok").join("; ")}\n${stderr}\n${out}`);
  return answers.sort((a, b) => a.rank - b.rank).map((a) => a.value);
}

const answerMark = "@answer ";

function collect(child: ChildProcess, rank: number): Promise<RankResult> {
  let out = "";
  let stderr = "";
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  child.stderr!.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve) => {
    child.on("close", (code, signal) => {
      const line = out.split("\n").find((l) => l.startsWith(answerMark));
      const answer = line === undefined ? null : (JSON.parse(line.slice(answerMark.length)) as Partial<RankResult>);
      resolve({ rank, code, signal, stderr, value: answer?.value ?? null, error: answer?.error ?? null });
    });
  });
}

/** Runs and insists that every rank answered without an error. */
export async function runRanks(
  size: number,
  module: string,
  exported: string,
  args: unknown = null,
  options: Parameters<typeof startRanks>[4] = {},
): Promise<unknown[]> {
  const results = await startRanks(size, module, exported, args, options).results;
  // All of them: what the first rank says is often that another one failed.
  const failures = results.flatMap(({ rank, error, value, stderr, code, signal }) =>
    error === null && value !== null
      ? []
      : [`rank ${rank}: ${error ?? `no answer (exit ${code ?? signal})`}\n${stderr}`],
  );
  if (failures.length > 0) throw new Error(failures.join("\n"));
  return results.map((r) => r.value);
}

if (process.argv[1] === runner) {
  const [module, exported, args, rank, size, name] = process.argv.slice(2);
  const { OMPI_COMM_WORLD_RANK: mpiRank, OMPI_COMM_WORLD_SIZE: mpiSize } = process.env;
  const context: RankContext = {
    rank: Number(rank === "mpi" ? mpiRank : rank),
    size: Number(size === "mpi" ? mpiSize : size),
    name,
  };
  try {
    const functions = (await import(module)) as Record<string, (c: RankContext, args: unknown) => unknown>;
    const value = (await functions[exported](context, JSON.parse(args))) ?? "done";
    process.stdout.write(`${answerMark}${JSON.stringify({ value, rank: context.rank })}\n`);
  } catch (error) {
    process.stdout.write(`${answerMark}${JSON.stringify({ error: (error as Error).message, rank: context.rank })}\n`);
    process.exitCode = 1;
  }
}
