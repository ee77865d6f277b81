// The GPU suite: Weft in this process, in turns with a PyTorch that stays alive; peers whose rows take too long for turns
// run as whole scripts afterwards. Needs a GPU, Node, koffi and @weft/core; the peers need PyTorch and JAX.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import * as weft from "@weft/core";
import { runContest, type Seat } from "./contest.js";
import { LocalContestant } from "./contestant.js";
import type { Context, Suite } from "./context.js";
import { type GpuRow, gpuTable } from "./gpu-rows.js";
import { jsonLines, peerScript, pythonLines, startPeers } from "./peers.js";
import type { RowResult } from "./record.js";
import { printTable } from "./report/table.js";

const seats: Record<string, Seat> = {
  weft: { process: "weft", title: "Weft" },
  torch: { process: "torch", title: "torch" },
  "torch.compile": { process: "torch", title: "torch.compile" },
  "torch pinned": { process: "torch", title: "torch pinned" },
};

/** A time that a script printed; `measured` says when, if that was an earlier run. */
interface PeerLine {
  peer: string;
  work: string;
  ms?: number;
  measured?: string;
}

/** Times of the peers that do not take turns: from a file of lines, or by running their scripts. */
function scriptLines(context: Context, rows: readonly GpuRow[], absent: Record<string, string>): PeerLine[] {
  const file = context.text("peer-lines");
  if (file !== undefined) return jsonLines<PeerLine>(readFileSync(file, "utf8"));
  const ensembles = rows.flatMap(({ work }) => /^lindblad d2 .* B=(\d+)$/.exec(work)?.[1] ?? []);
  const isTraining = rows.some(({ id }) => id.startsWith("train-"));
  const scripts: [name: string, line: string[], seconds: number][] = [
    ...(isTraining
      ? (["jax", "torch"] as const).map((peer): [string, string[], number] => [
          `training (${peer})`,
          [peerScript("train_peers.py"), peer],
          150,
        ])
      : []),
    ...(ensembles.length > 0
      ? [["ensembles (jax)", [peerScript("jax_ensemble.py"), ...ensembles], 180] as [string, string[], number]]
      : []),
  ];
  return scripts.flatMap(([name, line, seconds]) => {
    const { lines, problem } = pythonLines<PeerLine>(context.text("python")!, line, seconds);
    if (problem !== null) absent[name] = problem;
    return lines;
  });
}

/** Adds the times of scripts to a row; a peer that took turns keeps its own time. */
function addLines(row: RowResult, work: string, lines: readonly PeerLine[]): void {
  const own = row.times.weft;
  for (const { peer, ms, measured } of lines.filter((line) => line.work === work)) {
    if (own === undefined || ms === undefined || row.times[peer] !== undefined) continue;
    row.times[peer] = { ms, ...(measured !== undefined && { measured }) };
    row.ratios[peer] = { name: peer, ratio: ms / own.ms, wanted: null, met: null };
  }
}

function driverVersion(): string {
  const query = ["--query-gpu=driver_version", "--format=csv,noheader"];
  return spawnSync("nvidia-smi", query, { encoding: "utf8" }).stdout?.trim() || "none";
}

const suite: Suite = {
  defaults: { device: "cuda", rounds: "5", seconds: "0.3" },
  options: { "peer-lines": { help: "file with the lines that the scripts of peers printed before" } },
  async run(context) {
    const device = weft.setDevice(context.device);
    const table = gpuTable(context.quick);
    const { start, absent } = startPeers(context, { torch: ["torch_gpu.py", "--device", context.device] });
    const makers = Object.fromEntries(
      table.map(({ id, make }) => {
        const release = (): void => {
          weft.collectGarbage();
          device.trim();
        };
        return [id, async () => ({ ...(await make()), release })];
      }),
    );
    const about = { device: device.name, driver: driverVersion() };
    const own = new LocalContestant(makers, about, context.quick ? 0 : 0.2);
    const { record, save, contest } = await runContest(context, "gpu", table, {
      seats,
      start: { weft: () => own, ...start },
      absent,
    });
    contest.stop();
    record.hardware.gpu = device.name;
    if (context.peers) {
      const lines = scriptLines(context, context.choose(table), record.absent);
      for (const row of record.rows) addLines(row, table.find(({ id }) => id === row.id)!.work, lines);
    }
    save();
    printTable(record);
    if (record.rows.some(({ wrong }) => wrong !== null)) process.exitCode = 1;
  },
};

export default suite;
