// weft doctor as users call it: facts of this machine, measured rates, and findings.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));

function doctor(args: string[], environment: Record<string, string> = {}) {
  const env = { ...process.env, ...environment };
  return spawnSync(process.execPath, [weft, "doctor", ...args], { encoding: "utf8", env });
}

test("reports this machine, measures every device, and writes the same report to a file", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-doctor-"));
  try {
    const { status, stdout, stderr } = doctor(["--json", "--out", folder]);
    assert.equal(status, 0, stderr);
    const report = JSON.parse(stdout);
    assert.deepEqual(JSON.parse(readFileSync(join(folder, "doctor.json"), "utf8")), report);
    assert.equal(report.node, process.version);
    assert.ok(report.memoryBytes.total > 1e8);
    const names = report.devices.map((d: { name: string }) => d.name);
    assert.equal(names[0], "reference");
    assert.equal(names.includes("cpu"), report.compiler !== null);
    for (const { name, copyGBs, matmulGFLOPs } of report.devices) {
      assert.ok(copyGBs > 0.001 && copyGBs < 1e5, `${name} copies at ${copyGBs}`);
      assert.ok(matmulGFLOPs > 0.001 && matmulGFLOPs < 1e7, `${name} multiplies at ${matmulGFLOPs}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a missing compiler and a missing OpenBLAS are reported with effect and fix", () => {
  const { status, stdout } = doctor(["--no-measure"], { WEFT_CC: "no-such-compiler", WEFT_OPENBLAS: "none" });
  assert.equal(status, 0);
  assert.match(stdout, /error: no C compiler[^\n]*\n {4}effect: [^\n]*reference device[^\n]*\n {4}fix: {4}.*gcc/);
  assert.match(stdout, /warning: OpenBLAS was not found\n {4}effect: [^\n]*fallback/);
  assert.match(stdout, /^C compiler +none$/m);
});

test("the cache of WEFT_CACHE_DIR is reported with its size", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-doctor-"));
  try {
    const { stdout } = doctor(["--no-measure", "--json"], { WEFT_CACHE_DIR: folder });
    const { cache, devices } = JSON.parse(stdout);
    assert.ok(cache.folder.startsWith(folder), cache.folder);
    assert.equal(cache.writable, true);
    // The CPU device has built its runtime there by now.
    if (devices.some((d: { name: string }) => d.name === "cpu")) assert.ok(cache.files >= 1 && cache.bytes > 1000);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a compiler that fails the self-test is reported with its effect", {
  skip: CpuDevice.available() ? false : "no C compiler",
}, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-doctor-"));
  try {
    const cc = join(folder, "cc");
    const swap = "s/(x & mask) | (y & ~mask)/(x \\& ~mask) | (y \\& mask)/";
    const body = `case " $* " in *" -O2 "*".c "*) for a in "$@"; do case "$a" in *.c) sed -i '${swap}' "$a";; esac; done;; esac`;
    writeFileSync(cc, `#!/bin/sh\n${body}\nexec cc "$@"\n`);
    chmodSync(cc, 0o755);
    const { status, stdout } = doctor(["--no-measure"], { WEFT_CC: cc, WEFT_CACHE_DIR: join(folder, "cache") });
    assert.equal(status, 0);
    assert.match(stdout, /^C compiler .*self-test FAILED$/m);
    assert.match(stdout, /warning: the C compiler fails its self-test[^\n]*\n {4}effect: [^\n]*without vectors/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
