// Python stacks as text: of py-spy (dump), of faulthandler, and of tracebacks. Innermost frame first in the result.
import type { Site, ThreadStack } from "./evidence.js";

const mostThreads = 256;
const mostFrames = 128;

/** `    all_reduce (torch/distributed/distributed_c10d.py:2806)` */
const pySpyFrame = /^\s+(.{1,200}?) \((.{1,1000}?):(\d{1,7})\)\s*$/;
/** `Thread 12 (idle): "MainThread"` and `Thread 0x7F (active+gil): "MainThread"` */
const pySpyThread = /^Thread (\S+) \([^)]*\)(?:: "(.*)")?\s*$/;
/** `  File "job.py", line 12 in step` (faulthandler) and `  File "job.py", line 12, in step` (traceback) */
export const fileLine = /^\s*File "(.{1,1000}?)", line (\d{1,7}),? in (.{1,200})$/;
const faultThread = /^(Current thread|Thread) (0x[0-9a-f]+) \S*.*\(most recent call first\):/i;

export function looksLikePySpy(text: string): boolean {
  return /^(?:Process \d+: |Thread \S+ \([a-z+ ]+\))/m.test(text) && /^\s+\S.* \(.+:\d+\)\s*$/m.test(text);
}

export function looksLikeFaulthandler(text: string): boolean {
  return (
    /\(most recent call first\):/.test(text) &&
    fileLine.test(text.split("\n").find((line) => /File "/.test(line)) ?? "")
  );
}

/** Processes of one `py-spy dump` or several in one file. */
export function readPySpy(text: string): { pid: number | null; stacks: ThreadStack[] }[] {
  const processes: { pid: number | null; stacks: ThreadStack[] }[] = [];
  let stack: ThreadStack | null = null;
  for (const line of text.split("\n")) {
    const process = /^Process (\d{1,9}): /.exec(line);
    if (process !== null) processes.push({ pid: Number(process[1]), stacks: [] });
    const thread = pySpyThread.exec(line);
    if (thread !== null) {
      if (processes.length === 0) processes.push({ pid: null, stacks: [] });
      const { stacks } = processes[processes.length - 1];
      const name = thread[2] ?? thread[1];
      stack = { thread: name, main: name === "MainThread" || stacks.length === 0, frames: [] };
      if (stacks.length < mostThreads) stacks.push(stack);
      continue;
    }
    const frame = pySpyFrame.exec(line);
    if (frame !== null && stack !== null && stack.frames.length < mostFrames)
      stack.frames.push({ name: frame[1], file: frame[2], line: Number(frame[3]) });
  }
  return processes;
}

/** The threads of the last report in the file: the signal may have been sent several times. */
export function readFaulthandler(text: string): ThreadStack[] {
  let stacks: ThreadStack[] = [];
  let ended = true;
  for (const line of text.split("\n")) {
    const thread = faultThread.exec(line);
    if (thread !== null) {
      // The current thread ends a report.
      if (ended) stacks = [];
      ended = thread[1] === "Current thread";
      stacks.push({ thread: thread[2], main: false, frames: [] });
      continue;
    }
    const frame = fileLine.exec(line);
    const stack = stacks[stacks.length - 1];
    if (frame !== null && stack !== undefined && stack.frames.length < mostFrames)
      stack.frames.push({ file: frame[1], line: Number(frame[2]), name: frame[3].trim() });
  }
  // The main thread is the one whose outermost frame is the module itself.
  const main = stacks.find((one) => one.frames[one.frames.length - 1]?.name === "<module>");
  if (main !== undefined) main.main = true;
  return stacks;
}

/** Frames of a traceback, innermost first. */
export function tracebackFrames(lines: readonly string[]): Site[] {
  const frames: Site[] = [];
  for (const line of lines) {
    const frame = fileLine.exec(line);
    if (frame !== null) frames.push({ file: frame[1], line: Number(frame[2]), name: frame[3].trim() });
  }
  return frames.reverse().slice(0, mostFrames);
}
