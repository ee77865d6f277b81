// Worker thread of `ParallelStream`: parses blocks of whole events into tables of their own.
import { parentPort } from "node:worker_threads";
import { type BlockQuestion, parseBlock } from "./block.js";

/** V8 compiles on other threads for a while after the last block. */
const rest = 200;

parentPort?.on("message", (question: BlockQuestion | null) => {
  if (question === null) setTimeout(() => parentPort?.close(), rest);
  else parentPort?.postMessage(parseBlock(question));
});
