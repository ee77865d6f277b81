// The kernel cache stays within its size: what was used longest ago goes first, what is in use stays, and a process whose
// file was removed compiles it again.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findCompiler } from "./cpu/compiler.js";
import { addedToCache, cacheContents, cacheLimit, isCached, pruneCache } from "./kernel-cache.js";

const entry = join(dirname(fileURLToPath(import.meta.url)), "../index.js");
const environment = { ...process.env };
const folders: string[] = [];
let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "weft-bounded-"));
  folders.push(root);
  process.env.WEFT_CACHE_DIR = root;
  delete process.env.WEFT_CACHE_BYTES;
});
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  for (const name of ["WEFT_CACHE_DIR", "WEFT_CACHE_BYTES"])
    if (environment[name] === undefined) delete process.env[name];
    else process.env[name] = environment[name];
});

const hours = (n: number): number => Date.now() / 1e3 - n * 3600;

/** A file of 1,000 bytes that was used so many hours ago. */
function file(name: string, age: number): string {
  const path = join(root, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, new Uint8Array(1000));
  utimesSync(path, hours(age), hours(age));
  return path;
}
const kernel = (n: number, folder = "cpu", end = "so"): string =>
  join(folder, `${n.toString(16).padStart(40, "0")}.${end}`);

test("files that other users may write are ignored", { skip: process.getuid === undefined }, () => {
  const path = file(kernel(1), 1);
  assert.equal(isCached(path), true);
  chmodSync(path, 0o666);
  assert.equal(isCached(path), false);
});

test("pruning removes the least recently used files of all folders, down to nine tenths of the limit", () => {
  const paths = [5, 1, 4, 2, 3].map((age) =>
    file(kernel(age, age % 2 ? "cpu" : "cuda", age % 2 ? "so" : "cubin"), age),
  );
  assert.deepEqual(cacheContents(), { files: 5, bytes: 5000 });
  assert.deepEqual(pruneCache(5000), { files: 5, bytes: 5000 });
  assert.deepEqual(pruneCache(3500), { files: 3, bytes: 3000 });
  assert.deepEqual(
    paths.map((path) => existsSync(path)),
    [false, true, false, true, true],
  );
});

test("pruning keeps files in use, new files and other files, and removes temporary files after a day", () => {
  const used = file(kernel(1), 100);
  assert.ok(isCached(used));
  const mine = file(kernel(2), 100);
  addedToCache(mine);
  const young = file(kernel(3), 0.1);
  const others = [file("rates/a.json", 100), file("cpu/notes.txt", 100), file("cuda/products/a.algorithm", 100)];
  const [old, fresh] = [file(`${kernel(4)}.tmp-abc/0.c`, 30), file(`${kernel(5)}.1234.tmp`, 0.5)];
  utimesSync(dirname(old), hours(30), hours(30));
  const unused = ["so", "o", "json", "self-test"].map((end, i) => file(kernel(6 + i, "cpu", end), 2));
  pruneCache(0);
  for (const path of [used, mine, young, fresh, ...others]) assert.ok(existsSync(path), path);
  for (const path of [...unused, old]) assert.ok(!existsSync(path), path);
});

test("a process that runs for long does not protect what it used long ago", (t) => {
  const used = file(kernel(1), 1);
  assert.ok(isCached(used));
  pruneCache(0);
  assert.ok(existsSync(used));
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 3600e3 });
  pruneCache(0);
  assert.ok(!existsSync(used));
});

test("a hit counts as use, and sets a file's time at most once a day", () => {
  const [recent, old] = [file(kernel(1), 20), file(kernel(2), 30)];
  const before = statSync(recent).mtimeMs;
  assert.ok(isCached(recent) && isCached(old));
  assert.equal(statSync(recent).mtimeMs, before);
  assert.ok(Date.now() - statSync(old).mtimeMs < 60e3);
  assert.ok(!isCached(join(root, kernel(3))));
});

test("WEFT_CACHE_BYTES sets the limit, and a bad value is an error", () => {
  assert.equal(cacheLimit(), 2 ** 31);
  process.env.WEFT_CACHE_BYTES = "1e6";
  assert.equal(cacheLimit(), 1e6);
  process.env.WEFT_CACHE_BYTES = "2 GB";
  assert.throws(() => cacheLimit(), /WEFT_CACHE_BYTES="2 GB" is not valid: give a whole number/);
});

const skip = findCompiler() === null ? "no C compiler on this machine" : false;
test("processes that add to a full cache cut it back, and all of them get their results", { skip }, async () => {
  const old = Array.from({ length: 50 }, (_, i) => file(kernel(i), 2 + i));
  const quick = { WEFT_CC_FLAGS: "-O0", WEFT_DEVICE: "cpu" };
  const env = { ...process.env, WEFT_CACHE_DIR: root, WEFT_CACHE_BYTES: "30000", ...quick };
  const run = async (n: number): Promise<string> => {
    const body = `import * as weft from ${JSON.stringify(`file://${entry}`)};\nconsole.log(weft.ones([1000]).add(${n}).mul(${n}).sum().itemSync());`;
    return (await promisify(execFile)(process.execPath, ["--input-type=module", "-e", body], { env })).stdout.trim();
  };
  assert.deepEqual(await Promise.all([2, 3].map(run)), ["6000", "12000"]);
  assert.ok(!old.some((path) => existsSync(path)), "the limit is below what the processes themselves need");
  const { files } = cacheContents();
  assert.ok(files >= 2);
  assert.equal(await run(2), "6000");
  assert.equal(cacheContents().files, files, "the second start compiled nothing");
});
