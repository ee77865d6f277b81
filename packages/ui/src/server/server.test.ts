// The server against hostile requests and hostile runs folders, without a browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startUi, type UiServer } from "../index.js";
import { TestRuns } from "../test/folder.testkit.js";
import type { Overview, RunDetail } from "../wire/index.js";

interface Answer {
  status: number;
  headers: Record<string, unknown>;
  body: string;
}

describe("the server", { timeout: 60_000 }, () => {
  const runs = new TestRuns();
  const outside = new TestRuns();
  let ui: UiServer;

  before(async () => {
    runs.run("good", 10);
    ui = await startUi({ runs: runs.path });
  });
  after(async () => {
    await ui.close();
    runs.remove();
    outside.remove();
  });

  /** A request as it is, without what a client library adds. */
  const ask = (
    path: string,
    options: { method?: string; headers?: Record<string, string>; body?: string } = {},
  ): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const { method = "GET", headers = {}, body } = options;
      const sent = request({ host: "127.0.0.1", port: ui.port, path, method, headers }, (response) => {
        let text = "";
        response.on("data", (part) => {
          text += part;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }));
      });
      sent.on("error", reject);
      sent.end(body);
    });
  const withToken = () => ({ authorization: `Bearer ${ui.token}` });
  const json = async <T>(path: string): Promise<T> => JSON.parse((await ask(path, { headers: withToken() })).body) as T;

  test("data needs the token, the page itself does not", async () => {
    assert.equal((await ask("/")).status, 200);
    assert.equal((await ask("/api/runs")).status, 401);
    assert.equal((await ask("/api/events")).status, 401);
    const wrong = ui.token.replace(/.$/, (last) => (last === "A" ? "B" : "A"));
    assert.equal((await ask("/api/runs", { headers: { authorization: `Bearer ${wrong}` } })).status, 401);
    assert.equal((await ask(`/api/runs?token=${ui.token}`)).status, 401);
    assert.equal((await ask("/api/runs", { headers: withToken() })).status, 200);
  });

  test("foreign names (DNS rebinding) and foreign origins are refused", async () => {
    for (const host of ["evil.example", `evil.example:${ui.port}`, "169.254.1.1", "localhost.evil.example"])
      assert.equal((await ask("/api/runs", { headers: { ...withToken(), host } })).status, 421, host);
    for (const host of [`localhost:${ui.port}`, `127.0.0.1:${ui.port}`, `[::1]:${ui.port}`])
      assert.equal((await ask("/api/runs", { headers: { ...withToken(), host } })).status, 200, host);
    const origin = "http://evil.example";
    assert.equal((await ask("/api/runs", { headers: { ...withToken(), origin } })).status, 403);
    const own = `http://127.0.0.1:${ui.port}`;
    assert.equal((await ask("/api/runs", { headers: { ...withToken(), origin: own } })).status, 200);
  });

  test("every response carries the policy that allows nothing but our own files", async () => {
    for (const path of ["/", "/app.js", "/api/runs", "/nothing"]) {
      const { headers } = await ask(path);
      assert.match(String(headers["content-security-policy"]), /default-src 'none'; script-src 'self'/);
      assert.equal(headers["x-content-type-options"], "nosniff");
    }
    assert.doesNotMatch((await ask("/")).body, /<script>|\son\w+=/);
  });

  test("a request cannot name a path", async () => {
    outside.run("secret", 3);
    for (const id of ["../secret", "..", "/etc", "good/../good", "%2e%2e", "good%00", join(outside.path, "secret")])
      assert.equal((await ask(`/api/run?id=${encodeURIComponent(id)}`, { headers: withToken() })).status, 404, id);
    for (const path of ["/../package.json", "/..%2fpackage.json", "/page/app.tsx", "/api/../index.html"])
      assert.equal((await ask(path, { headers: withToken() })).status, 404, path);
  });

  test("links out of the folder are not followed", async () => {
    const secret = outside.run("linked", 3);
    symlinkSync(secret, join(runs.path, "link"));
    mkdirSync(join(runs.path, "half"));
    for (const name of ["run.json", "rank0.jsonl"]) symlinkSync(join(secret, name), join(runs.path, "half", name));
    const files = runs.head("files");
    symlinkSync("/etc/passwd", join(files, "stdout.log"));
    symlinkSync("/etc/passwd", join(files, "config.yaml"));
    const ids = (await json<Overview>("/api/runs")).runs.map(({ id }) => id);
    assert.ok(ids.includes("good") && ids.includes("files"));
    assert.ok(!ids.includes("link") && !ids.includes("half"));
    assert.doesNotMatch(JSON.stringify(await json<RunDetail>("/api/run?id=files")), /root:/);
  });

  test("pipes, huge lines, broken JSON and impossible values do no harm", async () => {
    const folder = runs.head("odd", { status: "running" });
    execFileSync("mkfifo", [join(folder, "records.jsonl")]);
    const lines = [
      "\u0000\u0001 not json",
      `{"v":1,"type":"step","rank":0,"step":0,"durationUs":5,"loss":1}`,
      `{"v":1,"type":"step","rank":0,"step":9007199254740991,"durationUs":1e308,"loss":-1e300}`,
      `{"v":1,"type":"step","rank":0,"step":-5,"durationUs":"x"}`,
      `{"v":1,"type":"event","name":"x","message":"\\u001b[2J<script>alert(1)</script>"}`,
      `"${"x".repeat(3 << 20)}"`,
      `{"v":1,"type":"step","rank":0,"step":9007199254740991,"durationUs":1,"loss":2}`,
      "[".repeat(100_000),
    ];
    writeFileSync(join(folder, "rank0.jsonl"), lines.join("\n"));
    writeFileSync(join(folder, "config.yaml"), "a: &a [x]\nb: [*a, *a]\nc: {__proto__: {d: 1}}\n");
    writeFileSync(join(folder, "metrics.csv"), "epoch,val_acc\n1,NaN\n2,0.5\n3,<b>\n");
    const detail = await json<RunDetail>("/api/run?id=odd");
    assert.equal(detail.row.accuracy, 0.5);
    assert.ok(detail.log.some(({ text }) => text.includes("<script>") && !text.includes("\u001b")));
    const part = await json<{ step: number[] }>("/api/series?id=odd&buckets=5000");
    assert.equal(part.step[0], 0);
    runs.head("worse");
    writeFileSync(join(runs.path, "worse", "run.json"), `{"v":1,"id":{},"devices":"many"}`);
    assert.equal((await ask("/api/run?id=worse", { headers: withToken() })).status, 404);
  });

  test("parameters are checked", async () => {
    for (const query of ["buckets=-1", "buckets=x", "fields=loss,secret", "from=1e400"])
      assert.equal((await ask(`/api/series?id=good&${query}`, { headers: withToken() })).status, 400, query);
    assert.equal((await ask("/api/series", { headers: withToken() })).status, 400);
    assert.equal((await ask("/api/__proto__", { headers: withToken() })).status, 404);
  });

  test("only a process that provably trains in the folder is signaled", async () => {
    // The record names this very process: it must survive.
    const folder = runs.head("forged", { status: "running" });
    const t = Date.now() / 1000;
    writeFileSync(
      join(folder, "rank0.jsonl"),
      `${JSON.stringify({ v: 1, type: "rank", t, rank: 0, pid: process.pid })}\n`,
    );
    const headers = { ...withToken(), "content-type": "application/json" };
    const body = JSON.stringify({ id: "forged" });
    const answer = await ask("/api/stop", { method: "POST", headers, body });
    assert.equal(answer.status, 409, answer.body);
    assert.match(answer.body, /no process of yours holds the lock/);
    assert.equal(
      (await ask("/api/stop", { method: "POST", headers: { "content-type": "application/json" }, body })).status,
      401,
    );
    assert.equal((await ask("/api/stop", { method: "POST", headers: withToken(), body })).status, 415);
    assert.equal((await ask(`/api/stop?id=forged`, { headers })).status, 404);
    const large = JSON.stringify({ id: "x".repeat(1 << 17) });
    assert.equal((await ask("/api/stop", { method: "POST", headers, body: large })).status, 413);
  });
});
