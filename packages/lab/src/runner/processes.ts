// The processes of a run: started in their own group and identified by an environment variable, so that processes that left the
// group (each worker of torchrun opens a session) are also counted, sampled and terminated.
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";

/** The environment variable that every process of a run inherits. */
const runMark = "WEFT_RUN";

interface StartOptions {
  command: readonly string[];
  cwd: string;
  env: Record<string, string | undefined>;
  stdout: string;
  stderr: string;
  /** Value of the environment variable, unique per run. */
  mark: string;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Why the command could not be started at all. */
  error?: string;
}

interface StartedCommand {
  pid: number | undefined;
  exit: Promise<Exit>;
}

/** Starts a command. Its output is written directly to files. */
export function start(options: StartOptions): StartedCommand {
  const out = openSync(options.stdout, "wx");
  const err = openSync(options.stderr, "wx");
  let child: ChildProcess;
  try {
    child = spawn(options.command[0], options.command.slice(1), {
      cwd: options.cwd,
      env: { ...options.env, [runMark]: options.mark },
      stdio: ["ignore", out, err],
      detached: true,
    });
  } finally {
    closeSync(out);
    closeSync(err);
  }
  const exit = new Promise<Exit>((resolve) => {
    child.on("error", (error: NodeJS.ErrnoException) =>
      resolve({
        code: null,
        signal: null,
        error:
          error.code === "ENOENT"
            ? `the command ${options.command[0]} was not found on PATH`
            : `the command could not be started: ${error.message}`,
      }),
    );
    child.on("exit", (code, signal) => resolve({ code, signal }));
  });
  return { pid: child.pid, exit };
}

interface ProcessUse {
  pids: number[];
  /** Clock ticks of processor time so far. */
  ticks: number;
  memoryBytes: number;
}

const pageBytes = 4096;

function processIds(): number[] {
  try {
    return readdirSync("/proc")
      .filter((name) => name.charCodeAt(0) >= 0x30 && name.charCodeAt(0) <= 0x39)
      .map(Number);
  } catch {
    return [];
  }
}

function readProc(pid: number, what: string): string {
  try {
    return readFileSync(`/proc/${pid}/${what}`, "latin1");
  } catch {
    return "";
  }
}

/** The processes of a run. The environment of a process does not change, so each is read once. */
export class RunProcesses {
  private readonly known = new Map<string, boolean>();

  constructor(
    private readonly mark: string,
    private readonly group: number | undefined,
  ) {}

  /** The live processes of the run. */
  list(): number[] {
    const wanted = `${runMark}=${this.mark}\0`;
    return processIds().filter((pid) => {
      const stat = readProc(pid, "stat");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (stat === "" || fields[0] === "Z") return false;
      if (this.group !== undefined && Number(fields[2]) === this.group) return true;
      // A reused process id has another start time.
      const key = `${pid} ${fields[19]}`;
      let belongs = this.known.get(key);
      if (belongs === undefined) {
        const environment = `${readProc(pid, "environ")}\0`;
        belongs = environment.includes(wanted);
        // Between fork and exec a child still shows its parent's environment, or none yet.
        if (environment.length > 1) this.known.set(key, belongs);
      }
      return belongs;
    });
  }

  use(): ProcessUse {
    const pids = this.list();
    let ticks = 0;
    let memoryBytes = 0;
    for (const pid of pids) {
      const stat = readProc(pid, "stat");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (fields.length < 22) continue;
      ticks += Number(fields[11]) + Number(fields[12]);
      memoryBytes += Number(fields[21]) * pageBytes;
    }
    return { pids, ticks, memoryBytes };
  }

  signal(name: NodeJS.Signals): number {
    if (this.group !== undefined) kill(-this.group, name);
    const pids = this.list();
    for (const pid of pids) kill(pid, name);
    return pids.length;
  }
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has already exited.
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Terminates the processes of a run: SIGTERM, then SIGKILL after the grace period. Returns how many were killed. */
export async function endAll(processes: RunProcesses, graceMs: number): Promise<number> {
  if (processes.list().length === 0) return 0;
  processes.signal("SIGTERM");
  const deadline = performance.now() + graceMs;
  while (performance.now() < deadline) {
    if (processes.list().length === 0) return 0;
    await pause(50);
  }
  let killed = 0;
  // Processes that are forked meanwhile are found in the next iteration.
  for (let i = 0; i < 20; i++) {
    const left = processes.signal("SIGKILL");
    killed += left;
    if (left === 0) break;
    await pause(50);
  }
  return killed;
}
