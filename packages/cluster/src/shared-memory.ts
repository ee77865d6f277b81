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

/** Messages that arrived for tickets nobody has asked for yet, and messages that are looked at together. */
const maxWaiting = 256;
const maxMessages = 1024;
const secretBytes = 16;
/** Memory by ticket, and the names of sockets that processes of this user announced under a ticket. */
const waiting = new Map<string, { pid: number; fd: number }>();
const announced = new Map<string, string>();
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

const addressPattern = /^(weft-[0-9a-f]{32})\.([0-9a-f]{32})$/;
const ticketPattern = /^[0-9a-f]{64}$/;

function send(to: string, ticket: string, withArena: boolean): boolean {
  const [, socket, secret] = addressPattern.exec(to) ?? [];
  if (socket === undefined || !ticketPattern.test(ticket)) return false;
  return groupLibrary().shareSend(socket, Buffer.from(secret + ticket, "hex"), Number(withArena)) === 0;
}

/** Tells a socket who asks for its memory: the kernel states the user. Returns whether it was accepted. */
export const askForMemory = (of: string, ticket: string): boolean => send(of, ticket, false);

/**
 * Sends this process's memory to a socket that a process of this user has announced under the ticket. The memory can be written by
 * whoever gets it: nobody is believed to be of this user. Returns whether it was accepted.
 */
export function answerWithMemory(to: string, ticket: string): boolean {
  takeMessages();
  const socket = announced.get(ticket);
  announced.delete(ticket);
  return socket !== undefined && to.startsWith(`${socket}.`) && sendMemory(to, ticket);
}

/** Sends this process's memory to a process that has sent its own. Returns whether it was accepted. */
export const sendMemory = (to: string, ticket: string): boolean => send(to, ticket, true);

/** Sorts the messages that have arrived; those of other users are dropped. */
function takeMessages(): void {
  const library = groupLibrary();
  const [got, who, from] = [new Uint8Array(secretBytes + 32), new Int32Array(3), new Uint8Array(64)];
  for (let i = 0; i < maxMessages && library.shareReceive(got, who, from) === 1; i++) {
    const [pid, uid, fd] = who;
    if (uid !== process.geteuid?.() || fd < -1) {
      library.shareDiscard(fd);
      continue;
    }
    const ticket = Buffer.from(got.subarray(secretBytes)).toString("hex");
    if (fd === -1) {
      announced.set(ticket, Buffer.from(from).toString("latin1").replace(/\0.*$/s, ""));
      if (announced.size > maxWaiting) announced.delete(announced.keys().next().value!);
      continue;
    }
    discard(ticket);
    waiting.set(ticket, { pid, fd });
    if (waiting.size > maxWaiting) discard(waiting.keys().next().value!);
  }
}

/** Maps the memory that arrived with a ticket from a process of this user; null if there is none. */
export function receiveMemory(ticket: string): SharedMapping | null {
  takeMessages();
  const found = waiting.get(ticket);
  if (found === undefined) return null;
  waiting.delete(ticket);
  const bytes = new BigUint64Array(1);
  const base = Number(groupLibrary().shareMap(found.fd, bytes));
  return base === 0 ? null : { base, bytes: Number(bytes[0]), pid: found.pid };
}

function discard(ticket: string): void {
  const found = waiting.get(ticket);
  if (found !== undefined) groupLibrary().shareDiscard(found.fd);
  waiting.delete(ticket);
}

export const unmapMemory = ({ base, bytes }: SharedMapping): void => groupLibrary().unmap(base, bytes);
