// For tests: runs folders as `weft train` writes them, and runs that really train.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { RunFile } from "@weft/formats";

/** A runs folder that is removed after the test. */
export class TestRuns {
  readonly path = mkdtempSync(join(tmpdir(), "weft-ui-"));

  /** Writes the run.json of a run; returns its folder. */
  head(id: string, more: Partial<RunFile> = {}): string {
    const folder = join(this.path, id);
    mkdirSync(folder, { recursive: true });
    const file: RunFile = {
      v: 1,
      id,
      devices: 1,
      repeat: 0,
      order: 0,
      command: ["train", "x.yaml"],
      status: "ok",
      startedAt: Date.now() / 1000 - 100,
      machine: { host: hostname() },
      workload: { model: "encoder", dataset: "synthetic" },
      ...more,
    };
    writeFileSync(join(folder, "run.json"), JSON.stringify(file));
    return folder;
  }

  /** Writes a finished run with steps of a falling loss. */
  run(id: string, steps: number, more: Partial<RunFile> = {}): string {
    const folder = this.head(id, { steps, ...more });
    const file = openSync(join(folder, "rank0.jsonl"), "w");
    const t = Date.now() / 1000 - 100;
    let text = `${JSON.stringify({ v: 1, type: "rank", t, rank: 0, worldSize: 1, pid: 999999999, device: "cpu" })}\n`;
    for (let step = 0; step < steps; step++) {
      text += `{"v":1,"type":"step","t":${(t + step / 1e4).toFixed(3)},"rank":0,"step":${step},"durationUs":1000,"dataWaitUs":10,"samples":8,"loss":${lossAt(step)},"learningRate":0.001}\n`;
      if (text.length < 1 << 20) continue;
      writeSync(file, text);
      text = "";
    }
    writeSync(file, text);
    return folder;
  }

  /** Writes a study: six epochs of the given seconds per device count. `isDivided`: each rank has its share of the data. */
  study(name: string, seconds: Readonly<Record<number, number>>, isDivided = true): void {
    const counts = Object.keys(seconds).map(Number);
    const folder = join(this.path, name);
    mkdirSync(folder, { recursive: true });
    const head = {
      v: 1,
      name,
      command: ["python", "train.py", "--gpus", "{n}"],
      counts,
      repeats: 1,
      launcher: "local",
    };
    writeFileSync(join(folder, "study.json"), JSON.stringify(head));
    for (const devices of counts) {
      const home = this.head(join(name, "runs", `n${devices}`), { id: `n${devices}`, devices, seconds: 10 });
      const lines = Array.from({ length: 6 }, (_, i) => {
        const jitter = 1 + 0.01 * ((i * 7) % 3);
        return JSON.stringify({
          v: 1,
          type: "epoch",
          rank: 0,
          epoch: i + 1,
          seconds: seconds[devices] * jitter,
          samples: isDivided ? 1000 / devices : 1000,
        });
      });
      const ranks = Array.from({ length: devices }, (_, rank) => {
        const facts = {
          worldSize: devices,
          datasetSamples: 1000,
          localSamples: isDivided ? 1000 / devices : 1000,
          samplerSharded: isDivided && devices > 1,
          framework: "torch",
        };
        return JSON.stringify({ v: 1, type: "facts", rank, facts });
      });
      writeFileSync(join(home, "records.jsonl"), `${[...ranks, ...lines].join("\n")}\n`);
    }
  }

  remove(): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** The loss of the steps that `run` writes; step 777777 stands out. */
const lossAt = (step: number): number => (step === 777777 ? 9.5 : Number((1 / (1 + step / 1000)).toFixed(5)));

const weft = fileURLToPath(new URL("../../../cli/bin/weft.js", import.meta.url));
const config = fileURLToPath(new URL("../../../../configs/synthetic.yaml", import.meta.url));

/** Starts a real training; it is interpreted, so that it needs no compiler. */
export function startTraining(runs: string, name: string, args: readonly string[]): ChildProcess {
  return spawn(process.execPath, [weft, "train", config, "--out", join(runs, name), ...args], {
    stdio: "ignore",
    env: { ...process.env, WEFT_THREADS: "1" },
  });
}
