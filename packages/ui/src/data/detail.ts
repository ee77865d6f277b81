// The page of one run: its settings, epochs, parts, log and utilization.
import { readdirSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { plainText } from "@weft/formats/text";
import type { RunDetail, RunRow } from "../wire/index.js";
import { readEnd, readSmall } from "./files.js";
import { holderOf } from "./holder.js";
import type { RunRecords } from "./records.js";
import { type RunPlace, readHead } from "./row.js";

const mostSettings = 200;
const logBytes = 64 << 10;

/** A tree of settings as dotted keys. */
function flatten(value: unknown, path: string, into: Record<string, string>, depth = 0): void {
  if (Object.keys(into).length >= mostSettings) return;
  if (typeof value === "object" && value !== null && !Array.isArray(value) && depth < 6) {
    for (const [key, inner] of Object.entries(value))
      flatten(inner, path === "" ? key : `${path}.${key}`, into, depth + 1);
    return;
  }
  if (value === undefined || path === "") return;
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  into[plainText(path.slice(0, 200))] = plainText(text.slice(0, 500));
}

/** The settings of a run: config.yaml of the trainer, or the workload of run.json. */
export async function readSettings(place: RunPlace): Promise<Record<string, string>> {
  const settings: Record<string, string> = {};
  const text = readSmall(place.root, join(place.folder, "config.yaml"), 256 << 10);
  if (text !== null) {
    const { parseYaml } = await import("@weft/formats/yaml");
    try {
      flatten(parseYaml(text), "", settings);
    } catch {
      // Not YAML; the workload says at least something.
    }
  }
  const head = readHead(place);
  if (Object.keys(settings).length === 0) flatten(head?.workload ?? {}, "", settings);
  settings.devices = String(head?.devices ?? 1);
  return settings;
}

function outputsOf({ root, folder }: RunPlace): RunDetail["outputs"] {
  return ["stdout.log", "stderr.log"].flatMap((name) => {
    const text = readEnd(root, join(folder, name), logBytes);
    return text === null || text === "" ? [] : [{ name, text: plainText(text) }];
  });
}

function tapesOf({ folder }: RunPlace): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /^tape[\w.-]*\.jsonl$/.test(name))
      .sort()
      .slice(0, 64);
  } catch {
    return [];
  }
}

/** Whether the run can be stopped from here: only a process that provably trains in this folder is signaled. */
function stopOf(place: RunPlace, row: RunRow): RunDetail["stop"] {
  if (row.state !== "running") return { possible: false, reason: "the run has ended" };
  if (row.host !== undefined && row.host !== hostname())
    return { possible: false, reason: `the run is on ${row.host}; stop it there` };
  if (holderOf(place.folder) === null)
    return {
      possible: false,
      reason: "no process of yours holds the lock of this folder; stop the command that started the run",
    };
  const command = row.gate === true ? "weft quantum optimize --resume" : "weft train --resume";
  return { possible: true, reason: `writes a checkpoint and ends the run; ${command} continues it` };
}

/** Sends SIGTERM to the process that trains in a folder; returns what was done, or throws the reason why not. */
export function stopRun(place: RunPlace, row: RunRow): string {
  const { possible, reason } = stopOf(place, row);
  const pid = possible ? holderOf(place.folder) : null;
  if (pid === null) throw new Error(reason);
  process.kill(pid, "SIGTERM");
  return `process ${pid} was asked to stop; it writes a checkpoint first`;
}

/** Everything about one run but its curves. */
export async function readDetail(place: RunPlace, row: RunRow, records: RunRecords): Promise<RunDetail> {
  const head = readHead(place);
  return {
    row,
    command: head?.command.slice(0, 100).map((word) => plainText(word.slice(0, 500))) ?? [],
    settings: await readSettings(place),
    epochs: [...records.epochs].slice(-2000),
    ...(head?.test !== undefined && { test: { loss: head.test.loss, accuracy: head.test.accuracy } }),
    ranks: records.parts(),
    log: records.log.slice(-300),
    outputs: outputsOf(place),
    utilization: records.utilization(),
    tapes: tapesOf(place),
    stop: stopOf(place, row),
  };
}
