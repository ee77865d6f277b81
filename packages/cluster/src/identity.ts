// Identity: the tokens of a cluster, where they come from, and the proofs that both sides of a connection know one. A
// token itself is never sent. Clients and workers have different tokens, because workers receive the data of all clients.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { WeftError } from "@weft/core/internal/graph";

/** What a connection may do: clients and watchers need the token of clients, workers the token of workers. */
export type Role = "client" | "watcher" | "worker" | "heartbeat";
export type TokenKind = "token" | "worker-token";
export const tokenKind = (role: Role): TokenKind =>
  role === "client" || role === "watcher" ? "token" : "worker-token";

/** Where a user gives the token of a role. */
export const sources = (role: Role): string =>
  tokenKind(role) === "token" ? "WEFT_TOKEN or --token-file" : "WEFT_WORKER_TOKEN or --worker-token-file";

export const randomKey = (): string => randomBytes(16).toString("hex");

export function sameSecret(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Facts of one handshake; both proofs cover all of them. */
export interface Handshake {
  role: Role;
  version: number;
  /** Chosen by the side that connects and by the dispatcher. */
  peerNonce: string;
  serverNonce: string;
}

/** Proves knowledge of the token in one handshake; `side` says who proves it, so that a proof cannot be reflected. */
export function proof(token: string, side: "dispatcher" | "peer", facts: Handshake): string {
  const { role, version, peerNonce, serverNonce } = facts;
  return createHmac("sha256", token)
    .update(JSON.stringify(["weft", side, role, version, peerNonce, serverNonce]))
    .digest("hex");
}

/** The key for a client's data connections to one worker; the dispatcher issues it. */
export const dataKey = (secret: string, client: number, worker: string): string =>
  createHmac("sha256", secret)
    .update(JSON.stringify(["data", client, worker]))
    .digest("hex");

/** The key of a group's links: its members alone get it. */
export const groupKey = (secret: string, name: string): string =>
  createHmac("sha256", secret)
    .update(JSON.stringify(["links", name]))
    .digest("hex");

const maxTokenBytes = 1000;

/** Reads a token from a file that only its owner can read. */
export function readTokenFile(path: string): string {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    throw new WeftError(`the token file ${path} cannot be read: ${(error as Error).message}`);
  }
  try {
    const facts = fstatSync(file);
    const own = process.getuid?.();
    if (!facts.isFile()) throw new WeftError(`the token file ${path} is not a plain file`);
    if (own !== undefined && facts.uid !== own)
      throw new WeftError(`the token file ${path} belongs to another user (uid ${facts.uid})`);
    if (own !== undefined && (facts.mode & 0o077) !== 0)
      throw new WeftError(`other users can read the token file ${path}; run: chmod 600 ${path}`);
    const room = Buffer.alloc(maxTokenBytes + 1);
    const token = room.toString("utf8", 0, readSync(file, room, 0, room.length, 0)).trim();
    if (token === "" || Buffer.byteLength(token) > maxTokenBytes)
      throw new WeftError(`the token file ${path} must contain one token of at most ${maxTokenBytes} bytes`);
    return token;
  } finally {
    closeSync(file);
  }
}

/** Whether a folder is this user's and nobody else can write to it. */
function isOwnFolder(path: string): boolean {
  const facts = lstatSync(path, { throwIfNoEntry: false });
  const own = process.getuid?.();
  return facts?.isDirectory() === true && (own === undefined || (facts.uid === own && (facts.mode & 0o022) === 0));
}

/** This user's home folder; null if there is none, or if its path depends on the working directory. */
function homeFolder(): string | null {
  try {
    const home = homedir();
    return isAbsolute(home) ? home : null;
  } catch {
    return null;
  }
}

/** The folder of this user's tokens, created if needed. */
function tokenFolder(): string {
  const { XDG_RUNTIME_DIR: given } = process.env;
  const runtime = [given, `/run/user/${process.getuid?.() ?? ""}`].filter((path) => path !== undefined);
  const root = runtime.find((path) => isAbsolute(path) && isOwnFolder(path));
  const remedy = "set XDG_RUNTIME_DIR to a folder of your own, or WEFT_TOKEN and WEFT_WORKER_TOKEN";
  const home = root === undefined ? homeFolder() : null;
  if (root === undefined && home === null) throw new WeftError(`there is no home folder for tokens; ${remedy}`);
  const folder = home === null ? join(root!, "weft") : join(home, ".cache", "weft", "run");
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new WeftError(`the folder ${folder} for tokens cannot be created: ${(error as Error).message}; ${remedy}`);
  }
  if (!isOwnFolder(folder))
    throw new WeftError(
      `the folder ${folder} for tokens belongs to another user or can be written by others; ${remedy}`,
    );
  return folder;
}

/** This user's token, created on first use. Processes of the same user find the same one. */
export function ownToken(kind: TokenKind): string {
  const folder = tokenFolder();
  const path = join(folder, kind);
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined) return readTokenFile(path);
  const made = join(folder, `.${kind}.${process.pid}.${randomKey()}`);
  writeFileSync(made, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600, flag: "wx" });
  try {
    linkSync(made, path);
  } catch (error) {
    // Another process was faster; its token is used.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST")
      throw new WeftError(`the token file ${path} cannot be created: ${(error as Error).message}`);
  } finally {
    unlinkSync(made);
  }
  return readTokenFile(path);
}

interface TcpSocket {
  /** Address of this end as the kernel writes it, and the ports of both. */
  address: string;
  from: number;
  to: number;
  listens: boolean;
  uid: number;
}

/** This host's TCP sockets, from the kernel's tables. */
function tcpSockets(): TcpSocket[] {
  const found: TcpSocket[] = [];
  for (const table of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    let text: string;
    try {
      text = readFileSync(table, "utf8");
    } catch {
      continue;
    }
    for (const line of text.split("\n").slice(1)) {
      const [, local = "", remote = "", state, , , , uid] = line.trim().split(/\s+/);
      if (uid === undefined) continue;
      const [address, from] = local.split(":");
      const to = remote.split(":")[1];
      found.push({
        address,
        from: Number.parseInt(from, 16),
        to: Number.parseInt(to, 16),
        listens: state === "0A",
        uid: Number(uid),
      });
    }
  }
  return found;
}

/** The owners of this host's connections by their ports, from one look at the kernel's tables; null for unknown ones. */
export function socketOwners(): (localPort: number, remotePort: number) => number | null {
  const owners = new Map<string, number>();
  for (const { from, to, listens, uid } of tcpSockets()) {
    const key = `${from} ${to}`;
    if (!listens && !owners.has(key)) owners.set(key, uid);
  }
  return (localPort, remotePort) => owners.get(`${localPort} ${remotePort}`) ?? null;
}

/** An address as the kernel writes it: words of 32 bits in this machine's order. */
function kernelAddress(bytes: readonly number[]): string {
  const words = new Uint32Array(Uint8Array.from(bytes).buffer);
  return [...words].map((word) => word.toString(16).toUpperCase().padStart(8, "0")).join("");
}

const v6 = (last: readonly number[]): number[] => [...new Array<number>(16 - last.length).fill(0), ...last];

/** The users whose processes listen at an address of this host: on this very address, or on all. */
export function listenerOwners(address: string, port: number): number[] {
  const bytes = address.includes(":") ? null : address.split(".").map(Number);
  const own = bytes === null ? [v6([1])] : [bytes, v6([255, 255, ...bytes]), [0, 0, 0, 0]];
  const places = new Set([...own, v6([])].map(kernelAddress));
  return tcpSockets().flatMap(({ address: at, from, listens, uid }) =>
    listens && from === port && places.has(at) ? [uid] : [],
  );
}
