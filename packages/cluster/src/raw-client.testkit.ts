// A client that sends protocol messages and data frames as they are, for tests of what a hostile client can do.
import { randomBytes } from "node:crypto";
import { connect as connectSocket, type Socket } from "node:net";
import { readFrames, writeFrame } from "./frames.js";
import { decode, encode, type ToClient, toClient } from "./protocol.js";
import { receiveMemory, type SharedMapping, sendMemory, shareName } from "./shared-memory.js";
import { type Channel, hostId, openStream } from "./wire.js";

export class RawClient {
  readonly heard: ToClient[] = [];
  ended = false;
  #channel: Channel | null = null;
  #waiting: unknown[] = [];
  #wake: () => void = () => {};
  readonly sockets: Socket[] = [];

  constructor(
    readonly port: number,
    token: string,
  ) {
    const over = (): void => {
      this.ended = true;
      this.#wake();
    };
    openStream("localhost", port, "client", { token }, false).then((channel) => {
      this.#channel = channel;
      channel.stream.on("data", (bytes: Buffer) => {
        this.heard.push(decode(toClient, bytes));
        this.#wake();
      });
      channel.stream.on("error", over);
      channel.stream.on("end", over);
      for (const message of this.#waiting.splice(0)) this.send(message);
    }, over);
    this.send({ t: "hello", label: null, process: { host: hostId(), pid: process.pid }, settings: {} });
  }

  send(message: unknown): void {
    if (this.#channel === null) this.#waiting.push(message);
    else this.sendText(encode(message));
  }

  /** Sends what may not even be a message; the connection must be open. */
  sendText(text: string | Buffer): void {
    this.#channel!.stream.write(Buffer.from(text));
  }

  async until<T>(find: (message: ToClient) => T | undefined | false, seconds = 20): Promise<T> {
    for (const deadline = Date.now() + seconds * 1e3; Date.now() < deadline; ) {
      for (const message of this.heard) {
        const found = find(message);
        if (found) return found;
      }
      if (this.ended) throw new Error(`ended after ${JSON.stringify(this.heard).slice(0, 500)}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, 200);
      });
    }
    throw new Error(`nothing of the kind in ${JSON.stringify(this.heard.slice(-3)).slice(0, 1000)}`);
  }

  /** Opens a data connection. `claim` replaces what the client says about itself. */
  async data(
    worker: string,
    claim: object = {},
    onFrame: (header: Record<string, unknown>, bytes: Buffer) => void = () => {},
  ): Promise<Socket> {
    const welcome = await this.until((m) => m.t === "welcome" && m);
    const { data, key } = welcome.workers.find(({ id }) => id === worker)!;
    const socket = connectSocket(data.port, "127.0.0.1");
    this.sockets.push(socket);
    socket.on("error", () => {});
    readFrames(socket, ({ header, bytes }) => onFrame(header, bytes));
    writeFrame(socket, { client: welcome.client, key, name: shareName(), ...claim });
    return socket;
  }

  /** Exchanges memory with a worker as an honest client does. */
  async shareMemory(worker: string): Promise<SharedMapping> {
    let ticket = randomBytes(32).toString("hex");
    return new Promise((resolve, reject) => {
      const opened = this.data(worker, {}, (header) => {
        if (typeof header.ticket === "string") {
          ticket = header.ticket;
          sendMemory(String(header.name), ticket);
          void opened.then((socket) => writeFrame(socket, { shared: true }));
        } else if (header.shared === true) {
          const memory = receiveMemory(ticket);
          if (memory === null) reject(new Error("the worker's memory did not arrive"));
          else resolve(memory);
        }
      });
      opened.catch(reject);
    });
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    this.#channel?.stream.end();
    this.#channel?.close();
  }
}
