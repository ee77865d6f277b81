// The messages between clients, dispatcher and workers, validated on arrival. They carry ids, plans and metadata, never
// code or tensor bytes.

import { limits, precisions, shortened, WeftError } from "@weft/core/internal/graph";
import { z } from "zod";
import { planReport, watchedClients } from "./plan-report.js";
import { isPrintable, printable } from "./printable.js";

/** Incremented when the meaning of a message changes; both sides must agree. */
export const protocolVersion = 10;
/** Larger messages are rejected; a program of ten thousand nodes needs a tenth of it. */
export const maxMessageBytes = 32 << 20;

/** Characters of a worker's rates; measured ones have about 10,000. */
const maxRates = 1 << 16;
/** Workers in one message. */
const maxWorkers = 16_384;

const id = z.number().int().nonnegative();
const maxIds = 100_000;
const ids = z.array(id).max(maxIds);
const name = z.string().max(limits.name).refine(isPrintable, "has characters that cannot be printed");
const text = z.string().max(limits.text).transform(printable);
const size = z.number().nonnegative().finite();
/** Byte counts, element counts and strides. */
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

/** Where a process runs: workers of one host communicate over shared memory. The number is for people only. */
const process_ = z.object({ host: name, pid: id });

const settings = z.object({
  /** Workers report every instruction to the client for its tape. */
  tape: z.boolean().optional(),
  maxTensors: size.optional(),
  maxBytes: size.optional(),
  maxQueue: size.optional(),
  /** Seconds that one instruction may take. */
  maxSeconds: size.optional(),
  /** Seconds that the compilation of one program may take. */
  maxCompileSeconds: size.optional(),
});
export type ClientSettings = z.infer<typeof settings>;

/** The first message after the handshake, which has settled role and version (wire.ts). */
const hello = { t: z.literal("hello") };
/** A key that the dispatcher issued. */
const key = z.string().regex(/^[0-9a-f]{0,64}$/, "is not a key");

const port = z.number().int().min(0).max(65_535);
const address = z.object({ host: name, port, tls: z.boolean() });

const workerFacts = z.object({
  device: name,
  label: name.nullable(),
  process: process_,
  /** Address for fetches and uploads. */
  data: address,
  /** Port at the same host for links of other workers. */
  links: port,
  threads: id,
  memoryBytes: size,
  /** Measured rates of the device; the planner validates them. All clients get those of all workers. */
  rates: z.unknown().refine((rates) => JSON.stringify(rates ?? null).length <= maxRates, "is too long"),
  /** Rank in an MPI job, if the worker was started by one. */
  mpi: z.object({ job: name, rank: id, size: id }).nullable(),
  /** Limits of its fused attention kernels; null without any. */
  attention: z
    .object({ sharedBytes: size, major: id, precision: z.enum(precisions) })
    .nullable()
    .optional(),
  /** Hardware of an accelerator, for assumed rates; null on CPUs. */
  accelerator: z
    .object({ capability: name, multiprocessors: count, clockHz: size.nullable(), memoryBandwidth: size.nullable() })
    .nullable()
    .default(null),
});
/** A worker as a client sees it; the key authorizes this client's data connection to it. */
const workerInfo = workerFacts.extend({ id: name, key });
export type WorkerInfo = z.infer<typeof workerInfo>;

const part = z.object({
  worker: name,
  /** Byte offset in the memory that the client passed to the worker; null if the bytes are sent over a socket. */
  offset: count.nullable(),
  sizes: z.array(count).max(limits.rank),
  strides: z.array(count).max(limits.rank),
  element: id,
});

/**
 * Why a tensor has no value: the program failed, a collective was aborted because of another member, a worker ran out of
 * memory, or a worker died.
 */
const code = z.enum(["error", "aborted", "memory", "lost"]);
export type FailureCode = z.infer<typeof code>;
/** A code that arrived outside a validated message. */
export const failureCode = (value: unknown): FailureCode => code.catch("error").parse(value);

const define = { t: z.literal("define"), program: id, donated: z.array(z.boolean()).max(100_000) };
/** Constant arguments (base64): small arguments that are the same in every call. */
const constants = z.array(z.object({ param: id, data: z.string().max(30_000) })).max(10_000);
export type ConstantArguments = z.infer<typeof constants>;
const run = {
  t: z.literal("run"),
  program: id,
  inputs: ids,
  outputs: ids,
  /** For the tape: the client's step number and source line. */
  step: id,
  site: text.nullable(),
  /** Tensors to free before the run. */
  free: ids.optional(),
  /** The worker reports what its clocks say about this run, under this number. */
  measure: id.optional(),
};
/** Asks a worker how fast its host loads data; the result is reported like that of a run. */
const probe = { t: z.literal("probe"), measure: id };

export const fromClient = z.discriminatedUnion("t", [
  z.object({ ...hello, label: name.nullable(), process: process_, settings }),
  z.object({
    ...define,
    members: z.array(name).min(1).max(256),
    generation: id,
    /** The distinct graphs, and which of them each member runs, in rank order; a member's rank replaces the one inside. */
    graphs: z.array(z.unknown()).max(256),
    which: z.array(id).max(256),
    constants: z.array(constants).max(256).optional(),
    collective: z.boolean(),
  }),
  z.object(run),
  z.object({ t: z.literal("upload"), id, bytes: count, parts: z.array(part).max(256) }),
  z.object({ t: z.literal("free"), ids }),
  z.object({ t: z.literal("forget"), program: id }),
  z.object({ ...probe, worker: name }),
  /** Number of tensors recomputed after a worker failure. */
  z.object({ t: z.literal("recomputed"), tensors: id }),
  /** Asks for an answer when every worker was heard from after this, or is reported as lost. */
  z.object({ t: z.literal("confirm"), question: id }),
  planReport,
]);
export type FromClient = z.infer<typeof fromClient>;

const failure = z.object({ t: z.literal("failed"), ids, message: text, code, worker: name });
const stats = z.object({
  runs: size,
  kernels: size,
  tensors: size,
  bytes: size,
  /** Seconds spent executing programs. */
  busySeconds: size,
  uptimeSeconds: size,
  sentBytes: size,
  /** Buffers allocated from the system and reused from the pool, on devices that count them. */
  allocations: z.object({ fresh: size, reused: size }).nullable(),
  /** Bytes received from other workers in collectives. */
  movedBytes: size.default(0),
  utilization: z.number().nullable(),
});
export type WorkerStats = z.infer<typeof stats>;

export const toClient = z.discriminatedUnion("t", [
  z.object({
    t: z.literal("welcome"),
    client: id,
    generation: id,
    workers: z.array(workerInfo).max(maxWorkers),
    /** Further workers follow in messages "workers"; so do those of the latter. */
    more: z.boolean(),
    dispatcher: name,
  }),
  /** Workers that joined since the last message, and those that were lost. */
  z.object({
    t: z.literal("workers"),
    generation: id,
    more: z.boolean(),
    joined: z.array(workerInfo).max(maxWorkers),
    lost: z.array(z.object({ worker: name, reason: text })).max(maxWorkers),
  }),
  failure,
  z.object({ t: z.literal("confirmed"), question: id }),
  z.object({ t: z.literal("refused"), message: text }),
  z.object({
    t: z.literal("status"),
    clients: id,
    messages: size,
    bytes: size,
    recomputed: size.default(0),
    ...watchedClients.shape,
    workers: z.array(z.object({ info: workerInfo, stats: stats.nullable(), state: name })).max(maxWorkers),
  }),
]);
export type ToClient = z.infer<typeof toClient>;

export const fromWorker = z.discriminatedUnion("t", [
  z.object({ ...hello, ...workerFacts.shape }),
  failure.extend({ client: id }),
  z.object({ t: z.literal("stats"), stats }),
  /** Number of a client's instructions completed since the last report, and the seconds that they took. */
  z.object({ t: z.literal("progress"), client: id, done: id, seconds: size }),
  /** An upload over a socket has arrived, or will not. */
  z.object({ t: z.literal("arrived"), client: id, id }),
  /** A group failed: programs over its members need a new one. */
  z.object({ t: z.literal("broken"), group: name }),
]);
export type FromWorker = z.infer<typeof fromWorker>;

/**
 * The group of a program's collectives: over shared memory, or between hosts over MPI (the members' ranks in their job) or
 * over links (the members' addresses and hosts, and a key that they alone know).
 */
const group = z.object({
  name,
  rank: id,
  size: id,
  /** Processes of the members, to notice while they join that one of this host is gone. */
  pids: ids,
  mpi: ids.nullable(),
  links: z.object({ key, members: z.array(z.object({ host: name, data: address })).max(256) }).nullable(),
});

export const toWorker = z.discriminatedUnion("t", [
  /** The key identifies the worker's heartbeats. */
  z.object({ t: z.literal("welcome"), worker: name, key }),
  z.object({ t: z.literal("client"), client: id, key, settings }),
  z.object({ t: z.literal("leave"), client: id }),
  /** A member of a group hangs: who waited for it in a collective would wait long. */
  z.object({ t: z.literal("abandon"), group: name, reason: text }),
  z.object({ ...define, client: id, graph: z.unknown(), constants: constants.optional(), group: group.nullable() }),
  z.object({ ...run, client: id }),
  z.object({ t: z.literal("upload"), client: id, id, bytes: count, part }),
  z.object({ t: z.literal("free"), client: id, ids }),
  z.object({ t: z.literal("forget"), client: id, program: id }),
  z.object({ ...probe, client: id }),
  z.object({ t: z.literal("refused"), message: text }),
]);
export type ToWorker = z.infer<typeof toWorker>;

/** Sent every second by a thread of a worker, which computes meanwhile. */
export const heartbeat = z.object({
  t: z.literal("heartbeat"),
  worker: name,
  key,
  /** The client whose instruction took too long and cannot be stopped: the worker is about to end. */
  stuck: id.optional(),
});
export type Heartbeat = z.infer<typeof heartbeat>;

/** The answer to heartbeats when a client has left, and when the dispatcher does not know the worker (null). */
export const toHeartbeat = z.object({ t: z.literal("stop"), client: id.nullable() });

export const encode = (message: unknown): Buffer => Buffer.from(JSON.stringify(message));

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    throw new WeftError(`a message of ${bytes.length} bytes is not of Weft's protocol`);
  }
}

/** Decodes and validates one message; throws with the first problem. */
export const decode = <T>(schema: z.ZodType<T>, bytes: Buffer): T => check(schema, parse(bytes));

/** Messages in one batch; senders put at most 256 into one. Many tiny ones would keep the receiver busy for seconds. */
const maxBatch = 1024;

/** Decodes a message or a batch of messages. */
export function decodeAll<T>(schema: z.ZodType<T>, bytes: Buffer): T[] {
  const value = parse(bytes);
  if (!Array.isArray(value)) return [check(schema, value)];
  if (value.length > maxBatch) throw new WeftError(`a batch has ${value.length} messages, more than ${maxBatch}`);
  return value.map((one) => check(schema, one));
}

const isId = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const areIds = (value: unknown): boolean => Array.isArray(value) && value.length <= maxIds && value.every(isId);
const runFields: ReadonlySet<string> = new Set(Object.keys(run));

/**
 * Whether a value is a plain run of a client, as the schema describes it: the message of every call, for which the schema itself
 * would take most of the dispatcher's time. Anything else is left to the schema.
 */
function isPlainRun(value: unknown): boolean {
  const message = value as Record<string, unknown> | null;
  if (message?.t !== "run" || message.site !== null) return false;
  for (const field in message) if (!runFields.has(field)) return false;
  const { program, step, inputs, outputs, free, measure } = message;
  return (
    isId(program) &&
    isId(step) &&
    areIds(inputs) &&
    areIds(outputs) &&
    (free === undefined || areIds(free)) &&
    (measure === undefined || isId(measure))
  );
}

function check<T>(schema: z.ZodType<T>, value: unknown): T {
  if ((schema as unknown) === fromClient && isPlainRun(value)) return value as T;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new WeftError(
    shortened(
      `a message "${String((value as { t?: unknown } | null)?.t).slice(0, 20)}" is wrong: ${issue?.path.join(".")} ${issue?.message}`,
      500,
    ),
  );
}
