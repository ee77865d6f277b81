// For tests: the trace oracles of testdata, small synthetic traces, and temporary folders.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync, gzipSync } from "node:zlib";

/** Path of a file of the package's testdata folder. */
export const testdata = (name: string): string => fileURLToPath(new URL(`../../testdata/${name}`, import.meta.url));

/** Unpacks a trace of testdata/traces into a folder as NAME.json.gz, the form that profilers write, and returns its path. */
export function unpackTrace(folder: TestFolder, name: string): string {
  const json = brotliDecompressSync(readFileSync(testdata(`traces/${name}.json.br`)));
  return folder.file(`${name}.json.gz`, gzipSync(json, { level: 1 }));
}

export interface TestEvent {
  ph?: string;
  cat?: string;
  name?: string;
  pid?: number | string;
  tid?: number | string;
  ts?: number;
  dur?: number;
  id?: number;
  args?: Record<string, unknown>;
}

/** A kernel with the call that launched it. */
export function launched(
  correlation: number,
  call: { ts: number; dur: number },
  kernel: { name: string; ts: number; dur: number; stream?: number; cat?: string; args?: Record<string, unknown> },
): TestEvent[] {
  const stream = kernel.stream ?? 7;
  return [
    { ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", pid: 100, tid: 1, ...call, args: { correlation } },
    {
      ph: "X",
      cat: kernel.cat ?? "kernel",
      name: kernel.name,
      pid: 0,
      tid: stream,
      ts: kernel.ts,
      dur: kernel.dur,
      args: { stream, correlation, ...kernel.args },
    },
  ];
}

export function traceText(events: TestEvent[], header: Record<string, unknown> = {}): string {
  return JSON.stringify({ schemaVersion: 1, ...header, traceEvents: events });
}

/** A temporary folder that is removed when the caller is done. */
export class TestFolder {
  readonly path = mkdtempSync(join(tmpdir(), "weft-test-"));

  file(name: string, content: string | Uint8Array): string {
    const path = join(this.path, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    return path;
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
