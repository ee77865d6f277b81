// weft quantum meta: output files, resumed runs, explanations and errors.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const call = (...args: string[]) => {
  const done = spawnSync(process.execPath, [weft, "quantum", "meta", ...args], {
    encoding: "utf8",
    env: { ...process.env, WEFT_THREADS: "1" },
  });
  return { code: done.status, out: done.stdout, err: done.stderr };
};

describe("weft quantum meta", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-quantum-meta-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const small =
    "preset: debug\nproblem: {kind: flip, segments: 6}\npolicy: {width: 6, hidden: 0}\nbatch: 2\ninner: {steps: 1}\nvalidation: {tasks: 2, every: 2}\n";

  test("a run writes its files and a resumed run equals an uninterrupted one", () => {
    const settings = file("meta.yaml", small);
    const out = join(folder, "run");
    const first = call(settings, "--iterations", "4", "--out", out, "--adapt", "2", "--json");
    assert.equal(first.code, 0, first.err);
    const result = JSON.parse(first.out);
    assert.deepEqual([result.iterations, result.curves.mean.length, result.validation.iteration], [4, 3, 4]);
    assert.ok(result.validation.after > 0 && result.validation.after < 1);
    assert.ok(result.cache.programs.hits >= 3);
    assert.equal(readFileSync(join(out, "metrics.csv"), "utf8").trim().split("\n").length, 5);
    assert.match(readFileSync(join(out, "adaptation.svg"), "utf8"), /Adaptation to fresh tasks/);
    assert.ok(existsSync(join(out, "training.png")));
    const second = call(settings, "--iterations", "6", "--out", out, "--resume", "--json");
    assert.equal(second.code, 0, second.err);
    assert.equal(readFileSync(join(out, "metrics.csv"), "utf8").trim().split("\n").length, 7);
    const whole = JSON.parse(call(settings, "--iterations", "6", "--json").out);
    assert.deepEqual(JSON.parse(second.out).validation, whole.validation);
  });

  test("--explain prints steps and errors, and warns about Euler", () => {
    const text = call(file("meta.yaml", small), "--explain").out;
    assert.match(text, /^training: tolerance = 0.00001 -> rk4, dt = .* estimated error of the fidelity \d/);
    assert.match(text, /evaluation: tolerance = 1e-9 -> rk4/);
    assert.match(text, /one iteration: 2 tasks, 1 steps each, one program of \d+ kernels/);
    const euler = file("euler.yaml", `${small}integration: {training: {method: euler, dt: 0.02}}\n`);
    assert.match(call(euler, "--explain").out, /warning: euler with dt = 0.0185 is off by about \d\.\de-2 in fidelity/);
  });

  test("wrong usage exits with 2 and names the key; a missing file exits with 1", () => {
    const bad = call(file("bad.yaml", "inner: {stepz: 3}\n"));
    assert.equal(bad.code, 2);
    assert.match(bad.err, /bad.yaml: inner: .*stepz/);
    assert.equal(call("--preset", "fast").code, 2);
    assert.equal(call("--iterations", "few").code, 2);
    assert.equal(call("--resume").code, 2);
    const missing = call(join(folder, "none.yaml"));
    assert.deepEqual([missing.code, /none.yaml does not exist/.test(missing.err)], [1, true]);
  });
});
