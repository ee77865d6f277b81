// What a dispatcher is given, and what it remembers of workers and clients.
import type * as grpc from "@grpc/grpc-js";
import { limits, shortened, WeftError } from "@weft/core/internal/graph";
import type { Instructions } from "./instructions.js";
import type { Outbox } from "./outbox.js";
import type { Outgoing } from "./outgoing.js";
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
