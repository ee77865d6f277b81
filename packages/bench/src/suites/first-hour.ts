// What a user notices in the first hour: the cost of a small operation, of a new shape and of a jitted call, how long reading a value
// blocks the event loop, how long a large step compiles, and a training step beside busy processes. PyTorch runs the same rows in the same
// conditions.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mean, median } from "@weft/formats/stats";
import type { Suite } from "./context.js";
import { firstHourRows } from "./first-hour-rows.js";
import { entryPoint } from "./main-path.js";
import { findPeer, jsonLines, peerScript } from "./peers.js";
import { commandOutput } from "./process.js";

interface Row {
  id: string;
  /** The measurement, and how many busy processes run beside it. */
  measure: string;
  busy?: number;
  title: string;
  /** Whether PyTorch has the row. */
  peer: boolean;
  /** The expected answer, where it is the same for everybody. */
  expected?: number;
  /** What the kernel cache holds before the row; by default that of the user. */
  cache?: "empty" | "filled";
}

const neighbors = [0, 2, 12];

const rows: Row[] = [
  {
    id: "eager-op",
    measure: "eager-op",
    title: "sum of two tensors of 1000 elements, not jitted",
    peer: true,
    expected: 2000,
  },
  {
    id: "new-shape",
    measure: "new-shape",
    title: "first call with a new shape, four operations",
    peer: true,
    expected: 9765,
  },
  {
    id: "jit-call",
    measure: "jit-call",
    title: "sum of two tensors of 1000 elements, jitted",
    peer: true,
    expected: 2000,
  },
  {
    id: "loop-compute",
    measure: "loop-compute",
    title: "longest block of the event loop, long computation",
    peer: true,
  },
  { id: "loop-compile", measure: "loop-compile", title: "longest block of the event loop, new program", peer: true },
  { id: "sine-gradient", measure: "sine-gradient", title: "first gradient through 2000 sines", peer: true },
  ...(["empty", "filled"] as const).map((cache) => ({
    id: `gpt2-${cache}`,
    measure: "gpt2-compile",
    title: `compiling a training step of GPT-2 124M, ${cache} cache`,
    peer: false,
    cache,
  })),
  ...neighbors.map((busy) => ({
    id: `step-${busy}`,
    measure: "step",
    busy,
    title: `training step of a small Transformer beside ${busy} busy processes`,
    peer: true,
  })),
  ...neighbors.map((busy) => ({
    id: `meta-${busy}`,
    measure: "meta",
    busy,
    title: `iteration of meta-learning beside ${busy} busy processes`,
    peer: false,
  })),
];

interface Answer {
  samples: number[];
  check: number;
}

export interface FirstHourTimes {
  /** Median, and the mean: rare long calls count in the mean only. */
  ms: number;
  meanMs: number;
  samples: number[];
  check: number;
}

const summary = ({ samples, check }: Answer): FirstHourTimes => ({
  ms: median(samples),
  meanMs: mean(samples),
  // The distribution of short calls needs no more than this.
  samples: samples.length > 200 ? samples.filter((_, i) => i % Math.ceil(samples.length / 200) === 0) : samples,
  check,
});

async function answerOf(
  command: string,
  args: (string | number)[],
  env = process.env,
): Promise<Answer & Record<string, unknown>> {
  const [answer] = jsonLines<Answer & Record<string, unknown>>(await commandOutput(null, command, args, env));
  if (answer === undefined) throw new Error(`${command} ${args[0]} printed no result`);
  return answer;
}

/** Processes that start with an empty kernel cache, or with that of the one before. */
async function answersWithCache(cache: "empty" | "filled", args: (string | number)[]): Promise<Answer> {
  const answers: Answer[] = [];
  let folder = mkdtempSync(join(tmpdir(), "weft-first-hour-"));
  try {
    for (let round = cache === "empty" ? 1 : 0; round <= 3; round++) {
      const answer = await answerOf(process.execPath, args, { ...process.env, WEFT_CACHE_DIR: folder });
      if (round > 0) answers.push(answer);
      if (cache === "filled") continue;
      rmSync(folder, { recursive: true });
      folder = mkdtempSync(join(tmpdir(), "weft-first-hour-"));
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return { samples: answers.flatMap(({ samples }) => samples), check: answers[0].check };
}

const suite: Suite = {
  defaults: { seconds: "3" },
  async run(context) {
    const seconds = context.number("seconds");
    const peer = findPeer(context, "torch");
    const { record, save, path } = context.open("first-hour", { rows: [] as object[] }, { settings: { seconds } });
    if ("reason" in peer) record.absent.torch = peer.reason;
    for (const { id, measure, busy = 0, title, peer: hasPeer, expected, cache } of context.choose(rows)) {
      const own = [entryPoint, "serve", "first-hour", "--rows", id, "--seconds", seconds];
      const weft = await (cache === undefined ? answerOf(process.execPath, own) : answersWithCache(cache, own));
      const times: Record<string, FirstHourTimes> = { weft: summary(weft) };
      if (hasPeer && "command" in peer) {
        const args = ["-W", "ignore", peerScript("first_hour.py"), measure, seconds, busy, process.execPath];
        const torch = await answerOf(peer.command, args);
        times.torch = summary(torch);
        record.versions.torch = { version: torch.version, threads: torch.threads };
      }
      const wrong = Object.entries(times)
        .filter(
          ([, { check }]) => !Number.isFinite(check) || (expected !== undefined && Math.abs(check - expected) > 1e-3),
        )
        .map(([name, { check }]) => `${name} gave ${check}`);
      record.rows.push({ id, title, busy, wrong: wrong.length === 0 ? null : wrong.join(", "), times });
      const shown = Object.entries(times).map(
        ([name, { ms, meanMs }]) => `${name} ${ms.toPrecision(3)} ms (mean ${meanMs.toPrecision(3)})`,
      );
      context.log(`${id}: ${wrong.length > 0 ? `WRONG ${wrong}` : shown.join(", ")}`);
      save();
    }
    if (path !== null) context.log(`wrote ${path}`);
  },
  async serve(context) {
    const [row] = context.choose(rows);
    const answer = await firstHourRows[row.measure]({ seconds: context.number("seconds"), busy: row.busy ?? 0 });
    console.log(JSON.stringify(answer));
  },
};

export default suite;
