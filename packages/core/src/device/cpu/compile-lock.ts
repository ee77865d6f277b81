// Locks beside the files of the cache: if several processes need the same file, one compiles and the others wait for it.
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { InterruptedError } from "./compiler.js";

/** Seconds after which a process stops waiting for another one's compiler and compiles itself. */
const patienceSeconds = 120;
const owner = `${hostname()} ${process.pid}`;

/** Whether the owner of a lock has died or is stopped. For processes of other machines, the age of the lock decides. */
function isAbandoned(lock: string): boolean {
  try {
    if (Date.now() - statSync(lock).mtimeMs > patienceSeconds * 1e3) return true;
    const [host, pid] = readFileSync(lock, "utf8").split(" ");
    if (host !== hostname() || !(Number(pid) > 0)) return false;
    process.kill(Number(pid), 0);
    return isStopped(Number(pid));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

function isStopped(pid: number): boolean {
  try {
    // The state follows the name, which may contain anything.
    return /\) [Tt] [^)]*$/.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

/** The right to compile a file. */
interface Turn {
  release(): void;
}
const noTurn: Turn = { release: () => {} };

/** Takes the lock of a file now; null while another process compiles it. Two processes that compile the same file at once do no harm. */
function tryTurn(path: string): Turn | null {
  const lock = `${path}.lock`;
  try {
    writeFileSync(lock, owner, { flag: "wx" });
    return { release: () => rmSync(lock, { force: true }) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") return noTurn;
  }
  if (isAbandoned(lock)) rmSync(lock, { force: true });
  return null;
}

/** Waits for the lock of a file, or for the file. */
export function takeTurn(path: string): Turn {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (const end = performance.now() + patienceSeconds * 1e3; performance.now() < end && !existsSync(path); ) {
    const turn = tryTurn(path);
    if (turn !== null) return turn;
    Atomics.wait(pause, 0, 0, 10);
  }
  return noTurn;
}

/** The same without blocking the event loop. */
export async function takeTurnInBackground(path: string, signal?: AbortSignal): Promise<Turn> {
  for (const end = performance.now() + patienceSeconds * 1e3; performance.now() < end && !existsSync(path); ) {
    const turn = tryTurn(path);
    if (turn !== null) return turn;
    await delay(10);
    if (signal?.aborted === true) throw new InterruptedError("interrupted while another process compiled a program");
  }
  return noTurn;
}
