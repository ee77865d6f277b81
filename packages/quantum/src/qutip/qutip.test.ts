// The QuTiP-like entry: closed forms, QuTiP's files (read by QuTiP's own writer where it is installed), and hostile pickles.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { needsRepository, packageExamples, runPrograms, undocumentedExports } from "@weft/testing/examples";
import { testPython } from "@weft/testing/python";
import { Operator } from "../operators/index.js";
import * as q from "./index.js";
import { readObjectPickle } from "./pickle.js";

const near = (got: unknown, want: number, tolerance = 1e-7, name = ""): void =>
  assert.ok(Math.abs(Number(got) - want) <= tolerance, `${name}: ${JSON.stringify(got)}, wanted ${want}`);

test("every public name has TSDoc, and examples run", needsRepository, () => {
  assert.deepEqual(undocumentedExports("packages/quantum/src/qutip/index.ts"), []);
  const own = packageExamples("packages/quantum").filter(({ code }) => code.includes("@weft/quantum/qutip"));
  assert.equal(own.length, 3);
  runPrograms(own, ({ name }, output) => assert.notEqual(output.trim(), "", `${name} prints nothing`));
});

test("evolutions agree with closed forms", () => {
  const lower = q.sigmam();
  const times = [1, 1.5, 3];
  // Times start at tlist[0], as in QuTiP.
  const decay = q.mesolve(q.sigmaz(), q.basis(2, 0), times, [lower.scale(Math.sqrt(0.4))], {
    eOps: [q.sigmaz(), lower],
  });
  times.forEach((t, k) => void near(decay.expect[0][k], 2 * Math.exp(-0.4 * (t - 1)) - 1));
  assert.equal(typeof decay.expect[1][0], "object", "values of operators that are not Hermitian are complex");
  const phase = (w: number) => (t: import("@weft/core").Tensor) => t.mul(w).cos();
  const driven = q.sesolve([[q.sigmax(), phase(0.7)]], q.basis(2, 0), times, { eOps: [q.sigmaz()] });
  const area = (t: number): number => (Math.sin(0.7 * t) - Math.sin(0.7)) / 0.7;
  times.forEach((t, k) => void near(driven.expect[0][k], Math.cos(2 * area(t))));
  assert.equal(driven.states.length, 0);
  const states = q.sesolve(q.sigmax(), q.basis(2, 0), times).states;
  near(states[2].norm(), 1);
  assert.throws(() => q.sesolve([[lower, phase(1)]], q.basis(2, 0), times), /is not Hermitian at t/);
  assert.throws(() => q.mesolve(q.sigmaz(), q.basis(2, 0), [1, 0]), /ascending/);
  assert.throws(
    () => q.mesolve(q.sigmaz(), q.basis(2, 0), [0, 1], [], { e_ops: [] } as never),
    /there is no option "e_ops"; did you mean "eOps"/,
  );
});

test("what is no state, no sum and no Hamiltonian is refused", () => {
  const sm = q.sigmam();
  const from = (rows: number[][]) => (): unknown => q.mesolve(q.sigmaz(), q.Qobj.of(rows), [0, 1], [sm]);
  assert.throws(from([[0.5, 0.5], [0, 0.5]]), /the initial state is not Hermitian/); // biome-ignore format: a matrix
  assert.throws(from([[2, 0], [0, 0.5]]), /has the trace 2.5 instead of 1/); // biome-ignore format: a matrix
  assert.throws(from([[1.5, 0], [0, -0.5]]), /has a negative eigenvalue/); // biome-ignore format: a matrix
  const negative = q.qdiags([[1.5, -0.5]], [0]);
  assert.throws(() => q.smesolve(q.sigmaz(), negative, [0, 1], [], [sm]), /has a negative eigenvalue/);
  assert.throws(() => q.sesolve(q.sigmaz(), q.basis(2, 0).scale(2), [0, 1]), /has the norm 2 instead of 1; divide/);
  // A drive that is not Hermitian for a hundredth of the time only.
  const short = (t: import("@weft/core").Tensor) => t.sub(0.613).div(0.004).square().neg().exp();
  assert.throws(() => q.sesolve([q.sigmaz(), [sm, short]], q.basis(2, 0), [0, 1]), /H: is not Hermitian at t = 0.[56]/);
  assert.throws(() => new Operator(2, 2, ...twice(4)).add(new Operator(3, 3, ...twice(9))), /2x2 and 3x3 have no sum/);
  assert.throws(() => q.tensor(Array.from({ length: 20 }, () => q.qeye(4))), /more than 134217728 entries/);
  assert.throws(() => q.basis(1e9), /the dimension must be a whole number from 1 to/);
  assert.throws(() => q.entropyVn(q.fockDm(2, 0), 1), /base of the logarithm must be a number above 1/);
  assert.deepEqual(q.sesolve(q.sigmaz(), q.basis(2, 0), [3], { eOps: [q.sigmaz()] }).expect, [[1]]);
});

const twice = (n: number): [Float64Array, Float64Array] => [new Float64Array(n), new Float64Array(n)];

test("measures of what is not normalized, and phase spaces of several modes, are refused", () => {
  const [up, half] = [q.basis(2, 0), q.qeye(2).scale(0.5)];
  const large = up.scale(2);
  // Their fidelity would be 2, and their distance 0.
  for (const measure of [q.fidelity, q.buresDist, q.buresAngle])
    for (const [a, b] of [
      [large, up],
      [up, q.ket2dm(large)],
      [half.scale(1.1), half],
    ])
      assert.throws(() => measure(a, b), /fidelity: the (norm|trace) of a state is 1, got/);
  for (const measure of [q.entropyVn, q.entropyLinear])
    assert.throws(() => measure(q.qeye(2)), /the trace of a state is 1, got 2; divide it by that \(unit\(\)\)/);
  const bell = q.bellState("00");
  assert.throws(() => q.concurrence(bell.scale(2)), /norm of a state is 1/);
  assert.throws(() => q.negativity(q.ket2dm(bell).scale(3), 0), /trace of a state is 1/);
  for (const draw of [q.wigner, q.qfunc]) {
    assert.throws(() => draw(q.tensor(q.basis(3, 0), q.basis(3, 1)), [0], [0]), /one mode, got \[3, 3\]; take ptrace/);
    assert.throws(() => draw(q.basis(3, 0), [0], [0], { g: 2 } as never), /g must be a positive number, got an object/);
    assert.throws(() => draw(q.basis(3, 0), [0, Number.NaN], [0]), /xvec must be a list of finite numbers/);
    assert.ok(Number.isFinite(draw(q.tensor(q.basis(3, 0), q.basis(1, 0)), [0], [0])[0][0]));
  }
});

test("kets of several subsystems whose columns have one dimension, as QuTiP writes them since 5.1", () => {
  const ket = q.tensor(q.basis(2, 1), q.basis(3, 2));
  const read = q.Qobj.of(new Operator(6, 1, ket.re, ket.im), [[2, 3], [1]]);
  assert.deepEqual(read.dims, ket.dims);
  assert.equal(read.add(ket).norm(), 2);
  assert.deepEqual(read.permute([1, 0]).dims[0], [3, 2]);
  assert.equal(read.permute([1, 0]).re[5], 1);
  assert.deepEqual(q.tensor(read, q.basis(2, 0)).dims[1], [1, 1, 1]);
  const bra = q.Qobj.of(new Operator(1, 6, ket.re, ket.im), [[1], [2, 3]]);
  assert.deepEqual(bra.dims, ket.dag().dims);
});

test("averages of trajectories equal the master equation within their errors", () => {
  const lower = q.sigmam().scale(Math.sqrt(0.5));
  const tlist = [0, 1, 2];
  const options = { eOps: [q.sigmaz()], ntraj: 2000, substeps: 60 };
  const wanted = q.mesolve(q.sigmax().scale(0.4), q.basis(2, 0), tlist, [lower], { eOps: [q.sigmaz()] }).expect[0];
  const runs = [
    q.mcsolve(q.sigmax().scale(0.4), q.basis(2, 0), tlist, [lower], options),
    q.smesolve(q.sigmax().scale(0.4), q.basis(2, 0), tlist, [], [lower], options),
  ];
  for (const { expect, errors } of runs)
    tlist.forEach((_, k) => {
      assert.ok(k === 0 || (errors[0][k] > 0 && errors[0][k] < 0.05), `${errors[0]}`);
      near(expect[0][k], Number(wanted[k]), 4 * errors[0][k] + 1e-3);
    });
  assert.throws(() => q.mcsolve(q.sigmax(), q.basis(2, 0), [0, 1, 3], [lower], options), /equal distances/);
});

test("the bias of measured trajectories stays below their standard error, however many there are", () => {
  const [jumps, eOps] = [[q.sigmam().scale(0.5)], [q.sigmaz()]];
  const exact = Number(q.mesolve(q.sigmax(), q.basis(2, 0), [0, 1], jumps, { eOps }).expect[0][1]);
  const { expect, errors } = q.smesolve(q.sigmax(), q.basis(2, 0), [0, 1], [], jumps, { eOps, ntraj: 20_000 });
  // With the steps of a few hundred trajectories it is off by 4.4e-3, seven standard errors.
  assert.ok(Math.abs(expect[0][1] - exact) <= 3.5 * errors[0][1], `${expect[0][1]} +- ${errors[0][1]}, not ${exact}`);
});

test("states and measures agree with closed forms", () => {
  const n = 30;
  const alpha = { re: 0.6, im: -0.4 };
  near(q.expect(q.num(n), q.coherent(n, alpha)), 0.52);
  near(q.fidelity(q.coherent(n, alpha), q.coherent(n, alpha, "analytic")), 1, 1e-9);
  const squeezed = q.squeeze(n, 0.3).mul(q.basis(n, 0));
  near(q.variance(q.position(n), squeezed), 0.5 * Math.exp(-0.6), 1e-8);
  near(q.expect(q.num(100), q.thermalDm(100, 0.7)), 0.7);
  near(q.entropyVn(q.ptrace(q.bellState("10"), 0), 2), 1);
  near(q.concurrence(q.ket2dm(q.bellState())), 1);
  near(q.negativity(q.ket2dm(q.ghzState(3)), 1), 0.5);
  near(q.tracedist(q.basis(2, 0), q.basis(2, 1)), 1);
  near(q.expect(q.jmat(1.5, "z"), q.basis(4, 0)), 1.5);
  const commuted = q.commutator(q.jmat(1, "x"), q.jmat(1, "y"));
  near(commuted.at(0, 0).im, 1);
  // Reduced states of a product state.
  const both = q.tensor(q.thermalDm(3, 0.5), q.fockDm(2, 1));
  near(both.ptrace(1).at(1, 1).re, 1);
  near(both.ptrace(0).at(1, 1).re, q.thermalDm(3, 0.5).at(1, 1).re);
  assert.throws(() => both.ptrace([1, 0]), /must ascend/);
  assert.throws(() => q.destroy(3).add(q.destroy(4)), /its dimensions \[4\]/);
});

test("phase-space functions of coherent and Fock states", () => {
  const alpha = { re: 0.5, im: 0.2 };
  const grid = [-1, 0, 0.7];
  const state = q.coherent(25, alpha, "analytic");
  const [w, h] = [q.wigner(state, grid, grid), q.qfunc(state, grid, grid)];
  grid.forEach((y, i) => {
    grid.forEach((x, j) => {
      const distance = (x - Math.SQRT2 * alpha.re) ** 2 + (y - Math.SQRT2 * alpha.im) ** 2;
      near(w[i][j], Math.exp(-distance) / Math.PI, 1e-9, "Wigner");
      near(h[i][j], Math.exp(-distance / 2) / (2 * Math.PI), 1e-9, "Husimi");
    });
  });
  near(q.wigner(q.basis(4, 1), [0], [0])[0][0], -1 / Math.PI, 1e-12, "negative at the origin");
});

test("parameters of scqubits and SuperGrad become parts", () => {
  const fluxonium = q.partFrom("Fluxonium", { EJ: 8.9, EC: 2.5, EL: 0.5, flux: 0.5, cutoff: 110, truncated_dim: 6 });
  assert.deepEqual(fluxonium.parameters, { ej: 8.9, ec: 2.5, el: 0.5, phiExt: Math.PI });
  assert.equal(fluxonium.structure.levels, 6);
  assert.throws(() => q.partFrom("Fluxonium", { EJ: 8.9, EC: 2.5, EL: 0.5, EX: 1 }), /"EX" is not known/);
  assert.throws(() => q.partFrom("ZeroPi", {}), /no counterpart of "ZeroPi"/);
});

const bytes = (...parts: (string | number[])[]): Uint8Array =>
  Uint8Array.from(parts.flatMap((part) => (typeof part === "string" ? [...part].map((c) => c.charCodeAt(0)) : part)));

test("pickles execute nothing, and damaged ones are refused", () => {
  // cos\nsystem\n(S'...'tR.: the classical attack, here with protocol 4 opcodes.
  const attack = bytes([0x80, 4], "cos\nsystem\n", [0x8c, 4], "true", [0x85, 0x52], ".");
  const value = readObjectPickle(attack) as { global: string; args: unknown[] };
  assert.equal(value.global, "os.system");
  const folder = mkdtempSync(join(tmpdir(), "weft-qu-"));
  try {
    const file = join(folder, "attack.qu");
    writeFileSync(file, attack);
    assert.throws(() => q.qload(file), /holds no Qobj/);
    for (const damaged of [
      bytes([0x80, 4]),
      bytes([0x80, 9], "."),
      bytes([0x80, 4], "R."),
      bytes([0x80, 4, 0x68, 7], "."),
      bytes([0x80, 4, 0x8e, 255, 255, 255, 255, 255, 255, 255, 127]),
      bytes([0x80, 4, 0xff], "."),
      bytes([0x80, 4], "NN."),
    ])
      assert.throws(() => readObjectPickle(damaged), /^WeftError: pickle: |pickle: /);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const { python, skip } = testPython("qutip", "files of QuTiP");

describe("files of QuTiP", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-qutip-"));
  after(() => rmSync(folder, { recursive: true }));

  test("dense, CSR and DIA matrices, kets and tensor products", async () => {
    const script = `
import sys, json, numpy as np, qutip as q
folder = sys.argv[1]
objects = {
    "dense": q.Qobj([[1, 2j], [3, 4]]),
    "fortran": q.Qobj(np.asfortranarray([[1, 2, 3], [4, 5, 6], [7, 8, 9j]])),
    "csr": q.tensor(q.destroy(2), q.create(3)).to("CSR"),
    "dia": (q.destroy(4) + 2j * q.create(4)).to("Dia"),
    "ket": q.tensor(q.basis(3, 1), q.basis(2, 0)),
    "bra": q.basis(3, 2).dag(),
}
out = {}
for name, x in objects.items():
    q.qsave(x, f"{folder}/{name}")
    full = x.full()
    out[name] = {"shape": full.shape, "re": full.real.ravel().tolist(), "im": full.imag.ravel().tolist(), "rows": x.dims[0]}
q.qsave([q.basis(2, 0)], f"{folder}/list")
q.qsave(q.liouvillian(q.sigmax()), f"{folder}/super")
np.savez(f"{folder}/m.npz", h=np.array([[1, 2j], [4, 3]]), v=np.array([1.0, 0.5]))
print(json.dumps(out))
`;
    const done = spawnSync(python, ["-W", "ignore", "-c", script, folder], { encoding: "utf8", timeout: 120_000 });
    assert.equal(done.status, 0, done.stderr);
    for (const [name, wanted] of Object.entries(
      JSON.parse(done.stdout) as Record<string, { shape: number[]; re: number[]; im: number[]; rows: number[] }>,
    )) {
      const found = q.qload(join(folder, name));
      assert.deepEqual([found.rows, found.columns], wanted.shape, name);
      assert.deepEqual(Array.from(found.re), wanted.re, name);
      assert.deepEqual(Array.from(found.im), wanted.im, name);
      if (name !== "bra") assert.deepEqual([...found.dims[0]], wanted.rows, name);
    }
    assert.throws(() => q.qload(join(folder, "list")), /holds no Qobj/);
    assert.throws(() => q.qload(join(folder, "super")), /not known|do not fit|only kets/);
    const h = await q.loadMatrix(join(folder, "m.npz"), "h");
    assert.deepEqual(h.full(), [
      [1, { re: 0, im: 2 }],
      [4, 3],
    ]);
    assert.equal((await q.loadMatrix(join(folder, "m.npz"), "v")).isket, true);
    await assert.rejects(q.loadMatrix(join(folder, "m.npz")), /holds h, v; name one/);
  });
});
