// A client's connection to a dispatcher: the list of workers, outgoing messages, and reported failures. It handles
// messages, not tensors.
import { WeftError } from "@weft/core/internal/graph";
import { AnnouncedWorkers } from "./announced-workers.js";
import type { Measurement } from "./clocks.js";
import { DataLink, reopenedMs } from "./data-link.js";
import { logDebug } from "./debug.js";
import { Outbox } from "./outbox.js";
import { isAlive } from "./process-state.js";
import {
  type ClientSettings,
  decode,
  encode,
  type FailureCode,
  type FromClient,
  type ToClient,
  toClient,
  type WorkerInfo,
} from "./protocol.js";
import { type Security, securityFrom } from "./security.js";
import { type Channel, hostId, openStream, parseAddress, unreachable } from "./wire.js";

/** Options of `connect`. @inline */
export interface ConnectOptions extends Security, ClientSettings {
  /** Seconds to wait for the dispatcher and for the first worker. */
  timeout?: number;
  /** A name for this client in logs. */
  label?: string;
  /**
   * Sharding rules for named parts of the program (docs/sharding.md): a YAML file or its content. Defaults to
   * WEFT_SHARD_RULES.
   */
  sharding?: string | object;
  /** A mesh of workers with named axes, e.g. { batch: 2, model: 2 }. The planner then considers no other mesh. */
  mesh?: Readonly<Record<string, number>>;
}

/** Milliseconds from the beginning of a data connection that broke to that of another one. */
const reopenMs = 1000;

interface Reported {
  message: string;
  code: FailureCode;
}

export class Connection {
  readonly #announced = new AnnouncedWorkers();
  client = 0;
  /** The dispatcher's id (prefix of its group names) and host. */
  dispatcher = "";
  /** Why the connection ended; null while it is open. */
  lost: string | null = null;
  readonly failures = new Map<number, Reported>();
  readonly #links = new Map<string, DataLink>();
  readonly #security: Security;
  #channel: Channel | null = null;
  readonly #host: string;
  readonly #port: number;
  readonly #outbox = new Outbox((bytes) => this.#write(bytes));
  #freed: number[] = [];
  /** Tensors that were sent or asked for, and not freed: failures of others are of no interest. */
  readonly #live = new Set<number>();
  #flushing = false;
  /** Questions to the dispatcher, and the last one that it answered. */
  #asked = 0;
  #answered = 0;
  /** Messages and bytes sent to the dispatcher. */
  readonly sent = { messages: 0, bytes: 0 };
  onChange: () => void = () => {};
  onUploaded: (id: number, worker: string) => void = () => {};
  /** The data connection to a worker broke; the worker may be there, and `link` opens another one. */
  onLinkBroken: (worker: string) => void = () => {};
  /** The worker's process has ended and no longer reads this process's memory. */
  onWorkerEnded: (worker: string) => void = () => {};
  onEnd: () => void = () => {};
  onTape: (records: unknown[]) => void = () => {};
  onMeasured: (worker: string, measured: Measurement) => void = () => {};
  readonly ready: Promise<void>;

  constructor(address: string, options: ConnectOptions = {}) {
    const { host, port } = parseAddress(address);
    [this.#host, this.#port] = [host, port];
    this.#security = securityFrom(options, host, ["token"]);
    const { timeout = 10 } = options;
    this.ready = new Promise<void>((resolve, reject) => {
      const late = setTimeout(
        () => this.#end(`no answer from ${this.address} within ${timeout} s; is that a weft dispatcher?`, reject),
        timeout * 1e3,
      );
      let welcomed = false;
      // Whether the list of workers is incomplete.
      let more = false;
      const noWorkers = (): void =>
        this.#end(
          `the dispatcher at ${this.address} has no workers; start one: weft worker --host ${host} -p ${port}`,
          reject,
        );
      const maybeReady = (): void => {
        if (this.workers.length === 0 || more) return;
        clearTimeout(late);
        // An idle connection does not keep the program alive.
        this.#channel?.unref();
        resolve();
      };
      const onData = (bytes: Buffer): void => {
        if (this.lost !== null) return;
        let message: ToClient;
        try {
          message = decode(toClient, bytes);
        } catch (error) {
          this.#end(`the dispatcher at ${this.address} sent an invalid message: ${(error as Error).message}`, reject);
          this.#channel?.stream.cancel();
          return;
        }
        try {
          follow(message, bytes.length);
        } catch (error) {
          this.#end(`the dispatcher at ${this.address} contradicts itself: ${(error as Error).message}`, reject);
          this.#channel?.stream.cancel();
        }
      };
      const follow = (message: ToClient, bytes: number): void => {
        if (message.t === "refused") {
          this.#end(`the dispatcher at ${this.address} refused: ${message.message}`, reject);
          return;
        }
        if (welcomed === (message.t === "welcome"))
          throw new WeftError(`"${message.t}" ${welcomed ? "after" : "before"} its welcome`);
        if (message.t === "welcome") {
          welcomed = true;
          ({ more } = message);
          if (!more) clearTimeout(late);
          ({ client: this.client, dispatcher: this.dispatcher } = message);
          this.#follow({ ...message, joined: message.workers, lost: [] }, bytes);
          logDebug(
            "client",
            () => `connected to ${message.dispatcher} as client ${this.client}: ${this.workers.length} workers`,
          );
          if (this.workers.length === 0 && !more)
            setTimeout(() => this.workers.length === 0 && noWorkers(), Math.min(timeout, 5) * 1e3);
          maybeReady();
        } else if (message.t === "workers") {
          ({ more } = message);
          this.#follow(message, bytes);
          maybeReady();
          if (!more) this.onChange();
        } else if (message.t === "failed") {
          const { message: text, code } = message;
          const ids = message.ids.filter((id) => this.#live.has(id));
          for (const id of ids) {
            // The original cause is more informative than the abort that follows from it.
            const earlier = this.failures.get(id);
            if (earlier === undefined || earlier.code === "aborted") this.failures.set(id, { message: text, code });
          }
          // No worker answers for an instruction that the dispatcher could not forward.
          const failed = new Set(ids);
          for (const link of this.#links.values()) link.failTensors(failed, text, code);
        } else if (message.t === "confirmed") {
          if (message.question > this.#asked) throw new WeftError(`an answer to question ${message.question}`);
          this.#answered = message.question;
        } else throw new WeftError(`"${message.t}" is for watchers`);
      };
      const onError = (error: Error): void => {
        clearTimeout(late);
        if (error instanceof WeftError) {
          this.#end(`the dispatcher at ${this.address} refused: ${error.message}`, reject);
          return;
        }
        const reason = welcomed
          ? `the connection to the dispatcher at ${this.address} was lost and its tensors with it: call connect again and recompute them`
          : unreachable(host, port, error);
        this.#end(reason, reject);
      };
      const begin = ({ stream }: Channel): void => {
        stream.on("data", onData);
        stream.on("error", onError);
        stream.on("end", () =>
          this.#end(
            `the dispatcher at ${this.address} closed the connection; call connect again and recompute the tensors`,
            reject,
          ),
        );
        const { maxTensors, maxBytes, maxQueue, maxSeconds, maxCompileSeconds, tape } = options;
        const hello: FromClient = {
          t: "hello",
          label: options.label ?? null,
          process: { host: hostId(), pid: process.pid },
          settings: { maxTensors, maxBytes, maxQueue, maxSeconds, maxCompileSeconds, tape },
        };
        // Sent unbatched: the dispatcher expects the hello as the first message.
        this.#write(encode(hello));
      };
      openStream(host, port, "client", this.#security, false, timeout + 1).then((channel) => {
        this.#channel = channel;
        if (this.lost === null) begin(channel);
        else channel.close();
      }, onError);
    });
    this.ready.catch(() => {});
  }

  get address(): string {
    return `${this.#host}:${this.#port}`;
  }

  #end(reason: string, reject: (error: Error) => void): void {
    this.lost ??= reason;
    logDebug("client", () => reason);
    for (const link of this.#links.values()) link.fail(this.lost);
    this.#channel?.stream.end();
    this.#channel?.close();
    reject(new WeftError(this.lost));
    this.onEnd();
    this.onChange();
  }

  /** The workers of the dispatcher. */
  get workers(): readonly WorkerInfo[] {
    return this.#announced.list;
  }

  get generation(): number {
    return this.#announced.generation;
  }

  isDead(worker: string): boolean {
    return this.#announced.isDead(worker);
  }

  /** Why a worker is dead; null if it is not. */
  deathOf(worker: string): string | null {
    return this.#announced.reasonOf(worker);
  }

  #follow(changes: Parameters<AnnouncedWorkers["change"]>[0], bytes: number): void {
    for (const { worker, reason } of this.#announced.change(changes, bytes, this.#channel!.isNear()))
      this.#workerLost(worker, reason);
    this.#openLinks();
  }

  #openLinks(): void {
    for (const worker of this.workers) {
      const open = this.#links.get(worker.id);
      if (open === undefined || open.broken !== null) this.#openLink(worker, open);
    }
  }

  #openLink(worker: WorkerInfo, before?: DataLink): DataLink {
    const listener = {
      uploaded: (id: number) => this.onUploaded(id, worker.id),
      broken: () => {
        // A host that does not answer has given up what it waited for.
        if (this.lost === null && !this.isDead(worker.id) && !link.silent) this.onLinkBroken(worker.id);
      },
      tape: (records: unknown[]) => this.onTape(records),
      measured: (value: Measurement) => this.onMeasured(worker.id, value),
    };
    const link = new DataLink(worker, this.client, this.#security, listener, before && reopenedMs);
    this.#links.set(worker.id, link);
    return link;
  }

  #workerLost(worker: string, reason: string): void {
    const link = this.#links.get(worker);
    link?.fail(reason);
    this.#links.delete(worker);
    this.#releaseWhenEnded(worker, link?.reader ?? null);
    logDebug("client", () => reason);
  }

  /**
   * Releases the staging buffers of a dead worker once its process has ended. A process that only hangs may resume and
   * read them, and a killed process closes its connections shortly before it ends.
   */
  #releaseWhenEnded(worker: string, reader: number | null): void {
    if (reader === null || !isAlive(reader)) this.onWorkerEnded(worker);
    else
      setTimeout(() => {
        if (this.lost === null && this.isDead(worker)) this.#releaseWhenEnded(worker, reader);
      }, 100).unref();
  }

  /** Waits until it is known which workers share memory with this process; a busy worker is not waited for. */
  async linked(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, 500);
    });
    await Promise.race([Promise.all([...this.#links.values()].map((link) => link.settled)), enough]);
    clearTimeout(timer);
  }

  /** Why there is no data connection to a worker, and whether its host does not answer; null if there is one. */
  brokenLink(worker: string): { reason: string; silent: boolean } | null {
    const link = this.#links.get(worker);
    return link?.broken == null ? null : { reason: link.broken, silent: link.silent };
  }

  /** Asks the dispatcher which workers are there; tells whether it has reported all that are not. */
  confirm(): () => boolean {
    const question = ++this.#asked;
    this.send({ t: "confirm", question });
    return () => this.#answered >= question;
  }

  link(worker: string): DataLink {
    const link = this.#links.get(worker);
    // The worker may be there although its data connection broke: a network that failed for seconds, or a firewall.
    const info = link?.broken == null || this.lost !== null ? undefined : this.workers.find(({ id }) => id === worker);
    if (info !== undefined && performance.now() - link!.begun > reopenMs) return this.#openLink(info, link);
    if (link !== undefined) return link;
    throw new WeftError(this.lost ?? this.deathOf(worker) ?? `worker ${worker} is not connected`);
  }

  send(message: FromClient): void {
    if (message.t === "run") for (const id of message.outputs) this.#live.add(id);
    else if (message.t === "upload") this.#live.add(message.id);
    if (this.lost === null) this.#outbox.post(JSON.stringify(message));
  }

  #write(bytes: Buffer): void {
    if (this.lost !== null) return;
    this.sent.messages++;
    this.sent.bytes += bytes.length;
    this.#channel?.stream.write(bytes);
  }

  /** Frees are batched: they are sent with the next message or at the end of the event-loop turn. */
  free(id: number): void {
    this.#freed.push(id);
    this.#live.delete(id);
    this.failures.delete(id);
    if (this.#freed.length >= 1000) this.flush();
    else if (!this.#flushing) {
      this.#flushing = true;
      setImmediate(() => {
        this.#flushing = false;
        this.flush();
      });
    }
  }

  /** Removes and returns the pending frees, except ids that the message itself reads. */
  takeFreed(reads: readonly number[] = []): number[] | undefined {
    if (this.#freed.length === 0) return undefined;
    const read = new Set(reads);
    const ids = this.#freed.filter((id) => !read.has(id));
    this.#freed = ids.length === this.#freed.length ? [] : this.#freed.filter((id) => read.has(id));
    return ids.length === 0 ? undefined : ids;
  }

  flush(): void {
    const ids = this.takeFreed();
    if (ids !== undefined) this.send({ t: "free", ids });
  }

  close(): void {
    if (this.lost !== null) return;
    this.flush();
    this.#outbox.flush();
    this.#end("this connection was closed", () => {});
  }
}
