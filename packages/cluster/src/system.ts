// Calls of the C library that Node does not offer: a process that ends with its parent, and locks that end with their
// process. Linux only; elsewhere they do nothing.
import koffi from "koffi";

type Call = (...args: number[]) => number;
const calls = new Map<string, Call>();

/** A function of the C library by its declaration; null where there is none. */
function libc(declaration: string): Call | null {
  if (process.platform !== "linux") return null;
  let call = calls.get(declaration);
  if (call === undefined) {
    call = koffi.load("libc.so.6").func(declaration) as Call;
    calls.set(declaration, call);
  }
  return call;
}

/** From now on the kernel kills this process when `parent` ends, however that ends and whatever this process does then. */
export function endWithParent(parent: number): void {
  const call = libc("int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)");
  const [setParentDeathSignal, kill] = [1, 9];
  call?.(setParentDeathSignal, kill, 0, 0, 0);
  // It may have ended before.
  if (process.ppid !== parent) process.exit(1);
}

/**
 * Locks an open file or folder for this process. Returns false if another process has locked it. The lock ends with the
 * process. File systems without locks are treated as if the file were free.
 */
export function lockFile(fd: number): boolean {
  const [exclusive, withoutWaiting] = [2, 4];
  const call = libc("int flock(int fd, int operation)");
  return call === null || call(fd, exclusive | withoutWaiting) === 0 || koffi.errno() !== koffi.os.errno.EWOULDBLOCK;
}
