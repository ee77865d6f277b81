// Worker thread of `analyzeTraces`: analyzes one file after the other.
import { parentPort } from "node:worker_threads";
import type { RankAnswer, RankQuestion } from "./parallel.js";
import { analyzeTraceFile } from "./rank.js";

const port = parentPort;
const progressEvery = 200;

port?.on("message", async ({ file, order, options }: RankQuestion) => {
  let last = 0;
  const onProgress = (bytes: number, total: number): void => {
    const now = performance.now();
    if (now - last < progressEvery) return;
    last = now;
    port.postMessage({ kind: "progress", file, bytes, total } satisfies RankAnswer);
  };
  try {
    const ranks = await analyzeTraceFile(file, order, { ...options, onProgress });
    port.postMessage({ kind: "done", ranks } satisfies RankAnswer);
  } catch (error) {
    const { message, code, syscall } = error as NodeJS.ErrnoException;
    port.postMessage({ kind: "failed", message, code, syscall } satisfies RankAnswer);
  }
});
