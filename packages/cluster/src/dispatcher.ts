// The dispatcher: tracks workers and clients, forwards instructions to workers in order, and reports failures. It
// carries ids, plans and metadata, never tensor bytes.
import { hostname } from "node:os";
import type * as grpc from "@grpc/grpc-js";
import { shortened, WeftError } from "@weft/core/internal/graph";
import { Admission } from "./admission.js";
import { overQuota } from "./backlog.js";
import { checkCollectives } from "./collectives.js";
import { logDebug } from "./debug.js";
import { canReach, checkDefine, checkTensors, checkWorker, partProblem } from "./dispatcher-checks.js";
import {
  type ClientEntry,
  type Counters,
  type DispatcherOptions,
  type DispatchProblem,
  type MemberGroup,
  newClient,
  newWorker,
  type Quotas,
  quotasFrom,
  releaseHolders,
  type ServerStream,
  sameMembers,
  settingsWithin,
  type WorkerEntry,
} from "./dispatcher-state.js";
import { silenceOf } from "./hung-worker.js";
import { dataKey, randomKey, sameSecret } from "./identity.js";
import { instruction } from "./instructions.js";
import { groupOf, groupsWith } from "./member-group.js";
import { Outgoing, whenOver } from "./outgoing.js";
import { PlanBook } from "./plan-report.js";
import {
  decode,
  decodeAll,
  encode,
  type FromClient,
  type FromWorker,
  fromClient,
  fromWorker,
  heartbeat,
  type ToClient,
  type ToWorker,
  type WorkerInfo,
} from "./protocol.js";
import { securityFrom } from "./security.js";
import { bindServer, makeServer, service } from "./wire.js";
import { inParts, type LostWorker, WorkerChanges } from "./worker-changes.js";

/** Bytes waiting for a client that does not read them, or for a worker, from all clients; it is disconnected beyond. */
const maxUnread = 64 << 20;
const maxUnreadByWorker = 512 << 20;
/** Bytes waiting for a watcher; it gets no more until it has read them. */
const maxUnwatched = 1 << 20;
/** Seconds within which a new connection must send its hello. */
const helloSeconds = 5;

/** The process that forwards instructions of clients to workers; `weft server` runs one. */
export class Dispatcher {
  /** Name of this process in logs, new at every start. */
  readonly id = randomKey().slice(0, 8);
  readonly #server = makeServer();
  readonly #workers = new Map<string, WorkerEntry>();
  readonly #clients = new Map<number, ClientEntry>();
  readonly #watchers = new Set<Outgoing>();
  readonly #plans = new PlanBook();
  readonly #host: string;
  readonly #admission: Admission;
  readonly #quotas: Quotas;
  /** From which the keys of data connections are derived. */
  readonly #secret = randomKey();
  readonly #stopTimeout: number;
  /** Messages and bytes that were forwarded, and tensors that clients recomputed. */
  readonly counters: Counters = { messages: 0, bytes: 0, recomputed: 0 };
  #nextClient = 1;
  #nextWorker = 1;
  /** Incremented when the set of workers changes or a group breaks. */
  #generation = 1;
  #timer: NodeJS.Timeout | null = null;
  #lastCheck = performance.now();
  readonly #changes = new WorkerChanges((joined, lost) => this.#sendChanges(joined, lost));
  /** Port that it listens on; 0 before `start`. */
  port = 0;

  constructor(options: DispatcherOptions = {}) {
    this.#host = options.host ?? "localhost";
    this.#admission = new Admission(securityFrom(options, this.#host, ["token", "worker-token"]));
    this.#quotas = quotasFrom(options.quotas);
    this.#stopTimeout = options.stopTimeout ?? 4;
    const admission = this.#admission;
    this.#server.addService(service as grpc.ServiceDefinition, {
      Challenge: (stream: ServerStream) => admission.challenge(stream),
      Client: (stream: ServerStream) => {
        const role = admission.admit(stream, "client", "watcher");
        if (role !== null) this.#accept(stream, (bytes) => this.#clientHello(stream, bytes, role === "watcher"));
      },
      Worker: (stream: ServerStream) => {
        if (admission.admit(stream, "worker") !== null)
          this.#accept(stream, (bytes) => this.#workerHello(stream, bytes));
      },
      Heartbeat: (stream: ServerStream) => {
        if (admission.admit(stream, "heartbeat") !== null)
          stream.on("data", (bytes: Buffer) => this.#beat(stream, bytes)).on("error", () => {});
      },
    });
  }

  /** Starts a dispatcher and waits until it listens. */
  static async start(options: DispatcherOptions = {}): Promise<Dispatcher> {
    const dispatcher = new Dispatcher(options);
    const { security } = dispatcher.#admission;
    try {
      dispatcher.port = await bindServer(dispatcher.#server, dispatcher.#host, options.port ?? 9000, security);
    } catch (error) {
      dispatcher.#admission.stop();
      throw error;
    }
    dispatcher.#admission.port = dispatcher.port;
    dispatcher.#timer = setInterval(() => dispatcher.#checkWorkers(), 500);
    logDebug("dispatcher", () => `${dispatcher.id} listens on port ${dispatcher.port}`);
    return dispatcher;
  }

  /** Ends all connections and stops listening. */
  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#changes.stop();
    this.#admission.stop();
    this.#server.forceShutdown();
  }

  /** Workers that can be used now. */
  get workers(): Omit<WorkerInfo, "key">[] {
    return this.#available().map((w) => w.info);
  }

  #available(): WorkerEntry[] {
    return [...this.#workers.values()].filter((w) => !w.suspended);
  }

  /** A worker as a client sees it, with the key of its data connection. */
  #infoFor(client: number, { info }: WorkerEntry): WorkerInfo {
    return { ...info, key: dataKey(this.#secret, client, info.id) };
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
    whenOver(stream, () => clearTimeout(late));
  }

  #refuse(stream: ServerStream, message: string): void {
    logDebug("dispatcher", () => `refused: ${message}`);
    stream.write(encode({ t: "refused", message: shortened(message) } satisfies ToClient));
    stream.end();
  }

  // Workers

  #workerHello(stream: ServerStream, bytes: Buffer): (bytes: Buffer) => void {
    const message = decode(fromWorker, bytes);
    if (message.t !== "hello") throw new WeftError(`the first message of a worker must be a hello, not ${message.t}`);
    const { t: _, ...facts } = message;
    checkWorker(message, this.#admission.isNear(stream));
    if (this.#workers.size >= this.#quotas.maxWorkers)
      throw new WeftError(`${this.#quotas.maxWorkers} workers are connected already (maxWorkers)`);
    // Numbered by this dispatcher, hence unique.
    const id = `w${this.#nextWorker++}`;
    const out = new Outgoing(stream);
    const write = (bytes: Buffer): void => {
      out.write(bytes);
      if (out.unread <= maxUnreadByWorker) return;
      this.#workerEnded(entry, `worker ${id} has not read ${out.unread} bytes of instructions`);
      stream.destroy();
    };
    const entry = newWorker({ ...facts, id }, stream, write);
    this.#workers.set(id, entry);
    this.#toWorker(entry, { t: "welcome", worker: id, key: entry.key });
    for (const client of this.#clients.values()) this.#introduce(entry, client);
    logDebug("dispatcher", () => `${id} joined: ${facts.device}, process ${facts.process.pid}`);
    this.#changes.joined(entry);
    const ended = `worker ${id} (${facts.device}, process ${facts.process.pid}) ended`;
    whenOver(stream, () => this.#workerEnded(entry, ended));
    return (more) => {
      try {
        this.#fromWorker(entry, decode(fromWorker, more));
      } catch (error) {
        // An invalid message must not disconnect a worker that other clients use.
        logDebug("dispatcher", () => `${id}: message ignored: ${(error as Error).message}`);
      }
    };
  }

  #introduce(worker: WorkerEntry, client: ClientEntry): void {
    this.#toWorker(worker, {
      t: "client",
      client: client.id,
      key: dataKey(this.#secret, client.id, worker.info.id),
      settings: settingsWithin(client.hello.settings, this.#quotas),
    });
  }

  #toWorker(worker: WorkerEntry, message: ToWorker): void {
    worker.outbox.post(JSON.stringify(message));
  }

  #fromWorker(worker: WorkerEntry, message: FromWorker): void {
    if (message.t === "stats") worker.stats = message.stats;
    else if (message.t === "progress") {
      this.#clients.get(message.client)?.instructions.done(worker.info.id, message.done, message.seconds);
    } else if (message.t === "failed") {
      const { client, ...rest } = message;
      const { id } = worker.info;
      logDebug("dispatcher", () => `${id} failed for client ${client}: ${rest.message.split("\n")[0]}`);
      const entry = this.#clients.get(client);
      // A worker speaks for the tensors that it was instructed to make, and for nobody else's.
      const ids = rest.ids.filter((tensor) => entry?.holders.get(tensor)?.includes(id));
      if (entry !== undefined && ids.length > 0) this.#toClient(entry, { ...rest, ids, worker: id });
    } else if (message.t === "arrived") {
      const [entry, upload] = [this.#clients.get(message.client), `${worker.info.id}/${message.id}`];
      if (entry !== undefined) this.#arrived(entry, (one) => one === upload);
    } else if (message.t === "broken") {
      logDebug("dispatcher", () => `${worker.info.id}: group ${message.group} is broken; programs will use a new one`);
      const { id } = worker.info;
      const isMember = [...this.#clients.values()].some(({ programs }) =>
        groupsWith(id, programs.values()).has(message.group),
      );
      if (isMember && message.group.includes(`-${this.#generation}-`)) this.#changes.changed();
    } else throw new WeftError("a worker sends hello once");
  }

  #workerEnded(worker: WorkerEntry, reason: string): void {
    if (!this.#workers.delete(worker.info.id)) return;
    for (const client of this.#clients.values()) client.instructions.ended(worker.info.id);
    this.#removed(worker, reason);
  }

  #removed(worker: WorkerEntry, reason: string): void {
    logDebug("dispatcher", () => reason);
    for (const client of this.#clients.values()) this.#arrived(client, (one) => one.startsWith(`${worker.info.id}/`));
    this.#changes.lost(worker.info.id, reason);
    this.#heard(worker.info.id);
  }

  /** Answers when all workers have been heard from: whoever misses one learns at once whether it is there. */
  #confirm(client: ClientEntry, question: number): void {
    client.unheard = { question, workers: new Set(this.#available().map(({ info }) => info.id)) };
    this.#answer(client);
  }

  /** A worker has reported, or is reported as lost. */
  #heard(worker: string): void {
    for (const client of this.#clients.values()) if (client.unheard?.workers.delete(worker)) this.#answer(client);
  }

  #answer(client: ClientEntry): void {
    const { unheard } = client;
    if (unheard === null || unheard.workers.size > 0) return;
    client.unheard = null;
    // The client learns of lost workers first.
    this.#changes.flush();
    this.#toClient(client, { t: "confirmed", question: unheard.question });
  }

  /** Starts a new generation, for which clients plan. */
  #sendChanges(joined: readonly WorkerEntry[], lost: LostWorker[]): void {
    this.#generation++;
    for (const client of this.#clients.values()) this.#notifyJoined(client, joined, lost);
  }

  #notifyJoined(client: ClientEntry, joined: readonly WorkerEntry[], lost: LostWorker[], welcome = false): void {
    const near = joined.filter(({ info }) => canReach(client.near, info));
    for (const [i, { part, more }] of inParts(near).entries()) {
      const infos = part.map((worker) => this.#infoFor(client.id, worker));
      const dispatcher = `${this.id}@${hostname()}`;
      const common = { generation: this.#generation, more };
      if (welcome && i === 0)
        this.#toClient(client, { t: "welcome", client: client.id, ...common, workers: infos, dispatcher });
      else this.#toClient(client, { t: "workers", ...common, joined: infos, lost: i === 0 ? lost : [] });
    }
  }

  #beat(stream: ServerStream, bytes: Buffer): void {
    try {
      const { worker: id, key, stuck } = decode(heartbeat, bytes);
      const worker = this.#workers.get(id);
      if (worker === undefined || !sameSecret(key, worker.key)) {
        // What it computes belongs to clients of an earlier connection.
        stream.write(encode({ t: "stop", client: null }));
        stream.end();
        return;
      }
      worker.lastBeat = performance.now();
      this.#heard(id);
      if (worker.beats !== stream) whenOver(stream, () => worker.beats === stream && (worker.beats = null));
      worker.beats = stream;
      const client = stuck === undefined ? undefined : this.#clients.get(stuck);
      if (client !== undefined) this.#expel(client, id);
    } catch (error) {
      this.#refuse(stream, (error as Error).message);
    }
  }

  /** Its program would end one worker after the other if it were recomputed on those that are left. */
  #expel(client: ClientEntry, worker: string): void {
    this.#refuse(
      client.stream,
      `a program of this client took longer than ${this.#quotas.maxSeconds} s (maxSeconds of the dispatcher) on worker ${worker}, and could not be stopped`,
    );
    this.#clientEnded(client);
  }

  /** Suspends workers whose heartbeats stop: a stopped process or an unreachable host reports nothing. */
  #checkWorkers(): void {
    const now = performance.now();
    // A dispatcher that was itself stopped or delayed has missed heartbeats that were sent.
    const delayed = now - this.#lastCheck > 1500;
    this.#lastCheck = now;
    for (const worker of this.#workers.values()) {
      if (delayed) worker.lastBeat = now;
      const silent = now - worker.lastBeat > this.#stopTimeout * 1e3;
      if (silent === worker.suspended) continue;
      const { id } = worker.info;
      if (!silent) {
        // What it was sent meanwhile would make it wait for groups that the others have left: it joins again, with nothing to do.
        this.#workerEnded(worker, `worker ${id} continued, and joins again`);
        worker.stream.end();
        continue;
      }
      worker.suspended = true;
      const reason = silenceOf(worker.info, this.#stopTimeout);
      for (const { instructions, programs } of this.#clients.values())
        instructions.suspended(id, groupsWith(id, programs.values()), reason);
      this.#removed(worker, reason);
    }
    if (this.#watchers.size > 0) this.#report();
  }

  #report(): void {
    const seen = this.#plans.seen([...this.#workers.values()], [...this.#clients.values()]);
    const bytes = encode({ t: "status", ...this.counters, ...seen } satisfies ToClient);
    // A watcher that does not read gets no more until it has.
    for (const watcher of this.#watchers) if (watcher.unread < maxUnwatched) watcher.write(bytes);
  }

  // Clients

  #clientHello(stream: ServerStream, bytes: Buffer, watches: boolean): (bytes: Buffer) => void {
    const hello = decode(fromClient, bytes);
    if (hello.t !== "hello") throw new WeftError(`the first message of a client must be a hello, not ${hello.t}`);
    if (watches) {
      if (this.#watchers.size >= this.#quotas.maxClients)
        throw new WeftError(`${this.#quotas.maxClients} watchers are connected already (maxClients)`);
      const watcher = new Outgoing(stream);
      this.#watchers.add(watcher);
      whenOver(stream, () => this.#watchers.delete(watcher));
      this.#report();
      return () => {};
    }
    if (this.#clients.size >= this.#quotas.maxClients)
      throw new WeftError(`${this.#quotas.maxClients} clients are connected already (maxClients)`);
    const client = newClient(this.#nextClient++, stream, this.#admission.isNear(stream), hello, this.#workers);
    this.#clients.set(client.id, client);
    for (const worker of this.#workers.values()) this.#introduce(worker, client);
    logDebug("dispatcher", () => `client ${client.id} joined: process ${hello.process.pid}`);
    // Pending ones are announced to everybody with the next change.
    const known = this.#available().filter(({ info }) => !this.#changes.announces(info.id));
    this.#notifyJoined(client, known, [], true);
    whenOver(stream, () => this.#clientEnded(client));
    return (more) => {
      for (const message of decodeAll(fromClient, more)) this.#inOrder(client, message);
    };
  }

  /**
   * What follows an upload over a socket waits until its bytes have arrived: workers would otherwise wait for a slow client, and
   * all other clients with them. Nothing more is read from the client meanwhile.
   */
  #inOrder(client: ClientEntry, message: FromClient): void {
    if (client.uploading.size > 0 || client.held.length > 0) client.held.push(message);
    else this.#fromClient(client, message);
    if (client.uploading.size > 0) client.stream.pause();
  }

  /** An upload has arrived, or its worker is gone. */
  #arrived(client: ClientEntry, isOver: (upload: string) => boolean): void {
    if (client.uploading.size === 0) return;
    for (const upload of [...client.uploading]) if (isOver(upload)) client.uploading.delete(upload);
    if (client.uploading.size > 0) return;
    const { held } = client;
    client.held = [];
    try {
      for (const [i, message] of held.entries()) {
        this.#inOrder(client, message);
        if (client.uploading.size === 0) continue;
        client.held = [...client.held, ...held.slice(i + 1)];
        return;
      }
    } catch (error) {
      this.#refuse(client.stream, (error as Error).message);
    }
    client.stream.resume();
  }

  #toClient(client: ClientEntry, message: ToClient): void {
    client.out.write(encode(message));
    if (client.out.unread <= maxUnread) return;
    logDebug("dispatcher", () => `client ${client.id} does not read its messages`);
    this.#clientEnded(client);
    client.stream.destroy();
  }

  #clientEnded(client: ClientEntry): void {
    if (!this.#clients.delete(client.id)) return;
    this.#plans.left(client.id);
    client.stream.end();
    logDebug("dispatcher", () => `client ${client.id} left; its tensors are freed`);
    for (const worker of this.#workers.values()) {
      this.#toWorker(worker, { t: "leave", client: client.id });
      // A worker that computes reads this at once, and the other when it has finished.
      worker.beats?.write(encode({ t: "stop", client: client.id }));
    }
  }

  #fromClient(client: ClientEntry, message: FromClient): void {
    if (message.t === "run") this.#run(client, message);
    else if (message.t === "define") this.#define(client, message);
    else if (message.t === "upload") this.#upload(client, message);
    else if (message.t === "free") this.#free(client, message.ids);
    else if (message.t === "plan") this.#plans.add(client.id, message);
    else if (message.t === "recomputed") this.counters.recomputed += message.tensors;
    else if (message.t === "confirm") this.#confirm(client, message.question);
    else if (message.t === "forget") {
      const { members = [] } = client.programs.get(message.program) ?? {};
      this.#sendEach(client, members, instruction({ ...message, client: client.id }));
      client.programs.delete(message.program);
    } else if (message.t === "probe") {
      const { t, measure, worker } = message;
      const full = this.#overQuota(client, [worker]);
      if (full !== null) throw new WeftError(full.message);
      this.#sendEach(client, [worker], instruction({ t, measure, client: client.id }));
    } else throw new WeftError("a client sends hello once");
  }

  /** Sends an instruction to one worker, or to all members of a group. `ids` fail with a worker that is not connected. */
  #send(client: ClientEntry, workers: readonly string[], texts: readonly string[], ids: readonly number[] = []): void {
    const here = workers.filter((id) => this.#workers.has(id));
    if (here.length === workers.length) {
      client.instructions.send(workers, texts);
      return;
    }
    client.instructions.send(
      here,
      texts.filter((_, i) => this.#workers.has(workers[i])),
    );
    for (const id of ids.length === 0 ? [] : workers)
      if (!this.#workers.has(id)) {
        const message = `worker ${id} is not connected`;
        this.#toClient(client, { t: "failed", ids: [...ids], message, code: "lost", worker: id });
      }
  }

  #sendEach(client: ClientEntry, workers: readonly string[], text: string, ids: readonly number[] = []): void {
    for (const id of workers) this.#send(client, [id], [text], ids);
  }

  #overQuota(client: ClientEntry, workers: readonly string[]): { message: string; worker: string } | null {
    return overQuota(client.instructions.backlogs, workers, client.hello.settings.maxQueue, this.#quotas);
  }

  #define(client: ClientEntry, message: Extract<FromClient, { t: "define" }>): void {
    const { program, members, graphs, which, constants, collective, donated, generation } = message;
    checkDefine(message, this.#generation, client.programs.size);
    const missing = members.find((id) => !this.#workers.has(id) || this.#workers.get(id)!.suspended);
    let problem: DispatchProblem | null =
      missing === undefined
        ? null
        : { message: `worker ${missing} is not connected; run it again on the remaining workers`, code: "lost" };
    const full = this.#overQuota(client, members);
    if (full !== null) problem ??= { message: full.message, code: "error" };
    let group: MemberGroup | null = null;
    try {
      if (collective && problem === null) {
        checkCollectives(which.map((at) => graphs[at]));
        const infos = members.map((id) => this.#workers.get(id)!.info);
        group = groupOf(`${this.id}-${generation}-${client.id}`, infos, this.#secret);
      }
    } catch (error) {
      problem = { message: (error as Error).message, code: "error" };
    }
    client.programs.set(program, { members, group: group?.name ?? null, problem });
    if (problem !== null) return;
    logDebug(
      "dispatcher",
      () =>
        `client ${client.id} defines program ${program} for ${members.join(", ")}${group === null ? "" : ` (group ${group.name})`}`,
    );
    const texts = members.map((_, rank) =>
      instruction({
        t: "define",
        client: client.id,
        program,
        donated,
        graph: graphs[which[rank]],
        constants: constants?.[rank],
        group: group === null ? null : { ...group, rank, size: members.length },
      }),
    );
    if (group !== null) client.instructions.send(members, texts, true);
    else members.forEach((id, rank) => void client.instructions.send([id], [texts[rank]], true));
  }

  #run(client: ClientEntry, message: Extract<FromClient, { t: "run" }>): void {
    this.#plans.ran(client.id, message.program);
    const program = client.programs.get(message.program);
    if (program === undefined) throw new WeftError(`run: program ${message.program} was not defined`);
    const { members, group, problem } = program;
    if (problem !== null) {
      if (message.free !== undefined) this.#free(client, message.free);
      this.#toClient(client, { t: "failed", ids: message.outputs, ...problem, worker: members[0] });
      return;
    }
    checkTensors(client.holders.size + message.outputs.length);
    const full = this.#overQuota(client, members);
    if (full !== null) {
      if (message.free !== undefined) this.#free(client, message.free);
      this.#toClient(client, { t: "failed", ids: message.outputs, code: "error", ...full });
      return;
    }
    for (const id of message.outputs) client.holders.set(id, members);
    logDebug("dispatcher", () => `client ${client.id} runs program ${message.program} on ${members.join(", ")}`);
    const { free = [], ...rest } = message;
    const here = free.filter((id) => sameMembers(client.holders.get(id), members));
    const text = instruction({ ...rest, client: client.id, free: here.length > 0 ? here : undefined });
    if (group !== null) this.#send(client, members, Array<string>(members.length).fill(text), message.outputs);
    else this.#sendEach(client, members, text, message.outputs);
    for (const id of here) client.holders.delete(id);
    if (here.length < free.length)
      this.#free(
        client,
        free.filter((id) => client.holders.has(id)),
      );
  }

  #upload(client: ClientEntry, { id, bytes, parts }: Extract<FromClient, { t: "upload" }>): void {
    checkTensors(client.holders.size + 1);
    const workers = parts.map((part) => part.worker);
    const full = partProblem(bytes, parts) ?? this.#overQuota(client, workers);
    if (full !== null) {
      this.#toClient(client, { t: "failed", ids: [id], code: "error", ...full });
      return;
    }
    const holders = client.holders.get(id) ?? [];
    client.holders.set(id, [...new Set([...holders, ...workers])]);
    // A worker that hangs may never answer.
    for (const { worker, offset } of parts)
      if (offset === null && this.#workers.get(worker)?.suspended === false) client.uploading.add(`${worker}/${id}`);
    for (const part of parts) {
      const text = instruction({ t: "upload", client: client.id, id, bytes, part });
      // Its bytes are on their way already, and workers receive them beside other work.
      if (part.offset === null && this.#workers.has(part.worker)) client.instructions.sendNow(part.worker, text);
      else this.#sendEach(client, [part.worker], text, [id]);
    }
  }

  #free(client: ClientEntry, freed: readonly number[]): void {
    for (const [worker, ids] of releaseHolders(client, freed)) {
      if (client.instructions.bytes(worker) > 2 * this.#quotas.maxQueueBytes)
        throw new WeftError(`worker ${worker} has not read the last instructions of this client; too many follow`);
      this.#sendEach(client, [worker], instruction({ t: "free", client: client.id, ids }));
    }
  }
}
