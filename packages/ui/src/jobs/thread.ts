// A thread of `JobThread`: does the tasks that it is sent, and answers with a value or the reason why there is none.
import { parentPort, workerData } from "node:worker_threads";
import { type JobKind, jobs } from "./tasks.js";

const job = (await jobs[workerData as JobKind]()) as (task: unknown) => unknown;

parentPort!.on("message", async ({ id, task }: { id: number; task: unknown }) => {
  try {
    parentPort!.postMessage({ id, value: await job(task) });
  } catch (error) {
    parentPort!.postMessage({ id, error: (error as Error).message });
  }
});
