// Who may talk to the server. Every request names its host, so that a foreign site that points its name at this machine (DNS
// rebinding) is refused; every request for data carries the token of this start as a header, which no other site, and no
// other user of this machine, knows. The token is no cookie: cookies are sent to every port of a host.
import { randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";

/** A new token: 192 random bits. */
export const newToken = (): string => randomBytes(24).toString("base64url");

const loopback = new Set(["localhost", "127.0.0.1", "[::1]", "::1"]);

/** Whether only this machine reaches a server on that address. */
export const isLoopbackName = (host: string): boolean => loopback.has(host);

/** An address as it is written in a URL. */
export const urlHost = (host: string): string => (isIP(host) === 6 ? `[${host}]` : host);

/** Checks the requests of one server. */
export class Access {
  readonly #token: Buffer;

  constructor(
    token: string,
    private readonly host: string,
  ) {
    this.#token = Buffer.from(token);
  }

  /** Whether the request was made to this server under a name that it has. */
  isOwnHost({ headers }: IncomingMessage): boolean {
    const name = /^(\[[^\]]+\]|[^:]*)(?::\d+)?$/.exec(headers.host ?? "")?.[1]?.toLowerCase();
    if (name === undefined) return false;
    if (isLoopbackName(name) || name === urlHost(this.host).toLowerCase()) return true;
    // Bound to all interfaces: any address is fine, a name is not, because its owner may not be ours.
    return isAny(this.host) && isIP(name.replace(/^\[|\]$/g, "")) !== 0;
  }

  /** Whether the page that made the request is ours; requests from no page have no origin. */
  isOwnOrigin({ headers }: IncomingMessage): boolean {
    const { origin } = headers;
    return origin === undefined || origin === `http://${headers.host}`;
  }

  hasToken({ headers }: IncomingMessage): boolean {
    const given = Buffer.from(/^Bearer (.{1,100})$/.exec(headers.authorization ?? "")?.[1] ?? "");
    return given.length === this.#token.length && timingSafeEqual(given, this.#token);
  }
}

const isAny = (host: string): boolean => host === "0.0.0.0" || host === "::";
