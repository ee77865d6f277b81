// `weft scale` on `weft train` at 1 and 2 workers with one core each. The small model is measured as configured (one loader
// per rank) and then with the lab's advice followed; the ledger shows whether the promised gain came. Repeats run in
// opposite orders, so that a machine that changes its speed is not taken for scaling. The medians of the recorded steps
// stand beside the lab's figure: the two must agree.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { median } from "@weft/formats/stats";
import type { Suite } from "./context.js";
import { jsonLines } from "./peers.js";
import {
  type ModelSize,
  recordedSteps,
  runEnvironment,
  temporaryFolder,
  textConfig,
  weftCommand,
} from "./weft-runs.js";

/** Steps before those that count. */
const warmSteps = 2;

/** Medians of the steps of one run over all ranks, in milliseconds. */
function summarizeRun(run: string): { ranks: number; stepMs: number } & Record<string, unknown> {
  const all = recordedSteps(run);
  const steady = all.flatMap((steps) => steps.slice(warmSteps).filter(({ compile }) => compile !== true));
  const ms = (key: "durationUs" | "computeUs" | "exposedCommUs" | "cpuUs" | "dataWaitUs"): number =>
    median(steady.map((step) => (step[key] ?? 0) / 1e3));
  return {
    ranks: all.length,
    epochs: new Set(all[0].map(({ epoch }) => epoch)).size,
    stepMs: ms("durationUs"),
    computeMs: ms("computeUs"),
    exposedCommMs: ms("exposedCommUs"),
    // Where a step takes longer than this and its communication, another process had the core.
    cpuMs: ms("cpuUs"),
    dataWaitMs: ms("dataWaitUs"),
    each: all[0].map(({ durationUs }) => Math.round(durationUs / 100) / 10),
  };
}

interface Finding {
  id: string;
  severity: string;
  devices: number;
  cause: string;
  fix: string;
  predicted: unknown;
}

interface StudyReport {
  valid: boolean;
  basis: string;
  scaling: { devices: number; workSpeedup: number; workEfficiency: number; class: string }[];
  findings: Finding[];
}

class ScaleStudy {
  readonly #folder = temporaryFolder("scale");
  readonly ledger = join(this.#folder, "ledger.jsonl");
  readonly #env = { ...runEnvironment(this.#folder), WEFT_DEVICE: "cpu", WEFT_LEDGER: this.ledger };

  weft(args: string[]): string {
    const done = spawnSync(process.execPath, [weftCommand, ...args], {
      cwd: this.#folder,
      env: this.#env,
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (done.status !== 0) throw new Error(`weft ${args.slice(0, 6).join(" ")} ended with ${done.status}`);
    return done.stdout;
  }

  run(size: ModelSize, loaders: number, steps: number, repeats: number) {
    const config = join(this.#folder, `${size}-${loaders}.yaml`);
    const content = textConfig(this.#folder, size, { small: 8192, larger: 2048, tiny: 64 }[size]) as { data: object };
    writeFileSync(config, JSON.stringify({ ...content, data: { ...content.data, loaders } }));
    const out = join(this.#folder, `studies-${loaders}`);
    mkdirSync(out, { recursive: true });
    const command = [process.execPath, weftCommand, "train", config, "--devices", "{n}", "--max-steps", String(steps)];
    const how = ["--devices", "1,2", "--repeats", String(repeats), "--warmup", "2", "--out", out, "--name", size];
    const scaled = this.weft(["scale", ...how, "--no-pictures", "--json", "--", ...command]);
    const { folder } = JSON.parse(scaled) as { folder: string };
    // Records what is promised, and scores what was promised before.
    const analyzed = this.weft(["analyze", folder, "--json", "--warmup", "2", "--ledger", this.ledger]);
    const [report] = (JSON.parse(analyzed) as { studies: StudyReport[] }).studies;
    const at = report.scaling.find(({ devices }) => devices === 2);
    const runs = join(folder, "runs");
    const measured = readdirSync(runs)
      .sort()
      .map((run) => ({ run, ...summarizeRun(join(runs, run)) }));
    const stepMs = (ranks: number): number => median(measured.filter((m) => m.ranks === ranks).map((m) => m.stepMs));
    return {
      model: size,
      loaders,
      steps,
      repeats,
      command: `weft scale --devices 1,2 --repeats ${repeats} -- weft train CONFIG --devices {n} --max-steps ${steps}`,
      valid: report.valid,
      verdict: report.valid ? "valid" : "not valid",
      speedup: at?.workSpeedup ?? null,
      efficiency: at?.workEfficiency ?? null,
      class: at?.class ?? null,
      basis: report.basis,
      /** The batch per rank is the same at both counts, so that equal steps are perfect scaling. */
      efficiencyOfMedians: stepMs(1) / stepMs(2),
      measured,
      findings: report.findings.map(({ id, severity, devices, cause, fix, predicted }) => ({
        ...{ id, severity, devices, cause, fix, predicted },
      })),
    } as const;
  }
}

const suite: Suite = {
  options: {
    steps: { value: "60", help: "steps of the small model" },
    "larger-steps": { value: "12", help: "steps of the larger model" },
    repeats: { value: "2", help: "repeats of each run" },
  },
  run(context) {
    const study = new ScaleStudy();
    const { quick } = context;
    const [steps, repeats] = quick ? [6, 1] : [context.number("steps"), context.number("repeats")];
    type Run = ReturnType<ScaleStudy["run"]> & { followed?: string };
    const content = { runs: [] as Run[], ledger: [] as { study: string }[] };
    const { record, save } = context.open("train-scale", content, { merge: true });
    const add = (run: Run): Run => {
      const isSame = (r: Run): boolean => r.model === run.model && r.loaders === run.loaders;
      record.runs = [...record.runs.filter((r) => !isSame(r)), run];
      const lines = existsSync(study.ledger) ? jsonLines<{ study: string }>(readFileSync(study.ledger, "utf8")) : [];
      record.ledger = [...record.ledger.filter(({ study: name }) => name !== run.model), ...lines];
      save();
      context.log(`${run.model}, ${run.loaders} loaders: ${run.verdict}, efficiency ${run.efficiency?.toFixed(3)}`);
      return run;
    };
    const isOversubscribed = ({ findings }: Run): boolean => findings.some(({ id }) => id === "cpu-oversubscription");
    const measureSmall = (): void => {
      const size = quick ? "tiny" : "small";
      if (!isOversubscribed(add(study.run(size, quick ? 0 : 1, steps, repeats)))) return;
      const second = study.run(size, 0, steps, repeats);
      const state = isOversubscribed(second) ? "still there" : "gone";
      const followed = `with the advice "lower the loaders to 0" followed; the finding is ${state}`;
      add({ ...second, followed });
    };
    const larger = (): void => {
      add(study.run("larger", 0, context.number("larger-steps"), repeats));
    };
    const rows = [{ id: "small", measure: measureSmall }, ...(quick ? [] : [{ id: "larger", measure: larger }])];
    for (const { measure } of context.choose(rows)) measure();
  },
};

export default suite;
