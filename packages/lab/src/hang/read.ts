// Reads whatever a stuck job left behind: files and folders, recognized by content. Damaged files are used as far as they go.
import { closeSync, fstatSync, openSync, readdirSync, readFileSync, readSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join } from "node:path";
import { Worker } from "node:worker_threads";
import {
  type HangEvidence,
  isRankNumber,
  type MadeGroup,
  newEvidence,
  type PointToPoint,
  type Raised,
  type RootedCall,
  rankEvidence,
  type Site,
} from "./evidence.js";
import { CallTable, type FlightRecorderDump, readFlightRecorder } from "./flight-recorder.js";
import { readLog } from "./logs.js";
import { PickleError, readPickle } from "./pickle.js";
import { isRasJson, looksLikeRas, readRas, readRasJson } from "./ras.js";
import { looksLikeFaulthandler, looksLikePySpy, readFaulthandler, readPySpy } from "./stacks.js";

const largestDump = 256 * 2 ** 20;
/** Of a longer log the beginning and the end are read, half each. */
const longestLog = 64 * 2 ** 20;
const mostFiles = 100_000;
/** From this number of files on, worker threads are worth their start. */
const manyFiles = 128;
/** Files of the probe and of torchrun that say nothing about a hang. */
const ignored =
  /(?:\.part|\.tmp|\.lock|\.jsonl|\.yaml|\.py|\.pt|\.csv|\.png|\.gz|\.safetensors)$|^(?:request|probe\.loaded|store)$/;

type Fields = Record<string, unknown>;

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The rank in a file name: nccl_trace_rank_3, rank3.json, job-12-3.out: "rank" first, else the last number. */
function rankInName(path: string): number | null {
  const name = basename(path);
  const match = /rank[_.-]?(\d{1,7})/i.exec(name) ?? /(\d{1,7})(?:\.[A-Za-z]+)*$/.exec(name);
  return match !== null && isRankNumber(Number(match[1])) ? Number(match[1]) : null;
}

class Reader {
  readonly evidence = newEvidence();
  private readonly table = new CallTable(this.evidence);
  /** Dumps whose rank is named nowhere. */
  private readonly nameless: { file: string; dump: FlightRecorderDump }[] = [];
  private readonly siblings: { rank: number; state: string; exit: unknown; seenBy: number }[] = [];
  private readonly ranksOfPids = new Map<number, number>();
  private readonly laterStacks: { file: string; text: string }[] = [];

  async read(paths: readonly string[]): Promise<HangEvidence> {
    let files = paths.flatMap((path) => this.filesOf(path, 0));
    if (files.length > mostFiles) this.problem(`${files.length} files; only the first ${mostFiles} are read`);
    files = files.slice(0, mostFiles);
    if (files.length > manyFiles) files = await this.readInWorkers(files);
    this.readFiles(files);
    for (const { file, text } of this.laterStacks) this.stacksOf(file, text);
    this.placeNameless();
    this.applySiblings();
    return this.evidence;
  }

  /** Pickles whose name says their rank need nothing of other files: worker threads read them. Returns the others. */
  private async readInWorkers(files: readonly string[]): Promise<string[]> {
    const [pickles, others] = split(files, (file) => rankInName(file) !== null && firstByte(file) === 0x80);
    const count = Math.max(1, Math.min(8, availableParallelism()));
    const shares = Array.from({ length: count }, (_, i) => pickles.filter((_, k) => k % count === i));
    const results = await Promise.all(shares.filter((share) => share.length > 0).map(readShare));
    for (const evidence of results) this.table.merge(evidence);
    return others;
  }

  readFiles(files: readonly string[]): void {
    for (const file of files) {
      try {
        this.readFile(file);
      } catch (error) {
        if (!(error instanceof PickleError || error instanceof RangeError || isSystemError(error))) throw error;
        this.problem(`${file}: ${error.message}`);
      }
    }
  }

  private problem(message: string): void {
    if (this.evidence.problems.length < 64) this.evidence.problems.push(message);
  }

  private filesOf(path: string, depth: number): string[] {
    if (!statSync(path).isDirectory()) return [path];
    const entries = readdirSync(path, { withFileTypes: true }).sort((a, b) => naturalOrder(a.name, b.name));
    return entries.flatMap((entry) => {
      const inner = join(path, entry.name);
      if (entry.isDirectory()) return depth < 2 ? this.filesOf(inner, depth + 1) : [];
      return entry.isFile() && !ignored.test(entry.name) ? [inner] : [];
    });
  }

  private readFile(file: string): void {
    const bytes = readBounded(file, (message) => this.problem(`${file}: ${message}`));
    const text = bytes[0] === 0x80 ? "" : bytes.toString("utf8").replace(/^\uFEFF/, "");
    if (bytes.length === 0) {
      if (!/\.(?:log|out|err|txt)$/.test(file)) this.problem(`${file}: it is empty`);
    } else if (bytes[0] === 0x80) this.pickle(file, bytes);
    else if (bytes[0] === 0x1f && bytes[1] === 0x8b) this.problem(`${file}: compressed with gzip; unpack it first`);
    else if (/^\([dl](?:p\d+)?\n/.test(text.slice(0, 32)))
      this.problem(`${file}: a pickle of protocol 0; write it with protocol 2 or later`);
    else if (/^\s*[[{]/.test(text.slice(0, 256)) && !/^\s*\[(?:rank|default)?\d/.test(text.slice(0, 256)))
      this.json(file, text);
    else if (/\.(?:pkl|pickle)$/.test(file)) this.pickle(file, bytes);
    else if (looksLikeRas(text)) readRas(text, file, this.evidence);
    else if (looksLikePySpy(text) || looksLikeFaulthandler(text)) this.laterStacks.push({ file, text });
    else if (text.includes("\0")) this.problem(`${file}: neither a dump nor text`);
    else readLog(text, file, rankInName(file), this.evidence);
  }

  private pickle(file: string, bytes: Buffer): void {
    const { value, truncated, loose } = readPickle(bytes);
    if (truncated) this.problem(`${file}: cut off after ${bytes.length} bytes; the entries before that are used`);
    this.flightRecorder(file, truncated ? loose : value, rankInName(file));
  }

  private json(file: string, text: string): void {
    let value: unknown;
    try {
      value = parseJson(text);
    } catch {
      const loose = looseObjects(text);
      this.problem(`${file}: not complete JSON; ${loose.length} whole entries are used`);
      this.flightRecorder(file, loose, rankInName(file));
      return;
    }
    if (isObject(value) && value["format"] === "weft.hang.rank") this.card(value);
    else if (isObject(value) && value["format"] === "weft.hang") this.probeDump(file, value);
    else if (Array.isArray(value) && isObject(value[0]) && Array.isArray(value[0]["frames"]) && "thread_id" in value[0])
      this.pySpyJson(file, value);
    else if (isRasJson(value)) readRasJson(value, file, this.evidence);
    else this.flightRecorder(file, value, rankInName(file));
  }

  private flightRecorder(file: string, value: unknown, rank: number | null): void {
    const dump = readFlightRecorder(value, this.table);
    const known = dump?.rank ?? rank;
    if (dump === null) this.problem(`${file}: no entries of a flight recorder, no dump of the probe`);
    else if (known === null) this.nameless.push({ file, dump });
    else this.place(file, dump, known);
  }

  private place(file: string, dump: FlightRecorderDump, rank: number): void {
    const own = rankEvidence(this.evidence, rank);
    if (own.calls !== undefined && own.calls.count > 0 && dump.calls.count > 0)
      this.problem(`${file}: another file has entries of rank ${rank} too; the longer record is used`);
    own.files.push(file);
    own.status.push(...dump.status);
    if (own.calls === undefined || dump.calls.count > own.calls.count) own.calls = dump.calls;
  }

  /** Renamed dumps get the ranks that no other file has, in the order of their names. */
  private placeNameless(): void {
    let rank = 0;
    for (const { file, dump } of this.nameless) {
      while (this.evidence.ranks.get(rank)?.calls !== undefined) rank++;
      this.problem(`${file}: neither its name nor its content says a rank; taken for rank ${rank}`);
      this.place(file, dump, rank);
    }
  }

  private card(card: Fields): void {
    const { rank, pid, worldSize, exit } = card;
    if (!isRankNumber(rank)) return;
    const own = rankEvidence(this.evidence, rank);
    if (typeof pid === "number") {
      own.pid = pid;
      this.ranksOfPids.set(pid, rank);
    }
    if (typeof card["host"] === "string") own.host = card["host"].slice(0, 256);
    this.world(worldSize);
    if (isRankNumber(worldSize)) own.world = worldSize;
    if (exit === "ok") {
      own.process = {
        state: "exited",
        detail: `its program ended by itself after ${Number(card["steps"] ?? 0)} steps`,
      };
      own.files.push("(exit record of the probe)");
    }
  }

  private world(value: unknown): void {
    if (isRankNumber(value)) this.evidence.worldSize = Math.max(this.evidence.worldSize ?? 0, value);
  }

  private probeDump(file: string, dump: Fields): void {
    const rank = isRankNumber(dump["rank"]) ? dump["rank"] : rankInName(file);
    if (rank === null) {
      this.problem(`${file}: a dump of the probe without a rank`);
      return;
    }
    this.world(dump["worldSize"]);
    if (isRankNumber(dump["worldSize"])) rankEvidence(this.evidence, rank).world = dump["worldSize"];
    if (isObject(dump["flightRecorder"])) {
      const recorded = readFlightRecorder(dump["flightRecorder"], this.table);
      if (recorded !== null) this.place(file, recorded, rank);
    }
    const own = rankEvidence(this.evidence, rank);
    if (!own.files.includes(file)) own.files.push(file);
    if (typeof dump["pid"] === "number") own.pid = dump["pid"];
    if (typeof dump["host"] === "string") own.host = dump["host"].slice(0, 256);
    if (typeof dump["steps"] === "number") own.steps = dump["steps"];
    if (typeof dump["stalledSeconds"] === "number") own.stalledSeconds = dump["stalledSeconds"];
    if (typeof dump["stepsPerEpoch"] === "number") own.stepsPerEpoch = dump["stepsPerEpoch"];
    for (const stack of objects(dump["stacks"]).slice(0, 256))
      own.stacks.push({
        thread: String(stack["thread"]).slice(0, 100),
        main: stack["main"] === true,
        frames: sites(stack["frames"]),
      });
    if (isObject(dump["raised"])) own.raised = raisedOf(dump["raised"]);
    own.pointToPoint = objects(dump["pointToPoint"]).slice(0, 4096).map(pointToPointOf);
    own.rooted = objects(dump["rooted"]).slice(0, 4096).map(rootedOf);
    own.made = objects(dump["made"]).slice(0, 256).map(madeOf);
    if (isObject(dump["handling"])) own.handling = raisedOf(dump["handling"]);
    for (const [name, group] of Object.entries(isObject(dump["groups"]) ? dump["groups"] : {})) {
      if (!isObject(group) || !Array.isArray(group["ranks"])) continue;
      const ranks = group["ranks"].filter(isRankNumber);
      for (const info of this.evidence.groups) if (info.name === name && ranks.length > 0) info.ranks ??= ranks;
    }
    for (const sibling of objects(dump["siblings"]).slice(0, 65536))
      if (isRankNumber(sibling["rank"]))
        this.siblings.push({
          rank: sibling["rank"],
          state: String(sibling["state"]),
          exit: sibling["exit"],
          seenBy: rank,
        });
  }

  /** The states that ranks saw of the processes beside them. */
  private applySiblings(): void {
    for (const { rank, state, exit, seenBy } of this.siblings) {
      const own = rankEvidence(this.evidence, rank);
      if ((own.process !== undefined && own.process.state !== "running") || own.raised !== undefined) continue;
      if (/^[Tt]$/.test(state))
        own.process = { state: "stopped", detail: `its process is stopped (state ${state}), seen by rank ${seenBy}` };
      else if (/^(?:gone|Z|X)$/.test(state) && (exit === null || exit === undefined))
        own.process = {
          state: "dead",
          detail: `its process is gone without having ended its program, seen by rank ${seenBy}`,
        };
      else if (/^[RSD]$/.test(state))
        own.process = { state: "running", detail: `its process runs (state ${state}), seen by rank ${seenBy}` };
      if (own.process !== undefined && own.files.length === 0) own.files.push(`(seen by rank ${seenBy})`);
    }
  }

  private pySpyJson(file: string, threads: unknown[]): void {
    const stacks = objects(threads).map((thread, i) => ({
      thread: String(thread["thread_name"] ?? thread["thread_id"]).slice(0, 100),
      main: thread["thread_name"] === "MainThread" || i === 0,
      frames: sites(thread["frames"]),
    }));
    const pid = objects(threads)[0]?.["pid"];
    const rank = (typeof pid === "number" ? this.ranksOfPids.get(pid) : undefined) ?? rankInName(file);
    if (rank === null) {
      this.problem(`${file}: stacks of an unknown rank (put "rank3" into the file name)`);
      return;
    }
    const own = rankEvidence(this.evidence, rank);
    own.files.push(file);
    if (own.stacks.length === 0) own.stacks = stacks;
  }

  private stacksOf(file: string, text: string): void {
    const processes = looksLikePySpy(text) ? readPySpy(text) : [{ pid: null, stacks: readFaulthandler(text) }];
    for (const { pid, stacks } of processes) {
      const rank =
        (pid === null ? undefined : this.ranksOfPids.get(pid)) ?? (processes.length === 1 ? rankInName(file) : null);
      if (rank === null) {
        this.problem(
          `${file}: stacks of ${pid === null ? "an unknown process" : `process ${pid}`} without a rank (put "rank3" into the file name)`,
        );
        continue;
      }
      const own = rankEvidence(this.evidence, rank);
      own.files.push(file);
      if (own.stacks.length === 0) own.stacks = stacks;
    }
  }
}

/** JSON as Python writes it: NaN and infinities are words. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return JSON.parse(text.replace(/([:[,]\s*)-?(?:NaN|Infinity)(?=\s*[,}\]])/g, "$1null"));
  }
}

const isSystemError = (error: unknown): error is NodeJS.ErrnoException => error instanceof Error && "code" in error;

const naturalOrder = (a: string, b: string): number => a.localeCompare(b, "en", { numeric: true });

const objects = (value: unknown): Fields[] => (Array.isArray(value) ? value.filter(isObject) : []);

function sites(value: unknown): Site[] {
  return objects(value)
    .slice(0, 256)
    .map((frame) => siteOf(frame));
}

function siteOf(frame: Fields): Site {
  const file = frame["file"] ?? frame["filename"];
  return {
    file: String(file ?? "").slice(0, 4096),
    line: Number(frame["line"]) || 0,
    name: String(frame["name"] ?? "").slice(0, 256),
  };
}

function raisedOf(raised: Fields): Raised {
  return {
    type: String(raised["type"]).slice(0, 256),
    message: String(raised["message"]).slice(0, 4096),
    frames: sites(raised["frames"]),
  };
}

function pointToPointOf(call: Fields): PointToPoint {
  const { op, peer, tag, done, index, site } = call;
  return {
    op: String(op).slice(0, 64),
    peer: isRankNumber(peer) ? peer : null,
    tag: typeof tag === "number" ? tag : null,
    done: done === true ? true : done === false ? false : null,
    index: typeof index === "number" && Number.isSafeInteger(index) ? index : null,
    site: isObject(site) ? siteOf(site) : null,
  };
}

function madeOf({ ranks, done, site }: Fields): MadeGroup {
  return {
    ranks: Array.isArray(ranks) ? ranks.filter(isRankNumber).slice(0, 4096) : [],
    done: done === true,
    site: isObject(site) ? siteOf(site) : null,
  };
}

function rootedOf({ op, root, done, site }: Fields): RootedCall {
  return {
    op: String(op).slice(0, 64),
    root: isRankNumber(root) ? root : null,
    done: done === true,
    site: isObject(site) ? siteOf(site) : null,
  };
}

/** The beginning and the end of a file that is longer than a log may be; dumps over their limit are not read at all. */
function readBounded(file: string, problem: (message: string) => void): Buffer {
  if (!statSync(file).isFile()) throw new RangeError("not a regular file; write what it delivers into a file first");
  const descriptor = openSync(file, "r");
  try {
    const { size } = fstatSync(descriptor);
    if (size <= longestLog) return readFileSync(descriptor);
    const start = Buffer.alloc(longestLog / 2);
    readSync(descriptor, start, 0, start.length, 0);
    if (start[0] === 0x80 || start[0] === 0x7b || start[0] === 0x5b) {
      if (size > largestDump) throw new RangeError(`${size} bytes; a dump has at most ${largestDump}`);
      return readFileSync(file);
    }
    problem(`of ${size} bytes the first and the last ${start.length} are read`);
    const end = Buffer.alloc(longestLog / 2);
    readSync(descriptor, end, 0, end.length, size - end.length);
    return Buffer.concat([start, Buffer.from("\n"), end]);
  } finally {
    closeSync(descriptor);
  }
}

/** Whole objects with a "profiling_name" in JSON that is cut off or damaged. */
function looseObjects(text: string): unknown[] {
  const found: unknown[] = [];
  for (let at = text.indexOf('"profiling_name"'); at >= 0; at = text.indexOf('"profiling_name"', at)) {
    const start = text.lastIndexOf('{"', at);
    const end = objectEnd(text, start);
    if (start < 0 || end < 0) break;
    try {
      found.push(JSON.parse(text.slice(start, end)));
    } catch {
      // A damaged entry: the next one may be whole.
    }
    at = end;
  }
  return found;
}

function objectEnd(text: string, start: number): number {
  let depth = 0;
  let quoted = false;
  for (let i = Math.max(0, start); i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === "\\") i++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") {
      depth--;
      if (depth === 0) return i + 1;
    }
  }
  return -1;
}

function split(files: readonly string[], first: (file: string) => boolean): [string[], string[]] {
  const parts: [string[], string[]] = [[], []];
  for (const file of files) parts[first(file) ? 0 : 1].push(file);
  return parts;
}

function firstByte(file: string): number {
  if (!statSync(file).isFile()) return -1;
  const descriptor = openSync(file, "r");
  try {
    const byte = Buffer.alloc(1);
    return readSync(descriptor, byte, 0, 1, 0) === 1 ? byte[0] : -1;
  } finally {
    closeSync(descriptor);
  }
}

function readShare(files: string[]): Promise<HangEvidence> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./read-worker.js", import.meta.url), {
      workerData: files,
      // A dump dies before the next collection: with the default size a quarter of the time goes into copying what survives.
      resourceLimits: { maxYoungGenerationSizeMb: 192 },
    });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

/** For a worker thread: the evidence of files whose names say their ranks. */
export function readDumps(files: readonly string[]): HangEvidence {
  const reader = new Reader();
  reader.readFiles(files);
  return reader.evidence;
}

/** Reads the evidence of a stuck job from files and folders. */
export function readHang(paths: readonly string[]): Promise<HangEvidence> {
  return new Reader().read(paths);
}
