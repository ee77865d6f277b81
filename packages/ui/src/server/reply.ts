// Responses of the server: headers, JSON, errors, and streams of server-sent events.
import type { ServerResponse } from "node:http";

/** Nothing but our own files: no inline script, no other host, no frame around the page. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "frame-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

/** Headers of every response. */
export const baseHeaders: Readonly<Record<string, string>> = {
  "content-security-policy": policy,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cache-control": "no-store",
};

/** Sends JSON. */
export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    ...baseHeaders,
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}

/** Sends an error as JSON. */
export const sendError = (response: ServerResponse, status: number, message: string): void =>
  sendJson(response, { error: message }, status);

/** Bytes that may wait for a slow reader before events are dropped. */
const mostWaiting = 4 << 20;

/** A stream of server-sent events. */
export class EventStream {
  #open = true;

  constructor(private readonly response: ServerResponse) {
    response.writeHead(200, { ...baseHeaders, "content-type": "text/event-stream; charset=utf-8" });
    response.write("retry: 500\n\n");
    response.on("close", () => {
      this.#open = false;
    });
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Sends an event; returns false if the reader is too slow and it was not sent. */
  send(event: string, data: unknown, id?: string): boolean {
    if (!this.#open || this.response.writableLength > mostWaiting) return false;
    this.response.write(`${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    return true;
  }

  close(): void {
    this.response.end();
  }
}
