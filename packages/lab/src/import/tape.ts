// Imports a tape (JSON lines of executed instructions) as a run: the steps of each worker with their compute and
// communication time.
import { basename } from "node:path";
import { lenientParser, type TrainingStep, timedInstructionSchema } from "@weft/formats/internal";
import { emptyRun, type Run } from "../model/index.js";
import { ProblemLog, readLines } from "./lines.js";

const collective = /^(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|exchange|broadcast|send|recv|collective)/i;
const parseInstruction = lenientParser(timedInstructionSchema);

interface Busy {
  start: number;
  end: number;
  comm: number;
  samples: number;
}

/** Reads a tape as a run with one rank per worker. */
export function runFromTape(path: string): Run {
  const problems = new ProblemLog();
  const run = emptyRun(basename(path).replace(/\.[^.]*$/, ""), 1, { kind: "tape", path });
  const byStep = new Map<string, Busy>();
  const workers = new Set<number>();
  for (const { text, number, complete } of readLines(path)) {
    if (text.trim() === "") continue;
    let line: unknown;
    try {
      line = JSON.parse(text);
    } catch {
      problems.add(
        path,
        complete ? "bad-record" : "truncated-line",
        complete ? "not valid JSON" : "half-written last line left out",
        number,
      );
      continue;
    }
    if ((line as { type?: unknown } | null)?.type !== "instruction") continue;
    const parsed = parseInstruction(line);
    if (!parsed.ok || parsed.value.endUs < parsed.value.startUs) {
      problems.add(path, "bad-record", "an instruction without worker, startUs and endUs in order", number);
      continue;
    }
    const { worker, startUs, endUs, step = 0, kind, op = "", samples = 0 } = parsed.value;
    workers.add(worker);
    const key = `${worker}:${step}`;
    const busy = byStep.get(key) ?? { start: startUs, end: endUs, comm: 0, samples: 0 };
    busy.start = Math.min(busy.start, startUs);
    busy.end = Math.max(busy.end, endUs);
    if (kind === "collective" || collective.test(op)) busy.comm += endUs - startUs;
    busy.samples += samples;
    byStep.set(key, busy);
  }
  run.devices = Math.max(1, workers.size);
  run.ranks = [...workers].sort((a, b) => a - b).map((rank) => ({ rank, facts: { framework: "weft" } }));
  run.steps = [...byStep]
    .map(([key, busy]): TrainingStep => {
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
