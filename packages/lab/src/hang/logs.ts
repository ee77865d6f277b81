// Logs of a job (torchrun, srun, plain): tracebacks, watchdog reports, exit codes, signals and notes of SLURM, by rank.
import { type HangEvidence, isRankNumber, type RankEvidence, rankEvidence } from "./evidence.js";
import { fileLine, tracebackFrames } from "./stacks.js";
import { isConsequence } from "./verdict.js";

/** `[rank3]: `, `[default3]:` (torchrun) and `3: ` (srun --label). */
const rankPrefix = /^(?:\[\d+\] )?(?:\[(?:rank|default)(\d{1,7})\]:|\s{0,6}(\d{1,7}): )\s?/;
const watchdog =
  /\[(?:PG (?:ID )?(\S+) (?:PG GUID \S+ )?)?Rank (\d{1,7})\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)(?:, NumelIn=(\d+))?/;
const status =
  /\[PG (?:ID )?(\S+) (?:PG GUID \S+ )?Rank (\d{1,7})\].*?last enqueued(?: NCCL)? work: (-?\d{1,15}), last completed(?: NCCL)? work: (-?\d{1,15})/;
const raisedLine =
  /^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Iteration)|[A-Z]\w*Error\w*): ?(.*)$/;
const terminated = /terminate called after throwing an instance of '([^']{1,200})'/;
const what = /^\s*what\(\):\s+(.*)$/;

const longestTraceback = 400;
const mostNotes = 32;

interface Open {
  lines: string[];
}

/** Reads a log; `fileRank` is the rank that the name of the file says, for lines without a prefix. */
export function readLog(text: string, file: string, fileRank: number | null, evidence: HangEvidence): boolean {
  const tracebacks = new Map<number, Open>();
  const aborting = new Map<number, string>();
  let found = false;
  let tableRank: number | null = null;
  const about = (rank: number): RankEvidence => {
    const own = rankEvidence(evidence, rank);
    if (!own.files.includes(file)) own.files.push(file);
    found = true;
    return own;
  };
  const setRaised = (rank: number, type: string, message: string, lines: readonly string[]) => {
    const own = about(rank);
    const raised = { type, message: message.slice(0, 4000), frames: tracebackFrames(lines) };
    // The first error that is no consequence of another rank's; a probe's dump knows it better.
    if (own.raised === undefined || (isConsequence(own.raised) && !isConsequence(raised))) own.raised = raised;
  };

  for (const whole of text.split("\n")) {
    const prefix = rankPrefix.exec(whole);
    const named = prefix === null ? Number.NaN : Number(prefix[1] ?? prefix[2]);
    const rank = isRankNumber(named) ? named : fileRank;
    const line = (prefix === null ? whole : whole.slice(prefix[0].length)).slice(0, 4000).replace(/\r$/, "");

    const caught = watchdog.exec(line);
    if (caught !== null) {
      const own = about(Number(caught[2]));
      const [group, sequence] = [caught[1] ?? null, Number(caught[3])];
      // Later calls of the same group time out as well, and are not reported in order: the first one is what it waits for.
      if (
        own.watchdog === undefined ||
        ((group ?? own.watchdog.group) === own.watchdog.group && sequence < own.watchdog.sequence)
      )
        own.watchdog = {
          sequence,
          op: caught[4],
          group: group ?? own.watchdog?.group ?? "0",
          numel: caught[5] === undefined ? null : Number(caught[5]),
        };
    }
    const last = status.exec(line);
    if (last !== null)
      about(Number(last[2])).status.push({ group: last[1], enqueued: Number(last[3]), completed: Number(last[4]) });

    if (rank !== null) {
      if (/^Traceback \(most recent call last\)/.test(line)) tracebacks.set(rank, { lines: [] });
      const open = tracebacks.get(rank);
      if (open !== undefined && !/^Traceback/.test(line)) {
        const end = raisedLine.exec(line);
        if (end !== null && !/^\s/.test(line)) {
          setRaised(rank, end[1], end[2], open.lines);
          tracebacks.delete(rank);
        } else if (open.lines.length < longestTraceback && (fileLine.test(line) || /^\s/.test(line)))
          open.lines.push(line);
      }
      const abort = terminated.exec(line);
      if (abort !== null) aborting.set(rank, abort[1]);
      const why = what.exec(line);
      const type = aborting.get(rank);
      if (why !== null && type !== undefined) {
        setRaised(rank, type, why[1], []);
        aborting.delete(rank);
      }
    }
    const entry = /^\s*rank\s*: (\d{1,7}) \(local_rank: \d+\)/.exec(whole);
    if (entry !== null) tableRank = Number(entry[1]);
    const code = /^\s*exitcode\s*: (-?\d{1,5}) \(pid: \d+\)/.exec(whole);
    if (code !== null && tableRank !== null && Number(code[1]) < 0) {
      about(tableRank).process ??= {
        state: "dead",
        detail: `killed by ${signalName(-Number(code[1]))}, says the launcher`,
      };
      tableRank = null;
    }
    const task =
      /(?:srun|slurmstepd): error: (\S+): tasks? (\d{1,7})(?:-\d+|,[\d,-]+)?: (Killed|Terminated|Segmentation fault|Bus error|Aborted|Out Of Memory)/.exec(
        whole,
      );
    if (task !== null)
      about(Number(task[2])).process ??= { state: "dead", detail: `${task[3]} on ${task[1]}, says SLURM` };
    if (
      /oom-kill|Out of memory: Killed process|DUE TO TIME LIMIT|DUE TO NODE FAIL|Node failure|node fail/i.test(whole) &&
      evidence.notes.length < mostNotes
    )
      evidence.notes.push(whole.trim().slice(0, 300));
  }
  return found;
}

const names: Readonly<Record<number, string>> = {
  6: "SIGABRT",
  7: "SIGBUS",
  9: "SIGKILL",
  11: "SIGSEGV",
  15: "SIGTERM",
};

function signalName(signal: number): string {
  return names[signal] ?? `signal ${signal}`;
}
