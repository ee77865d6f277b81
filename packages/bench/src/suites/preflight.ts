// The drill of `weft preflight`: hosts that are namespaces of one machine, slowed down by processor quotas, by stopping a worker for
// a share of the time, by slow cables and by slow links between two hosts. Counts what was named, what was named wrongly, how long it
// took, and how far predicted steps over the slow link are from measured ones. Resumable: scenes in the result file are skipped.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Cluster, connect, Dispatcher, type PreflightFinding, preflight } from "@weft/cluster/internal";
import * as weft from "@weft/core";
import type { TensorValue } from "@weft/core/internal/runtime";
import { median, seededRandom } from "@weft/formats/stats";
import { Hosts, noHosts } from "@weft/testing/hosts";
import type { Context, Suite } from "./context.js";

const main = fileURLToPath(new URL("./main.js", import.meta.resolve("@weft/cluster")));

/** A fault: hosts count from 1; `level` is a share of a processor, or megabits per second. */
interface Fault {
  kind: "quota" | "stopped" | "cable" | "link";
  hosts: number[];
  level: number;
}

interface Scene {
  id: string;
  ranks: number;
  faults: Fault[];
}

/** One step over the slow link, predicted from what preflight measured. */
interface Step {
  bytes: number;
  predicted: number;
  measured: number;
}

export interface PreflightScene extends Scene {
  named: number;
  /** What was named and is not a fault. */
  wrong: string[];
  missed: string[];
  undecided: string[];
  seconds: number;
  steps: Step[];
}

export interface PreflightDrillRecord {
  scenes: PreflightScene[];
  skipped?: string;
}

const kinds = ["quota", "cable", "stopped", "link"] as const;
/** Ranks, scenes, and faults in each of them; and one scene without a fault per number of ranks. */
const plan = [
  { ranks: 4, scenes: 8, faults: 1 },
  { ranks: 8, scenes: 8, faults: 2 },
  { ranks: 16, scenes: 4, faults: 4 },
] as const;

function scenesOf(quick: boolean): Scene[] {
  const random = seededRandom(19);
  let next = 0;
  const all = plan.flatMap(({ ranks, scenes, faults }) =>
    Array.from({ length: scenes + 1 }, (_, i): Scene => {
      const free = Array.from({ length: ranks }, (_, host) => host + 1);
      const take = (): number => free.splice(Math.floor(random() * free.length), 1)[0];
      const list = Array.from({ length: i === scenes ? 0 : faults }, (): Fault => {
        const kind = kinds[next++ % kinds.length];
        const hosts = kind === "link" ? [take(), take()].sort((a, b) => a - b) : [take()];
        // A quarter to 60% of a processor; 30 to 150 megabits per second, where the others have more than 1,000.
        const isShare = kind === "quota" || kind === "stopped";
        const level = isShare ? 0.25 + 0.35 * random() : Math.round(30 + 120 * random());
        return { kind, hosts, level: Number(level.toFixed(2)) };
      });
      return { id: `${ranks}-${i === scenes ? "none" : i + 1}`, ranks, faults: list };
    }),
  );
  return quick ? [{ id: "quick", ranks: 3, faults: [{ kind: "cable", hosts: [2], level: 50 }] }] : all;
}

/** A cluster of hosts with one worker each. */
interface Stage {
  hosts: Hosts;
  cluster: Cluster;
  /** Process ids of the workers, by host from 1. */
  pids: number[];
  close(): Promise<void>;
}

async function stageOf(ranks: number, environment: Record<string, string>): Promise<Stage> {
  const hosts = new Hosts(ranks);
  const dispatcher = await Dispatcher.start({ host: hosts.address(0), port: 0, ...hosts.security });
  const remove = (): void => {
    dispatcher.stop();
    hosts.remove();
  };
  try {
    const pids: number[] = [];
    for (let host = 1; host <= ranks; host++) {
      // Every host has a control group, without a limit at first.
      hosts.limit(host, null);
      const place = { host: hosts.address(0), port: dispatcher.port, dataHost: hosts.address(host), cores: 1 };
      const line = [process.execPath, main, "worker", JSON.stringify({ ...place, ...hosts.security })];
      const child = hosts.start(host, line, environment);
      await once(child.stdout!, "data");
      pids.push(hosts.processOf(child));
    }
    const cluster = await connect(`${hosts.address(0)}:${dispatcher.port}`, hosts.security);
    const close = async (): Promise<void> => {
      await cluster.close();
      weft.setDevice("cpu");
      remove();
    };
    return { hosts, cluster, pids, close };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Stops a process for a share of the time, until the result is called. */
function dutyCycle(pid: number, share: number): () => void {
  const period = 100;
  let over = false;
  const cycle = (async () => {
    while (!over) {
      process.kill(pid, "SIGSTOP");
      await delay(period * (1 - share));
      process.kill(pid, "SIGCONT");
      await delay(period * share);
    }
  })();
  cycle.catch(() => {});
  return () => {
    over = true;
    process.kill(pid, "SIGCONT");
  };
}

/** Applies a fault; the result takes it away. Null where this machine cannot. */
function apply({ hosts, pids }: Stage, { kind, hosts: [host, other], level }: Fault): (() => void) | null {
  if (kind === "quota") return hosts.limit(host, level) ? () => void hosts.limit(host, null) : null;
  if (kind === "cable") return hosts.slow(host, level) ? () => void hosts.slow(host, null) : null;
  if (kind === "link") return hosts.cable(host, other, level) ? () => void hosts.cable(host, other, null) : null;
  return dutyCycle(pids[host - 1], level);
}

/** What preflight should say about a fault. */
function expected({ cluster }: Stage, { kind, hosts }: Fault): string {
  const ids = hosts.map((host) => cluster.workers[host - 1].id);
  const what = kind === "link" ? "link" : kind === "cable" ? "host" : "worker";
  return `${what} ${ids.sort().join()}`;
}

const findingText = ({ what, workers }: PreflightFinding): string => `${what} ${[...workers].sort().join()}`;

/** Steps in which rows become columns and columns rows, on all workers: predicted and measured. */
async function predictSteps({ cluster }: Stage): Promise<Step[]> {
  const steps: Step[] = [];
  const turn = weft.jit((x: weft.Tensor) => weft.shard(weft.shard(x, { 1: "d" }).mul(0.5), { 0: "d" }).add(1));
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    for (const side of [512, 1024]) {
      let x = weft.shard(weft.ones([side, side]), { 0: "d" }).add(0);
      const run = async (count: number): Promise<number> => {
        const begin = performance.now();
        for (let i = 0; i < count; i++) x = turn(x);
        await cluster.device.computed((x.node.value as TensorValue).buffer);
        return (performance.now() - begin) / 1e3 / count;
      };
      await run(2);
      const { lastPlan } = cluster.device;
      if (lastPlan!.moves.length === 0) throw new Error("the steps exchange nothing");
      const predicted = cluster.device.predict()!.seconds;
      // Several steps in a row, so that the first message and the last answer are a small part.
      const times = [await run(8), await run(8), await run(8)];
      steps.push({ bytes: 4 * side * side, predicted, measured: median(times) });
    }
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
  }
  return steps;
}

async function play(stage: Stage, scene: Scene): Promise<PreflightScene> {
  const undo: (() => void)[] = [];
  try {
    for (const fault of scene.faults) {
      const done = apply(stage, fault);
      if (done === null) throw new Error(`this machine cannot inject ${fault.kind}`);
      undo.push(done);
    }
    await delay(300);
    const report = await preflight(stage.cluster);
    const found = report.findings.map(findingText);
    const wanted = scene.faults.map((fault) => expected(stage, fault));
    const missed = wanted.filter((text) => !found.includes(text));
    const wrong = report.findings.filter((finding) => !wanted.includes(findingText(finding)));
    const isNetwork = scene.faults.length > 0 && scene.faults.every(({ kind }) => kind === "cable" || kind === "link");
    return {
      ...scene,
      named: wanted.length - missed.length,
      missed,
      wrong: wrong.map((finding) => `${findingText(finding)}: ${finding.evidence}`),
      undecided: report.undecided,
      seconds: report.seconds,
      steps: isNetwork ? await predictSteps(stage) : [],
    };
  } finally {
    for (const done of undo) done();
  }
}

function summary(scenes: readonly PreflightScene[]): string {
  const injected = scenes.reduce((n, { faults }) => n + faults.length, 0);
  const named = scenes.reduce((n, scene) => n + scene.named, 0);
  const wrong = scenes.flatMap((scene) => scene.wrong).length;
  const judged = scenes.reduce((n, { ranks }) => n + ranks + (ranks * (ranks - 1)) / 2, 0);
  const steps = scenes.flatMap((scene) => scene.steps);
  const off = steps.map(({ predicted, measured }) => Math.abs(predicted / measured - 1));
  const within = off.filter((x) => x <= 0.15).length;
  return `${named} of ${injected} named, ${wrong} wrong of ${judged} judged, at most ${Math.max(...scenes.map(({ seconds }) => seconds)).toFixed(0)} s; ${within} of ${steps.length} steps predicted within 15%${off.length > 0 ? ` (median ${(100 * median(off)).toFixed(0)}%)` : ""}`;
}

async function run(context: Context): Promise<void> {
  const { record, save } = context.open<PreflightDrillRecord>("preflight", { scenes: [] }, { merge: !context.quick });
  if (noHosts !== false) {
    record.skipped = noHosts;
    context.log(`skipped: ${noHosts}`);
    save();
    return;
  }
  const cache = mkdtempSync(join(tmpdir(), "weft-preflight-"));
  const { WEFT_CACHE_DIR, WEFT_RATES } = process.env;
  // Workers use the usual cache of kernels; rates are saved elsewhere.
  const workers = { WEFT_RATES: "assumed", ...(WEFT_CACHE_DIR !== undefined && { WEFT_CACHE_DIR }) };
  process.env.WEFT_RATES = "measured";
  let stage = null as (Stage & { ranks: number }) | null;
  try {
    for (const scene of context.choose(scenesOf(context.quick))) {
      if (record.scenes.some(({ id }) => id === scene.id)) continue;
      if (stage?.ranks !== scene.ranks) {
        await stage?.close();
        if (WEFT_CACHE_DIR === undefined) delete process.env.WEFT_CACHE_DIR;
        stage = { ...(await stageOf(scene.ranks, workers)), ranks: scene.ranks };
        process.env.WEFT_CACHE_DIR = cache;
      }
      const played = await play(stage, scene);
      record.scenes.push(played);
      const { named, wrong, seconds, missed } = played;
      context.log(
        `${scene.id}: ${named} of ${scene.faults.length} named in ${seconds.toFixed(0)} s${[...missed.map((text) => `; missed ${text}`), ...wrong.map((text) => `; wrong: ${text}`)].join("")}`,
      );
      save();
    }
    context.log(summary(record.scenes));
  } finally {
    await stage?.close();
    rmSync(cache, { recursive: true, force: true });
    for (const [name, value] of Object.entries({ WEFT_CACHE_DIR, WEFT_RATES }))
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
  }
}

const suite: Suite = { run };

export default suite;
