// Detects peers that have silently disappeared: a host that lost power or its network acknowledges nothing. The kernel
// counts acknowledgments, so that a process that computes for minutes does not look dead.
import type { Socket } from "node:net";
import koffi from "koffi";

/** Seconds without an acknowledgment after which a connection fails. */
const silentSeconds = 5;
const tcp = { level: 6, keepIdle: 4, keepInterval: 5, keepCount: 6, userTimeout: 18 } as const;

type SetOption = (fd: number, level: number, option: number, value: Int32Array, bytes: number) => number;
let setOption: SetOption | null = null;

/** Makes a connection fail within seconds if the other host no longer answers. */
export function boundSilence(socket: Socket): void {
  const apply = (): void => {
    const fd = (socket as unknown as { _handle?: { fd?: number } })._handle?.fd;
    if (process.platform !== "linux" || fd === undefined || fd < 0) return;
    setOption ??= koffi
      .load("libc.so.6")
      .func("int setsockopt(int fd, int level, int option, int32_t* value, uint32_t bytes)") as SetOption;
    const set = (option: number, value: number): void =>
      void setOption!(fd, tcp.level, option, Int32Array.of(value), 4);
    socket.setKeepAlive(true, 1000);
    set(tcp.keepIdle, 1);
    set(tcp.keepInterval, 1);
    set(tcp.keepCount, silentSeconds);
    set(tcp.userTimeout, silentSeconds * 1e3);
  };
  if (socket.connecting) socket.once("connect", apply);
  else apply();
}
