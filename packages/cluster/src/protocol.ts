// The messages between clients, dispatcher and workers: what they may say, checked when they arrive. Only ids, plans and
// small facts; no code, and no bytes of tensors.

import { limits, precisions, shortened, WeftError } from "@weft/core/internal/graph";
import { z } from "zod";

/** Raised when a message changes its meaning; both sides must agree. */
export const protocolVersion = 3;
/** Messages above this are refused; a program of ten thousand nodes takes a tenth of it. */
export const maxMessageBytes = 32 << 20;

const id = z.number().int().nonnegative();
const ids = z.array(id).max(100_000);
/** Shown to people: no control characters, which terminals obey. */
const name = z
  .string()
  .max(limits.name)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  .regex(/^[^\x00-\x1f\x7f]*$/);
const text = z
  .string()
  .max(limits.text)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
  .transform((s) => s.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "?"));
const size = z.number().nonnegative().finite();
/** Bytes, elements and distances. */
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

const shared = z.object({ pid: id, start: z.string().max(40), fd: id, bytes: count });
/** Where a process is: what is on one host can share memory. */
const process_ = z.object({ host: name, pid: id, memory: shared.nullable() });
export type SharedMemory = z.infer<typeof shared>;

const settings = z.object({
  /** Workers report every instruction to the client. */
  tape: z.boolean().optional(),
  maxTensors: size.optional(),
  maxBytes: size.optional(),
  maxQueue: size.optional(),
});
export type ClientSettings = z.infer<typeof settings>;

const hello = {
  t: z.literal("hello"),
  version: z.number(),
  token: z.string().max(1000).nullable(),
};

const workerFacts = z.object({
  device: name,
  label: name.nullable(),
  process: process_,
  /** Where clients fetch from and upload to; the key is theirs to show. */
  data: z.object({ host: name, port: id, key: name, tls: z.boolean() }),
  threads: id,
  memoryBytes: size,
  /** What the device was measured to do; the planner checks it. */
  rates: z.unknown(),
  /** The place in an MPI job, where the worker was started by one. */
  mpi: z.object({ job: name, rank: id, size: id }).nullable(),
  /** What its kernels for attention can take; null where it has none. */
  attention: z
    .object({ sharedBytes: size, major: id, precision: z.enum(precisions) })
    .nullable()
    .optional(),
});
export type WorkerFacts = z.infer<typeof workerFacts>;
const workerInfo = workerFacts.extend({ id: name });
export type WorkerInfo = z.infer<typeof workerInfo>;

const part = z.object({
  worker: name,
  /** In the client's shared memory, in bytes; null where the bytes come over a socket. */
  offset: count.nullable(),
  sizes: z.array(count).max(limits.rank),
  strides: z.array(count).max(limits.rank),
  element: id,
});

const cause = z.enum(["error", "aborted", "memory", "lost"]);
export type FailureCause = z.infer<typeof cause>;

const define = {
  t: z.literal("define"),
  program: id,
  donated: z.array(z.boolean()).max(100_000),
};
/** Values of small arguments that are the same in every call (base64): the compiler may use what it sees in them. */
const constants = z.array(z.object({ param: id, data: z.string().max(30_000) })).max(10_000);
export type ConstantArguments = z.infer<typeof constants>;
const run = {
  t: z.literal("run"),
  program: id,
  inputs: ids,
  outputs: ids,
  /** For the tape: what the client calls this step, and the line of its program. */
  step: id,
  site: text.nullable(),
  /** Tensors that are let go of before it runs. */
  free: ids.optional(),
};

export const fromClient = z.discriminatedUnion("t", [
  z.object({ ...hello, role: z.enum(["client", "watcher"]), label: name.nullable(), process: process_, settings }),
  z.object({
    ...define,
    /** One graph a member, in the order of ranks. */
    members: z.array(name).min(1).max(256),
    generation: id,
    graphs: z.array(z.unknown()).max(256),
    constants: z.array(constants).max(256).optional(),
    collective: z.boolean(),
  }),
  z.object(run),
  z.object({ t: z.literal("upload"), id, bytes: count, parts: z.array(part).max(256) }),
  z.object({ t: z.literal("free"), ids }),
  z.object({ t: z.literal("forget"), program: id }),
  /** So many tensors were lost with a worker and made again. */
  z.object({ t: z.literal("recomputed"), tensors: id }),
]);
export type FromClient = z.infer<typeof fromClient>;

const failure = z.object({ t: z.literal("failed"), ids, message: text, cause, worker: name });
const stats = z.object({
  runs: size,
  kernels: size,
  tensors: size,
  bytes: size,
  /** Seconds spent in programs, and of them in collectives as far as they were timed. */
  busySeconds: size,
  uptimeSeconds: size,
  sentBytes: size,
  /** Buffers that took memory from the system, and those that took a freed one's; of devices that count them. */
  allocations: z.object({ fresh: size, reused: size }).nullable(),
  /** What it had from other workers in collectives. */
  movedBytes: size.default(0),
  utilization: z.number().nullable(),
});
export type WorkerStats = z.infer<typeof stats>;

export const toClient = z.discriminatedUnion("t", [
  z.object({ t: z.literal("welcome"), client: id, generation: id, workers: z.array(workerInfo), dispatcher: name }),
  /** Who is there now, and who is not any more. */
  z.object({
    t: z.literal("workers"),
    generation: id,
    workers: z.array(workerInfo),
    lost: z.array(z.object({ worker: name, reason: text })),
  }),
  failure,
  z.object({ t: z.literal("refused"), message: text }),
  z.object({
    t: z.literal("status"),
    clients: id,
    messages: size,
    bytes: size,
    recomputed: size.default(0),
    workers: z.array(z.object({ info: workerInfo, stats: stats.nullable(), state: name })),
  }),
]);
export type ToClient = z.infer<typeof toClient>;

export const fromWorker = z.discriminatedUnion("t", [
  z.object({ ...hello, ...workerFacts.shape }),
  failure.extend({ client: id }),
  z.object({ t: z.literal("stats"), stats }),
  /** So many more instructions of a client are done. */
  z.object({ t: z.literal("progress"), client: id, done: id }),
  /** A group broke: programs over these members need a new one. */
  z.object({ t: z.literal("broken"), group: name }),
]);
export type FromWorker = z.infer<typeof fromWorker>;

export const toWorker = z.discriminatedUnion("t", [
  z.object({ t: z.literal("welcome"), worker: name }),
  z.object({ t: z.literal("client"), client: id, process: process_, settings }),
  z.object({ t: z.literal("leave"), client: id }),
  z.object({
    ...define,
    client: id,
    graph: z.unknown(),
    constants: constants.optional(),
    /** The group that its collectives use; null without any. */
    group: z.object({ name, rank: id, size: id, mpi: z.boolean() }).nullable(),
  }),
  z.object({ ...run, client: id }),
  z.object({ t: z.literal("upload"), client: id, id, bytes: count, part }),
  z.object({ t: z.literal("free"), client: id, ids }),
  z.object({ t: z.literal("forget"), client: id, program: id }),
  z.object({ t: z.literal("refused"), message: text }),
]);
export type ToWorker = z.infer<typeof toWorker>;

export const encode = (message: unknown): Buffer => Buffer.from(JSON.stringify(message));

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    throw new WeftError(`a message of ${bytes.length} bytes is not of Weft's protocol`);
  }
}

/** A message of one of the kinds that may come here; throws with what is wrong. */
export const decode = <T>(schema: z.ZodType<T>, bytes: Buffer): T => check(schema, parse(bytes));

/** The same where several may have come together, as a list. */
export function decodeAll<T>(schema: z.ZodType<T>, bytes: Buffer): T[] {
  const value = parse(bytes);
  return Array.isArray(value) ? value.map((one) => check(schema, one)) : [check(schema, value)];
}

function check<T>(schema: z.ZodType<T>, value: unknown): T {
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
