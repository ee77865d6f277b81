// weft quantum optimize: known minima, resumed runs and errors.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
const call = (...args: string[]) => {
  const done = spawnSync(process.execPath, [weft, "quantum", "optimize", ...args], {
    encoding: "utf8",
    env: { ...process.env, WEFT_THREADS: "1" },
  });
  return { code: done.status, out: done.stdout, err: done.stderr };
};

describe("weft quantum optimize", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-quantum-optimize-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const pulse = "problem: {kind: flip, segments: 5, limit: 4}\nrates: [0.05, 0.02]\nintegration: {dt: 0.2}\n";

  test("L-BFGS lowers the infidelity, and a resumed run equals an uninterrupted one", () => {
    const spec = file("pulse.yaml", pulse);
    const out = join(folder, "run");
    const whole = JSON.parse(call(spec, "--iterations", "8", "--json").out);
    assert.equal(whole.method, "lbfgs");
    assert.ok(whole.values[0] > 0.5 && whole.value < 0.06, `${whole.values[0]} -> ${whole.value}`);
    assert.deepEqual([whole.parameters.pulse.length, whole.parameters.pulse[0].length], [5, 2]);
    assert.equal(call(spec, "--iterations", "4", "--out", out).code, 0);
    const second = call(spec, "--iterations", "8", "--out", out, "--resume", "--json");
    assert.deepEqual(JSON.parse(second.out).values, whole.values);
    assert.equal(readFileSync(join(out, "values.csv"), "utf8").trim().split("\n").length, whole.values.length + 1);
    assert.ok(existsSync(join(out, "convergence.png")));
    assert.ok(JSON.parse(readFileSync(join(out, "parameters.json"), "utf8")).pulse.length === 5);
  });

  test("Adam optimizes a pulse for an ensemble until the target is reached", () => {
    const spec = file(
      "robust.yaml",
      "problem: {kind: flip, segments: 4}\ntasks: gamma\nensemble: 3\nobjective: {cvar: 0.5}\nintegration: {dt: 0.2}\n",
    );
    const done = call(spec, "--method", "adam", "--rate", "0.2", "--target", "0.6");
    assert.equal(done.code, 0, done.err);
    assert.match(done.out, /objective: {"cvar":0.5} over 3 environments/);
    assert.match(done.out, /robust.yaml on \w+: infidelity .* the target is reached/);
    assert.match(call(spec, "--explain").out, /integration: dt = 0.2 -> rk4, .* estimated error of the fidelity/);
  });

  test("a gate specification optimizes only the parameters in learn", () => {
    const spec = file(
      "gate.yaml",
      "name: x gate\ndevice: {parts: {q: {kind: duffing, frequency: 5, anharmonicity: -0.3, levels: 3}}}\n" +
        "pulses:\n  - {on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: 0.2, omega: 31.4159}\n" +
        "evolution: {steps: 400, method: trotter2}\ntarget: {gate: X, compensation: virtual-z}\nlearn: [q.x.amplitude, q.x.omega]\n",
    );
    const done = call(spec, "--iterations", "12", "--json");
    assert.equal(done.code, 0, done.err);
    const result = JSON.parse(done.out);
    assert.deepEqual(Object.keys(result.parameters).sort(), ["q.x.amplitude", "q.x.omega"]);
    assert.ok(result.values[0] > 0.02 && result.value < 2e-3, `${result.values[0]} -> ${result.value}`);
  });

  test("the former spelling of the command still works and is not listed", () => {
    const quantum = (...args: string[]) =>
      spawnSync(process.execPath, [weft, "quantum", ...args], { encoding: "utf8" });
    const done = quantum("optimise", file("pulse.yaml", pulse), "--explain");
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /integration: dt = 0.2 -> rk4/);
    assert.doesNotMatch(quantum("--help").stdout, /optimise/);
  });

  test("wrong usage exits with 2 and names the mistake", () => {
    for (const [args, message] of [
      [[file("a.yaml", "problem: {kind: flop}\n")], /a.yaml: problem/],
      [[file("b.yaml", "problem: {kind: flip}\n")], /give either rates .* or tasks/],
      [[file("c.yaml", "problem: {kind: flip}\nrates: [-1, 0]\n")], /element 0 is -1|rate/],
      [[file("pulse.yaml", pulse), "--method", "newton"], /--method newton: known are descent, adam, lbfgs/],
      [[file("pulse.yaml", pulse), "--resume"], /--resume needs --out/],
    ] as [string[], RegExp][]) {
      const done = call(...args);
      assert.equal(done.code, 2, done.err);
      assert.match(done.err, message);
    }
    assert.equal(call(join(folder, "none.yaml")).code, 1);
  });
});
