// Talks to the server: the token of this start, requests, and the stream of events, which reconnects by itself.
import type { ApiError } from "../wire/index.js";

const tokenKey = "weft-token";

/** Takes the token from the address that `weft ui` printed, and removes it from the address bar. */
function readToken(): string {
  const given = /[#&]token=([\w-]+)/.exec(location.hash)?.[1];
  if (given === undefined) return localStorage.getItem(tokenKey) ?? "";
  localStorage.setItem(tokenKey, given);
  history.replaceState(null, "", "#/runs");
  return given;
}

const token = readToken();
const headers = { authorization: `Bearer ${token}` };

/** An error that the server answered with. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  const { error } = (await response.json().catch(() => ({ error: response.statusText }))) as ApiError;
  throw new ServerError(response.status, error);
}

/** Parameters of a request; a list becomes a repeated one. */
type Parameters = Record<string, string | number | readonly string[] | undefined>;

function addressOf(path: string, parameters: Parameters): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) search.append(name, String(one));
  return `/api/${path}${search.size > 0 ? `?${search}` : ""}`;
}

/** Reads from the server. */
export const get = async <T>(path: string, parameters: Parameters = {}): Promise<T> =>
  answer<T>(await fetch(addressOf(path, parameters), { headers }));

/** Asks the server to change something. */
export const post = async <T>(path: string, body: object): Promise<T> =>
  answer<T>(
    await fetch(`/api/${path}`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  );

/** State of the stream: whether events arrive, and why not. */
export type StreamState = "connecting" | "open" | "lost" | "refused";

interface StreamOptions {
  onEvent: (name: string, data: unknown) => void;
  onState: (state: StreamState) => void;
}

const shortestWait = 500;
const longestWait = 5000;

/**
 * Opens the stream of events; returns a function that closes it. `EventSource` cannot send the token as a header, so that
 * the same protocol is read here: a lost stream is opened again with the id of the last event.
 */
export function openEvents(parameters: Parameters, { onEvent, onState }: StreamOptions): () => void {
  const abort = new AbortController();
  let lastId: string | null = null;
  let wait = shortestWait;
  const once = async (): Promise<void> => {
    const response = await fetch(addressOf("events", parameters), {
      headers: { ...headers, ...(lastId !== null && { "last-event-id": lastId }) },
      signal: abort.signal,
    });
    if (!response.ok || response.body === null) await answer(response);
    onState("open");
    wait = shortestWait;
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        const fields = new Map(
          block.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 2)]),
        );
        const [name, data] = [fields.get("event"), fields.get("data")];
        lastId = fields.get("id") ?? lastId;
        if (name !== undefined && data !== undefined) onEvent(name, JSON.parse(data));
      }
    }
  };
  const forever = async (): Promise<void> => {
    onState("connecting");
    while (!abort.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof ServerError && (error.status === 401 || error.status === 404)) {
          onState("refused");
          return;
        }
      }
      if (abort.signal.aborted) return;
      onState("lost");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(longestWait, wait * 1.6);
    }
  };
  void forever();
  return () => abort.abort();
}
