// A dispatcher without rules: it admits everybody and sends what a test tells it to.
import type * as grpc from "@grpc/grpc-js";
import type { ServerStream } from "./dispatcher-state.js";
import { encode, type ToClient, type WorkerInfo } from "./protocol.js";
import { bindServer, hostId, makeServer, service } from "./wire.js";

/** One peer: what it sends, and a way to send it anything. */
export interface Peer {
  role: "client" | "worker";
  heard: { t: string }[];
  ended: boolean;
  send(message: unknown): void;
  /** Sends several messages, one by one. */
  sendAll(messages: readonly unknown[]): void;
}

export class FalseDispatcher {
  readonly #server = makeServer();
  readonly peers: Peer[] = [];
  port = 0;

  /** `greet` is called with every peer that has said hello; `nonce` is the answer to its handshake. */
  static async start(
    greet: (peer: Peer) => void,
    answer: unknown = { nonce: "00", proof: null },
  ): Promise<FalseDispatcher> {
    const it = new FalseDispatcher();
    const open = (role: Peer["role"]) => (stream: ServerStream) => {
      const send = (message: unknown): void => void stream.write(encode(message));
      const sendAll = (messages: readonly unknown[]): void => {
        for (const message of messages) send(message);
      };
      const peer: Peer = { role, heard: [], ended: false, send, sendAll };
      stream.on("error", () => {});
      for (const event of ["end", "close", "cancelled"]) stream.on(event, () => (peer.ended = true));
      stream.on("data", (bytes: Buffer) => {
        const message = JSON.parse(bytes.toString()) as { t: string } | { t: string }[];
        peer.heard.push(...(Array.isArray(message) ? message : [message]));
        if (peer.heard.length !== 1) return;
        it.peers.push(peer);
        greet(peer);
      });
    };
    it.#server.addService(service as unknown as grpc.ServiceDefinition, {
      Challenge: (stream: ServerStream) => {
        stream.write(encode(answer));
        stream.end();
      },
      Client: open("client"),
      Worker: open("worker"),
      Heartbeat: (stream: ServerStream) => void stream.on("data", () => {}).on("error", () => {}),
    });
    it.port = await bindServer(it.#server, "localhost", 0, { insecure: true });
    return it;
  }

  stop(): void {
    this.#server.forceShutdown();
  }
}

/** A worker as a dispatcher announces it. */
export const announced = (id: string, port: number, more: Partial<WorkerInfo> = {}): WorkerInfo => ({
  ...{ id, key: "", device: "cpu", label: null, process: { host: hostId(), pid: process.pid } },
  data: { host: "localhost", port, tls: false },
  ...{ links: 1, threads: 1, memoryBytes: 1e9, rates: null, mpi: null, accelerator: null },
  ...more,
});

export const welcome = (workers: WorkerInfo[], more = false): ToClient => ({
  ...{ t: "welcome", client: 1, generation: 1, workers, more, dispatcher: "false" },
});
