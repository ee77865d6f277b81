// The API of the page: one row per route.
import type { IncomingMessage } from "node:http";
import { readSettings, stopRun } from "../data/index.js";
import { RequestError, type SeriesField, seriesFields } from "../wire/index.js";
import type { Hub } from "./hub.js";

/** A request for data. */
interface Query {
  hub: Hub;
  search: URLSearchParams;
  body: Record<string, unknown>;
}

/** Answers a request with a value that becomes JSON. */
type Route = (query: Query) => unknown;

const mostCompared = 12;
const mostBuckets = 8000;

/** A parameter of the address that must be there. */
function required(search: URLSearchParams, name: string): string {
  const value = search.get(name);
  if (value === null || value === "") throw new RequestError(400, `the request lacks the parameter "${name}"`);
  return value;
}

/** A whole number from the address. */
function whole(search: URLSearchParams, name: string, otherwise: number, most: number): number {
  const text = search.get(name);
  if (text === null) return otherwise;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0)
    throw new RequestError(
      400,
      `"${name}" is ${JSON.stringify(text.slice(0, 40))}; it must be a whole number of 0 or more`,
    );
  return Math.min(value, most);
}

function fieldsOf(search: URLSearchParams): SeriesField[] {
  const given = search.get("fields")?.split(",") ?? [...seriesFields];
  const known = given.filter((name): name is SeriesField => (seriesFields as readonly string[]).includes(name));
  if (known.length !== given.length)
    throw new RequestError(400, `"fields" holds an unknown name; known are ${seriesFields.join(", ")}`);
  return known;
}

/** Routes that are read. */
export const reads: Readonly<Record<string, Route>> = {
  "/api/runs": ({ hub }) => hub.overview(),
  "/api/run": ({ hub, search }) => hub.detail(required(search, "id")),
  "/api/series": async ({ hub, search }) => {
    const records = await hub.records(required(search, "id"));
    const buckets = Math.max(1, whole(search, "buckets", 1500, mostBuckets));
    const to = search.has("to") ? whole(search, "to", 0, Number.MAX_SAFE_INTEGER) : undefined;
    const from = whole(search, "from", 0, Number.MAX_SAFE_INTEGER);
    return records.part(fieldsOf(search), buckets, from, to);
  },
  "/api/study": ({ hub, search }) => hub.jobs.run("study", { folder: hub.studyFolder(required(search, "id")) }),
  "/api/timelines": ({ hub }) => hub.timelines().map(({ row }) => row),
  "/api/gates": ({ hub }) => hub.gateFiles().map(({ row, text }) => ({ ...row, text })),
  "/api/ledger": ({ hub }) => hub.jobs.run("ledger", { path: hub.ledger }),
  "/api/compare": async ({ hub, search }) => {
    const ids = search.getAll("id").slice(0, mostCompared);
    return Promise.all(
      ids.map(async (id) => {
        const records = await hub.records(id);
        return {
          row: hub.row(id),
          settings: await readSettings(hub.place(id)),
          epochs: [...records.epochs].slice(-500),
          series: records.part(["loss"], 800),
        };
      }),
    );
  },
};

const isNumbers = (value: unknown): boolean =>
  typeof value === "number" ||
  (Array.isArray(value) && value.length <= 10_000 && value.every((x) => typeof x === "number"));

function idOf(body: Record<string, unknown>): string {
  if (typeof body.id !== "string") throw new RequestError(400, 'the body lacks "id"');
  return body.id;
}

/** Routes that change something or cost much: POST only. */
export const writes: Readonly<Record<string, Route>> = {
  "/api/timeline": async ({ hub, body }) => ({ address: await hub.timelinePage(idOf(body)) }),
  "/api/gate": ({ hub, body }) => {
    const { set = {}, full = false, iterations = 0 } = body;
    const isSet = typeof set === "object" && set !== null && Object.values(set).every(isNumbers);
    if (!isSet || typeof full !== "boolean" || !Number.isSafeInteger(iterations))
      throw new RequestError(
        400,
        "the body needs set: {key: number or numbers}, full: boolean, iterations: whole number",
      );
    return hub.gate(idOf(body), {
      set: set as Record<string, number | number[]>,
      full,
      iterations: Number(iterations),
    });
  },
  "/api/stop": ({ hub, body }) => {
    const id = idOf(body);
    const place = hub.place(id);
    hub.overview();
    try {
      return { message: stopRun(place, hub.row(id)) };
    } catch (error) {
      throw error instanceof RequestError ? error : new RequestError(409, (error as Error).message);
    }
  },
};

const mostBody = 1 << 16;

/** Reads the body of a request as a JSON object. */
export async function readBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  if (!/^application\/json\b/.test(request.headers["content-type"] ?? ""))
    throw new RequestError(415, "the body must be application/json");
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > mostBody) throw new RequestError(413, `the body is larger than ${mostBody} bytes`);
    parts.push(part);
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(parts).toString("utf8"));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Below.
  }
  throw new RequestError(400, "the body must be a JSON object");
}
