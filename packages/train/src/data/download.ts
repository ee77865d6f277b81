// Downloads data sets from the hub: Parquet files, resumed after interruption, verified against the hub's checksum, and
// renamed into place when complete.
import { createHash } from "node:crypto";
import { createReadStream, existsSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { checkOptionNames } from "@weft/core/internal/graph";
import { trainSettings } from "../settings.js";
import { type DatasetName, type DatasetSplit, dataHome, infoOf, splits } from "./datasets.js";
import { DataError } from "./table.js";

/** Options of `download`. */
export interface DownloadOptions {
  /** Base URL of the hub; https://huggingface.co by default (or WEFT_HUB). */
  hub?: string;
  /** Target folder of train.parquet and test.parquet; the cache by default. */
  folder?: string;
  /** Download existing files again. */
  force?: boolean;
  /** Ends the download; it can be resumed. */
  signal?: AbortSignal;
  /** Called with the bytes that have arrived. */
  onProgress?: (file: string, done: number, total: number | null) => void;
}

/** A downloaded file. */
export interface Downloaded {
  /** The split. */
  split: DatasetSplit;
  /** Where it is. */
  path: string;
  /** Size of the file. */
  bytes: number;
  /** Its hash. */
  sha256: string;
  /** "there": it was downloaded before. */
  how: "there" | "fetched" | "resumed";
}

const attempts = 4;

/** Downloads the splits of a data set; resumes partial files and verifies checksums. */
export async function download(dataset: DatasetName, options: DownloadOptions = {}): Promise<Downloaded[]> {
  checkOptionNames("download", options, ["hub", "folder", "force", "signal", "onProgress"]);
  const { hub } = infoOf(dataset);
  if (hub === null) throw new DataError(`${dataset} is made on the fly; there is nothing to fetch`);
  const folder = options.folder ?? join(dataHome(), dataset);
  mkdirSync(folder, { recursive: true });
  const base = (options.hub ?? trainSettings.hub.get() ?? "https://huggingface.co").replace(/\/$/, "");
  const done: Downloaded[] = [];
  for (const split of splits) {
    const url = `${base}/datasets/${hub.repository}/resolve/main/${hub.files[split]}`;
    done.push(await fetchFile(url, split, join(folder, `${split}.parquet`), options));
  }
  return done;
}

interface Expected {
  /** Metadata of the hub: the SHA-256 of files in large-file storage. */
  sha256: string | null;
  size: number | null;
}

/** Follows redirects manually: the checksum is in the hub's response, not in that of its storage. */
async function request(
  url: string,
  headers: Record<string, string>,
  signal?: AbortSignal,
): Promise<[Response, Expected]> {
  const expected: Expected = { sha256: null, size: null };
  let at = url;
  for (let hop = 0; hop < 8; hop++) {
    const answer = await fetch(at, { headers, redirect: "manual", signal });
    const tag = (answer.headers.get("x-linked-etag") ?? answer.headers.get("etag") ?? "").replaceAll('"', "");
    if (/^[0-9a-f]{64}$/.test(tag)) expected.sha256 ??= tag;
    const linked = answer.headers.get("x-linked-size");
    if (linked !== null) expected.size ??= Number(linked);
    const location = answer.headers.get("location");
    if (answer.status < 300 || answer.status >= 400 || location === null) return [answer, expected];
    await answer.body?.cancel();
    at = new URL(location, at).href;
  }
  throw new DataError(`${url}: redirected too often`);
}

async function fetchFile(
  url: string,
  split: DatasetSplit,
  path: string,
  options: DownloadOptions,
): Promise<Downloaded> {
  if (existsSync(path) && options.force !== true)
    return { split, path, bytes: statSync(path).size, sha256: await sha256Of(path), how: "there" };
  const partial = `${path}.part`;
  if (options.force === true) rmSync(partial, { force: true });
  let how: Downloaded["how"] = "fetched";
  for (let attempt = 1; ; attempt++) {
    try {
      if (existsSync(partial) && statSync(partial).size > 0) how = "resumed";
      const expected = await append(url, split, partial, options);
      const sha256 = await sha256Of(partial);
      if (expected.sha256 === null)
        throw new DataError(`${url}: the hub gave no checksum, so the file cannot be trusted`);
      if (sha256 !== expected.sha256) {
        rmSync(partial);
        throw new DataError(`${url}: the checksum is ${sha256}, the hub says ${expected.sha256}; try again`);
      }
      renameSync(partial, path);
      return { split, path, bytes: statSync(path).size, sha256, how };
    } catch (error) {
      if (options.signal?.aborted === true || error instanceof DataError || attempt === attempts)
        throw error instanceof DataError
          ? error
          : new DataError(
              `${url}: could not be fetched: ${reasonOf(error)}; what arrived is kept, and the next call continues from there`,
            );
      await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** attempt));
    }
  }
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message} (${cause.message})` : message;
}

/** Downloads the missing part of a file. */
async function append(url: string, split: DatasetSplit, partial: string, options: DownloadOptions): Promise<Expected> {
  const have = existsSync(partial) ? statSync(partial).size : 0;
  const [answer, expected] = await request(url, have > 0 ? { range: `bytes=${have}-` } : {}, options.signal);
  // The rest of a complete file is empty, and servers refuse that range.
  if (answer.status === 416 && have > 0) {
    await answer.body?.cancel();
    return expected;
  }
  if (answer.status === 404 || answer.status === 401 || answer.status === 403) {
    await answer.body?.cancel();
    throw new DataError(`${url}: the hub answered ${answer.status}; is the address right? (--hub, WEFT_HUB)`);
  }
  if (!answer.ok || answer.body === null) throw new Error(`the hub answered ${answer.status}`);
  // A server that ignores the range sends everything again.
  const from = answer.status === 206 ? have : 0;
  const length = answer.headers.get("content-length");
  const total = expected.size ?? (length === null ? null : from + Number(length));
  const file = await open(partial, from > 0 ? "r+" : "w");
  let at = from;
  try {
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      await file.write(chunk, 0, chunk.length, at);
      at += chunk.length;
      options.onProgress?.(split, at, total);
    }
  } finally {
    await file.close();
  }
  if (total !== null && at < total) throw new Error(`the connection ended at byte ${at} of ${total}`);
  return expected;
}

async function sha256Of(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}
