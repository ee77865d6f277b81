// The HTTP server of `weft ui`: the page's files, its data, and a stream of events.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { RunsFolder } from "../data/index.js";
import { RequestError } from "../wire/index.js";
import { Access, newToken, urlHost } from "./access.js";
import { ClusterMonitor, type ClusterSecurity } from "./cluster.js";
import { Hub } from "./hub.js";
import { baseHeaders, EventStream, sendError, sendJson } from "./reply.js";
import { readBody, reads, writes } from "./routes.js";
import { frameHeaders } from "./tickets.js";

/** Options of `startUi`. */
export interface UiOptions {
  /** Folder with runs and studies; it need not exist yet. Default: `runs`. */
  runs?: string;
  /** Address to listen on. Default: 127.0.0.1, which only this machine reaches. */
  host?: string;
  /** Port; 0 takes a free one. Default: 0. */
  port?: number;
  /** Folder with specifications of gates (YAML). Default: the working directory. */
  gates?: string;
  /** Address of a dispatcher to watch, `HOST:PORT`. */
  server?: string;
  /** Token and certificates for the dispatcher. */
  security?: ClusterSecurity;
  /** File of predictions and outcomes. Default: `.weft/ledger.jsonl`. */
  ledger?: string;
  /** Token that requests must carry. Default: a new random one. */
  token?: string;
}

/** A running server. */
export interface UiServer {
  /** Address for a browser, with the token of this start after the `#`: a browser does not send that part. */
  url: string;
  port: number;
  token: string;
  close: () => Promise<void>;
}

/** Files of the page, by path. */
const files: Readonly<Record<string, readonly [name: string, type: string]>> = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/app.js": ["app.js", "text/javascript; charset=utf-8"],
  "/app.css": ["app.css", "text/css; charset=utf-8"],
  "/favicon.svg": ["favicon.svg", "image/svg+xml"],
};

/** Streams that may be open at the same time. */
const mostStreams = 64;

class UiHandler {
  #streams = 0;
  readonly #files = new Map<string, Buffer>();

  constructor(
    private readonly hub: Hub,
    private readonly access: Access,
  ) {}

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#route(request, response);
    } catch (error) {
      if (response.headersSent) response.destroy();
      else if (error instanceof RequestError) sendError(response, error.status, error.message);
      else sendError(response, 500, (error as Error).message);
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.access.isOwnHost(request))
      throw new RequestError(
        421,
        "this server does not have the name that the request gives; open the address that weft ui printed",
      );
    if (!this.access.isOwnOrigin(request)) throw new RequestError(403, "the request comes from another site");
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://localhost");
    const isRead = request.method === "GET";
    if (isRead && Object.hasOwn(files, pathname)) return this.#file(pathname, response);
    if (isRead && pathname.startsWith("/frame/")) {
      this.#frame(pathname.slice("/frame/".length), response);
      return;
    }
    if (!pathname.startsWith("/api/")) throw new RequestError(404, "there is no such page");
    if (!this.access.hasToken(request))
      throw new RequestError(401, "the token is missing or is of another start of weft ui");
    if (isRead && pathname === "/api/events") return this.#events(request, searchParams, response);
    const table = isRead ? reads : request.method === "POST" ? writes : {};
    if (!Object.hasOwn(table, pathname)) throw new RequestError(404, `there is no ${request.method} ${pathname}`);
    const body = isRead ? {} : await readBody(request);
    sendJson(response, await table[pathname]({ hub: this.hub, search: searchParams, body }));
  }

  #frame(ticket: string, response: ServerResponse): void {
    const html = this.hub.tickets.take(ticket);
    if (html === null) throw new RequestError(404, "this address was used already, or is too old");
    response.writeHead(200, frameHeaders);
    response.end(html);
  }

  #file(path: string, response: ServerResponse): void {
    const [name, type] = files[path];
    let bytes = this.#files.get(name);
    if (bytes === undefined) {
      bytes = readFileSync(new URL(`../page/${name}`, import.meta.url));
      this.#files.set(name, bytes);
    }
    response.writeHead(200, { ...baseHeaders, "content-type": type, "content-length": bytes.length });
    response.end(bytes);
  }

  #events(request: IncomingMessage, search: URLSearchParams, response: ServerResponse): void {
    if (this.#streams >= mostStreams) throw new RequestError(503, `${mostStreams} pages are open already`);
    const run = search.get("run");
    if (run !== null) this.hub.place(run);
    // After a lost connection the page names the last event that it got.
    const last = request.headers["last-event-id"] ?? search.get("after") ?? "";
    const [generation, step] = /^(\d{1,9}):(-?\d{1,16})$/.exec(String(last))?.slice(1).map(Number) ?? [0, -1];
    const stream = new EventStream(response);
    this.#streams++;
    const leave = this.hub.follow(stream, run, { generation, step }, search.has("cluster"));
    response.on("close", () => {
      this.#streams--;
      leave();
    });
  }
}

function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/**
 * Starts the web app of a runs folder.
 *
 * @example
 * ```ts
 * import { startUi } from "@weft/ui";
 *
 * const ui = await startUi({ runs: "runs" });
 * console.log(ui.url.startsWith("http://127.0.0.1:")); // true
 * await ui.close();
 * ```
 */
export async function startUi(options: UiOptions = {}): Promise<UiServer> {
  const { runs = "runs", host = "127.0.0.1", port = 0, token = newToken() } = options;
  const { ledger = join(".weft", "ledger.jsonl"), gates = ".", server, security = {} } = options;
  const cluster = server === undefined ? null : new ClusterMonitor(server, security);
  const hub = new Hub(new RunsFolder(runs, server ?? null), resolve(ledger), resolve(gates), cluster);
  const handler = new UiHandler(hub, new Access(token, host));
  const http = createServer((request, response) => void handler.handle(request, response));
  http.requestTimeout = 30_000;
  http.maxHeadersCount = 100;
  const bound = await listen(http, host, port);
  const shown = host === "0.0.0.0" || host === "::" ? "localhost" : host;
  return {
    url: `http://${urlHost(shown)}:${bound}/#token=${token}`,
    port: bound,
    token,
    close: () => {
      hub.end();
      http.closeAllConnections();
      return new Promise((done) => http.close(() => done()));
    },
  };
}
