// Downloads from a local hub: checksum, cache, resume after a broken connection, and errors.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { findSplit } from "./datasets.js";
import { download } from "./download.js";
import { scratch, testdata } from "./testkit.js";

const folder = scratch();
const files = {
  train: readFileSync(testdata("hub", "train.parquet")),
  test: readFileSync(testdata("hub", "test.parquet")),
};
const sha = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** Behavior of the hub: where it disconnects, which checksum it claims, which status it returns. */
let behavior: { breakAt: number | null; arrived: () => boolean; checksum: string | null; status: number };
let requests: { url: string; range: string | undefined }[];
let hub = "";
const fileOf = (url: string): Buffer => (url.includes("train") ? files.train : files.test);

function answer(request: IncomingMessage, response: ServerResponse): void {
  const url = request.url as string;
  requests.push({ url, range: request.headers.range });
  if (behavior.status !== 200) return void response.writeHead(behavior.status).end();
  // As the real hub: the checksum is in the first response, the bytes behind a redirect.
  if (url.startsWith("/datasets/")) {
    const tag = behavior.checksum ?? sha(fileOf(url));
    response.writeHead(302, {
      location: `/storage/${url.split("/").at(-1)}`,
      "x-linked-etag": `"${tag}"`,
      "x-linked-size": String(fileOf(url).length),
    });
    return void response.end();
  }
  const bytes = fileOf(url);
  const from = request.headers.range === undefined ? 0 : Number(/bytes=(\d+)-/.exec(request.headers.range)?.[1]);
  if (from >= bytes.length) return void response.writeHead(416).end();
  response.writeHead(from > 0 ? 206 : 200, { "content-length": String(bytes.length - from) });
  const { breakAt } = behavior;
  if (breakAt === null || from >= breakAt) return void response.end(bytes.subarray(from));
  // What has not been read when a connection breaks is lost, so it breaks when the client has these bytes.
  const { arrived } = behavior;
  const end = (): void => void (arrived() ? request.socket.destroy() : setTimeout(end, 5));
  response.write(bytes.subarray(from, breakAt), end);
}

const server = createServer(answer);
before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  hub = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => server.close());
beforeEach(() => {
  behavior = { breakAt: null, arrived: () => true, checksum: null, status: 200 };
  requests = [];
});

test("a data set is downloaded, verified and read, and not downloaded again", async () => {
  const place = join(folder, "plain");
  const done = await download("ag_news", { hub, folder: place });
  assert.deepEqual(
    done.map((d) => [d.split, d.how, d.sha256]),
    [
      ["train", "fetched", sha(files.train)],
      ["test", "fetched", sha(files.test)],
    ],
  );
  assert.equal(requests[0].url, "/datasets/fancyzhx/ag_news/resolve/main/data/train-00000-of-00001.parquet");
  assert.equal((await findSplit("ag_news", "test", place).read()).rows, 20);
  requests = [];
  assert.deepEqual(
    (await download("ag_news", { hub, folder: place })).map((d) => d.how),
    ["there", "there"],
  );
  assert.deepEqual(requests, []);
});

test("a broken download is resumed where it ended", async () => {
  behavior.breakAt = 400;
  const place = join(folder, "broken");
  const seen: string[] = [];
  behavior.arrived = () => seen.includes(`${requests.at(-1)!.url.includes("train") ? "train" : "test"} 400`);
  const onProgress = (split: string, at: number): void => void seen.push(`${split} ${at}`);
  const done = await download("ag_news", { hub, folder: place, onProgress });
  assert.deepEqual(
    done.map((d) => d.how),
    ["resumed", "resumed"],
  );
  assert.ok(
    requests.some((r) => r.range === "bytes=400-"),
    JSON.stringify(requests),
  );
  assert.deepEqual(readFileSync(done[0].path), files.train);
  assert.ok(seen.includes("train 400") && seen.includes("test 400"));
});

test("a partial file of an earlier call is used, even if it was complete", async () => {
  const place = join(folder, "left");
  await download("ag_news", { hub, folder: place });
  const { renameSync } = await import("node:fs");
  renameSync(join(place, "train.parquet"), join(place, "train.parquet.part"));
  const done = await download("ag_news", { hub, folder: place });
  assert.deepEqual(
    done.map((d) => d.how),
    ["resumed", "there"],
  );
  assert.equal(statSync(done[0].path).size, files.train.length);
});

test("with a wrong checksum the file is discarded", async () => {
  behavior.checksum = "0".repeat(64);
  const place = join(folder, "wrong");
  await assert.rejects(download("ag_news", { hub, folder: place }), /the checksum is [0-9a-f]{64}, the hub says 0{64}/);
  assert.equal(existsSync(join(place, "train.parquet")), false);
  assert.equal(existsSync(join(place, "train.parquet.part")), false);
  behavior.checksum = null;
  // A damaged partial file is detected by the checksum too, and the next call starts over.
  writeFileSync(join(place, "train.parquet.part"), "rubbish");
  await assert.rejects(download("ag_news", { hub, folder: place }), /the checksum is/);
  await download("ag_news", { hub, folder: place });
  assert.deepEqual(readFileSync(join(place, "train.parquet")), files.train);
});

test("a hub without a checksum, without the file, or unreachable is an error", async () => {
  behavior.checksum = "not-a-sha";
  await assert.rejects(download("ag_news", { hub, folder: join(folder, "none") }), /gave no checksum/);
  behavior.status = 404;
  await assert.rejects(
    download("ag_news", { hub, folder: join(folder, "absent") }),
    /answered 404; is the address right/,
  );
  await assert.rejects(download("synthetic"), /there is nothing to fetch/);
});
