// weft quantum as users call it: output, JSON, exit codes. The physics is tested in the engine.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

const bin = join(import.meta.dirname, "../../bin/weft.js");
const folder = mkdtempSync(join(tmpdir(), "weft-quantum-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const weft = (...args: string[]) => spawnSync(process.execPath, [bin, "quantum", ...args], { encoding: "utf8" });
const file = join(folder, "gate.yaml");
writeFileSync(
  file,
  `
device: {parts: {q: {kind: qubit, frequency: 0.5}}}
pulses: [{on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: 0.31415926535, omega: 3.14159265359}]
evolution: {steps: 400}
target: {gate: X, compensation: virtual-z}
`,
);

test("run prints the spectrum, the infidelity and the gradient", () => {
  const { stdout, status } = weft("run", file);
  assert.equal(status, 0);
  assert.match(stdout, /\|1>\s+0.500000000/);
  assert.match(stdout, /average infidelity \d\.\d+e-\d/);
  assert.match(stdout, /q\.x\.amplitude/);
});

test("run --json, --set and --plot", () => {
  const picture = join(folder, "gate.png");
  const { stdout, status, stderr } = weft("run", file, "--json", "--set", "q.x.amplitude=0.2", "--plot", picture);
  assert.equal(status, 0, stderr);
  const result = JSON.parse(stdout);
  assert.equal(result.steps, 400);
  // Not a half turn any more.
  assert.ok(result.infidelity > 0.05 && result.infidelity < 1, String(result.infidelity));
  assert.ok(Math.abs(result.gradient["q.x.amplitude"]) > 0.1);
  assert.deepEqual([...readFileSync(picture).subarray(1, 4)], [0x50, 0x4e, 0x47]);
});

test("wrong input is a sentence and an exit code", () => {
  const bad = join(folder, "bad.yaml");
  writeFileSync(bad, "device: {parts: {q: {kind: qubit, frequency: 0.5}}}\nevolution: {stepps: 3}");
  const typo = weft("run", bad);
  assert.equal(typo.status, 2);
  assert.match(typo.stderr, /evolution: there is no key "stepps"; did you mean "steps"/);
  assert.equal(weft("run", join(folder, "none.yaml")).status, 1);
  const set = weft("run", file, "--set", "q.x.amplitud=1");
  assert.equal(set.status, 2);
  assert.match(set.stderr, /did you mean "q.x.amplitude"/);
  const late = weft("run", file, "--set", "q.x.length=-1");
  assert.notEqual(late.status, 0);
});

test("profile: components at one device, with compilation apart", () => {
  const { stdout, status, stderr } = weft(
    "profile",
    file,
    "--devices",
    "1",
    "--patterns",
    "states",
    "--repeats",
    "2",
    "--json",
  );
  assert.equal(status, 0, stderr);
  const result = JSON.parse(stdout);
  const names = result.rows.map((r: { component: string }) => r.component);
  for (const name of [
    "system build",
    "eigen-solve",
    "evolution forward",
    "evolution and gradient",
    "fidelity",
    "transfers",
  ])
    assert.ok(names.includes(name), name);
  const gradient = result.rows.find((r: { component: string }) => r.component === "evolution and gradient");
  assert.ok(gradient.ms > 0 && gradient.compileMs > gradient.ms, "compilation is not part of the steady state");
  assert.equal(result.choice.devices, 1);
});

test("bench: every rung has the right answer", () => {
  const { stdout, status, stderr } = weft("bench", "--batch", "64", "--seconds", "0.05", "--json");
  assert.equal(status, 0, stderr);
  const { rungs } = JSON.parse(stdout);
  assert.deepEqual(
    rungs.slice(0, 3).map((r: { rung: string }) => r.rung),
    ["rebuilt on every call", "compiled once", "batched"],
  );
  for (const { fidelity } of rungs) assert.ok(Math.abs(fidelity - 0.9778427990483176) < 1e-12);
});
