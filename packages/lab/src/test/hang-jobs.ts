// Starts the jobs of hangs/*.py with real PyTorch ranks under the probe, waits until they are stuck, and compares what
// `weft hang` says with what was injected. Used by a test (a few scenarios) and by hangs/run.mjs (all of them).
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type HangVerdict, judgeHang, readHang } from "../hang/index.js";

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../hangs");
const probe = join(folder, "../probe");

interface Scenario {
  /** The program; job.py when not given. */
  job?: string;
  ranks: number;
  culprit: number | number[];
  kind: string;
  /** Not given where no collective is to blame. */
  op?: string;
}

export interface HangScore {
  scenario: string;
  ranks: number;
  culprit: boolean;
  collective: boolean;
  line: boolean;
  kind: boolean;
  verdict: HangVerdict;
  seconds: number;
}

export const scenarios = JSON.parse(readFileSync(join(folder, "scenarios.json"), "utf8")) as Record<string, Scenario>;

/** The line with the comment "FAULT <scenario>". */
function faultLine(job: string, name: string): number {
  const lines = readFileSync(join(folder, job), "utf8").split("\n");
  return 1 + lines.findIndex((line) => / # FAULT (.*)$/.exec(line)?.[1].split(" ").includes(name));
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const ended = (job: ChildProcess) => job.exitCode !== null || job.signalCode !== null;

/** Ends jobs that lead process groups, and what they have forked: a loader's process outlives its rank, even one that has ended. */
export function endGroups(jobs: readonly ChildProcess[]): void {
  for (const { pid } of jobs) {
    if (pid === undefined) continue;
    try {
      process.kill(-pid, "SIGKILL");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
}

/** Dumps of ranks in a folder, and when the last one was written. */
function dumps(run: string): { count: number; last: number } {
  const hang = join(run, "hang");
  const files = existsSync(hang) ? readdirSync(hang).filter((name) => /^rank\d+\.json$/.test(name)) : [];
  // The first dump of a rank comes before what the recorder holds.
  const isWhole = (name: string): boolean => readFileSync(join(hang, name), "utf8").includes('"flightRecorder"');
  const last = files.every(isWhole)
    ? Math.max(0, ...files.map((name) => statSync(join(hang, name)).mtimeMs))
    : Date.now();
  return { count: files.length, last };
}

/** Runs one scenario and keeps its folder in `keep`, or removes it. */
export async function runScenario(
  python: string,
  name: string,
  limitSeconds: number,
  keep?: string,
): Promise<HangScore> {
  const { job: program = "job.py", ranks, culprit, kind, op } = scenarios[name];
  const run = keep ?? mkdtempSync(join(tmpdir(), "weft-hang-"));
  const began = performance.now();
  const jobs: ChildProcess[] = [];
  const end = (): void => endGroups(jobs);
  process.once("exit", end);
  try {
    for (let rank = 0; rank < ranks; rank++) {
      const log = openSync(join(run, `rank${rank}.log`), "w");
      jobs.push(
        spawn(python, ["-W", "ignore", join(folder, program), name, join(run, "store")], {
          stdio: ["ignore", log, log],
          detached: true,
          env: {
            ...process.env,
            RANK: String(rank),
            WORLD_SIZE: String(ranks),
            OMP_NUM_THREADS: "1",
            PYTHONPATH: probe,
            WEFT_PROBE_DIR: run,
            WEFT_HANG_SECONDS: String(limitSeconds),
          },
        }),
      );
    }
    // Until every living rank has written a dump and none has been rewritten for a while: a busy machine may make a rank
    // look stuck while it still imports modules.
    const quiet = (1.5 * limitSeconds + 3) * 1000;
    while (performance.now() - began < 150_000) {
      await sleep(250);
      const { count, last } = dumps(run);
      const alive = jobs.filter((job) => !ended(job)).length;
      if (alive === 0 || (count > 0 && Date.now() - last > quiet)) break;
    }
    const verdict = judgeHang(await readHang([run]));
    return {
      scenario: name,
      ranks,
      culprit: String(verdict.culprits) === String(culprit),
      collective: verdict.collective?.op === op,
      line: verdict.site?.line === faultLine(program, name) && verdict.site.file.endsWith(program),
      kind: verdict.kind === kind,
      verdict,
      seconds: (performance.now() - began) / 1000,
    };
  } finally {
    end();
    process.off("exit", end);
    if (keep === undefined) rmSync(run, { recursive: true, force: true });
  }
}
