// The body of a loader thread: fills its ring buffer ahead of the trainer, waits while it is full, and ends on request.
import { workerData } from "node:worker_threads";
import { BatchMaker, Cursor, controls, type LoaderTask, slotHead } from "./loader.js";
import { limitRows, readTokens } from "./tokens.js";

const task = workerData as LoaderTask;
const { options, slotWords, stride } = task;
const ring = new Int32Array(task.ring);
const control = new Int32Array(task.control);

function run(): void {
  const set = readTokens(task.file);
  if (set === null) throw new Error(`${task.file} is damaged`);
  const maker = new BatchMaker(limitRows(set, task.rows), options);
  const cursor = new Cursor(task.from.epoch, task.from.index, maker.stepsPerEpoch, options.accumulation);
  for (let i = 0; i < task.first; i++) cursor.advance();
  for (let made = 0; ; ) {
    const used = Atomics.load(control, controls.used);
    if (Atomics.load(control, controls.stop) !== 0) return;
    if (made - used >= options.prefetch) {
      Atomics.wait(control, controls.used, used, 1000);
      continue;
    }
    const at = (made % options.prefetch) * slotWords;
    const target = ring.subarray(at + slotHead, at + slotWords);
    const { epoch, index, micro, samples, total, length } = maker.make(
      cursor.epoch,
      cursor.index,
      cursor.micro,
      target,
    );
    ring.set([epoch, index, micro, samples, total, length], at);
    Atomics.store(control, controls.made, ++made);
    Atomics.notify(control, controls.made);
    for (let i = 0; i < stride; i++) cursor.advance();
  }
}

try {
  run();
} catch (error) {
  Atomics.store(control, controls.failed, 1);
  Atomics.notify(control, controls.made);
  throw error;
}
