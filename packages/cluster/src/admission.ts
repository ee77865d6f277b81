// Who may connect to a dispatcher: challenges, proofs, and limits on connections, bytes and guesses of peers that have not
// proved anything yet. Nothing that such a peer sends is read, apart from the headers of its request.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import type * as grpc from "@grpc/grpc-js";
import { WeftError } from "@weft/core/internal/graph";
import { grpcLibrary } from "./grpc.js";
import { type Handshake, proof, type Role, randomKey, sameSecret, sources, tokenKind } from "./identity.js";
import { protocolVersion } from "./protocol.js";
import { checkTokens, isLoopback, type Security } from "./security.js";
import { boundSilence } from "./silence.js";
import { closeOldest, Stranger } from "./strangers.js";

/** Seconds in which a challenge must be answered, and for a connection to prove its identity. */
const answerSeconds = 10;
/** Connections without a proof. When there are more, the oldest ones of the peer that has most of them are closed. */
const maxStrangers = 512;
const fewerStrangers = 384;
/** Challenges that a connection may ask for; one is enough. */
const maxChallenges = 64;
/** Bytes that a connection may send before its proof. */
const maxStrangerBytes = 256 << 10;
/** Wrong proofs of a peer that are answered at once, and how many more per second. */
const guesses = 10;
const guessesPerSecond = 2;
/** Peers whose wrong proofs are remembered. */
const maxPeers = 4096;

const roles: readonly Role[] = ["client", "watcher", "worker", "heartbeat"];
const isRole = (text: string): text is Role => (roles as readonly string[]).includes(text);

class AdmittedConnection extends Stranger {
  proved = false;
  challenges = 0;
}

export class Admission {
  /** Connections by the remote address that gRPC reports. */
  readonly #connections = new Map<string, AdmittedConnection>();
  /** Unanswered challenges by nonce. */
  readonly #challenges = new Map<string, { since: number; facts: Handshake }>();
  /** Wrong proofs by peer. */
  readonly #wrong = new Map<string, { left: number; at: number }>();
  readonly #onSocket = (message: unknown): void => this.#connected((message as { socket: Socket }).socket);
  readonly #timer: NodeJS.Timeout;
  port = 0;

  constructor(readonly security: Security) {
    checkTokens(security);
    this.#timer = setInterval(() => this.#expire(), 500);
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
    const entry = new AdmittedConnection(socket);
    this.#connections.set(key, entry);
    socket.once("close", () => this.#connections.get(key) === entry && this.#connections.delete(key));
    const strangers = [...this.#connections.values()].filter(({ proved }) => !proved);
    if (strangers.length > maxStrangers) closeOldest(strangers, fewerStrangers);
  }

  #expire(): void {
    const oldest = performance.now() - answerSeconds * 1e3;
    for (const { socket, since, proved } of this.#connections.values())
      if (!proved && (since < oldest || socket.bytesRead > maxStrangerBytes)) socket.destroy();
    for (const [nonce, { since }] of this.#challenges) if (since < oldest) this.#challenges.delete(nonce);
    // A peer that has all its guesses again is as good as one that never guessed.
    for (const [peer, { at }] of this.#wrong)
      if (performance.now() / 1e3 - at > guesses / guessesPerSecond) this.#wrong.delete(peer);
  }

  #peer(call: { getPeer(): string }): string {
    return this.#connections.get(call.getPeer())?.peer() ?? call.getPeer();
  }

  /** Whether a peer is on this machine: it came over loopback, or from the address that it connected with. */
  isNear(call: { getPeer(): string }): boolean {
    const { localAddress, remoteAddress = "" } = this.#connections.get(call.getPeer())?.socket ?? {};
    return isLoopback(remoteAddress.replace(/^::ffff:/, "")) || localAddress === remoteAddress;
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
      const connection = this.#connections.get(call.getPeer());
      if (connection !== undefined && ++connection.challenges > maxChallenges) connection.socket.destroy();
      const facts = { role, version, peerNonce, serverNonce: randomKey() };
      this.#challenges.set(facts.serverNonce, { since: performance.now(), facts });
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
        // Whoever guesses too often is not told whether the last guess was right.
        if (this.#wrong.size > 0) this.#checkGuesses(this.#peer(call));
        if (!sameSecret(header(call.metadata, "weft-proof"), proof(token, "peer", found.facts))) {
          this.#spendGuess(this.#peer(call));
          throw new WeftError(`the token is wrong; give the dispatcher's (${sources(role)})`);
        }
      }
    } catch (error) {
      refuse(call, (error as Error).message);
      return null;
    }
    const connection = this.#connections.get(call.getPeer());
    if (connection !== undefined) connection.proved = true;
    return role;
  }

  /** Wrong proofs that a peer may still send. */
  #guessesLeft(peer: string): number {
    const { left, at } = this.#wrong.get(peer) ?? { left: guesses, at: 0 };
    return Math.min(guesses, left + (performance.now() / 1e3 - at) * guessesPerSecond);
  }

  #checkGuesses(peer: string): void {
    if (this.#guessesLeft(peer) < 1) throw new WeftError("too many wrong tokens; wait a few seconds");
  }

  #spendGuess(peer: string): void {
    const left = this.#guessesLeft(peer) - 1;
    this.#wrong.delete(peer);
    this.#wrong.set(peer, { left, at: performance.now() / 1e3 });
    if (this.#wrong.size > maxPeers) this.#wrong.delete(this.#wrong.keys().next().value!);
  }
}

const header = (metadata: grpc.Metadata, name: string): string => String(metadata.get(name)[0] ?? "").slice(0, 200);

function refuse(call: grpc.ServerDuplexStream<Buffer, Buffer>, details: string): void {
  call.on("error", () => {});
  call.emit("error", { code: grpcLibrary().status.UNAUTHENTICATED, details });
}
