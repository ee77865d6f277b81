// Message transport: gRPC streams of bytes, opened with a handshake in which both sides prove that they know the token.
// Beyond loopback both also present certificates. It does not interpret messages.
import { hash } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { readFileSync, readlinkSync, statSync } from "node:fs";
import { createServer, isIP, type Socket } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import type * as grpc from "@grpc/grpc-js";
import { WeftError } from "@weft/core/internal/graph";
import { z } from "zod";
import { grpcLibrary } from "./grpc.js";
import {
  type Handshake,
  listenerOwners,
  proof,
  type Role,
  randomKey,
  sameSecret,
  sources,
  tokenKind,
} from "./identity.js";
import { maxMessageBytes, protocolVersion } from "./protocol.js";
import { addressOf, certificates, isLoopback, type Security } from "./security.js";
import { boundSilence } from "./silence.js";

const bytes = { serialize: (b: Buffer): Buffer => b, deserialize: (b: Buffer): Buffer => b };
const stream = (path: string): grpc.MethodDefinition<Buffer, Buffer> => ({
  path,
  requestStream: true,
  responseStream: true,
  requestSerialize: bytes.serialize,
  requestDeserialize: bytes.deserialize,
  responseSerialize: bytes.serialize,
  responseDeserialize: bytes.deserialize,
});
export const service = {
  Challenge: stream("/weft.Cluster/Challenge"),
  Client: stream("/weft.Cluster/Client"),
  Worker: stream("/weft.Cluster/Worker"),
  Heartbeat: stream("/weft.Cluster/Heartbeat"),
};
const methods = { client: "Client", watcher: "Client", worker: "Worker", heartbeat: "Heartbeat" } as const;

const limits = { "grpc.max_receive_message_length": maxMessageBytes, "grpc.max_send_message_length": maxMessageBytes };

/** Streams of one connection at a time: a handshake and what follows it. */
const maxStreams = 8;

export function makeServer(): grpc.Server {
  return new (grpcLibrary().Server)({
    ...limits,
    // A peer may compute for a minute without servicing its sockets.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 120_000,
    "grpc.keepalive_permit_without_calls": 1,
    // A connection without a stream is not of use to anybody, and one with many of them is no peer of Weft.
    "grpc.max_connection_idle_ms": 10_000,
    "grpc.max_concurrent_streams": maxStreams,
  });
}

/** As gRPC writes addresses. */
const target = (host: string, port: number): string => `${host.includes(":") ? `[${host}]` : addressOf(host)}:${port}`;

/** Binds the server and returns its port. Refuses to listen for other hosts without TLS and tokens. */
export function bindServer(server: grpc.Server, host: string, port: number, security: Security): Promise<number> {
  let credentials = grpcLibrary().ServerCredentials.createInsecure();
  if (!isLoopback(host)) {
    const why = `listening on ${host} lets other machines in`;
    const { cert, key, ca } = certificates(security, why);
    if (security.token === undefined || security.workerToken === undefined)
      throw new WeftError(
        `${why}: give tokens for clients and for workers (${sources("client")}; ${sources("worker")})`,
      );
    credentials = grpcLibrary().ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], true);
  }
  return new Promise((resolve, reject) => {
    server.bindAsync(target(host, port), credentials, (error, bound) => {
      if (error === null) resolve(bound);
      else
        void isPortTaken(host, port).then((taken) =>
          reject(
            new WeftError(
              taken
                ? `port ${port} on ${host} is taken; is a dispatcher running already? Choose another with -p`
                : `cannot listen on ${host}:${port}: ${error.message}`,
            ),
          ),
        );
    });
  });
}

/** Whether a port is in use. gRPC's bind errors carry no code, a plain socket's do. */
function isPortTaken(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "EADDRINUSE"));
    probe.listen(port, addressOf(host), () => probe.close(() => resolve(false)));
  });
}

/** `localhost:9000`, `host` or `[::1]:9000`. */
export function parseAddress(address: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:\s]+))(?::(\d+))?$/.exec(address.trim());
  const port = Number(match?.[3] ?? 9000);
  if (match === null || port > 65535)
    throw new WeftError(`"${address}" is not an address; write host:port, e.g. localhost:9000`);
  return { host: match[1] ?? match[2], port };
}

/** Whether an error of `openStream` means that somebody listens there and does not answer. */
export const isSilence = (error: unknown): boolean =>
  (error as Partial<grpc.ServiceError>).code === grpcLibrary().status.DEADLINE_EXCEEDED;

/** Why `openStream` reached no dispatcher, and what to do. */
export function unreachable(host: string, port: number, error: Error): string {
  const [line] = error.message.split("\n");
  const cause = /Last error: (?:Error(?: \[\w+\])?: )?(.*?)\.? Resolution note/.exec(line)?.[1] ?? line;
  if (isLoopback(host) || /\bE[A-Z_]{4,}\b|Name resolution/.test(cause.replace(/\[\w+\]/g, "")))
    return `no dispatcher is listening at ${host}:${port}; start a dispatcher: weft server -p ${port} (${cause})`;
  return `no encrypted connection to ${host}:${port}: ${cause}; the certificates of both sides must be valid and signed by --tls-ca, and the dispatcher's must name ${host}`;
}

export interface Channel {
  stream: grpc.ClientDuplexStream<Buffer, Buffer>;
  /** Whether the other side is on this machine, once it has answered. */
  isNear(): boolean;
  /** From now on the connection does not keep the process alive. */
  unref(): void;
  close(): void;
}

/**
 * Collects the sockets to a port that are created from now on. gRPC does not expose the sockets of a channel; Node reports
 * every client socket on a diagnostics channel.
 */
function socketsTo(port: number): { unref(): void; stop(): void } {
  const sockets = new Set<Socket>();
  const onSocket = (message: unknown): void => {
    const { socket } = message as { socket: Socket };
    // One listener for each connection that is being opened.
    socket.setMaxListeners(0);
    socket.once("connect", () => {
      if (socket.remotePort !== port) return;
      sockets.add(socket);
      boundSilence(socket);
    });
    socket.once("close", () => sockets.delete(socket));
  };
  subscribe("net.client.socket", onSocket);
  const stop = (): void => void unsubscribe("net.client.socket", onSocket);
  return {
    unref() {
      stop();
      for (const socket of sockets) socket.unref();
    },
    stop,
  };
}

/** Whether an address with a port is one of this machine. */
export function isOwnAddress(peer: string): boolean {
  const { host } = parseAddress(peer);
  const own = Object.values(networkInterfaces()).flatMap((list) => list?.map(({ address }) => address) ?? []);
  return isLoopback(host) || own.includes(host);
}

const nothing = { unref(): void {}, stop(): void {} };

/**
 * Opens a stream to a dispatcher after a handshake. `patient` relaxes keepalive for processes that compute for long
 * without servicing sockets. Rejects with a WeftError if the handshake is refused, with gRPC's error otherwise, also when the other side
 * has not answered within `seconds`.
 */
export async function openStream(
  host: string,
  port: number,
  role: Role,
  security: Security & { ownFiles?: boolean },
  patient: boolean,
  seconds = 60,
): Promise<Channel> {
  const token = tokenKind(role) === "token" ? security.token : security.workerToken;
  if (token === undefined && !security.insecure)
    throw new WeftError(`${host} is another machine: a token is needed (${sources(role)})`);
  let credentials = grpcLibrary().credentials.createInsecure();
  if (!isLoopback(host)) {
    const { cert, key, ca } = certificates(security, `${host} is another machine`);
    credentials = grpcLibrary().credentials.createSsl(ca, key, cert, {
      checkServerIdentity: (_, presented) => checkServerIdentity(host, presented as PeerCertificate),
    });
  }
  const client = new (grpcLibrary().Client)(target(host, port), credentials, {
    ...limits,
    "grpc.keepalive_time_ms": patient ? 60_000 : 3_000,
    "grpc.keepalive_timeout_ms": patient ? 120_000 : 4_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
    // TLS has no names for addresses; the certificate is compared with the address itself (above).
    ...(isIP(host) !== 0 && { "grpc.ssl_target_name_override": "weft" }),
  });
  const sockets = role === "client" || role === "worker" ? socketsTo(port) : nothing;
  const close = (): void => {
    sockets.stop();
    client.close();
  };
  try {
    // Another user may have taken the port of this user's dispatcher, and pass on what arrives there.
    const owners = security.ownFiles && isLoopback(host) ? listenerOwners(addressOf(host), port) : [];
    const listener = owners.find((uid) => uid !== 0 && uid !== process.getuid?.());
    if (listener !== undefined)
      throw new WeftError(
        `the process that listens on port ${port} belongs to another user (uid ${listener}); to use its dispatcher, give its token (${sources(role)})`,
      );
    const headers = await prove(client, role, token, security.insecure === true, seconds);
    const { path, requestSerialize, responseDeserialize } = service[methods[role]];
    const opened = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, headers);
    // Whoever asked may have given up meanwhile and listens to nothing: an error must not end the program.
    opened.on("error", () => {});
    return { stream: opened, isNear: () => isOwnAddress(opened.getPeer()), unref: () => sockets.unref(), close };
  } catch (error) {
    close();
    throw error;
  }
}

const hex = z.string().regex(/^[0-9a-f]{1,64}$/);
/** What a dispatcher answers to a handshake. */
const challenge = z.object({ nonce: hex, proof: hex.nullable() });

/** Runs the handshake and returns the headers that prove this side's knowledge of the token. */
async function prove(
  client: grpc.Client,
  role: Role,
  token: string | undefined,
  insecure: boolean,
  seconds: number,
): Promise<grpc.Metadata> {
  const peerNonce = randomKey();
  const asked = new (grpcLibrary().Metadata)();
  asked.set("weft-version", String(protocolVersion));
  asked.set("weft-role", role);
  asked.set("weft-nonce", peerNonce);
  const { path, requestSerialize, responseDeserialize } = service.Challenge;
  const answer = await new Promise<z.infer<typeof challenge>>((resolve, reject) => {
    const deadline = Date.now() + seconds * 1e3;
    const call = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, asked, { deadline });
    call.on("data", (bytes: Buffer) => {
      try {
        resolve(challenge.parse(JSON.parse(bytes.toString("utf8"))));
      } catch {
        reject(new WeftError("this is not a dispatcher of weft"));
      }
      call.end();
    });
    call.on("error", (error: grpc.ServiceError) =>
      reject(error.code === grpcLibrary().status.UNAUTHENTICATED ? new WeftError(error.details) : error),
    );
    call.on("end", () => reject(new WeftError("this is not a dispatcher of weft")));
  });
  const facts: Handshake = { role, version: protocolVersion, peerNonce, serverNonce: answer.nonce };
  if (answer.proof === null && !insecure)
    throw new WeftError("it runs without tokens (--insecure); to use it, set insecure or WEFT_INSECURE=1");
  if (token !== undefined && !sameSecret(answer.proof ?? "", proof(token, "dispatcher", facts)))
    throw new WeftError(`the token is wrong; give the dispatcher's (${sources(role)})`);
  if (token === undefined && answer.proof !== null)
    throw new WeftError(`a token is needed; give the dispatcher's (${sources(role)})`);
  const headers = new (grpcLibrary().Metadata)();
  headers.set("weft-challenge", facts.serverNonce);
  if (token !== undefined) headers.set("weft-proof", proof(token, "peer", facts));
  return headers;
}

let host: string | null = null;

/**
 * Identifies a host: equal for processes of one user that see each other's process ids and the same shared memory.
 * Containers have names and process ids in common, and still differ in this.
 */
export function hostId(): string {
  const read = (look: () => string): string => {
    try {
      return look();
    } catch {
      return "";
    }
  };
  host ??= hash(
    "sha256",
    JSON.stringify([
      // Names change while processes run; the namespace of the name does not.
      read(() => readlinkSync("/proc/self/ns/uts")) || hostname(),
      read(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
      read(() => readlinkSync("/proc/self/ns/pid")),
      read(() => readlinkSync("/proc/self/ns/user")),
      read(() => String(statSync("/dev/shm").dev)),
      process.getuid?.() ?? 0,
    ]),
    "hex",
  ).slice(0, 32);
  return host;
}
