// Failure codes: they come from error classes and the protocol, never from the text of a message.
import assert from "node:assert/strict";
import { test } from "node:test";
import { GroupError, type GroupErrorCode, OutOfMemoryError, ShmGroup } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import { Dispatcher } from "./dispatcher.js";
import { failureOf } from "./failure.js";
import { encode, failureCode, fromWorker } from "./protocol.js";
import { securityFrom } from "./security.js";
import { FailedError } from "./store.js";
import { hostId, openStream } from "./wire.js";

test("the code of a failure follows from the error's class and code, whatever its message", () => {
  const codes: [GroupErrorCode, string][] = [
    ["peer-dead", "lost"],
    ["peer-stopped", "lost"],
    ["aborted", "aborted"],
    ["memory", "memory"],
    ["timeout", "error"],
    ["mismatch", "error"],
    ["setup", "error"],
  ];
  for (const [code, expected] of codes) assert.equal(failureOf(new GroupError("any text", code)).code, expected);
  assert.equal(failureOf(new OutOfMemoryError("any text", 1)).code, "memory");
  assert.equal(failureOf(new FailedError({ message: "m", code: "lost" })).code, "lost");
  // A message that only reads like one of these.
  for (const text of [
    "rank 1 of group g is gone",
    "group g was given up after an error",
    "rank 0 of group g is stopped",
  ])
    assert.equal(failureOf(new WeftError(text)).code, "error");
});

test("a process group reports a code with its errors", () => {
  assert.throws(
    () => ShmGroup.join(`code-${process.pid}`, 0, 2, { joinTimeout: 0.1 }),
    (error: unknown) => error instanceof GroupError && error.code === "timeout",
  );
});

test("the protocol accepts its own codes only", () => {
  const failed = { t: "failed", client: 1, ids: [1], message: "m", worker: "w1" };
  for (const code of ["error", "aborted", "memory", "lost"])
    assert.ok(fromWorker.safeParse({ ...failed, code }).success);
  for (const code of [undefined, "gone", 3]) assert.ok(!fromWorker.safeParse({ ...failed, code }).success);
  assert.equal(failureCode("lost"), "lost");
  assert.equal(failureCode({ hostile: true }), "error");
});

test("an idle connection does not keep the process alive", async () => {
  const dispatcher = await Dispatcher.start({ port: 0 });
  const security = securityFrom({}, "localhost", ["token"]);
  const channel = await openStream("localhost", dispatcher.port, "client", security, false);
  try {
    const answered = new Promise((resolve) => channel.stream.once("data", resolve));
    channel.stream.on("error", () => {});
    const process_ = { host: hostId(), pid: process.pid };
    channel.stream.write(encode({ t: "hello", label: null, settings: {}, process: process_ }));
    await answered;
    const sockets = (): number => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;
    const before = sockets();
    channel.unref();
    assert.equal(sockets(), before - 1);
  } finally {
    channel.close();
    dispatcher.stop();
  }
});

test("a port that is taken is recognized", async () => {
  const dispatcher = await Dispatcher.start({ port: 0 });
  try {
    await assert.rejects(Dispatcher.start({ port: dispatcher.port }), /is taken; is a dispatcher running already/);
  } finally {
    dispatcher.stop();
  }
});
