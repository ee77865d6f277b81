// Shared by the cluster commands: ports, security options, and waiting for signals.
import { type Command, InvalidArgumentError } from "commander";

export function port(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > 65535)
    throw new InvalidArgumentError(`"${text}" is not a port; give a number from 0 to 65535`);
  return value;
}

export interface SecurityFlags {
  token?: string;
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
}

export const addSecurity = (command: Command): Command =>
  command
    .option("--token <token>", "shared token of the cluster (or WEFT_TOKEN)")
    .option("--tls-cert <file>", "certificate (or WEFT_TLS_CERT)")
    .option("--tls-key <file>", "its key (or WEFT_TLS_KEY)")
    .option("--tls-ca <file>", "authority that signed the other side's certificate (or WEFT_TLS_CA)");

export const security = ({ token, tlsCert, tlsKey, tlsCa }: SecurityFlags) => ({
  token,
  cert: tlsCert,
  key: tlsKey,
  ca: tlsCa,
});

/** Waits for SIGINT, SIGTERM or the end of the work; rejects with the error of the work. */
export function untilSignal(work: Promise<unknown> = new Promise(() => {})): Promise<void> {
  // A signal handler does not keep a process alive.
  const alive = setInterval(() => {}, 1 << 30);
  const signalled = new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
  });
  return Promise.race([work.then(() => {}), signalled]).finally(() => clearInterval(alive));
}
