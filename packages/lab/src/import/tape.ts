// Weft's tape (JSON lines of executed instructions) into a run: steps per worker with their compute and communication time.
// Of the engine it knows only these lines; docs/lab-format.md says which fields it reads.
import { basename } from "node:path";
import { emptyRun, type Run, type Step } from "../model/index.js";
import { ProblemLog, readLines } from "./lines.js";

interface TapeLine {
  type?: unknown;
  worker?: unknown;
  step?: unknown;
  op?: unknown;
  kind?: unknown;
  startUs?: unknown;
  endUs?: unknown;
  bytes?: unknown;
  samples?: unknown;
  devices?: unknown;
}

const collective = /^(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|exchange|broadcast|send|recv|collective)/i;
const isTime = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);

interface Busy {
  start: number;
  end: number;
  comm: number;
  samples: number;
}

export function runFromTape(path: string): Run {
  const problems = new ProblemLog();
  const run = emptyRun(basename(path).replace(/\.[^.]*$/, ""), 1, { kind: "tape", path });
  const byStep = new Map<string, Busy>();
  const workers = new Set<number>();
  for (const { text, number, complete } of readLines(path)) {
    if (text.trim() === "") continue;
    let line: TapeLine;
    try {
      line = JSON.parse(text) as TapeLine;
    } catch {
      problems.add(
        path,
        complete ? "bad-record" : "truncated-line",
        complete ? "not valid JSON" : "half-written last line left out",
        number,
      );
      continue;
    }
    if (line.type !== "instruction") continue;
    const { worker, startUs, endUs } = line;
    if (!Number.isInteger(worker) || !isTime(startUs) || !isTime(endUs) || endUs < startUs) {
      problems.add(path, "bad-record", "an instruction without worker, startUs and endUs in order", number);
      continue;
    }
    workers.add(worker as number);
    const step = Number.isInteger(line.step) ? (line.step as number) : 0;
    const key = `${worker as number}:${step}`;
    const busy = byStep.get(key) ?? { start: startUs, end: endUs, comm: 0, samples: 0 };
    busy.start = Math.min(busy.start, startUs);
    busy.end = Math.max(busy.end, endUs);
    const communicates = line.kind === "collective" || (typeof line.op === "string" && collective.test(line.op));
    if (communicates) busy.comm += endUs - startUs;
    if (isTime(line.samples)) busy.samples += line.samples;
    byStep.set(key, busy);
  }
  run.devices = Math.max(1, workers.size);
  run.ranks = [...workers].sort((a, b) => a - b).map((rank) => ({ rank, facts: { framework: "weft" } }));
  run.steps = [...byStep]
    .map(([key, busy]): Step => {
      const [rank, step] = key.split(":").map(Number) as [number, number];
      return {
        rank,
        step,
        startUs: busy.start,
        durationUs: busy.end - busy.start,
        commUs: busy.comm,
        ...(busy.samples > 0 && { samples: busy.samples }),
      };
    })
    .filter((step) => step.durationUs > 0)
    .sort((a, b) => a.rank - b.rank || a.step - b.step);
  if (run.steps.length > 0) run.status = "ok";
  else problems.add(path, "no-rows", "the tape has no finished instruction");
  run.problems = problems.list();
  return run;
}
