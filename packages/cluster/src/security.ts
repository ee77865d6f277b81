// The security options of dispatchers, workers and clients, from arguments, the environment and this user's token files.
import { readFileSync, statSync } from "node:fs";
import { WeftError } from "@weft/core/internal/graph";
import { ownToken, readTokenFile, sources, type TokenKind } from "./identity.js";
import { clusterSettings } from "./settings.js";

/** Secrets and certificates of a dispatcher, worker or client. */
export interface Security {
  /** Token of clients. On this host it is found automatically by processes of the same user. */
  token?: string;
  /** Token of workers; a dispatcher knows both. */
  workerToken?: string;
  /** Files to read the tokens from; only their owner may read them. */
  tokenFile?: string;
  workerTokenFile?: string;
  /** No tokens: every user of this host may connect. Only on loopback. */
  insecure?: boolean;
  /** PEM files. Beyond loopback both sides of a connection present a certificate that the authority `ca` signed. */
  cert?: string;
  key?: string;
  ca?: string;
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);

/**
 * The address to listen on or to connect with. The name of this host has two addresses, and another user may listen on the one that
 * a process of this user has not taken.
 */
export const addressOf = (host: string): string => (host === "localhost" ? "127.0.0.1" : host);

/**
 * Whether a connection uses TLS: what the other side announced, and beyond loopback always. Nobody can talk a process out of it.
 */
export const needsTls = ({ host, tls }: { host: string; tls: boolean }): boolean => tls || !isLoopback(host);

/** What a process needs: a dispatcher both tokens, a worker or client its own. */
type Needs = readonly TokenKind[];

/** Completes the options for a connection with a host; tokens of this user's files are used on loopback only. */
export function securityFrom(
  options: Security,
  host: string,
  needs: Needs,
  env: NodeJS.ProcessEnv = process.env,
): Security & { ownFiles: boolean } {
  const insecure = options.insecure ?? clusterSettings.insecure.get(env);
  const local = isLoopback(host);
  if (insecure && !local)
    throw new WeftError(`${host} is another machine or lets other machines in: insecure is for loopback only`);
  let ownFiles = false;
  const find = (kind: TokenKind, given?: string, file?: string, variable?: string): string | undefined => {
    if (insecure || !needs.includes(kind)) return undefined;
    const found = given ?? (file === undefined ? variable : readTokenFile(file));
    if (found !== undefined || !local) return found;
    ownFiles = true;
    return ownToken(kind);
  };
  return {
    insecure,
    token: find("token", options.token, options.tokenFile, clusterSettings.token.get(env)),
    workerToken: find(
      "worker-token",
      options.workerToken,
      options.workerTokenFile,
      clusterSettings.workerToken.get(env),
    ),
    cert: options.cert ?? clusterSettings.tlsCert.get(env),
    key: options.key ?? clusterSettings.tlsKey.get(env),
    ca: options.ca ?? clusterSettings.tlsCa.get(env),
    ownFiles,
  };
}

/** Characters of a token at least. */
const minToken = 16;

/**
 * Refuses tokens that can be guessed. A process that proves to strangers that it knows the token lets them try any number of words at
 * home.
 */
export function checkTokens({ token, workerToken }: Security): void {
  for (const [value, role] of [
    [token, "client"],
    [workerToken, "worker"],
  ] as const)
    if (value !== undefined && value.length < minToken)
      throw new WeftError(
        `the token of ${role}s has ${value.length} characters; give at least ${minToken} random ones (openssl rand -hex 32; ${sources(role)})`,
      );
}

/** The certificates for a connection beyond loopback; throws if one is missing. */
export function certificates({ cert, key, ca }: Security, why: string): { cert: Buffer; key: Buffer; ca: Buffer } {
  if (cert === undefined || key === undefined || ca === undefined)
    throw new WeftError(
      `${why}: give a TLS certificate, its key and the authority that signed the other side's ` +
        "(--tls-cert, --tls-key, --tls-ca, or WEFT_TLS_CERT, WEFT_TLS_KEY, WEFT_TLS_CA)",
    );
  return { cert: readFileSync(cert), key: readKey(key), ca: readFileSync(ca) };
}

/** Reads a private key; one that every user can read or others can replace is not private. */
function readKey(path: string): Buffer {
  const { mode } = statSync(path);
  if (process.getuid !== undefined && (mode & 0o026) !== 0)
    throw new WeftError(`other users can read or write the TLS key ${path}; run: chmod 600 ${path}`);
  return readFileSync(path);
}
