// Dumps of PyTorch's flight recorder, as pickle or JSON, of all versions: a list of entries (PyTorch 2.2), 1.x (`seq_id`), 2.x
// (`collective_seq_id`, `process_group`). Fields that a version lacks stay unknown. Entries become columns; calls that are
// equal share one record, so that thousands of ranks with thousands of entries fit into memory.
import type { Call, GroupInfo, HangEvidence, RankCalls, Site } from "./evidence.js";
import { isRankNumber, userSite } from "./evidence.js";
import { PickleDict } from "./pickle.js";
import type { PickleTemplate } from "./pickle-template.js";

/** Longest lists that are taken over from an entry: a dump is data of others. */
const mostFrames = 128;
const mostTensors = 4096;

/** A dict of a pickle or an object of JSON as a flat list of keys and values. */
function itemsOf(value: unknown): unknown[] | null {
  if (value instanceof PickleDict) return value.items;
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return Object.entries(value).flat();
  return null;
}

function lookup(items: readonly unknown[], key: string): unknown {
  for (let i = 0; i + 1 < items.length; i += 2) if (items[i] === key) return items[i + 1];
  return undefined;
}

/** Names of a field over the versions, and where it was in the entry before. */
class Field {
  private at = 0;
  constructor(private readonly names: readonly string[]) {}

  /** Position of the value in an entry, or -1. */
  position(items: unknown[]): number {
    return this.of(items) === undefined ? -1 : this.at + 1;
  }

  of(items: unknown[]): unknown {
    if (items[this.at] === this.names[0]) return items[this.at + 1];
    for (const name of this.names)
      for (let i = 0; i + 1 < items.length; i += 2)
        if (items[i] === name) {
          this.at = i;
          return items[i + 1];
        }
    return undefined;
  }
}

const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : -1);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function sizesOf(value: unknown): number[][] {
  return list(value)
    .slice(0, mostTensors)
    .map((sizes) => list(sizes).slice(0, 64).map(number));
}

const dtypesOf = (value: unknown): string[] => list(value).slice(0, mostTensors).map(text);

function equalSizes(a: readonly number[][], b: unknown): boolean {
  const other = list(b);
  if (a.length !== other.length) return false;
  for (let i = 0; i < a.length; i++) {
    const x = a[i];
    const y = other[i];
    if (!Array.isArray(y) || x.length !== y.length) return false;
    for (let k = 0; k < x.length; k++) if (x[k] !== y[k]) return false;
  }
  return true;
}

function equalTexts(a: readonly string[], b: unknown): boolean {
  const other = list(b);
  if (a.length !== other.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== other[i]) return false;
  return true;
}

/** "nccl:recv 1<-0" is a call with a partner: which of the two is not this rank depends on the direction. */
function splitName(name: string): { op: string; peer: number | null } {
  const rest = name.replace(/^[a-z_]+:/, "");
  const pair = /^(send|recv) \d+(?:->|<-)(\d+)$/.exec(rest);
  if (pair !== null) return { op: pair[1], peer: Number(pair[2]) };
  return { op: rest.replace(/^_+/, "").replace(/_base_?$|_coalesced$/, ""), peer: null };
}

/** Shares call records between all entries of all ranks. */
export class CallTable {
  private readonly byKey = new Map<string, number>();
  private readonly frameIds = new Map<string, number>();
  private readonly frames: Site[] = [];
  /** For every call its frames, to compare without building a key. */
  private readonly frameLists: number[][] = [];
  private readonly groupIds = new Map<string, number>();
  /** Lists of ranks as the dumps print them: every rank prints the same ones. */
  readonly rankLists = new Map<string, number[]>();

  constructor(private readonly evidence: HangEvidence) {}

  group(name: string, description: string): number {
    const key = `${name}\n${description}`;
    let id = this.groupIds.get(key);
    if (id === undefined) {
      id = this.evidence.groups.length;
      this.evidence.groups.push({ name, description, ranks: null });
      this.groupIds.set(key, id);
    }
    return id;
  }

  groupInfo(id: number): GroupInfo {
    return this.evidence.groups[id];
  }

  frameId(frame: unknown): number {
    const items = itemsOf(frame);
    if (items === null) return this.intern("", 0, String(frame).slice(0, 200));
    return this.intern(
      text(lookup(items, "filename") ?? lookup(items, "file")),
      number(lookup(items, "line")),
      text(lookup(items, "name")),
    );
  }

  private intern(file: string, line: number, name: string): number {
    const key = `${file}:${line}:${name}`;
    let id = this.frameIds.get(key);
    if (id === undefined) {
      id = this.frames.length;
      this.frames.push({ file, line, name });
      this.frameIds.set(key, id);
    }
    return id;
  }

  /** True when an entry equals a call that was seen before. */
  matches(id: number, entry: RawEntry): boolean {
    const frames = this.frameLists[id];
    const call = this.evidence.calls[id];
    if (call.name !== entry.name || frames.length !== entry.frames.length) return false;
    for (let i = 0; i < frames.length; i++) if (frames[i] !== entry.frames[i]) return false;
    return (
      equalSizes(call.inputSizes, entry.inputSizes) &&
      equalSizes(call.outputSizes, entry.outputSizes) &&
      equalTexts(call.inputDtypes, entry.inputDtypes) &&
      equalTexts(call.outputDtypes, entry.outputDtypes)
    );
  }

  /** Adds the evidence that a worker thread has read from other files. */
  merge(other: HangEvidence): void {
    const groups = other.groups.map(({ name, description, ranks }) => {
      const id = this.group(name, description);
      this.evidence.groups[id].ranks ??= ranks;
      return id;
    });
    const calls = other.calls.map((call) =>
      this.call({
        name: call.name,
        frames: call.frames.map((frame) => this.intern(frame.file, frame.line, frame.name)),
        inputSizes: call.inputSizes,
        outputSizes: call.outputSizes,
        inputDtypes: call.inputDtypes,
        outputDtypes: call.outputDtypes,
      }),
    );
    for (const [rank, own] of other.ranks) {
      const columns = own.calls;
      for (let i = 0; columns !== undefined && i < columns.count; i++) {
        columns.group[i] = groups[columns.group[i]];
        columns.call[i] = calls[columns.call[i]];
      }
      this.evidence.ranks.set(rank, own);
    }
    this.evidence.problems.push(...other.problems);
  }

  call(entry: RawEntry): number {
    const inputSizes = sizesOf(entry.inputSizes);
    const outputSizes = sizesOf(entry.outputSizes);
    const inputDtypes = dtypesOf(entry.inputDtypes);
    const outputDtypes = dtypesOf(entry.outputDtypes);
    const key = JSON.stringify([entry.name, entry.frames, inputSizes, outputSizes, inputDtypes, outputDtypes]);
    let id = this.byKey.get(key);
    if (id === undefined) {
      id = this.evidence.calls.length;
      const frames = entry.frames.map((frame) => this.frames[frame]);
      const { op, peer } = splitName(entry.name);
      const call: Call = {
        op,
        name: entry.name,
        inputSizes,
        inputDtypes,
        outputSizes,
        outputDtypes,
        frames,
        site: null,
        peer,
      };
      call.site = userSite(frames);
      this.evidence.calls.push(call);
      this.frameLists.push(entry.frames);
      this.byKey.set(key, id);
    }
    return id;
  }
}

/** The fields of an entry before they are interned. */
interface RawEntry {
  name: string;
  frames: number[];
  inputSizes: unknown;
  outputSizes: unknown;
  inputDtypes: unknown;
  outputDtypes: unknown;
}

export interface FlightRecorderDump {
  version: string;
  calls: RankCalls;
  /** The rank that the dump itself names (NCCL's communicator state), or null. */
  rank: number | null;
  status: { group: string; enqueued: number; completed: number }[];
}

const states: Readonly<Record<string, number>> = { scheduled: 0, started: 1, completed: 2 };

/** True for something that looks like an entry of the recorder. */
function isEntry(entry: unknown): boolean {
  const items = entry instanceof PickleDict && entry.template !== null ? entry.template.items : itemsOf(entry);
  return items !== null && lookup(items, "profiling_name") !== undefined;
}

/** Entries of JSON in the order in which they were recorded, which a program that rewrote the file may have changed. */
function inOrder(entries: unknown[]): unknown[] {
  const number = (entry: unknown): unknown => (entry as { record_id?: unknown }).record_id;
  if (!entries.every((entry) => typeof number(entry) === "number")) return entries;
  return [...entries].sort((a, b) => (number(a) as number) - (number(b) as number));
}

/** Takes a dump (the value of a pickle or of JSON, or the loose values of a truncated pickle) into the evidence. */
export function readFlightRecorder(value: unknown, table: CallTable): FlightRecorderDump | null {
  const root = itemsOf(value);
  let entries = Array.isArray(value) ? value : list(root === null ? undefined : lookup(root, "entries"));
  // A truncated pickle: entries lie loose, or in a list that was not yet stored in its dict.
  if (Array.isArray(value) && !value.some(isEntry)) entries = value.filter(Array.isArray).flat();
  const found = inOrder(entries.filter(isEntry));
  if (found.length === 0 && (root === null || lookup(root, "version") === undefined)) return null;

  const calls = readEntries(found, table);
  const config = root === null ? null : itemsOf(lookup(root, "pg_config"));
  for (let i = 0; config !== null && i + 1 < config.length; i += 2) readGroup(text(config[i]), config[i + 1], table);
  return {
    version: root === null ? "" : text(lookup(root, "version")),
    calls,
    rank: root === null ? null : rankOf(lookup(root, "nccl_comm_state")),
    status: root === null ? [] : readStatus(lookup(root, "pg_status")),
  };
}

/** What entries of one form have in common, and where their numbers are. */
interface SharedEntry {
  call: number;
  group: number;
  pointToPoint: number;
  state: number;
  /** Positions among the numbers of an entry; -1 where the entry has none. */
  sequence: number;
  time: number;
}

/** Nanoseconds or microseconds, depending on the version. */
const milliseconds = (time: number): number => (time > 1e17 ? time / 1e6 : time > 1e14 ? time / 1e3 : 0);

function readEntries(entries: unknown[], table: CallTable): RankCalls {
  const fields = {
    name: new Field(["profiling_name"]),
    group: new Field(["process_group", "pg_name", "pg_id"]),
    sequence: new Field(["collective_seq_id", "seq_id"]),
    p2pSequence: new Field(["p2p_seq_id"]),
    isP2p: new Field(["is_p2p"]),
    inputSizes: new Field(["input_sizes"]),
    outputSizes: new Field(["output_sizes"]),
    inputDtypes: new Field(["input_dtypes"]),
    outputDtypes: new Field(["output_dtypes"]),
    state: new Field(["state"]),
    retired: new Field(["retired"]),
    time: new Field(["time_created_ns", "time_created_us", "time_created"]),
    frames: new Field(["frames"]),
  };
  const count = entries.length;
  const calls: RankCalls = {
    count,
    group: new Int32Array(count),
    sequence: new Float64Array(count),
    call: new Int32Array(count),
    state: new Uint8Array(count),
    pointToPoint: new Uint8Array(count),
    timeMs: new Float64Array(count),
  };
  const frameIds = new Map<unknown, number>();
  const frameId = (frame: unknown): number => {
    let id = frameIds.get(frame);
    if (id === undefined) {
      id = table.frameId(frame);
      frameIds.set(frame, id);
    }
    return id;
  };
  // Loops repeat: the call that followed the last one before is tried first.
  const next = new Map<number, number>();
  let previous = -1;
  let lastGroup: unknown;
  let lastGroupId = -1;
  const shared = new Map<PickleTemplate, SharedEntry>();
  for (let i = 0; i < count; i++) {
    const dict = entries[i];
    const template = dict instanceof PickleDict ? dict.template : null;
    const common = template === null ? undefined : shared.get(template);
    if (common !== undefined) {
      const { numbers } = dict as PickleDict;
      calls.call[i] = previous = common.call;
      calls.group[i] = common.group;
      calls.pointToPoint[i] = common.pointToPoint;
      calls.state[i] = common.state;
      calls.sequence[i] = common.sequence < 0 ? -1 : numbers[common.sequence];
      calls.timeMs[i] = common.time < 0 ? 0 : milliseconds(numbers[common.time]);
      continue;
    }
    const items = itemsOf(dict) as unknown[];
    const rawFrames = list(fields.frames.of(items));
    const frames: number[] = [];
    for (let k = 0; k < rawFrames.length && k < mostFrames; k++) frames.push(frameId(rawFrames[k]));
    const entry: RawEntry = {
      name: text(fields.name.of(items)),
      frames,
      inputSizes: fields.inputSizes.of(items),
      outputSizes: fields.outputSizes.of(items),
      inputDtypes: fields.inputDtypes.of(items),
      outputDtypes: fields.outputDtypes.of(items),
    };
    const predicted = next.get(previous);
    const id = predicted !== undefined && table.matches(predicted, entry) ? predicted : table.call(entry);
    if (id !== predicted) next.set(previous, id);
    previous = id;
    calls.call[i] = id;

    const group = fields.group.of(items);
    if (i === 0 || group !== lastGroup) {
      lastGroup = group;
      lastGroupId = groupOf(group, table);
    }
    calls.group[i] = lastGroupId;
    const p2p = fields.isP2p.of(items) === true || /:(?:send|recv)\b/.test(entry.name);
    calls.pointToPoint[i] = p2p ? 1 : 0;
    calls.sequence[i] = number(
      p2p ? (fields.p2pSequence.of(items) ?? fields.sequence.of(items)) : fields.sequence.of(items),
    );
    // gloo leaves the state of a finished call at "scheduled", but retires it.
    const state = states[text(fields.state.of(items))] ?? 0;
    calls.state[i] = fields.retired.of(items) === true ? 2 : state;
    calls.timeMs[i] = milliseconds(number(fields.time.of(items)));
    const position = (field: Field): number => template?.holes.indexOf(field.position(items)) ?? -1;
    // Groups that are numbers differ between entries of one form.
    if (template !== null && position(fields.group) < 0) {
      const numbered = p2p && fields.p2pSequence.of(items) !== undefined ? fields.p2pSequence : fields.sequence;
      shared.set(template, {
        call: id,
        group: lastGroupId,
        pointToPoint: calls.pointToPoint[i],
        state: calls.state[i],
        sequence: position(numbered),
        time: position(fields.time),
      });
    }
  }
  return calls;
}

function groupOf(value: unknown, table: CallTable): number {
  if (Array.isArray(value)) return table.group(text(value[0]), text(value[1]));
  return table.group(typeof value === "number" ? String(value) : text(value) || "0", "");
}

function readGroup(name: string, value: unknown, table: CallTable): void {
  const items = itemsOf(value);
  if (items === null) return;
  const listed = lookup(items, "ranks");
  const printed = Array.isArray(listed) ? listed.join() : text(listed);
  let ranks = table.rankLists.get(printed);
  if (ranks === undefined) {
    ranks = (printed.match(/\d+/g) ?? []).map(Number).filter(isRankNumber);
    table.rankLists.set(printed, ranks);
  }
  if (ranks.length === 0) return;
  table.groupInfo(table.group(text(lookup(items, "name")) || name, text(lookup(items, "desc")))).ranks = ranks;
}

function readStatus(value: unknown): FlightRecorderDump["status"] {
  const items = itemsOf(value) ?? [];
  const found: FlightRecorderDump["status"] = [];
  for (let i = 0; i + 1 < items.length; i += 2) {
    const status = itemsOf(items[i + 1]);
    if (status !== null)
      found.push({
        group: text(items[i]),
        enqueued: number(lookup(status, "last_enqueued_collective")),
        completed: number(lookup(status, "last_completed_collective")),
      });
  }
  return found;
}

/** NCCL's communicator state names the rank in each communicator; that of the largest one is the global rank. */
function rankOf(value: unknown): number | null {
  let best = -1;
  let rank: number | null = null;
  const items = itemsOf(value) ?? [];
  for (let i = 1; i < items.length; i += 2) {
    const state = itemsOf(items[i]);
    if (state === null) continue;
    const size = Number(lookup(state, "nRanks") ?? lookup(state, "nranks") ?? 0);
    const own = Number(lookup(state, "rank"));
    if (isRankNumber(own) && size > best) {
      best = size;
      rank = own;
    }
  }
  return rank;
}
