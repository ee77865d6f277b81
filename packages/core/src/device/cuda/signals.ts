// Handlers of signals around calls of a library that replaces them. NVRTC puts Node's handlers back without the flag by which they run
// once: from then on Ctrl-C and SIGTERM would raise themselves without end, and never end the process.
import koffi from "koffi";

/** At least the size of `struct sigaction` of every C library. */
const actionBytes = 256;
/** The signals of POSIX but those that nobody can catch. */
const signals = Array.from({ length: 31 }, (_, i) => i + 1).filter((signal) => signal !== 9 && signal !== 19);

type SignalAction = (signal: number, to: Uint8Array | null, from: Uint8Array | null) => number;
let sigaction: SignalAction | null = null;

/** Runs something, and puts the handlers of signals back as they were before it. */
export function withOwnSignals<T>(work: () => T): T {
  sigaction ??= koffi
    .load(null)
    .func("int sigaction(int signal, const uint8_t* to, _Out_ uint8_t* from)") as unknown as SignalAction;
  const act = sigaction;
  const before = signals.map((signal) => {
    const action = new Uint8Array(actionBytes);
    return act(signal, null, action) === 0 ? action : null;
  });
  try {
    return work();
  } finally {
    before.forEach((action, i) => {
      if (action !== null) act(signals[i], action, null);
    });
  }
}
