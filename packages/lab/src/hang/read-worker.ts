// Worker thread of `readHang`: reads its share of the dumps.
import { parentPort, workerData } from "node:worker_threads";
import type { RankCalls } from "./evidence.js";
import { readDumps } from "./read.js";

const evidence = readDumps(workerData as string[]);
const buffers = [...evidence.ranks.values()].flatMap(({ calls }) => (calls === undefined ? [] : columns(calls)));
parentPort?.postMessage(evidence, buffers);

function columns(calls: RankCalls): ArrayBuffer[] {
  const { group, sequence, call, state, pointToPoint, timeMs } = calls;
  return [group, sequence, call, state, pointToPoint, timeMs].map((column) => column.buffer as ArrayBuffer);
}
