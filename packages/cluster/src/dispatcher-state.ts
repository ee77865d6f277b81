// What a dispatcher is given, and what it remembers of workers and clients.
import type * as grpc from "@grpc/grpc-js";
import { limits, shortened, WeftError } from "@weft/core/internal/graph";
import { randomKey } from "./identity.js";
import { Instructions } from "./instructions.js";
import { Outbox } from "./outbox.js";
import { Outgoing } from "./outgoing.js";
import type { FailureCode, FromClient, WorkerInfo, WorkerStats } from "./protocol.js";
import type { Security } from "./security.js";
import type { GroupOfProgram } from "./worker-groups.js";

export type ServerStream = grpc.ServerDuplexStream<Buffer, Buffer>;

/** Options of a dispatcher; it listens on localhost:9000 by default. @inline */
export interface DispatcherOptions extends Security {
  /** Address to listen on; default: localhost. */
  host?: string;
  /** Port to listen on; 0 takes a free one. */
  port?: number;
  /** Seconds without a heartbeat after which a worker is suspended: it is stopped, or its host is unreachable. */
  stopTimeout?: number;
  /** Limits for every client, per worker; a client may ask for less. */
  quotas?: Partial<Quotas>;
}

/** What one client may use, per worker where that applies. */
export interface Quotas {
  maxTensors: number;
  maxBytes: number;
  /** Instructions queued for a worker, and their bytes. */
  maxQueue: number;
  maxQueueBytes: number;
  /** Seconds that one instruction may take on a worker. */
  maxSeconds: number;
  /** Seconds that the compilation of one program may take on a worker. */
  maxCompileSeconds: number;
  /** Clients and workers that may be connected. */
  maxClients: number;
  maxWorkers: number;
}

export interface WorkerEntry {
  info: Omit<WorkerInfo, "key">;
  stream: ServerStream;
  outbox: Outbox;
  stats: WorkerStats | null;
  /** Identifies its heartbeats, and when the last one arrived. */
  key: string;
  lastBeat: number;
  /** The stream of its heartbeats, on which it learns what to stop. */
  beats: ServerStream | null;
  /** Hidden from clients while it hangs. */
  suspended: boolean;
}

export interface ClientEntry {
  id: number;
  stream: ServerStream;
  /** Whether it runs on this machine. */
  near: boolean;
  out: Outgoing;
  hello: Extract<FromClient, { t: "hello" }>;
  /** The workers that run a program, the name of their group if they are one, and why it cannot run, if so. */
  programs: Map<number, { members: string[]; group: string | null; problem: DispatchProblem | null }>;
  /** The workers that hold shards of a tensor. */
  holders: Map<number, string[]>;
  /** Instructions that workers have not yet reported as done. */
  instructions: Instructions;
  /** Uploads over sockets that have not arrived, as `worker/id`, and the messages after them that wait. */
  uploading: Set<string>;
  /** Workers that were not heard from since the client's last question; null if it has an answer. */
  unheard: { question: number; workers: Set<string> } | null;
  held: FromClient[];
}

/** Milliseconds that a worker has in addition before its first heartbeat. */
const firstBeatGrace = 4000;

/** A worker that has just connected; `write` sends bytes to it. */
export const newWorker = (
  info: WorkerEntry["info"],
  stream: ServerStream,
  write: (bytes: Buffer) => void,
): WorkerEntry => ({
  info,
  stream,
  // Messages of many clients that arrive in one turn leave together.
  outbox: new Outbox(write, setImmediate),
  stats: null,
  key: randomKey(),
  lastBeat: performance.now() + firstBeatGrace,
  beats: null,
  suspended: false,
});

/** A client that has just connected. */
export const newClient = (
  id: number,
  stream: ServerStream,
  near: boolean,
  hello: ClientEntry["hello"],
  workers: ReadonlyMap<string, WorkerEntry>,
): ClientEntry => ({
  id,
  stream,
  near,
  out: new Outgoing(stream),
  hello,
  programs: new Map(),
  holders: new Map(),
  instructions: new Instructions(workers),
  uploading: new Set(),
  unheard: null,
  held: [],
});

/** The settings of a client within the quotas: it may ask for less. */
export function settingsWithin(
  settings: ClientEntry["hello"]["settings"],
  quotas: Quotas,
): ClientEntry["hello"]["settings"] {
  const limited = (["maxTensors", "maxBytes", "maxSeconds", "maxCompileSeconds"] as const).map((name) => [
    name,
    Math.min(settings[name] ?? quotas[name], quotas[name]),
  ]);
  return { ...settings, ...Object.fromEntries(limited) };
}

/** A group without the place of a member in it. */
export type MemberGroup = Omit<GroupOfProgram, "rank" | "size">;

export type DispatchProblem = { message: string; code: FailureCode };

export interface Counters {
  messages: number;
  bytes: number;
  /** Tensors that clients recomputed after a worker failure. */
  recomputed: number;
}

const defaultQuotas: Quotas = {
  maxTensors: limits.tensors,
  maxBytes: Number.MAX_SAFE_INTEGER,
  maxQueue: 100_000,
  maxQueueBytes: 128 << 20,
  maxSeconds: 3600,
  maxCompileSeconds: 600,
  maxClients: 1024,
  maxWorkers: 4096,
};

/** The quotas of a dispatcher, from those that it was given. */
export function quotasFrom(given: Partial<Quotas> = {}): Quotas {
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaultQuotas, name))
      throw new WeftError(
        `there is no quota "${shortened(name, 40)}"; there are ${Object.keys(defaultQuotas).join(", ")}`,
      );
    if (typeof value !== "number" || !(value > 0))
      throw new WeftError(`the quota ${name} is ${shortened(String(value), 40)}; give a number above 0`);
  }
  return { ...defaultQuotas, ...given };
}

/** Whether two lists of workers are equal. */
export const sameMembers = (a: readonly string[] | undefined, b: readonly string[]): boolean =>
  a === b || (a !== undefined && a.length === b.length && a.every((id, i) => id === b[i]));

/** Forgets tensors of a client; returns those of every worker that held one. */
export function releaseHolders({ holders }: ClientEntry, freed: readonly number[]): Map<string, number[]> {
  const byWorker = new Map<string, number[]>();
  for (const id of freed) {
    for (const worker of holders.get(id) ?? []) {
      const list = byWorker.get(worker);
      if (list === undefined) byWorker.set(worker, [id]);
      else list.push(id);
    }
    holders.delete(id);
  }
  return byWorker;
}
