// Parses one block of a trace file into tables of its own, in whichever thread.
import { TraceData } from "./data.js";
import { pieceOf, pieceSegmentRows, type TracePiece } from "./piece.js";
import { TraceSyntaxError } from "./scan.js";
import { Sorter } from "./sorter.js";
import { TraceStream } from "./stream.js";

/**
 * Bytes are shared and tables copied, never moved: once a buffer has been moved, V8 checks at every access to any typed array
 * whether it still has one, which makes parsing half as fast.
 */
export interface BlockQuestion {
  bytes: SharedArrayBuffer;
  length: number;
  unit: "ns" | "us";
  originUs: number;
}

export interface BlockAnswer {
  /** Null where the block does not consist of whole events. */
  piece: TracePiece | null;
  events: number;
  /** Offset behind the last event. */
  behindLast: number;
}

/** An event with its launch takes about a kilobyte of JSON. */
const bytesPerRow = 700;

export function parseBlock({ bytes, length, unit, originUs }: BlockQuestion): BlockAnswer {
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
  return { piece: whole ? pieceOf(data, sorter) : null, events: stream.events, behindLast: stream.goodBytes };
}
