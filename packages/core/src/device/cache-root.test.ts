// The kernel cache in hostile or broken places: damaged files, folders of others, nowhere to write, no home. Every process
// gets its result; what is not trusted is not loaded.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { unoptimizedCompiler } from "../testing/fast-compiler.js";
import { findCompiler } from "./cpu/compiler.js";
import { isIntact, readSealed, seal } from "./sealed-file.js";

const skip = findCompiler() === null ? "no C compiler on this machine" : false;
const entry = join(dirname(fileURLToPath(import.meta.url)), "../index.js");
const folders: string[] = [];
const freshFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), "weft-place-"));
  folders.push(folder);
  return folder;
};
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

// The tests are about files; optimized code would take the compiler three times as long.
const compiler = unoptimizedCompiler(freshFolder());
const body = `import * as weft from ${JSON.stringify(`file://${entry}`)};\nconsole.log(weft.ones([1000]).add(2).sum().itemSync());`;

function run(env: Record<string, string | undefined>, cwd = freshFolder()) {
  const all: Record<string, string | undefined> = { ...process.env, WEFT_DEVICE: "cpu", WEFT_CC: compiler, ...env };
  for (const [name, value] of Object.entries(all)) if (value === undefined) delete all[name];
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", body], { encoding: "utf8", env: all, cwd });
  return { status: done.status, signal: done.signal, out: done.stdout.trim(), err: done.stderr, cwd };
}

const libraries = (root: string): string[] =>
  readdirSync(join(root, "cpu"))
    .filter((name) => name.endsWith(".so"))
    .map((name) => join(root, "cpu", name));

test("a seal tells a whole file from a damaged one", () => {
  const path = join(freshFolder(), "file");
  const content = Buffer.from("some code");
  writeFileSync(path, content);
  assert.equal(readSealed(path), null, "never sealed");
  writeFileSync(path, content);
  seal(path);
  assert.deepEqual(Buffer.from(readSealed(path)!), content);
  const whole = readFileSync(path);
  for (const damaged of [whole.subarray(0, -1), whole.subarray(1), Buffer.concat([whole, whole.subarray(0, 1)])]) {
    writeFileSync(path, damaged);
    assert.ok(!isIntact(path));
    assert.equal(statSync(path, { throwIfNoEntry: false }), undefined, "a damaged file is removed");
  }
  const flipped = Buffer.from(whole);
  flipped[3] ^= 1;
  writeFileSync(path, flipped);
  assert.ok(!isIntact(path));
});

test("truncated and altered libraries are compiled again, at every length", { skip }, () => {
  const root = freshFolder();
  assert.equal(run({ WEFT_CACHE_DIR: root }).out, "3000");
  const whole = join(freshFolder(), "whole");
  cpSync(root, whole, { recursive: true });
  for (const part of [0, 1, 64, 0.3, 0.7, 0.99]) {
    for (const path of libraries(root)) truncateSync(path, part < 1 ? Math.floor(part * statSync(path).size) : part);
    const { out, err, signal } = run({ WEFT_CACHE_DIR: root });
    assert.equal(out, "3000", `cut to ${part}: ${signal} ${err}`);
    assert.deepEqual(
      libraries(root).map((path) => statSync(path).size > 1000),
      libraries(whole).map(() => true),
    );
  }
  for (const path of libraries(root)) {
    const bytes = readFileSync(path);
    bytes.fill(0x90, bytes.length >> 1, (bytes.length >> 1) + 512);
    writeFileSync(path, bytes);
  }
  assert.equal(run({ WEFT_CACHE_DIR: root }).out, "3000");
});

test("a folder that every user can write to is not trusted", { skip }, () => {
  const root = freshFolder();
  assert.equal(run({ WEFT_CACHE_DIR: root }).out, "3000");
  for (const open of [root, join(root, "cpu")]) {
    chmodSync(open, 0o777);
    const before = libraries(root);
    for (const path of before) writeFileSync(path, "planted");
    const { out, err } = run({ WEFT_CACHE_DIR: root });
    assert.equal(out, "3000", err);
    assert.match(err, /can be written by every user \(chmod o-w makes it usable\).*WEFT_CACHE_DIR/);
    for (const path of before) assert.equal(readFileSync(path, "utf8"), "planted", "not even touched");
    chmodSync(open, 0o700);
  }
});

test("a folder that others can rename or its group can write to is not trusted", { skip }, () => {
  const above = freshFolder();
  const folder = join(above, "cache");
  chmodSync(above, 0o777);
  mkdirSync(folder, { mode: 0o700 });
  const refused = run({ WEFT_CACHE_DIR: folder });
  assert.equal(refused.out, "3000", refused.err);
  assert.match(refused.err, /is in .*, where every user can replace it/);
  assert.deepEqual(readdirSync(folder), []);
  // As in /tmp, nobody else can rename it.
  chmodSync(above, 0o1777);
  assert.equal(run({ WEFT_CACHE_DIR: folder }).err, "");
  chmodSync(above, 0o700);
  chownSync(folder, process.getuid!(), process.getgroups!().find((gid) => gid !== process.getuid!()) ?? 12_345);
  chmodSync(folder, 0o770);
  assert.match(run({ WEFT_CACHE_DIR: folder }).err, /can be written by its group \(chmod g-w/);
});

const root = process.getuid?.() === 0;
test("a folder of another user is not trusted", {
  skip: skip || (root ? false : "needs root, to give a folder away"),
}, () => {
  const folder = freshFolder();
  chownSync(folder, 12345, 12345);
  const { out, err } = run({ WEFT_CACHE_DIR: folder });
  assert.equal(out, "3000", err);
  assert.match(err, /belongs to another user \(uid 12345\)/);
  assert.deepEqual(readdirSync(folder), []);
});

test("a private folder replaces a cache that cannot be written, and is removed at exit", { skip }, () => {
  const file = join(freshFolder(), "file");
  writeFileSync(file, "");
  const places = [file, join(file, "below"), "/proc/self/task", "/dev/null"];
  for (const place of places) {
    const scratch = freshFolder();
    const { out, err, status } = run({ WEFT_CACHE_DIR: place, TMPDIR: scratch });
    assert.equal(out, "3000", `${place}: ${err}`);
    assert.equal(status, 0);
    assert.match(err, /weft: the kernel cache .* cannot be .*WEFT_CACHE_DIR/);
    assert.equal(err.match(/weft: the kernel cache/g)?.length, 1, "said once");
    assert.deepEqual(readdirSync(scratch), []);
  }
});

test("a read-only cache is read", { skip: skip || (root ? "root may write everywhere" : false) }, () => {
  const folder = freshFolder();
  run({ WEFT_CACHE_DIR: folder });
  chmodSync(join(folder, "cpu"), 0o500);
  chmodSync(folder, 0o500);
  const { out, err } = run({ WEFT_CACHE_DIR: folder });
  chmodSync(folder, 0o700);
  chmodSync(join(folder, "cpu"), 0o700);
  assert.equal(out, "3000");
  assert.equal(err, "");
});

test("a disk that is full: the compiler writes somewhere else", { skip }, () => {
  const [bin, full] = [freshFolder(), freshFolder()];
  const cc = join(bin, "cc");
  writeFileSync(
    cc,
    `#!/bin/sh\ncase "$*" in *${full}*) echo "fatal error: error writing to out.o: No space left on device" >&2; exit 1;; esac\nexec ${findCompiler()!.command} "$@"\n`,
  );
  chmodSync(cc, 0o755);
  const { out, err } = run({ WEFT_CACHE_DIR: full, WEFT_CC: cc });
  assert.equal(out, "3000", err);
  assert.match(err, /No space left on device.*WEFT_CACHE_DIR/s);
});

const canMount = spawnSync("unshare", ["-m", "mount", "-t", "tmpfs", "weft", tmpdir()]).status === 0;

const inBackground = "console.log(await (await weft.jit((x) => x.add(2).sum()).runAsync(weft.ones([1000]))).item());";
for (const [kilobytes, how, program] of [
  // The first file does not fit, or a later one.
  [32, "", body],
  [256, "", body],
  [256, " in the background", body.split("\n")[0] + inBackground],
] as const)
  test(`a cache on a disk of ${kilobytes} kB, on which the compiler's messages do not fit either${how}`, {
    skip: skip || (canMount ? false : "mounts need root"),
  }, () => {
    const folder = freshFolder();
    const mount = `mount -t tmpfs -o size=${kilobytes}k,mode=700 weft ${folder} && exec "$@"`;
    const line = ["-m", "sh", "-c", mount, "sh", process.execPath, "--input-type=module", "-e", program];
    const env = {
      ...process.env,
      WEFT_DEVICE: "cpu",
      WEFT_INTERPRET: "0",
      WEFT_CC_FLAGS: "-O0",
      WEFT_CACHE_DIR: folder,
    };
    const done = spawnSync("unshare", line, { encoding: "utf8", env });
    assert.equal(done.stdout, "3000\n", done.stderr);
    assert.match(done.stderr, /no space left on device.*WEFT_CACHE_DIR/is);
  });

test("without a home folder nothing is written into the working folder", { skip }, () => {
  for (const home of ["", "relative"]) {
    const { out, err, cwd } = run({ WEFT_CACHE_DIR: undefined, XDG_CACHE_HOME: "also/relative", HOME: home });
    assert.equal(out, "3000", err);
    assert.match(err, /no home folder/);
    assert.deepEqual(readdirSync(cwd), []);
  }
  const shared = freshFolder();
  mkdirSync(join(shared, "xdg"));
  assert.equal(run({ WEFT_CACHE_DIR: undefined, XDG_CACHE_HOME: join(shared, "xdg") }).out, "3000");
  assert.deepEqual(readdirSync(join(shared, "xdg")), ["weft"]);
});
