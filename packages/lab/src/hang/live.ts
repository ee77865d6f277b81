// A running job: asks its ranks for dumps (the probe answers SIGUSR1), reads what the kernel says about the processes, and
// uses py-spy where the probe is absent. A process that does not handle SIGUSR1 is never signaled: it would die.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type HangEvidence, isRankNumber, rankEvidence } from "./evidence.js";
import { readHang } from "./read.js";

const sigusr1 = 10;
const mostProcesses = 4096;

interface LiveProcess {
  pid: number;
  state: string;
  parent: number;
  rank: number | null;
  world: number | null;
  probeFolder: string | null;
  handlesSignal: boolean;
}

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/** What the kernel says about a process; null when there is none. */
function inspect(pid: number): LiveProcess | null {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === "") return null;
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const environment = new Map<string, string>();
  for (const entry of read(`/proc/${pid}/environ`).split("\0")) {
    const equals = entry.indexOf("=");
    if (equals > 0) environment.set(entry.slice(0, equals), entry.slice(equals + 1));
  }
  const numberOf = (...names: string[]): number | null => {
    for (const name of names) {
      const value = environment.get(name);
      if (value !== undefined && /^\d{1,7}$/.test(value)) return Number(value);
    }
    return null;
  };
  const caught = /^SigCgt:\s*([0-9a-f]+)/m.exec(read(`/proc/${pid}/status`))?.[1] ?? "0";
  return {
    pid,
    state: fields[0],
    parent: Number(fields[1]),
    rank: numberOf("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    world: numberOf("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    probeFolder: environment.get("WEFT_PROBE_DIR") ?? null,
    handlesSignal: (BigInt(`0x${caught}`) & (1n << BigInt(sigusr1 - 1))) !== 0n,
  };
}

/** The given processes and their descendants: the parent may be torchrun. */
function family(pids: readonly number[]): LiveProcess[] {
  const all = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => inspect(Number(name)))
    .filter((one) => one !== null);
  const wanted = new Set(pids);
  for (let grew = true; grew; ) {
    grew = false;
    for (const one of all)
      if (wanted.has(one.parent) && !wanted.has(one.pid)) {
        wanted.add(one.pid);
        grew = true;
      }
  }
  return all.filter((one) => wanted.has(one.pid)).slice(0, mostProcesses);
}

const dumpPath = (folder: string, rank: number): string => join(folder, "hang", `rank${rank}.json`);

function modified(path: string): number {
  try {
    return statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

/** Evidence of running processes. */
export async function liveHang(pids: readonly number[], waitMs = 8000): Promise<HangEvidence> {
  const missing = pids.filter((pid) => !existsSync(`/proc/${pid}`));
  // A rank has a data loader's workers below it, with the same environment: the topmost process of a rank counts.
  const found = family(pids);
  const ranks = found.filter(
    (one) => one.rank !== null && !found.some((other) => other.pid === one.parent && other.rank === one.rank),
  );
  const probed = ranks.filter((one) => one.probeFolder !== null && one.handlesSignal && !/^[TtZX]$/.test(one.state));
  const asked = new Map<LiveProcess, number>();
  for (const one of probed) {
    asked.set(one, modified(dumpPath(one.probeFolder as string, one.rank as number)));
    try {
      process.kill(one.pid, "SIGUSR1");
    } catch {
      asked.delete(one);
    }
  }
  const until = performance.now() + waitMs;
  const answered = (one: LiveProcess) =>
    modified(dumpPath(one.probeFolder as string, one.rank as number)) > (asked.get(one) ?? 0);
  while (performance.now() < until && [...asked.keys()].some((one) => !answered(one)))
    await new Promise((resolve) => setTimeout(resolve, 200));

  const work = mkdtempSync(join(tmpdir(), "weft-hang-"));
  try {
    const silent = ranks.filter((one) => !asked.has(one) || !answered(one));
    for (const one of silent) spyOn(one, work);
    const folders = [...new Set(probed.map((one) => join(one.probeFolder as string, "hang")))];
    const evidence = await readHang([...folders.filter((folder) => existsSync(folder)), work]);
    for (const one of ranks) applyState(one, evidence);
    for (const pid of missing) evidence.problems.push(`there is no process ${pid}`);
    if (ranks.length === 0)
      evidence.problems.push("none of these processes has a rank in its environment (RANK, SLURM_PROCID)");
    const blind = silent.filter((one) => rankEvidence(evidence, one.rank as number).stacks.length === 0);
    if (blind.length > 0 && blind.length < found.length + 1)
      evidence.problems.push(
        `${blind.length} ranks gave no stacks: they run without the probe, and py-spy is not installed or may not attach`,
      );
    return evidence;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function spyOn(one: LiveProcess, folder: string): void {
  if (/^[ZX]$/.test(one.state)) return;
  const result = spawnSync("py-spy", ["dump", "--nonblocking", "--pid", String(one.pid)], {
    encoding: "utf8",
    timeout: 10_000,
    maxBuffer: 1 << 24,
  });
  if (result.status === 0) writeFileSync(join(folder, `rank${one.rank}.txt`), result.stdout);
}

function applyState(one: LiveProcess, evidence: HangEvidence): void {
  if (!isRankNumber(one.rank)) return;
  const own = rankEvidence(evidence, one.rank);
  own.pid = one.pid;
  if (own.files.length === 0) own.files.push(`process ${one.pid}`);
  if (one.world !== null) evidence.worldSize = Math.max(evidence.worldSize ?? 0, one.world);
  const state = /^[Tt]$/.test(one.state) ? "stopped" : /^[ZX]$/.test(one.state) ? "dead" : "running";
  own.process = { state, detail: `process ${one.pid} is in state ${one.state}` };
}
