// Who may connect to a dispatcher: challenges, proofs, and limits on connections, bytes and guesses of peers that have not
// proved anything yet. Nothing that such a peer sends is read, apart from the headers of its request.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import * as grpc from "@grpc/grpc-js";
import { WeftError } from "@weft/core/internal/graph";
import {
  type Handshake,
  proof,
  type Role,
  randomKey,
  sameSecret,
  socketOwner,
  sources,
  tokenKind,
} from "./identity.js";
import { protocolVersion } from "./protocol.js";
import { isLoopback, type Security } from "./security.js";
import { boundSilence } from "./silence.js";

/** Seconds in which a challenge must be answered, and for a connection to prove its identity. */
const answerSeconds = 10;
/** Limits per peer: connections without a proof, and unanswered challenges. */
const maxStrangers = 128;
/** Limit on the connections without a proof of all peers. */
const maxAllStrangers = 1024;
/** Bytes that a connection may send before its proof. */
const maxStrangerBytes = 256 << 10;
/** Wrong proofs of a peer that are answered at once, and how many more per second. */
const guesses = 10;
const guessesPerSecond = 2;
/** Peers whose wrong proofs are remembered. */
const maxPeers = 4096;

export const roles: readonly Role[] = ["client", "watcher", "worker", "heartbeat"];
const isRole = (text: string): text is Role => (roles as readonly string[]).includes(text);

/** Identifies who is behind a connection: the user on this host, the address otherwise. */
function peerOf(socket: Socket): string {
  const address = (socket.remoteAddress ?? "?").replace(/^::ffff:/, "");
  if (!isLoopback(address)) return address;
  return `user ${socketOwner(socket.remotePort ?? 0, socket.localPort ?? 0) ?? "?"}`;
}

interface ConnectionEntry {
  socket: Socket;
  peer: string;
  since: number;
  proved: boolean;
}

export class Admission {
  /** Connections by the remote address that gRPC reports. */
  readonly #connections = new Map<string, ConnectionEntry>();
  /** Unanswered challenges by nonce. */
  readonly #challenges = new Map<string, { peer: string; since: number; facts: Handshake }>();
  /** Wrong proofs by peer. */
  readonly #wrong = new Map<string, { left: number; at: number }>();
  readonly #onSocket = (message: unknown): void => this.#connected((message as { socket: Socket }).socket);
  readonly #timer = setInterval(() => this.#expire(), 500);
  port = 0;

  constructor(readonly security: Security) {
    subscribe("net.server.socket", this.#onSocket);
    this.#timer.unref();
  }

  stop(): void {
    unsubscribe("net.server.socket", this.#onSocket);
    clearInterval(this.#timer);
    for (const { socket } of this.#connections.values()) socket.destroy();
  }

  #connected(socket: Socket): void {
    if (this.port === 0 || socket.localPort !== this.port) return;
    boundSilence(socket);
    const key = `${socket.remoteAddress}:${socket.remotePort}`;
    const peer = peerOf(socket);
    const strangers = [...this.#connections.values()].filter((entry) => !entry.proved);
    if (strangers.length >= maxAllStrangers || strangers.filter((s) => s.peer === peer).length >= maxStrangers) {
      socket.destroy();
      return;
    }
    this.#connections.set(key, { socket, peer, since: Date.now(), proved: false });
    socket.once("close", () => this.#connections.delete(key));
  }

  #expire(): void {
    const oldest = Date.now() - answerSeconds * 1e3;
    for (const { socket, since, proved } of this.#connections.values())
      if (!proved && (since < oldest || socket.bytesRead > maxStrangerBytes)) socket.destroy();
    for (const [nonce, { since }] of this.#challenges) if (since < oldest) this.#challenges.delete(nonce);
  }

  #peer(call: { getPeer(): string }): string {
    return this.#connections.get(call.getPeer())?.peer ?? call.getPeer();
  }

  /** The first step of a connection: proves that this is the dispatcher, and asks for the same. */
  challenge(call: grpc.ServerDuplexStream<Buffer, Buffer>): void {
    try {
      const role = header(call.metadata, "weft-role");
      const peerNonce = header(call.metadata, "weft-nonce");
      const version = Number(header(call.metadata, "weft-version"));
      if (version !== protocolVersion)
        throw new WeftError(
          `the dispatcher speaks protocol version ${protocolVersion}, this process version ${version}; use the same version of weft on both sides`,
        );
      if (!isRole(role) || !/^[0-9a-f]{32}$/.test(peerNonce)) throw new WeftError("this is not Weft's handshake");
      const peer = this.#peer(call);
      let pending = 0;
      for (const other of this.#challenges.values()) if (other.peer === peer) pending++;
      // Workers of a large job start together.
      if (pending >= 8 * maxStrangers) throw new WeftError("too many unanswered challenges; try again");
      const facts = { role, version, peerNonce, serverNonce: randomKey() };
      this.#challenges.set(facts.serverNonce, { peer, since: Date.now(), facts });
      const token = this.#token(role);
      const answer = {
        nonce: facts.serverNonce,
        proof: token === undefined ? null : proof(token, "dispatcher", facts),
      };
      call.write(Buffer.from(JSON.stringify(answer)));
      call.end();
    } catch (error) {
      refuse(call, (error as Error).message);
    }
  }

  #token(role: Role): string | undefined {
    return tokenKind(role) === "token" ? this.security.token : this.security.workerToken;
  }

  /** Checks the proof in the headers of a call. Returns the role that was proved; null if the call was refused. */
  admit(call: grpc.ServerDuplexStream<Buffer, Buffer>, ...allowed: Role[]): Role | null {
    const peer = this.#peer(call);
    let role: Role;
    try {
      const nonce = header(call.metadata, "weft-challenge");
      const found = this.#challenges.get(nonce);
      this.#challenges.delete(nonce);
      if (found === undefined || !allowed.includes(found.facts.role))
        throw new WeftError("the handshake is missing or took too long; use the same version of weft on both sides");
      role = found.facts.role;
      const token = this.#token(role);
      if (token !== undefined) {
        this.#spendGuess(peer);
        if (!sameSecret(header(call.metadata, "weft-proof"), proof(token, "peer", found.facts)))
          throw new WeftError(`the token is wrong; give the dispatcher's (${sources(role)})`);
        this.#wrong.delete(peer);
      }
    } catch (error) {
      refuse(call, (error as Error).message);
      return null;
    }
    const connection = this.#connections.get(call.getPeer());
    if (connection !== undefined) connection.proved = true;
    return role;
  }

  /** Counts a proof as wrong until it is found to be right. */
  #spendGuess(peer: string): void {
    const now = Date.now() / 1e3;
    const { left, at } = this.#wrong.get(peer) ?? { left: guesses, at: now };
    const available = Math.min(guesses, left + (now - at) * guessesPerSecond);
    if (available < 1) throw new WeftError("too many wrong tokens; wait a few seconds");
    this.#wrong.delete(peer);
    this.#wrong.set(peer, { left: available - 1, at: now });
    if (this.#wrong.size > maxPeers) this.#wrong.delete(this.#wrong.keys().next().value!);
  }
}

const header = (metadata: grpc.Metadata, name: string): string => String(metadata.get(name)[0] ?? "").slice(0, 200);

function refuse(call: grpc.ServerDuplexStream<Buffer, Buffer>, details: string): void {
  call.on("error", () => {});
  call.emit("error", { code: grpc.status.UNAUTHENTICATED, details });
}
