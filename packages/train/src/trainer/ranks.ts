// Starts the ranks of a run on this machine: one process per rank, on its own cores. A rank that dies ends the others
// within seconds, with one error. It knows processes, not training.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { endWithParent } from "@weft/cluster/internal";
import { trainSettings } from "../settings.js";
import { TrainError } from "./errors.js";

/** Options of `launchRanks`. */
export interface RanksOptions {
  /** Number of ranks. */
  size: number;
  /** Cores of each rank. */
  coresPerRank: number;
  /** The program and arguments of one rank. */
  command: readonly string[];
  /** Ends all ranks. */
  signal?: AbortSignal;
  /** Rank 0 inherits standard output; output of other ranks is shown when they fail. */
  quiet?: boolean;
}

/** Cores that this process may use. */
function ownCores(): number[] {
  const shown = spawnSync("taskset", ["-cp", String(process.pid)], { encoding: "utf8" });
  const list = /:\s*([\d,-]+)\s*$/.exec(shown.stdout ?? "")?.[1];
  if (list === undefined) return [];
  return list.split(",").flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

const grace = 5000;

/** A rank died without an error of its own: it was killed, or crashed. */
export class RankDeath extends TrainError {}

/** Variable that names the file in which a rank stores its error for the parent, which prints only the first one. */
const errorFile = "WEFT_RANK_ERROR";

/** In a rank: ties it to the launcher, so that no rank outlives it. */
export function followLauncher(): void {
  const launcher = trainSettings.launcher.get();
  if (launcher !== undefined) endWithParent(launcher);
}

/** In a rank: stores its error for the parent. Returns false without a parent. */
export function reportToParent(message: string): boolean {
  const path = trainSettings.rankError.get();
  if (path === undefined) return false;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileSync(path, message);
  return true;
}

/** Why a rank ended, from its stored error if there is one. */
function reasonOf(code: number | null, signal: NodeJS.Signals | null, errorPath: string, tail: string): string {
  if (existsSync(errorPath)) return `says: ${readFileSync(errorPath, "utf8")}`;
  const how = signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
  const last = tail.trim() === "" ? "" : `: ${tail.trim().split("\n").slice(-3).join(" / ")}`;
  return `${how}${last}; the others were stopped. --resume continues from the last checkpoint`;
}

/** Runs all ranks. Rejects with one error when one of them fails. */
export async function launchRanks(options: RanksOptions): Promise<void> {
  const { size, coresPerRank, command } = options;
  const group = `weft-train-${process.pid}-${randomBytes(4).toString("hex")}`;
  // A rank makes the folder when it has an error to store: a launcher that is killed leaves nothing behind.
  const folder = join(tmpdir(), `weft-ranks-${randomBytes(8).toString("hex")}`);
  const cores = ownCores();
  const enough = cores.length >= size * coresPerRank;
  let failure: string | null = null;
  /** Ranks that died, whichever rank noticed first. */
  const deaths: string[] = [];
  const sent = new Set<NodeJS.Signals>();
  const children: ChildProcess[] = [];
  const endAll = (signal: NodeJS.Signals): void => {
    sent.add(signal);
    for (const child of children) if (child.exitCode === null && child.signalCode === null) child.kill(signal);
  };
  let killer: NodeJS.Timeout | null = null;
  const fail = (message: string): void => {
    if (failure !== null) return;
    failure = message;
    endAll("SIGTERM");
    // A rank blocked in a collective with the dead one cannot handle SIGTERM.
    killer = setTimeout(() => endAll("SIGKILL"), grace);
  };
  const onAbort = (): void => endAll("SIGTERM");
  options.signal?.addEventListener("abort", onAbort, { once: true });
  const ends = Array.from({ length: size }, (_, rank) => {
    const own = cores.slice(rank * coresPerRank, (rank + 1) * coresPerRank);
    const pinned = enough ? ["taskset", "-c", own.join(","), ...command] : [...command];
    const errorPath = join(folder, `rank${rank}`);
    const child = spawn(pinned[0], pinned.slice(1), {
      stdio: ["ignore", rank === 0 ? "inherit" : "ignore", rank === 0 ? "inherit" : "pipe"],
      env: {
        ...process.env,
        WEFT_RANK: String(rank),
        WEFT_WORLD_SIZE: String(size),
        WEFT_GROUP: group,
        WEFT_THREADS: String(coresPerRank),
        WEFT_LAUNCHER: String(process.pid),
        [errorFile]: errorPath,
      },
    });
    children.push(child);
    let tail = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      tail = `${tail}${chunk.toString("utf8")}`.slice(-2000);
    });
    return new Promise<void>((resolve) => {
      child.on("error", (error) => {
        fail(`rank ${rank} could not be started: ${error.message}`);
        resolve();
      });
      child.on("exit", (code, signal) => {
        if (code !== 0) {
          const message = `rank ${rank} of ${size} ${reasonOf(code, signal, errorPath, tail)}`;
          if (!existsSync(errorPath) && (signal === null || !sent.has(signal))) deaths.push(message);
          fail(message);
        }
        resolve();
      });
    });
  });
  await Promise.all(ends);
  rmSync(folder, { recursive: true, force: true });
  if (killer !== null) clearTimeout(killer);
  options.signal?.removeEventListener("abort", onAbort);
  if (deaths.length > 0) throw new RankDeath(deaths[0]);
  if (failure !== null) throw new TrainError(failure);
}
