// What a user meets in the first hour: the cost of a small operation, of a new shape and of a jitted call, how long reading a value
// blocks the event loop, and a training step beside busy neighbors. PyTorch runs the same rows in the same conditions.
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

async function answerOf(command: string, args: (string | number)[]): Promise<Answer & Record<string, unknown>> {
  const [answer] = jsonLines<Answer & Record<string, unknown>>(await commandOutput(null, command, args));
  if (answer === undefined) throw new Error(`${command} ${args[0]} printed no result`);
  return answer;
}

const suite: Suite = {
  defaults: { seconds: "3" },
  async run(context) {
    const seconds = context.number("seconds");
    const peer = findPeer(context, "torch");
    const { record, save, path } = context.open("first-hour", { rows: [] as object[] }, { settings: { seconds } });
    if ("reason" in peer) record.absent.torch = peer.reason;
    for (const { id, measure, busy = 0, title, peer: hasPeer, expected } of context.choose(rows)) {
      const weft = await answerOf(process.execPath, [
        ...[entryPoint, "serve", "first-hour", "--rows", id, "--seconds", seconds],
      ]);
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
