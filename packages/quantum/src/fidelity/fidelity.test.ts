// Figures of merit against closed forms: small infidelities, leakage, Pauli errors, Choi matrices, and compensation.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { ReferenceDevice } from "@weft/core/internal/device";
import { useDevice } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import {
  basisState,
  densityOf,
  identityOperator,
  kronAll,
  Operator,
  pauli,
  sigmaMinus,
  sigmaX,
  sigmaZ,
} from "../operators/index.js";
import { hamiltonian, hermitianExponential, lindblad } from "../solvers/index.js";
import {
  averageGateFidelity,
  averageGateInfidelity,
  averageOfProcess,
  choi,
  choiFidelity,
  choiOfUnitary,
  compensate,
  compensatedTarget,
  gate,
  leakage,
  pauliErrors,
  processInfidelity,
  stateFidelity,
  stateInfidelity,
} from "./index.js";

before(() => void useDevice(new ReferenceDevice()));

const f64 = { dtype: "float64" } as const;
const near = (got: number, want: number, tolerance: number, name = "value"): void =>
  assert.ok(Math.abs(got - want) <= tolerance, `${name}: ${got}, wanted ${want} +- ${tolerance}`);
const rotation = (axis: Operator, angle: number): Tensor =>
  hermitianExponential(axis.tensor(), weft.tensor(angle / 2, f64));

test("infidelities below 1e-10 are accurate", () => {
  for (const angle of [1e-2, 1e-5, 3e-7]) {
    // Over-rotation by an angle: F = (2 + 4 cos^2(angle/2)) / 6, 1 - F = (2/3) sin^2(angle/2)
    const u = weft.matmul(rotation(sigmaX, angle), sigmaX.tensor()).mul({ re: Math.cos(0.7), im: Math.sin(0.7) });
    const exact = (2 / 3) * Math.sin(angle / 2) ** 2;
    near(averageGateInfidelity(u, sigmaX).itemSync(), exact, 1e-15 + 1e-9 * exact);
    near(processInfidelity(u, sigmaX).itemSync(), 1.5 * exact, 1e-15 + 1e-9 * exact);
  }
  const psi = weft.matmul(rotation(sigmaX, 2e-6), basisState(2, 0).tensor()).squeeze(1);
  near(stateInfidelity(psi, basisState(2, 0)).itemSync(), 1e-12, 1e-24);
});

test("average gate fidelity with leakage equals its formula", () => {
  // Half of |1> leaks: U = diag(1, 1/sqrt 2).
  const u = Operator.from([
    [1, 0],
    [0, Math.SQRT1_2],
  ]).tensor();
  const trace = 1 + Math.SQRT1_2;
  near(averageGateFidelity(u, identityOperator(2)).itemSync(), (1.5 + trace ** 2) / 6, 1e-15);
  near(leakage(u).itemSync(), 0.25, 1e-15);
  near(averageGateFidelity(pauli("XI").tensor(), gate("I", 2)).itemSync(), 4 / 20, 1e-15);
});

test("Pauli errors of a small ZX rotation equal the closed form", () => {
  const u = rotation(pauli("ZX"), 0.02);
  const { labels, weights } = pauliErrors(u, identityOperator(4));
  const w = weights.dataSync() as Float64Array;
  near(w[labels.indexOf("ZX")], Math.sin(0.01) ** 2, 1e-15);
  near(w[labels.indexOf("II")], Math.cos(0.01) ** 2, 1e-15);
  near(
    w.reduce((a, b) => a + b, 0),
    1,
    1e-14,
  );
});

test("Choi matrices of a unitary and of a decaying qubit equal the closed forms", () => {
  const u = rotation(sigmaX, 0.4);
  const map = (rho: Tensor): Tensor => weft.matmul(u, weft.matmul(rho, u.adjoint()));
  const difference = choi(map, 2).sub(choiOfUnitary(u)).abs().max().itemSync();
  near(difference, 0, 1e-15);
  const decay = (rho: Tensor): Tensor =>
    lindblad(
      { hamiltonian: hamiltonian({ static: sigmaZ.scale(0) }), jumps: [{ operator: sigmaMinus, rate: 0.3 }] },
      rho,
      // The matrix exponential does not rely on Hermitian input.
      { duration: 1, steps: 1, method: "pwcExpm" },
    ).final;
  const c = choi(decay, 2);
  const keep = Math.exp(-0.3);
  const process = choiFidelity(c, identityOperator(2));
  near(process.itemSync(), (1 + keep + 2 * Math.sqrt(keep)) / 4, 1e-12);
  near(averageOfProcess(process, 2).itemSync(), (2 * ((1 + keep + 2 * Math.sqrt(keep)) / 4) + 1) / 3, 1e-12);
  near(c.diagonal().real().sum().itemSync(), 2, 1e-12, "trace");
});

test("virtual-Z compensation recovers phases around a CNOT and keeps the gradient", () => {
  const turn = (x: Tensor, letters: string): Tensor => hermitianExponential(pauli(letters).tensor(), x);
  const noisy = (p: Tensor): Tensor =>
    weft.matmul(
      turn(p.index(0), "ZI"),
      weft.matmul(gate("CNOT").tensor(), weft.matmul(turn(p.index(1), "IZ"), turn(p.index(2), "XX"))),
    );
  const p = weft.tensor([0.4, -0.7, 0.05], f64);
  const loss = (x: Tensor): Tensor =>
    averageGateInfidelity(compensate(noisy(x), gate("CNOT"), "virtual-z"), gate("CNOT"));
  const [value, g] = weft.valueAndGrad(loss)(p);
  // The XX rotation remains: 1 - F = (4/5) sin^2.
  near(value.itemSync(), 0.8 * Math.sin(0.05) ** 2, 1e-9);
  const [a, b, c] = g.dataSync() as Float64Array;
  near(a, 0, 1e-8);
  near(b, 0, 1e-8);
  near(c, 0.8 * Math.sin(0.1), 1e-6);
});

test("single-qubit compensation recovers arbitrary local gates", () => {
  const local = (a: number, b: number): Tensor =>
    weft.kron(rotation(sigmaX, a), weft.matmul(rotation(sigmaZ, b), rotation(pauli("Y"), a + b)));
  const u = weft.matmul(local(0.4, -1.1), weft.matmul(gate("CZ").tensor(), local(-0.8, 0.3)));
  near(averageGateInfidelity(compensate(u, gate("CNOT"), "single-qubit"), gate("CNOT")).itemSync(), 0, 1e-9);
  near(averageGateInfidelity(compensate(u, gate("CNOT"), "none"), gate("CNOT")).itemSync(), 0.7, 0.25);
});

test("compensation leaves a start whose overlap vanishes", () => {
  // Z x Z after the gate: the overlap with the target is 0, and no rotation of one qubit changes that.
  const u = weft.matmul(pauli("ZZ").tensor(), gate("CZ").tensor());
  for (const kind of ["virtual-z", "single-qubit"] as const) {
    near(averageGateInfidelity(compensate(u, gate("CZ"), kind), gate("CZ")).itemSync(), 0, 1e-9);
    const map = choi((rho) => weft.matmul(u, weft.matmul(rho, weft.adjoint(u))), 4);
    near(choiFidelity(map, compensatedTarget(map, gate("CZ"), kind)).itemSync(), 1, 1e-9);
  }
});

test("state fidelities of vectors and density matrices", () => {
  const plus = basisState(2, 0).add(basisState(2, 1)).scale(Math.SQRT1_2);
  near(stateFidelity(plus.tensor().squeeze(1), basisState(2, 0)).itemSync(), 0.5, 1e-15);
  near(stateFidelity(densityOf(plus).tensor(), plus).itemSync(), 1, 1e-15);
  near(stateInfidelity(densityOf(plus).tensor(), basisState(2, 1)).itemSync(), 0.5, 1e-15);
});

test("gates are found by name; unknown names and wrong sizes are errors", () => {
  assert.equal(
    gate("X*I")
      .sub(kronAll([sigmaX, identityOperator(2)]))
      .size(),
    0,
  );
  assert.equal(gate("X", 3).rows, 8);
  assert.throws(() => gate("XY"), /there is no "XY"; known: I, X/);
  assert.throws(() => gate("CNOT", 3), /does not divide 3/);
  assert.throws(() => averageGateFidelity(identityOperator(4).tensor(), sigmaX), /the gate is 4x4, the target 2x2/);
});

test("targets that are no states or gates are refused", () => {
  const psi = weft.tensor(Float64Array.of(1, 0, 0, 0), { dtype: "complex128", shape: [2] });
  assert.throws(() => stateFidelity(psi, [[1], [1]]), /norm 1\.414.* instead of 1/);
  assert.throws(() => stateInfidelity(psi, [[0.5], [0]]), /norm 0\.5 instead of 1/);
  const eye = identityOperator(2).tensor();
  const scaled = identityOperator(2).scale(1.1);
  assert.throws(() => averageGateFidelity(eye, scaled), /not unitary, M\^H M differs from the identity by 2\.1e-1/);
  assert.throws(
    () =>
      choiFidelity(
        choi((rho) => rho, 2),
        scaled,
      ),
    /not unitary/,
  );
});

test("what the norm of a state misses is missed by its infidelity, and targets that are tensors are checked", () => {
  const up = basisState(2, 0).tensor().squeeze(1);
  // A state of which three quarters left the computational states.
  for (const size of [0.5, 0.9, 2]) {
    near(stateInfidelity(up.mul(size), basisState(2, 0)).itemSync(), 1 - size ** 2, 1e-14);
    near(stateFidelity(up.mul(size), basisState(2, 0)).itemSync(), size ** 2, 1e-14);
  }
  const slope = weft.grad((x: Tensor) => stateInfidelity(up.mul(x), basisState(2, 0)))(weft.tensor(0.5, f64));
  near(slope.itemSync(), -1, 1e-12);
  assert.throws(() => stateFidelity(up, up.mul(2).realize()), /target has the norm 2 instead of 1/);
  const x = sigmaX.tensor();
  for (const measure of [averageGateFidelity, choiFidelity, processInfidelity])
    assert.throws(() => measure(x, x.mul(2).realize()), /the target is not unitary/);
});
