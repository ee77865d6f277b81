// Analyzes several trace files at the same time in worker threads: ranks are independent until their collectives are compared.
import { statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { AnalyzedRank } from "./rank.js";
import type { TraceReadOptions } from "./read.js";

/** A file for a worker; options that can be sent. */
export interface RankQuestion {
  file: string;
  order: number;
  options: Pick<TraceReadOptions, "hta" | "peaks" | "residentSegments" | "threads">;
}

export type RankAnswer =
  | { kind: "progress"; file: string; bytes: number; total: number }
  | { kind: "done"; ranks: AnalyzedRank[] }
  | { kind: "failed"; message: string; code: string | undefined; syscall: string | undefined };

/** Smaller traces are analyzed before a worker has started. */
const worthWorkers = 32 * 2 ** 20;
/** Each worker holds the tables of one file. */
const mostWorkers = 4;

/** Number of workers that files are worth: 0 for one file or little data. */
export function workersFor(files: readonly string[]): number {
  if (files.length < 2) return 0;
  let bytes = 0;
  for (const file of files) {
    // A file that cannot be read is reported where it is opened.
    const info = statSync(file, { throwIfNoEntry: false });
    bytes += info === undefined ? 0 : info.size * (file.endsWith(".gz") ? 10 : 1);
  }
  return bytes < worthWorkers ? 0 : Math.min(files.length, mostWorkers, availableParallelism());
}

/** The analysis of every file, in the order of the files. */
export async function analyzeInWorkers(
  files: readonly string[],
  count: number,
  { hta, peaks, residentSegments, onProgress, signal }: TraceReadOptions,
  onFile?: (file: string, index: number, of: number) => void,
): Promise<AnalyzedRank[][]> {
  const options = {
    threads: Math.max(1, Math.floor(availableParallelism() / count)),
    ...(hta !== undefined && { hta }),
    ...(peaks !== undefined && { peaks }),
    ...(residentSegments !== undefined && { residentSegments }),
  };
  const results: AnalyzedRank[][] = files.map(() => []);
  let next = 0;
  const work = async (): Promise<void> => {
    const worker = new Worker(new URL("./rank-worker.js", import.meta.url));
    try {
      while (next < files.length) {
        signal?.throwIfAborted();
        const order = next++;
        onFile?.(files[order], order, files.length);
        results[order] = await ask(worker, { file: files[order], order, options }, onProgress, signal);
      }
    } catch (error) {
      // The other workers finish their file and take no further one.
      next = files.length;
      throw error;
    } finally {
      await worker.terminate();
    }
  };
  await Promise.all(Array.from({ length: count }, work));
  return results;
}

function ask(
  worker: Worker,
  question: RankQuestion,
  onProgress: TraceReadOptions["onProgress"],
  signal: AbortSignal | undefined,
): Promise<AnalyzedRank[]> {
  return new Promise((resolve, reject) => {
    const abort = (): void => finish(() => reject(signal?.reason));
    const answer = (message: RankAnswer): void => {
      if (message.kind === "progress") onProgress?.(message.bytes, message.total);
      else if (message.kind === "done") finish(() => resolve(message.ranks));
      else
        finish(() =>
          reject(Object.assign(new Error(message.message), { code: message.code, syscall: message.syscall })),
        );
    };
    const failed = (error: Error): void => finish(() => reject(error));
    const finish = (settle: () => void): void => {
      worker.off("message", answer);
      worker.off("error", failed);
      signal?.removeEventListener("abort", abort);
      settle();
    };
    worker.on("message", answer);
    worker.on("error", failed);
    signal?.addEventListener("abort", abort, { once: true });
    worker.postMessage(question);
  });
}
