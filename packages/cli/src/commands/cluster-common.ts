// Shared by the cluster commands: ports, security options, and waiting for signals.
import { type Command, InvalidArgumentError, Option } from "commander";

export function port(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > 65535)
    throw new InvalidArgumentError(`"${text}" is not a port; give a number from 0 to 65535`);
  return value;
}

/** Parses `head:9000` or `[::1]:9000`. */
export function address(text: string): { host: string; port: number } {
  const parts = /^\[?([^\]]+?)\]?:(\d+)$/.exec(text);
  if (parts === null)
    throw new InvalidArgumentError(`"${text}" is not an address; write host:port, such as localhost:9000`);
  return { host: parts[1], port: port(parts[2]) };
}

export interface SecurityFlags {
  tokenFile?: string;
  workerTokenFile?: string;
  insecure?: boolean;
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
}

/** Adds the options of the tokens that a command needs, and of certificates. Tokens themselves are not arguments: every user can list these. */
export const addSecurity = (command: Command, tokens: "client" | "worker" | "both"): Command => {
  if (tokens !== "worker") command.option("--token-file <file>", "file with the token of clients (or WEFT_TOKEN)");
  if (tokens !== "client")
    command.option("--worker-token-file <file>", "file with the token of workers (or WEFT_WORKER_TOKEN)");
  return command
    .addOption(new Option("--token <token>").hideHelp().argParser(refuseToken))
    .option("--insecure", "no tokens: every user of this machine may connect; loopback only (or WEFT_INSECURE=1)")
    .option("--tls-cert <file>", "certificate of this process (or WEFT_TLS_CERT)")
    .option("--tls-key <file>", "its key (or WEFT_TLS_KEY)")
    .option("--tls-ca <file>", "authority that signed the other side's certificate (or WEFT_TLS_CA)");
};

function refuseToken(): never {
  throw new InvalidArgumentError(
    "every user can read the arguments of a process; write the token to a file (chmod 600) and give --token-file, or set WEFT_TOKEN",
  );
}

export const security = ({ tokenFile, workerTokenFile, insecure, tlsCert, tlsKey, tlsCa }: SecurityFlags) => ({
  tokenFile,
  workerTokenFile,
  insecure,
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
