// Worker thread of `ParallelStream`: parses blocks of whole events into tables of their own.
import { parentPort } from "node:worker_threads";
import type { BlockAnswer, BlockQuestion } from "./blocks.js";
import { TraceData } from "./data.js";
import { pieceOf, pieceSegmentRows } from "./piece.js";
import { TraceSyntaxError } from "./scan.js";
import { Sorter } from "./sorter.js";
import { TraceStream } from "./stream.js";

/** An event with its launch takes about a kilobyte of JSON. */
const bytesPerRow = 700;

/** V8 compiles on other threads for a while after the last block. */
const rest = 200;

parentPort?.on("message", (question: BlockQuestion | null) => {
  if (question === null) {
    setTimeout(() => parentPort?.close(), rest);
    return;
  }
  const { bytes, length, unit, originUs } = question;
  const data = new TraceData("", Math.ceil(length / bytesPerRow), Infinity, unit, pieceSegmentRows);
  data.originUs = originUs;
  const sorter = new Sorter(data, true);
  const stream = new TraceStream(sorter);
  let whole = false;
  try {
    whole = stream.parseBlock(Buffer.from(bytes, 0, length)) && sorter.halves === 0;
  } catch (error) {
    if (!(error instanceof TraceSyntaxError)) throw error;
  }
  const answer: BlockAnswer = {
    piece: whole ? pieceOf(data, sorter) : null,
    events: stream.events,
    behindLast: stream.goodBytes,
  };
  parentPort?.postMessage(answer);
});
