// Documents for a frame of the page. A frame cannot send the token, so that its address holds a ticket: random, and good for
// one request within a minute. The document runs in a sandbox: its script sees neither the page nor the token.
import { newToken } from "./access.js";
import { baseHeaders } from "./reply.js";

const lifeMs = 60_000;
const mostKept = 8;

/** Headers of a document in a frame: its own inline script, and nothing else. */
export const frameHeaders: Readonly<Record<string, string>> = {
  ...baseHeaders,
  "content-security-policy":
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'",
  "content-type": "text/html; charset=utf-8",
};

/** Keeps documents until their frame asks for them. */
export class Tickets {
  readonly #documents = new Map<string, { html: string; until: number }>();

  /** Keeps a document; returns its address. */
  add(html: string): string {
    const ticket = newToken();
    this.#documents.set(ticket, { html, until: Date.now() + lifeMs });
    for (const [old, { until }] of this.#documents)
      if (until < Date.now() || this.#documents.size > mostKept) this.#documents.delete(old);
    return `/frame/${ticket}`;
  }

  /** The document of a ticket, once; null if there is none. */
  take(ticket: string): string | null {
    const found = this.#documents.get(ticket);
    this.#documents.delete(ticket);
    return found === undefined || found.until < Date.now() ? null : found.html;
  }
}
