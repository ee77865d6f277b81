// Exchange of shared memory between a client and a worker of one host. Each side passes its memory file to the other over
// a Unix socket; the kernel states which user sent it. Arrival proves that both run on one host, whatever their names and
// process ids are.
import { groupLibrary } from "@weft/core/internal/device";
import { clusterSettings } from "./settings.js";

/** Memory of another process, mapped for reading. */
export interface SharedMapping {
  base: number;
  bytes: number;
  /** The process that sent it; 0 if this process cannot see it. */
  pid: number;
}

/** Files that arrived for tickets nobody has asked for yet, and messages that are looked at together. */
const maxWaiting = 256;
const maxMessages = 1024;
const secretBytes = 16;
const waiting = new Map<string, { pid: number; fd: number }>();
let name: string | null | undefined;

/** The name of this process's socket and the secret without which it takes no message; null where memory cannot be shared. */
export function shareName(): string | null {
  if (clusterSettings.data.get() === "socket") return null;
  if (name !== undefined) return name;
  name = null;
  try {
    const room = new Uint8Array(96);
    if (groupLibrary().shareOpen(room) === 0) name = Buffer.from(room).toString("latin1").replace(/\0.*$/s, "");
  } catch {
    // Without a compiler there is no shared memory.
  }
  return name;
}

/** Sends this process's memory to a socket. Returns whether it was accepted. */
export function sendMemory(to: string, ticket: string): boolean {
  const [, socket, secret] = /^(weft-[0-9a-f]{32})\.([0-9a-f]{32})$/.exec(to) ?? [];
  return socket !== undefined && groupLibrary().shareSend(socket, Buffer.from(secret + ticket, "hex")) === 0;
}

/** Maps the memory that arrived with a ticket from a process of this user; null if there is none. */
export function receiveMemory(ticket: string): SharedMapping | null {
  const library = groupLibrary();
  const [got, who] = [new Uint8Array(secretBytes + 32), new Int32Array(3)];
  for (let i = 0; i < maxMessages && library.shareReceive(got, who) === 1; i++) {
    const [pid, uid, fd] = who;
    if (fd < 0) continue;
    if (uid !== process.geteuid?.()) {
      library.shareDiscard(fd);
      continue;
    }
    const key = Buffer.from(got.subarray(secretBytes)).toString("hex");
    discard(key);
    waiting.set(key, { pid, fd });
    if (waiting.size > maxWaiting) discard(waiting.keys().next().value!);
  }
  const found = waiting.get(ticket);
  if (found === undefined) return null;
  waiting.delete(ticket);
  const bytes = new BigUint64Array(1);
  const base = Number(library.shareMap(found.fd, bytes));
  return base === 0 ? null : { base, bytes: Number(bytes[0]), pid: found.pid };
}

function discard(ticket: string): void {
  const found = waiting.get(ticket);
  if (found !== undefined) groupLibrary().shareDiscard(found.fd);
  waiting.delete(ticket);
}

export const unmapMemory = ({ base, bytes }: SharedMapping): void => groupLibrary().unmap(base, bytes);
