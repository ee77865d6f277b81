// The dispatcher: tracks workers and clients, forwards instructions to workers in order, and reports failures. It
// carries ids, plans and metadata, never tensor bytes.
import { hash } from "node:crypto";
import { hostname } from "node:os";
import type * as grpc from "@grpc/grpc-js";
import { limits, shortened, WeftError } from "@weft/core/internal/graph";
import { log } from "./debug.js";
import { Outbox } from "./outbox.js";
import { processState } from "./process-state.js";
import {
  decode,
  decodeAll,
  encode,
  type FromClient,
  type FromWorker,
  fromClient,
  fromWorker,
  maxMessageBytes,
  protocolVersion,
  type ToClient,
  type ToWorker,
  type WorkerInfo,
  type WorkerStats,
} from "./protocol.js";
import { bindServer, hostId, makeServer, randomKey, type Security, sameSecret, securityFrom, service } from "./wire.js";

type ServerStream = grpc.ServerDuplexStream<Buffer, Buffer>;

/** Options of a dispatcher; it listens on localhost:9000 by default. */
export interface DispatcherOptions extends Security {
  host?: string;
  port?: number;
  /** Seconds after which a stopped (SIGSTOP) worker is suspended. */
  stopTimeout?: number;
}

interface WorkerEntry {
  info: WorkerInfo;
  outbox: Outbox;
  stats: WorkerStats | null;
  /** When the process was first seen stopped; null while it runs. */
  stoppedSince: number | null;
  /** Hidden from clients while it hangs. */
  suspended: boolean;
}

interface ClientEntry {
  id: number;
  stream: ServerStream;
  hello: Extract<FromClient, { t: "hello" }>;
  /** The workers that run a program, and why it cannot run, if so. */
  programs: Map<number, { members: string[]; problem: string | null }>;
  /** The workers that hold shards of a tensor. */
  holders: Map<number, string[]>;
  /** Runs that workers have not yet reported as done, by worker. */
  queued: Map<string, number>;
}

interface Counters {
  messages: number;
  bytes: number;
  /** Tensors that clients recomputed after a worker failure. */
  recomputed: number;
}

/** Default and maximum number of queued instructions per client and worker. */
const defaultMaxQueue = 100_000;
const maxQueueLimit = 1_000_000;
/** Seconds within which a new connection must send its hello. */
const helloSeconds = 5;

/** The process that forwards instructions of clients to workers; `weft server` runs one. */
export class Dispatcher {
  readonly id = randomKey().slice(0, 8);
  readonly #server = makeServer();
  readonly #workers = new Map<string, WorkerEntry>();
  readonly #clients = new Map<number, ClientEntry>();
  readonly #watchers = new Set<ServerStream>();
  readonly #security: Security;
  readonly #stopTimeout: number;
  readonly counters: Counters = { messages: 0, bytes: 0, recomputed: 0 };
  #nextClient = 1;
  #nextWorker = 1;
  /** Incremented when the set of workers changes or a group breaks. */
  #generation = 1;
  #timer: NodeJS.Timeout | null = null;
  port = 0;

  constructor(options: DispatcherOptions = {}) {
    this.#security = securityFrom(options);
    this.#stopTimeout = options.stopTimeout ?? 4;
    this.#server.addService(service as unknown as grpc.ServiceDefinition, {
      Client: (stream: ServerStream) => this.#accept(stream, (bytes) => this.#clientHello(stream, bytes)),
      Worker: (stream: ServerStream) => this.#accept(stream, (bytes) => this.#workerHello(stream, bytes)),
    });
  }

  static async start(options: DispatcherOptions = {}): Promise<Dispatcher> {
    const dispatcher = new Dispatcher(options);
    dispatcher.port = await bindServer(
      dispatcher.#server,
      options.host ?? "localhost",
      options.port ?? 9000,
      dispatcher.#security,
    );
    dispatcher.#timer = setInterval(() => dispatcher.#checkProcesses(), 500);
    log("dispatcher", () => `${dispatcher.id} listens on port ${dispatcher.port}`);
    return dispatcher;
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#server.forceShutdown();
  }

  get workers(): WorkerInfo[] {
    return [...this.#workers.values()].filter((w) => !w.suspended).map((w) => w.info);
  }

  /** The first message identifies the peer; `hello` returns the handler of the following ones. */
  #accept(stream: ServerStream, hello: (bytes: Buffer) => (bytes: Buffer) => void): void {
    let handle: ((bytes: Buffer) => void) | null = null;
    const late = setTimeout(
      () => this.#refuse(stream, "no message arrived; the first message must be a hello"),
      helloSeconds * 1e3,
    );
    stream.on("data", (bytes: Buffer) => {
      this.counters.messages++;
      this.counters.bytes += bytes.length;
      try {
        if (handle === null) {
          clearTimeout(late);
          handle = hello(bytes);
        } else handle(bytes);
      } catch (error) {
        this.#refuse(stream, (error as Error).message);
      }
    });
    stream.on("error", () => {});
    const over = (): void => clearTimeout(late);
    stream.on("end", over);
    stream.on("close", over);
  }

  #refuse(stream: ServerStream, message: string): void {
    log("dispatcher", () => `refused: ${message}`);
    stream.write(encode({ t: "refused", message: shortened(message) } satisfies ToClient));
    stream.end();
  }

  #check(version: number, token: string | null): void {
    if (version !== protocolVersion)
      throw new WeftError(
        `the dispatcher speaks protocol version ${protocolVersion}, this process version ${version}; use the same version of weft on both sides`,
      );
    if (!sameSecret(token, this.#security.token))
      throw new WeftError(
        token === null
          ? "a token is needed; give the dispatcher's (--token or WEFT_TOKEN)"
          : "the token is wrong; give the dispatcher's (--token or WEFT_TOKEN)",
      );
  }

  // Workers

  #workerHello(stream: ServerStream, bytes: Buffer): (bytes: Buffer) => void {
    const message = decode(fromWorker, bytes);
    if (message.t !== "hello") throw new WeftError(`the first message of a worker must be a hello, not ${message.t}`);
    const { t: _, version, token, ...facts } = message;
    this.#check(version, token);
    // Numbered by this dispatcher, hence unique.
    const id = `w${this.#nextWorker++}`;
    const entry: WorkerEntry = {
      info: { ...facts, id },
      outbox: new Outbox((bytes) => void stream.write(bytes)),
      stats: null,
      stoppedSince: null,
      suspended: false,
    };
    this.#workers.set(id, entry);
    this.#toWorker(entry, { t: "welcome", worker: id });
    for (const client of this.#clients.values()) this.#introduce(entry, client);
    log("dispatcher", () => `${id} joined: ${facts.device}, process ${facts.process.pid}`);
    this.#changed([]);
    const onEnd = (): void =>
      this.#workerEnded(entry, `worker ${id} (${facts.device}, process ${facts.process.pid}) ended`);
    stream.on("end", onEnd);
    stream.on("close", onEnd);
    stream.on("cancelled", onEnd);
    return (more) => {
      try {
        this.#fromWorker(entry, decode(fromWorker, more));
      } catch (error) {
        // An invalid message must not disconnect a worker that other clients use.
        log("dispatcher", () => `${id}: message ignored: ${(error as Error).message}`);
      }
    };
  }

  #introduce(worker: WorkerEntry, client: ClientEntry): void {
    const { process: where, settings } = client.hello;
    this.#toWorker(worker, { t: "client", client: client.id, process: where, settings });
  }

  #toWorker(worker: WorkerEntry, message: ToWorker): void {
    worker.outbox.post(JSON.stringify(message));
  }

  #fromWorker(worker: WorkerEntry, message: FromWorker): void {
    if (message.t === "stats") worker.stats = message.stats;
    else if (message.t === "progress") {
      const queued = this.#clients.get(message.client)?.queued;
      queued?.set(worker.info.id, Math.max(0, (queued.get(worker.info.id) ?? 0) - message.done));
    } else if (message.t === "failed") {
      const { client, ...rest } = message;
      log("dispatcher", () => `${worker.info.id} failed for client ${client}: ${rest.message.split("\n")[0]}`);
      const entry = this.#clients.get(client);
      if (entry !== undefined) this.#toClient(entry, rest);
    } else if (message.t === "broken") {
      log("dispatcher", () => `${worker.info.id}: group ${message.group} is broken; programs will use a new one`);
      if (message.group.includes(`-${this.#generation}-`)) this.#changed([]);
    } else throw new WeftError("a worker sends hello once");
  }

  #workerEnded(worker: WorkerEntry, reason: string): void {
    if (!this.#workers.delete(worker.info.id)) return;
    log("dispatcher", () => reason);
    this.#changed([{ worker: worker.info.id, reason }]);
  }

  /** Starts a new generation and sends clients the current workers, for which they plan. */
  #changed(lost: { worker: string; reason: string }[]): void {
    this.#generation++;
    for (const client of this.#clients.values())
      this.#toClient(client, { t: "workers", generation: this.#generation, workers: this.workers, lost });
  }

  /** Detects stopped workers on this host; a stopped process cannot report itself. */
  #checkProcesses(): void {
    const now = Date.now();
    for (const worker of this.#workers.values()) {
      const { pid, host } = worker.info.process;
      if (host !== hostId()) continue;
      const stopped = processState(pid) === "T";
      if (!stopped) {
        worker.stoppedSince = null;
        if (worker.suspended) {
          worker.suspended = false;
          log("dispatcher", () => `${worker.info.id} continued`);
          this.#changed([]);
        }
        continue;
      }
      worker.stoppedSince ??= now;
      if (worker.suspended || now - worker.stoppedSince < this.#stopTimeout * 1e3) continue;
      worker.suspended = true;
      const reason = `worker ${worker.info.id} (${worker.info.device}, process ${pid}) hangs: it is stopped; continue it with kill -CONT ${pid}, or end it`;
      log("dispatcher", () => reason);
      this.#changed([{ worker: worker.info.id, reason }]);
    }
    if (this.#watchers.size > 0) this.#report();
  }

  #report(): void {
    const status: ToClient = {
      t: "status",
      clients: this.#clients.size,
      ...this.counters,
      workers: [...this.#workers.values()].map(({ info, stats, suspended }) => ({
        info: { ...info, data: { ...info.data, key: "" } },
        stats,
        state: suspended ? "hangs" : "ready",
      })),
    };
    for (const stream of this.#watchers) stream.write(encode(status));
  }

  // Clients

  #clientHello(stream: ServerStream, bytes: Buffer): (bytes: Buffer) => void {
    const hello = decode(fromClient, bytes);
    if (hello.t !== "hello") throw new WeftError(`the first message of a client must be a hello, not ${hello.t}`);
    this.#check(hello.version, hello.token);
    if (hello.role === "watcher") {
      this.#watchers.add(stream);
      const over = (): void => void this.#watchers.delete(stream);
      stream.on("end", over);
      stream.on("close", over);
      this.#report();
      return () => {};
    }
    const client: ClientEntry = {
      id: this.#nextClient++,
      stream,
      hello,
      programs: new Map(),
      holders: new Map(),
      queued: new Map(),
    };
    this.#clients.set(client.id, client);
    for (const worker of this.#workers.values()) this.#introduce(worker, client);
    log("dispatcher", () => `client ${client.id} joined: process ${hello.process.pid}`);
    this.#toClient(client, {
      t: "welcome",
      client: client.id,
      generation: this.#generation,
      workers: this.workers,
      dispatcher: `${this.id}@${hostname()}`,
    });
    const onEnd = (): void => this.#clientEnded(client);
    stream.on("end", onEnd);
    stream.on("close", onEnd);
    stream.on("cancelled", onEnd);
    return (more) => {
      for (const message of decodeAll(fromClient, more)) this.#fromClient(client, message);
    };
  }

  #toClient(client: ClientEntry, message: ToClient): void {
    client.stream.write(encode(message));
  }

  #clientEnded(client: ClientEntry): void {
    if (!this.#clients.delete(client.id)) return;
    client.stream.end();
    log("dispatcher", () => `client ${client.id} left; its tensors are freed`);
    for (const worker of this.#workers.values()) this.#toWorker(worker, { t: "leave", client: client.id });
  }

  #fromClient(client: ClientEntry, message: FromClient): void {
    if (message.t === "run") this.#run(client, message);
    else if (message.t === "define") this.#define(client, message);
    else if (message.t === "upload") this.#upload(client, message);
    else if (message.t === "free") this.#free(client, message.ids);
    else if (message.t === "recomputed") this.counters.recomputed += message.tensors;
    else if (message.t === "forget") {
      this.#send(client, client.programs.get(message.program)?.members ?? [], { ...message, client: client.id });
      client.programs.delete(message.program);
    } else throw new WeftError("a client sends hello once");
  }

  #send(client: ClientEntry, workers: readonly string[], message: ToWorker, ids: readonly number[] = []): void {
    const text = JSON.stringify(message);
    // A larger message would end the worker's connection and lose the tensors of every client.
    if (text.length > maxMessageBytes / 4 && Buffer.byteLength(text) > maxMessageBytes - 1024)
      throw new WeftError(
        `a message "${message.t}" is too large: at most ${maxMessageBytes - 1024} bytes for a worker`,
      );
    for (const id of workers) {
      const worker = this.#workers.get(id);
      if (worker !== undefined) worker.outbox.post(text);
      else if (ids.length > 0) {
        const why = `worker ${id} is not connected`;
        this.#toClient(client, { t: "failed", ids: [...ids], message: why, code: "lost", worker: id });
      }
    }
  }

  #define(client: ClientEntry, message: Extract<FromClient, { t: "define" }>): void {
    const { program, members, graphs, constants, collective, donated, generation } = message;
    if (graphs.length !== members.length) throw new WeftError("define: one graph per member is needed");
    if (new Set(members).size !== members.length) throw new WeftError("define: a worker is named twice");
    if (generation > this.#generation) throw new WeftError(`define: there is no generation ${generation} yet`);
    if (client.programs.size >= limits.programs)
      throw new WeftError(`a client may define ${limits.programs} programs; forget some`);
    const missing = members.find((id) => !this.#workers.has(id) || this.#workers.get(id)!.suspended);
    const problem =
      missing === undefined ? null : `worker ${missing} is not connected; run it again on the remaining workers`;
    client.programs.set(program, { members, problem });
    if (problem !== null) return;
    const group = collective ? this.#groupOf(members, generation) : null;
    log(
      "dispatcher",
      () =>
        `client ${client.id} defines program ${program} for ${members.join(", ")}${group === null ? "" : ` (group ${group.name})`}`,
    );
    members.forEach((id, rank) => {
      this.#send(client, [id], {
        t: "define",
        client: client.id,
        program,
        donated,
        graph: graphs[rank],
        constants: constants?.[rank],
        group: group === null ? null : { ...group, rank, size: members.length },
      });
    });
  }

  /** One group per set of workers and generation; over MPI where the workers are ranks of one job on several hosts. */
  #groupOf(members: readonly string[], generation: number): { name: string; mpi: boolean } {
    const infos = members.map((id) => this.#workers.get(id)?.info);
    const hosts = new Set(infos.map((info) => info?.process.host));
    const [first] = infos;
    const mpi =
      hosts.size > 1 &&
      infos.every(
        (info, rank) =>
          info?.mpi?.job === first?.mpi?.job && info?.mpi?.rank === rank && info.mpi.size === members.length,
      );
    if (hosts.size > 1 && !mpi)
      throw new WeftError(
        "workers of several hosts exchange data over MPI: start them as one job (mpirun -n 4 weft worker ..., or srun)",
      );
    const list = members.map((id) => id.slice(1)).join(".");
    // File names are limited in length: long member lists are replaced by a digest.
    const short = list.length <= 40 ? list : hash("sha256", list, "hex").slice(0, 40);
    return { name: `${this.id}-${generation}-${short}`, mpi };
  }

  #run(client: ClientEntry, message: Extract<FromClient, { t: "run" }>): void {
    const program = client.programs.get(message.program);
    if (program === undefined) throw new WeftError(`run: program ${message.program} was not defined`);
    const { members, problem } = program;
    if (problem !== null) {
      if (message.free !== undefined) this.#free(client, message.free);
      this.#toClient(client, {
        t: "failed",
        ids: message.outputs,
        message: problem,
        code: "lost",
        worker: members[0],
      });
      return;
    }
    if (client.holders.size + message.outputs.length > limits.tensors)
      throw new WeftError(`a client may hold ${limits.tensors} tensors; free some`);
    const maxQueue = Math.min(client.hello.settings.maxQueue ?? defaultMaxQueue, maxQueueLimit);
    const full = members.find((id) => (client.queued.get(id) ?? 0) >= maxQueue);
    if (full !== undefined) {
      if (message.free !== undefined) this.#free(client, message.free);
      const why = `${maxQueue} instructions of this client are queued for worker ${full}; await results more often, or raise maxQueue in connect`;
      this.#toClient(client, { t: "failed", ids: message.outputs, message: why, code: "error", worker: full });
      return;
    }
    for (const id of members) client.queued.set(id, (client.queued.get(id) ?? 0) + 1);
    for (const id of message.outputs) client.holders.set(id, members);
    log("dispatcher", () => `client ${client.id} runs program ${message.program} on ${members.join(", ")}`);
    const { free = [], ...rest } = message;
    const here = free.filter((id) => sameMembers(client.holders.get(id), members));
    this.#send(
      client,
      members,
      { ...rest, client: client.id, free: here.length > 0 ? here : undefined },
      message.outputs,
    );
    for (const id of here) client.holders.delete(id);
    if (here.length < free.length)
      this.#free(
        client,
        free.filter((id) => client.holders.has(id)),
      );
  }

  #upload(client: ClientEntry, { id, bytes, parts }: Extract<FromClient, { t: "upload" }>): void {
    if (client.holders.size >= limits.tensors)
      throw new WeftError(`a client may hold ${limits.tensors} tensors; free some`);
    const holders = client.holders.get(id) ?? [];
    client.holders.set(id, [...new Set([...holders, ...parts.map((part) => part.worker)])]);
    for (const part of parts)
      this.#send(client, [part.worker], { t: "upload", client: client.id, id, bytes, part }, [id]);
  }

  #free(client: ClientEntry, freed: readonly number[]): void {
    const byWorker = new Map<string, number[]>();
    for (const id of freed) {
      for (const worker of client.holders.get(id) ?? []) {
        const list = byWorker.get(worker);
        if (list === undefined) byWorker.set(worker, [id]);
        else list.push(id);
      }
      client.holders.delete(id);
    }
    for (const [worker, ids] of byWorker) this.#send(client, [worker], { t: "free", client: client.id, ids });
  }
}

const sameMembers = (a: readonly string[] | undefined, b: readonly string[]): boolean =>
  a === b || (a !== undefined && a.length === b.length && a.every((id, i) => id === b[i]));
