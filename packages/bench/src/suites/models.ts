// The suite of models: training steps and generation of whole models against PyTorch on one GPU. Both sides prepare all rows at the
// same time, PyTorch in one process per row (compiling takes most of it); then they are timed in turns, one at a time on the device.
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import * as weft from "@weft/core";
import { median } from "@weft/formats/stats";
import type { Suite } from "./context.js";
import { type ModelRow, type PreparedModelRow, peerRow, prepareRow, rowsFor, smallRow } from "./models-rows.js";
import { type ContestRecord, peerFolder, type RowResult } from "./record.js";

/** PyTorch with some rows in a process of its own. */
class Peer {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly ready = new Map<string, Record<string, unknown>>();
  readonly failed = new Map<string, string>();
  readonly prepared: Promise<void>;
  #answer: ((ms: number) => void) | null = null;
  #errors = "";

  constructor(python: string, device: string, rows: readonly { id: string }[]) {
    const ids = rows.map(({ id }) => id);
    this.#child = spawn(python, ["-W", "ignore", join(peerFolder, "torch_models.py"), device]);
    this.#child.stderr.on("data", (chunk) => (this.#errors = (this.#errors + String(chunk)).slice(-2000)));
    this.#child.stdin.on("error", () => {});
    this.prepared = new Promise((resolve) => {
      createInterface({ input: this.#child.stdout }).on("line", (line) => {
        const event = JSON.parse(line) as Record<string, unknown>;
        if (event["prepared"] === true) resolve();
        else if (typeof event["ready"] === "string") this.ready.set(event["ready"], event);
        else if (typeof event["failed"] === "string") this.failed.set(event["failed"], String(event["why"]));
        else this.#answer?.(event["ms"] as number);
      });
      this.#child.on("exit", () => {
        for (const id of ids)
          if (!this.ready.has(id) && !this.failed.has(id)) this.failed.set(id, this.#errors || "the peer ended");
        this.#answer?.(Number.NaN);
        resolve();
      });
    });
    this.#child.stdin.write(`${JSON.stringify(rows)}\n`);
  }

  time(id: string): Promise<number> {
    return new Promise((resolve) => {
      this.#answer = resolve;
      this.#child.stdin.write(`time ${id.replaceAll(" ", "_")}\n`);
    });
  }

  stop(): void {
    this.#child.kill();
  }
}

const timed = (samples: number[], info: Record<string, unknown>): RowResult["times"][string] => ({
  ms: median(samples),
  rounds: [{ samples, foreign: 0 }],
  info,
});

const suite: Suite = {
  defaults: { device: "cuda", rounds: "3", seconds: "0.5" },
  options: {
    wait: {
      value: "240",
      help: "seconds from the start that the peer may take to compile; rows that are not ready have no peer",
    },
    compile: { value: "yes", help: "no: the peer runs training steps eagerly, and decodes by a CUDA graph alone" },
  },
  async run(context) {
    const device = weft.setDevice(context.device);
    const table = context.choose(rowsFor(context.device)).map((row) => (context.quick ? smallRow(row) : row));
    const { record, save } = context.open<{ rows: RowResult[] }>(
      context.device.startsWith("cpu") ? "models-cpu" : "models",
      { rows: [] },
    );
    (record.hardware as ContestRecord["hardware"]).gpu = device.name;
    const compiles = context.text("compile") !== "no";
    const start = (row: ModelRow): Peer => {
      const rows =
        row.kind === "decode"
          ? [...(compiles ? [peerRow(row, true)] : []), peerRow(row, false)]
          : [peerRow(row, compiles && row.kind === "train")];
      const named = rows.map((each) => ({ ...each, id: String(each["id"]).replaceAll(" ", "_") }));
      return new Peer(context.text("python") ?? "python3", context.device, named);
    };
    const peers = new Map(context.peers ? table.map((row) => [row.id, start(row)]) : []);
    const began = performance.now();
    const own = new Map<string, PreparedModelRow | string>();
    for (const row of table) {
      const start = performance.now();
      try {
        const made = await prepareRow(row);
        made.info["first"] = await made.measure(context.quick ? 0 : 0.1);
        made.info["prepareSeconds"] = (performance.now() - start) / 1e3;
        own.set(row.id, made);
      } catch (error) {
        own.set(row.id, (error as Error).message);
      }
      console.log(`${row.id}: ${JSON.stringify(own.get(row.id))}`);
    }
    if (peers.size > 0) {
      const left = context.number("wait") * 1e3 - (performance.now() - began);
      const waiting = new AbortController();
      const limit = setTimeout(Math.max(0, left), undefined, { signal: waiting.signal }).catch(() => {});
      await Promise.race([Promise.all([...peers.values()].map(({ prepared }) => prepared)), limit]);
      waiting.abort();
      for (const { failed } of peers.values()) for (const [id, why] of failed) console.log(`peer ${id}: ${why}`);
    }
    for (const row of table) {
      const mine = own.get(row.id) as PreparedModelRow | string;
      const result: RowResult = { id: row.id, title: row.title, wrong: null, problems: {}, times: {}, ratios: {} };
      record.rows.push(result);
      if (typeof mine === "string") result.problems["weft"] = mine;
      else result.wrong = mine.wrong;
      const plain = row.kind === "decode" || !compiles ? [`${row.id}_graph`] : [];
      const seats = row.kind === "generate" ? [row.id] : [...(compiles ? [row.id] : []), ...plain];
      const peer = peers.get(row.id);
      const usable = seats.filter((id) => peer?.ready.has(id));
      const samples = new Map<string, number[]>(["weft", ...usable].map((id) => [id, []]));
      for (let round = 0; round < context.number("rounds"); round++) {
        if (typeof mine !== "string") samples.get("weft")?.push(await mine.measure(context.number("seconds")));
        for (const id of usable) samples.get(id)?.push(await (peer as Peer).time(id));
      }
      const wefts = samples.get("weft") as number[];
      if (typeof mine !== "string") result.times["weft"] = timed(wefts, mine.info);
      for (const id of usable) {
        const isPlain = id.endsWith("_graph");
        const names = { train: ["torch.compile", "torch"], decode: ["torch.compile", "torch CUDA graph"] };
        const name = row.kind === "generate" ? "transformers" : names[row.kind][isPlain ? 1 : 0];
        const theirs = samples.get(id) as number[];
        result.times[name] = timed(theirs, peer?.ready.get(id) ?? {});
        const ratio = median(theirs) / median(wefts);
        const wanted = !isPlain || row.device === "cpu" ? row.wanted : null;
        result.ratios[name] = { name, ratio, wanted, met: wanted === null ? null : ratio >= wanted };
      }
      for (const id of seats)
        if (!usable.includes(id) && peer !== undefined)
          result.problems[id] = peer.failed.get(id) ?? "not ready in time";
      if (typeof mine !== "string") mine.release();
      peer?.stop();
      save();
      console.log(
        `${row.title}: ${JSON.stringify({ ms: Object.fromEntries(Object.entries(result.times).map(([n, t]) => [n, t.ms])), ...result.problems })}`,
      );
    }
    if (record.rows.some(({ wrong, times }) => wrong !== null || times["weft"] === undefined)) process.exitCode = 1;
  },
};

export default suite;
