// @ts-check
// Records what two workers do during a training, sums it up, draws it, and runs the recording again on one worker.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readTape, tapeStats } from "@weft/cluster";
import { formatMicroseconds } from "@weft/formats/text";
import { savePicture, small, timelineChart, verify, weftCommand } from "../example.mjs";

const folder = mkdtempSync(join(tmpdir(), "weft-trace-"));
const tapeFile = join(folder, "run.tape");
const run = (/** @type {string[]} */ args, /** @type {Record<string, string>} */ env = {}) => {
  const done = spawnSync(process.execPath, args, { encoding: "utf8", env: { ...process.env, ...env } });
  if (done.status !== 0) throw new Error(`${args.join(" ")}: ${done.stderr}`);
  return done.stdout;
};
try {
  const sizes = small ? ["512", "128", "4"] : ["8192", "512", "6"];
  process.stdout.write(run([join(import.meta.dirname, "job.mjs"), ...sizes], { WEFT_TAPE: tapeFile }));
  const tape = await readTape(tapeFile);
  const { ops, workers } = tapeStats(tape);
  for (const { op, kind, count, us } of ops.slice(0, 8))
    console.log(
      `${op.padEnd(34).slice(0, 34)} ${kind.padEnd(10)} ${String(count).padStart(4)} times ${formatMicroseconds(us)}`,
    );
  for (const { worker, busyUs, communicateUs, spanUs } of workers)
    console.log(
      `worker ${worker}: busy ${formatMicroseconds(busyUs)} of ${formatMicroseconds(spanUs)}, communication ${formatMicroseconds(communicateUs)}`,
    );
  verify("both workers took part", workers.length === 2 && workers.every(({ busyUs }) => busyUs > 0));
  const replay = run([weftCommand, "tape", "replay", tapeFile, "--devices", "1"]);
  verify(`the recording gives the same results on one worker: ${replay.trim().split("\n").at(-1)}`, true);

  // The last two thirds: the first step compiles.
  const steps = [...new Set(tape.instructions.map(({ step }) => step))].slice(-3);
  const shown = tape.instructions.filter(({ step }) => steps.includes(step));
  const origin = Math.min(...shown.map(({ startUs }) => startUs));
  savePicture(
    import.meta.dirname,
    "timeline.svg",
    timelineChart(
      shown.map(({ worker, kind, startUs, endUs }) => ({
        row: `worker ${worker}`,
        kind,
        from: (startUs - origin) / 1e3,
        to: (endUs - origin) / 1e3,
      })),
      { title: "The last three calls on two workers", x: "time in ms" },
    ),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
