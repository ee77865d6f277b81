// Message transport: gRPC streams of bytes, on loopback or with TLS and a token. It does not interpret messages.
import { randomBytes, timingSafeEqual } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { hostname } from "node:os";
import * as grpc from "@grpc/grpc-js";
import { WeftError } from "@weft/core/internal/graph";
import { maxMessageBytes } from "./protocol.js";
import { clusterSettings } from "./settings.js";

export interface Security {
  /** Shared secret of the cluster; required beyond loopback. */
  token?: string;
  /** PEM files. A server needs cert and key; clients and workers need ca for a private authority. */
  cert?: string;
  key?: string;
  ca?: string;
}

export function securityFrom(options: Security, env: NodeJS.ProcessEnv = process.env): Security {
  return {
    token: options.token ?? clusterSettings.token.get(env),
    cert: options.cert ?? clusterSettings.tlsCert.get(env),
    key: options.key ?? clusterSettings.tlsKey.get(env),
    ca: options.ca ?? clusterSettings.tlsCa.get(env),
  };
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);

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
export const service = { Client: stream("/weft.Cluster/Client"), Worker: stream("/weft.Cluster/Worker") };
export type Stream = grpc.ServerDuplexStream<Buffer, Buffer> | grpc.ClientDuplexStream<Buffer, Buffer>;

const limits = {
  "grpc.max_receive_message_length": maxMessageBytes,
  "grpc.max_send_message_length": maxMessageBytes,
};

export function makeServer(): grpc.Server {
  return new grpc.Server({
    ...limits,
    // A peer may compute for a minute without servicing its sockets.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 120_000,
    "grpc.keepalive_permit_without_calls": 1,
  });
}

/** Binds the server and returns its port. Refuses to listen for other hosts without TLS and a token. */
export function bindServer(server: grpc.Server, host: string, port: number, security: Security): Promise<number> {
  const { cert, key, token } = security;
  if (!isLoopback(host) && (cert === undefined || key === undefined || token === undefined))
    throw new WeftError(
      `listening on ${host} lets other machines in: give a TLS certificate, its key and a token ` +
        "(--tls-cert, --tls-key, --token, or WEFT_TLS_CERT, WEFT_TLS_KEY, WEFT_TOKEN), or listen on localhost",
    );
  const credentials =
    cert === undefined || key === undefined
      ? grpc.ServerCredentials.createInsecure()
      : grpc.ServerCredentials.createSsl(null, [{ cert_chain: readFileSync(cert), private_key: readFileSync(key) }]);
  return new Promise((resolve, reject) => {
    server.bindAsync(`${host.includes(":") ? `[${host}]` : host}:${port}`, credentials, (error, bound) => {
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
    probe.listen(port, host, () => probe.close(() => resolve(false)));
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

export interface Channel {
  stream: grpc.ClientDuplexStream<Buffer, Buffer>;
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
    socket.once("connect", () => socket.remotePort === port && sockets.add(socket));
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

/**
 * Opens a stream to a dispatcher. `patient` relaxes keepalive for processes that compute for long without servicing
 * sockets.
 */
export function openStream(
  host: string,
  port: number,
  role: "Client" | "Worker",
  security: Security,
  patient: boolean,
): Channel {
  const secure = !isLoopback(host) || security.ca !== undefined;
  if (!isLoopback(host) && security.token === undefined)
    throw new WeftError(`${host} is another machine: a token is needed (--token or WEFT_TOKEN)`);
  const credentials = secure
    ? grpc.credentials.createSsl(security.ca === undefined ? null : readFileSync(security.ca))
    : grpc.credentials.createInsecure();
  const client = new grpc.Client(`${host.includes(":") ? `[${host}]` : host}:${port}`, credentials, {
    ...limits,
    "grpc.keepalive_time_ms": patient ? 60_000 : 3_000,
    "grpc.keepalive_timeout_ms": patient ? 120_000 : 4_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
  });
  const { path, requestSerialize, responseDeserialize } = service[role];
  const sockets = socketsTo(port);
  const opened = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
  const close = (): void => {
    sockets.stop();
    client.close();
  };
  return { stream: opened, unref: () => sockets.unref(), close };
}

export const randomKey = (): string => randomBytes(16).toString("hex");

export function sameSecret(given: string | null, expected: string | undefined): boolean {
  if (expected === undefined) return true;
  if (given === null) return false;
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

let host: string | null = null;

/** Identifies a host: equal for processes that can share memory. */
export function hostId(): string {
  if (host === null) {
    let boot = "";
    try {
      boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    } catch {
      // Fall back to the host name.
    }
    host = `${hostname()}/${boot}/${process.getuid?.() ?? 0}`;
  }
  return host;
}
