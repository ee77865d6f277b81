// For tests: where the shared oracles lie (they may be absent), and small synthetic traces. Not part of the public face.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

/** The folder of oracles beside the repository, or null with the reason printed by the test that skips. */
export function sharedFolder(): string | null {
  const folder = process.env["WEFT_SHARED"] ?? join(here, "../../../../../shared");
  return existsSync(join(folder, "oracles")) ? folder : null;
}

export const noShared = "the shared oracles are not here (set WEFT_SHARED to their folder)";

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
    {
      ph: "X",
      cat: "cuda_runtime",
      name: "cudaLaunchKernel",
      pid: 100,
      tid: 1,
      ...call,
      args: { correlation },
    },
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
    writeFileSync(path, content);
    return path;
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
