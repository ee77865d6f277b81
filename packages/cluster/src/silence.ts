// Detects peers that have silently disappeared: a host that lost power or its network acknowledges nothing. The kernel
// acknowledges for a process that computes for minutes or does not read, which TCP_USER_TIMEOUT would take for dead once it has
// no room for more: hence the kernel is asked when it heard from the other host.
import type { Socket } from "node:net";
import koffi from "koffi";

/** Seconds without an acknowledgment of what was sent after which a connection fails. */
const silentSeconds = 3;
const tickMs = 250;
const tcp = { level: 6, keepIdle: 4, keepInterval: 5, keepCount: 6, info: 11 } as const;
/** Places in the kernel's tcp_info: probes without an answer, packets without an acknowledgment, and milliseconds since the last one. */
const [infoBytes, probesAt, unackedAt, lastAckAt] = [60, 3, 24, 56];

interface Library {
  set(fd: number, level: number, option: number, value: Int32Array, bytes: number): number;
  get(fd: number, level: number, option: number, value: Uint8Array, bytes: Uint32Array): number;
}
let library: Library | null = null;

function systemLibrary(): Library {
  if (library === null) {
    const libc = koffi.load(null);
    library = {
      set: libc.func("int setsockopt(int fd, int level, int option, int32_t* value, uint32_t bytes)") as Library["set"],
      get: libc.func(
        "int getsockopt(int fd, int level, int option, _Out_ uint8_t* value, _Inout_ uint32_t* bytes)",
      ) as Library["get"],
    };
  }
  return library;
}

/** A host that no longer answers, for as long as the dispatcher needs to notice it too. */
export class SilenceError extends Error {}

const fdOf = (socket: Socket): number => (socket as { _handle?: { fd?: number } })._handle?.fd ?? -1;

/** Watched connections, and whether the last look found them silent. */
const watched = new Map<Socket, boolean>();
let timer: NodeJS.Timeout | null = null;

function isSilent(socket: Socket): boolean {
  const info = new Uint8Array(infoBytes);
  const fd = fdOf(socket);
  if (fd < 0 || systemLibrary().get(fd, tcp.level, tcp.info, info, Uint32Array.of(infoBytes)) !== 0) return false;
  const numbers = new DataView(info.buffer);
  const isWaiting = info[probesAt] > 0 || numbers.getUint32(unackedAt, true) > 0;
  return isWaiting && numbers.getUint32(lastAckAt, true) >= silentSeconds * 1e3;
}

function look(): void {
  if (watched.size === 0 && timer !== null) {
    clearInterval(timer);
    timer = null;
  }
  for (const [socket, before] of watched) {
    const silent = isSilent(socket);
    watched.set(socket, silent);
    // A host without room is asked for some in growing intervals: what was just sent may be answered by the next look.
    if (silent && before) socket.destroy(new SilenceError(`the other host has not answered for ${silentSeconds} s`));
  }
}

/** Makes a connection fail within seconds if the other host no longer answers. */
export function boundSilence(socket: Socket): void {
  const apply = (): void => {
    const fd = fdOf(socket);
    if (process.platform !== "linux" || fd < 0) return;
    const set = (option: number, value: number): void =>
      void systemLibrary().set(fd, tcp.level, option, Int32Array.of(value), 4);
    // An idle connection is probed, so that there is something to acknowledge.
    socket.setKeepAlive(true, 1000);
    set(tcp.keepIdle, 1);
    set(tcp.keepInterval, 1);
    set(tcp.keepCount, 2 * silentSeconds);
    watched.set(socket, false);
    socket.once("close", () => watched.delete(socket));
    timer ??= setInterval(look, tickMs).unref();
  };
  if (socket.connecting) socket.once("connect", apply);
  else apply();
}
