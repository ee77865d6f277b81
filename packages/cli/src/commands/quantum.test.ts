// weft quantum: output, JSON and exit codes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as quantum from "@weft/quantum/internal";

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

test("run supports --json, --set and --plot", () => {
  const picture = join(folder, "gate.png");
  const { stdout, status, stderr } = weft("run", file, "--json", "--set", "q.x.amplitude=0.2", "--plot", picture);
  assert.equal(status, 0, stderr);
  const result = JSON.parse(stdout);
  assert.equal(result.steps, 400);
  // The amplitude is no longer that of a pi pulse.
  assert.ok(result.infidelity > 0.05 && result.infidelity < 1, String(result.infidelity));
  assert.ok(Math.abs(result.gradient["q.x.amplitude"]) > 0.1);
  assert.deepEqual([...readFileSync(picture).subarray(1, 4)], [0x50, 0x4e, 0x47]);
});

test("--plot without a file writes a chart named after the specification to the working directory", () => {
  const here = mkdtempSync(join(folder, "plot-"));
  const args = [bin, "quantum", "run", file, "--no-gradient", "--plot"];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", cwd: here });
  assert.equal(status, 0, stderr);
  assert.match(stderr, /wrote gate\.png/);
  assert.deepEqual([...readFileSync(join(here, "gate.png")).subarray(1, 4)], [0x50, 0x4e, 0x47]);
});

test("charts have twenty points per period, and bands for carriers too fast to draw", () => {
  const line = (omega: number): quantum.PulseLine => {
    const pulse = `{on: q, name: x, operator: x, shape: cosine, length: 50, amplitude: 0.3, omega: ${omega}, phase: 1}`;
    const text = `device: {parts: {q: {kind: qubit, frequency: 0.5}}}\npulses: [${pulse}]\nevolution: {steps: 400}\ntarget: {gate: X}`;
    return quantum.pulseLines(new quantum.GateProblem(quantum.parseGateSpec(text, "gate")))[0];
  };
  const slow = line(0.5);
  assert.deepEqual([slow.band, slow.times.length], [false, 401]);
  const quick = line(2 * Math.PI * 2);
  // A hundred periods, each with its extremes.
  assert.deepEqual([quick.band, quick.times.length], [false, 2001]);
  const top = Math.max(...quick.values);
  assert.ok(top > 0.298 && top <= 0.3, String(top));
  const fast = line(2 * Math.PI * 5.2);
  assert.deepEqual([fast.band, fast.times.length], [true, 401]);
  assert.ok(Math.abs(fast.values[200] - 0.3) < 1e-12 && fast.values.every((x) => x >= 0), "the envelope");
});

test("decay is part of the chart and can be set; a negative rate is wrong usage", () => {
  const open = join(folder, "open.yaml");
  writeFileSync(open, `${readFileSync(file, "utf8")}\ndecay: [{on: q, t1: 40}]`);
  const picture = join(folder, "open.svg");
  const { stdout, status, stderr } = weft("run", open, "--json", "--no-gradient", "--plot", picture);
  assert.equal(status, 0, stderr);
  assert.match(readFileSync(picture, "utf8"), /populations from \|0&gt;, with decay/);
  const faster = weft("run", open, "--json", "--no-gradient", "--set", "q.lower.rate=0.1");
  assert.ok(JSON.parse(faster.stdout).infidelity > JSON.parse(stdout).infidelity + 0.1);
  const negative = weft("run", open, "--set", "q.lower.rate=-0.1");
  assert.deepEqual([negative.status, negative.stderr.includes("    at ")], [2, false]);
  assert.match(negative.stderr, /q.lower.rate: a decay rate must not be negative/);
});

test("invalid input gives a message without a stack trace and an exit code", () => {
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

test("profile reports components and patterns on one and two workers, compilation, and the planner's choice", () => {
  // On the reference device, because compilation would take most of the time.
  const quick = join(folder, "quick.yaml");
  writeFileSync(quick, readFileSync(file, "utf8").replace("steps: 400", "steps: 40"));
  const args = [
    "--device",
    "reference",
    "--devices",
    "1,2",
    "--patterns",
    "states",
    "time",
    "--repeats",
    "2",
    "--json",
  ];
  const { stdout, status, stderr } = weft("profile", quick, ...args);
  assert.equal(status, 0, stderr);
  const result = JSON.parse(stdout);
  interface Row {
    pattern: string;
    devices: number;
    component: string;
    ms: number;
    compileMs: number;
    serialFraction: number | null;
  }
  const rows: Row[] = result.rows;
  for (const devices of [1, 2])
    for (const pattern of ["states", "time", "automatic"]) {
      const own = rows.filter((r) => r.pattern === pattern && r.devices === devices);
      assert.deepEqual(
        own.map((r) => r.component),
        ["system build", "eigen-solve", "evolution forward", "evolution and gradient", "fidelity", "transfers"],
      );
      for (const r of own) assert.equal(r.serialFraction === null, devices === 1);
    }
  // On a busy machine a call may well take longer than the first one; not every one does.
  const gradients = rows.filter((r) => r.component === "evolution and gradient");
  assert.ok(
    gradients.some((r) => r.ms > 0 && r.compileMs > r.ms),
    "compilation is not part of the steady state",
  );
  const total = (pattern: string, devices: number) =>
    result.totals.find((t: { pattern: string; devices: number }) => t.pattern === pattern && t.devices === devices);
  const kinds = (pattern: string): string[] => total(pattern, 2).moved.map(({ kind }: { kind: string }) => kind);
  assert.deepEqual([total("states", 2).devicesUsed, total("time", 2).devicesUsed], [2, 2]);
  const bytes = (pattern: string): number =>
    total(pattern, 2).moved.reduce((sum: number, { bytes }: { bytes: number }) => sum + bytes, 0);
  // Columns are reduced or gathered: 2 x 2 complex numbers.
  assert.ok(
    kinds("states").includes("allReduce") && bytes("states") <= 128,
    `${kinds("states")}, ${bytes("states")} bytes`,
  );
  assert.ok(bytes("states") < bytes("time"), `${bytes("states")} and ${bytes("time")} bytes`);
  assert.ok(kinds("time").includes("allGather"), `${kinds("time")}`);
  assert.deepEqual(total("states", 1).moved, []);
  // The gate is too small for two workers.
  assert.equal(result.choice.planner.devicesUsed, 1);
  assert.match(result.choice.planner.plan, /one worker of 2/);
  // Undecided when the noise of the machine is larger than the difference.
  assert.ok(["valid", "undecided"].includes(result.verdict.status), JSON.stringify(result.verdict));
});

test("bench: every row has the correct fidelity", () => {
  const { stdout, status, stderr } = weft("bench", "--batch", "64", "--seconds", "0.05", "--json");
  assert.equal(status, 0, stderr);
  const { rungs } = JSON.parse(stdout);
  assert.deepEqual(
    rungs.slice(0, 3).map((r: { rung: string }) => r.rung),
    ["rebuilt on every call", "compiled once", "batched"],
  );
  for (const { fidelity } of rungs) assert.ok(Math.abs(fidelity - 0.9778427990483176) < 1e-12);
});

test("tune prints the section evolution that it found", () => {
  const { stdout, status, stderr } = weft(
    "tune",
    file,
    "--device",
    "reference",
    "--tolerance",
    "1e-4",
    "--methods",
    "rk4",
    "trotter4",
  );
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^evolution: \{method: (rk4|trotter4), steps: \d+/);
  const wrong = weft("tune", file, "--tolerance", "-1");
  assert.notEqual(wrong.status, 0);
  assert.match(wrong.stderr, /between 0 and 1/);
});

test("optimize --shortest finds a shorter pulse and refuses what it cannot write", () => {
  const bounded = join(folder, "bounded.yaml");
  writeFileSync(
    bounded,
    `
device: {parts: {q: {kind: qubit, frequency: 0}}}
pulses: [{on: q, name: x, operator: x, shape: piecewise, length: 10, values: [0.2, 0.2]}]
evolution: {steps: 4, method: pwcExpm}
target: {gate: X, compensation: virtual-z}
learn: [q.x.values]
bounds: {q.x.values: [-0.5, 0.5]}
`,
  );
  const { stdout, status, stderr } = weft("optimize", bounded, "--shortest", "1e-4", "--device", "reference", "--json");
  assert.equal(status, 0, stderr);
  // A rotation by pi at the bound takes pi / (2 * 0.5) ns.
  const { duration, infidelity } = JSON.parse(stdout);
  assert.ok(Math.abs(duration - Math.PI) < 0.1 && infidelity <= 1e-4, `${duration} ${infidelity}`);
  assert.match(weft("optimize", bounded, "--shortest", "1e-4", "--out", folder).stderr, /writes no files/);
  assert.match(weft("optimize", bounded, "--shortest", "x").stderr, /not a number/);
});
