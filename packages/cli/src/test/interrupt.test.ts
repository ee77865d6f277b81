// Ctrl-C while a program is compiled: the process ends at once with no files of the compilation left, and progress is shown.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CpuDevice } from "@weft/core";
import { isAlive } from "@weft/testing/processes";
import { durationText, hasColors, ProgressLine, wrapped } from "../terminal/index.js";

const folder = mkdtempSync(join(tmpdir(), "weft-interrupt-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const skip = !CpuDevice.available() ? "no C compiler" : process.platform === "win32" ? "no process groups" : false;
const cache = join(folder, "weft", "cpu");
const unfinished = (): string[] =>
  existsSync(cache) ? readdirSync(cache).filter((name) => name.includes(".tmp-")) : [];

async function until(condition: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 30_000;
  while (!condition()) {
    assert.ok(performance.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Starts a program whose compiler takes 20 s; returns it once that runs. */
async function compiling(signals: boolean): Promise<{ child: ReturnType<typeof spawn>; compiler: number }> {
  const marker = join(folder, "marker");
  rmSync(marker, { force: true });
  const cc = join(folder, "cc");
  // The self-test of the compiler is also a compilation.
  writeFileSync(
    cc,
    `#!/bin/sh\ncase " $* " in *".c "*) echo $$ > ${marker}.new; mv ${marker}.new ${marker}; sleep 20;; esac\nexec cc "$@"\n`,
    { mode: 0o755 },
  );
  const program = `${signals ? 'process.on("SIGINT", () => {});' : ""}
import * as weft from ${JSON.stringify(import.meta.resolve("@weft/core"))};
try { weft.setDevice("cpu"); console.log(weft.exp(weft.ones([3])).dataSync()); }
catch (error) { console.log(error.name); process.exitCode = 130; }`;
  const env = { ...process.env, XDG_CACHE_HOME: folder, WEFT_CC: cc, WEFT_INTERPRET: "0" };
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    env,
    detached: true, // A group of its own, as a terminal makes one.
    stdio: ["ignore", "pipe", "pipe"],
  });
  await until(() => existsSync(marker), "the compiler runs");
  return { child, compiler: Number(readFileSync(marker, "utf8")) };
}

for (const signals of [false, true])
  test(`Ctrl-C while compiling, ${signals ? "with" : "without"} a handler of the program`, { skip }, async () => {
    const { child, compiler } = await compiling(signals);
    assert.equal(unfinished().length, 1);
    let out = "";
    child.stdout?.on("data", (data) => {
      out += data;
    });
    const sent = performance.now();
    process.kill(-(child.pid as number), "SIGINT");
    const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
    assert.ok(performance.now() - sent < 10_000, "it does not wait for the compiler");
    if (signals) assert.deepEqual([code, out.trim()], [130, "InterruptedError"]);
    else assert.equal(signal, "SIGINT");
    await until(() => !isAlive(compiler), "the compiler has ended");
    // The program's own folder of the self-test is removed by the next process, the compiler's files at once.
    await until(() => unfinished().every((name) => readdirSync(join(cache, name)).length === 0), "files are left");
  });

test("progress: a line that is redrawn on a terminal, a line every few seconds elsewhere, nothing for short work", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1e6 });
  const written = (isTTY: boolean): { line: ProgressLine; text: () => string } => {
    let text = "";
    const stream = { isTTY, columns: 80, write: (part: string) => (text += part) !== "" };
    return { line: new ProgressLine(stream as unknown as NodeJS.WriteStream, true), text: () => text };
  };
  const [terminal, log] = [written(true), written(false)];
  for (let k = 1; k <= 40; k++) {
    t.mock.timers.tick(500);
    for (const { line } of [terminal, log]) line.update("tokenizing", k, 80);
  }
  assert.match(terminal.text(), /tokenizing \[#+\.+\] 50%, 20 s left/);
  assert.equal(
    log.text(),
    "weft: tokenizing: 5%, 38 s left\nweft: tokenizing: 18%, 33 s left\nweft: tokenizing: 30%, 28 s left\nweft: tokenizing: 43%, 23 s left\n",
  );
  const short = written(false);
  t.mock.timers.tick(100);
  short.line.update("quick", 1, 1);
  assert.equal(short.text(), "");
  assert.equal(durationText(75), "1 min 15 s");
});

test("colors and wrapped text", () => {
  assert.equal(hasColors({ isTTY: true }, {}), true);
  assert.equal(hasColors({ isTTY: true }, { NO_COLOR: "1" }), false);
  assert.equal(hasColors({ isTTY: false }, {}), false);
  assert.equal(hasColors({ isTTY: false }, { FORCE_COLOR: "1" }), true);
  assert.equal(wrapped("one two three four\n", 9), "one two\nthree\nfour\n");
  // Next lines begin below the text; columns and commands to copy stay whole.
  assert.equal(wrapped("  fix   one two three", 16), "  fix   one two\n        three");
  for (const whole of ["name  1.0  2.0  a table line", "  weft train some.yaml --devices 2"])
    assert.equal(wrapped(whole, 14), whole);
  assert.equal(wrapped("a pipe gets whole lines ".repeat(20)), "a pipe gets whole lines ".repeat(20));
});
