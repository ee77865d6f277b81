// Workers and clients that speak the real protocol and compute nothing, so that tests and benchmarks of the control plane can
// have thousands of them.
import { Outbox } from "./outbox.js";
import { ProgressReports } from "./progress.js";
import { decodeAll, encode, type FromClient, type FromWorker, type ToWorker, toClient, toWorker } from "./protocol.js";
import type { Security } from "./security.js";
import { type Channel, hostId, openStream } from "./wire.js";

const process_ = { host: hostId(), pid: process.pid };

/** A program without arguments; nobody compiles it. */
const standInGraph = { params: [], nodes: [["const", [], { value: 1, dtype: "float32" }, []]], outputs: [0] };

/** A worker that reports instructions as done when they arrive. It sends no heartbeats. */
export class StandInWorker {
  readonly #progress: ProgressReports;

  private constructor(
    readonly channel: Channel,
    /** Called with every instruction. */
    readonly onInstruction: (message: ToWorker) => void,
  ) {
    this.#progress = new ProgressReports((message) => void channel.stream.write(encode(message)));
  }

  /** Registers a worker; resolves when the dispatcher has welcomed it. */
  static async join(
    port: number,
    security: Security,
    onInstruction: (message: ToWorker) => void = () => {},
  ): Promise<StandInWorker> {
    const channel = await openStream("localhost", port, "worker", security, true);
    const worker = new StandInWorker(channel, onInstruction);
    const hello: FromWorker = {
      ...{ t: "hello", device: "cpu", label: "stand-in", process: process_ },
      data: { host: "localhost", port: 1, tls: false },
      ...{ links: 1, threads: 1, memoryBytes: 1e9, rates: null, mpi: null, accelerator: null },
    };
    await new Promise<void>((resolve) => {
      channel.stream.on("data", (bytes: Buffer) => {
        for (const message of decodeAll(toWorker, bytes))
          if (message.t === "welcome") resolve();
          else worker.#take(message);
      });
      channel.stream.on("error", () => {});
      channel.stream.write(encode(hello));
    });
    return worker;
  }

  #take(message: ToWorker): void {
    if (message.t === "client" || message.t === "leave" || !("client" in message)) return;
    this.onInstruction(message);
    this.#progress.count(message.client, 0);
  }

  /** Leaves the cluster. */
  close(): void {
    this.channel.close();
  }
}

/** A client that sends calls and fetches nothing. */
export class StandInClient {
  readonly workers = new Set<string>();
  #generation = 0;
  #changed: () => void = () => {};
  readonly #outbox: Outbox;

  private constructor(readonly channel: Channel) {
    this.#outbox = new Outbox((bytes) => void channel.stream.write(bytes));
  }

  /** Connects; resolves when the dispatcher has welcomed the client. */
  static async connect(port: number, security: Security): Promise<StandInClient> {
    const channel = await openStream("localhost", port, "client", security, false);
    const client = new StandInClient(channel);
    const settings = { maxQueue: 1e9 };
    await new Promise<void>((resolve) => {
      channel.stream.on("data", (bytes: Buffer) => {
        for (const message of decodeAll(toClient, bytes)) {
          if (message.t !== "welcome" && message.t !== "workers") continue;
          client.#generation = message.generation;
          for (const { id } of message.t === "welcome" ? message.workers : message.joined) client.workers.add(id);
          if (message.t === "workers") for (const { worker } of message.lost) client.workers.delete(worker);
          else resolve();
          client.#changed();
        }
      });
      channel.stream.on("error", () => {});
      channel.stream.write(encode({ t: "hello", label: null, process: process_, settings } satisfies FromClient));
    });
    return client;
  }

  /** Resolves when this many workers are known. */
  async knows(workers: number): Promise<void> {
    while (this.workers.size < workers)
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
  }

  /** Defines a program on these workers. */
  define(program: number, members: readonly string[]): void {
    const graphs = { graphs: [standInGraph], which: members.map(() => 0), donated: [] };
    const generation = this.#generation;
    this.send({ t: "define", program, members: [...members], generation, ...graphs, collective: false });
  }

  /** Sends a message with the others of this turn, as clients do. */
  send(message: FromClient): void {
    this.#outbox.post(JSON.stringify(message));
  }

  /** Sends what is waiting now. */
  flush(): void {
    this.#outbox.flush();
  }

  /** Resolves when the dispatcher can take more. */
  async drained(): Promise<void> {
    const { stream } = this.channel;
    if (stream.writableNeedDrain) await new Promise<void>((resolve) => void stream.once("drain", resolve));
  }

  /** Disconnects. */
  close(): void {
    this.channel.stream.end();
    this.channel.close();
  }
}
