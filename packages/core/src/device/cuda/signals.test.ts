// A library that replaces handlers of signals, as NVRTC does, does not keep SIGTERM and Ctrl-C from ending the process.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";

const here = JSON.stringify(new URL("./signals.js", import.meta.url).href);
const ffi = JSON.stringify(import.meta.resolve("koffi"));

for (const signal of ["SIGTERM", "SIGINT"] as const)
  test(`${signal} ends a process in which a library replaced its handlers`, {
    skip: process.platform === "linux" ? false : "needs Linux",
    timeout: 60_000,
  }, async () => {
    // Handlers set by \`signal\` run more than once.
    const script = `
      import koffi from ${ffi};
      import { withOwnSignals } from ${here};
      const replace = koffi.load(null).func("void* signal(int signal, void* handler)");
      withOwnSignals(() => {
        for (const number of [2, 15]) replace(number, replace(number, null));
      });
      console.log("ready");
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(child.stdout, "data");
    const ended = once(child, "exit");
    child.kill(signal);
    const late = setTimeout(() => child.kill("SIGKILL"), 20_000);
    assert.deepEqual(await ended, [null, signal]);
    clearTimeout(late);
  });
