// Conventions of QuTiP: small programs that a user of QuTiP writes, as an expression of Python beside the same one here. QuTiP itself
// computes the expected numbers.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { before, describe, test } from "node:test";
import { complex, type Tensor } from "@weft/core";
import { testPython } from "@weft/testing/python";
import type { OperatorEntry } from "../operators/index.js";
import * as q from "./index.js";

const i = (x: number): OperatorEntry => ({ re: 0, im: x });
const grid = (end: number, n: number): number[] => Array.from({ length: n }, (_, k) => (end * k) / (n - 1));
const [up, down] = [q.basis(2, 0), q.basis(2, 1)];
const plus = up.add(down).unit();
const [sx, sy, sz, sm] = [q.sigmax(), q.sigmay(), q.sigmaz(), q.sigmam()];
const mixed = q.Qobj.of([
  [0.6, { re: 0.2, im: 0.1 }],
  [{ re: 0.2, im: -0.1 }, 0.4],
]);
const werner = q
  .ket2dm(q.bellState("11"))
  .scale(0.7)
  .add(q.qeye([2, 2]).scale(0.075));
const two = q.tensor(q.basis(2, 1), q.basis(3, 2));
const entangled = q
  .basis([2, 3], [0, 1])
  .add(q.basis([2, 3], [1, 2]).scale(i(1)))
  .unit();
const exact = { rtol: 1e-10, atol: 1e-12 };
const a4 = q.destroy(4);
const ramp = grid(3, 13);
const pulse = ramp.map((t) => Math.sin(2 * t) * Math.exp(-t));

type Value = OperatorEntry | q.Qobj | readonly Value[];

/** Name, the expression in Python (q is qutip, S the options of exact solvers, T linspace), and the program here. */
const programs: [string, string, () => Value][] = [
  [
    "propagators from the first time of a list, and of an open system of two qubits",
    "[q.propagator([sz, [sx, lambda t: np.cos(t)]], [0.5, 1.0, 2.0], options=S), q.propagator(q.tensor(sz, sx), 1.3, [q.tensor(sm, q.qeye(2))], options=S)]",
    () => [
      q.propagator([sz, [sx, (t: Tensor) => t.cos()]], [0.5, 1, 2], [], exact),
      q.propagator(q.tensor(sz, sx), 1.3, [q.tensor(sm, q.qeye(2))], exact),
    ],
  ],
  [
    "Wigner function of many levels",
    "q.wigner(q.coherent(260, 12), [14, 17, 19], [0, 0.5]).tolist()",
    () => q.wigner(q.coherent(260, 12), [14, 17, 19], [0, 0.5]),
  ],
  [
    "superoperators",
    "[q.spre(mixed), q.spost(mixed), q.sprepost(sx, mixed), q.liouvillian(sx + mixed, [sm, 0.3j * sz]), q.lindblad_dissipator(sm, sz), q.operator_to_vector(mixed)]",
    () => [
      q.spre(mixed),
      q.spost(mixed),
      q.sprepost(sx, mixed),
      q.liouvillian(sx.add(mixed), [sm, sz.scale(i(0.3))]),
      q.lindbladDissipator(sm, sz),
      q.operatorToVector(mixed),
    ],
  ],
  [
    "distances and entropies",
    "[q.hilbert_dist(mixed, q.ket2dm(up)), q.bures_angle(mixed, q.qeye(2) / 2), q.entropy_mutual(q.ket2dm(entangled), 0, 1), q.entropy_conditional(q.ket2dm(entangled), 0), q.entropy_relative(mixed, q.qeye(2) / 2)]",
    () => [
      q.hilbertDist(mixed, q.ket2dm(up)),
      q.buresAngle(mixed, q.qeye(2).scale(0.5)),
      q.entropyMutual(q.ket2dm(entangled), 0, 1),
      q.entropyConditional(q.ket2dm(entangled), 0),
      q.entropyRelative(mixed, q.qeye(2).scale(0.5)),
    ],
  ],
  [
    "functions of operators, and subsystems in another order",
    "[sx.matrix_element(up, 1j * down), mixed.expm(), mixed.sqrtm(), mixed.inv(), entangled.permute([1, 0]), q.tensor(sm, q.num(3)).permute([1, 0]), (sx + 1j * sz).norm()]",
    () => [
      sx.matrixElement(up, down.scale(i(1))),
      mixed.expm(),
      mixed.sqrtm(),
      mixed.inv(),
      entangled.permute([1, 0]),
      q.tensor(sm, q.num(3)).permute([1, 0]),
      sx.add(sz.scale(i(1))).norm(),
    ],
  ],
  [
    "states of spins",
    "[q.spin_state(1.5, -0.5), q.spin_coherent(1, 0.7, 1.1), q.singlet_state(), *q.triplet_states(), q.bra('10')]",
    () => [q.spinState(1.5, -0.5), q.spinCoherent(1, 0.7, 1.1), q.singletState(), ...q.tripletStates(), q.bra("10")],
  ],
  [
    "correlations of three operators, second-order coherence, spectra",
    "[*q.correlation_3op_1t(sx + 0.2 * sz, up, T(2, 3), [0.5 * sm], sm.dag(), sz, sm, options=S), *q.coherence_function_g2(0.4 * sx, None, T(2, 3), [0.7 * sm], sm, options=S), q.spectrum(0.5 * sx + 0.1 * sz, [-1.5, 0, 0.3], [0.6 * sm], sm.dag(), sm)]",
    () => [
      ...q.correlation3op1t(sx.add(sz.scale(0.2)), up, grid(2, 3), [sm.scale(0.5)], sm.dag(), sz, sm, exact),
      ...q.coherenceFunctionG2(sx.scale(0.4), null, grid(2, 3), [sm.scale(0.7)], sm, exact),
      q.spectrum(sx.scale(0.5).add(sz.scale(0.1)), [-1.5, 0, 0.3], [sm.scale(0.6)], sm.dag(), sm),
    ],
  ],
  [
    "lowering and raising",
    "[q.destroy(3), q.create(3), q.num(3), q.destroy(3, 2), q.num(3, 5)]",
    () => [q.destroy(3), q.create(3), q.num(3), q.destroy(3, 2), q.num(3, 5)],
  ],
  [
    "Pauli matrices",
    "[q.sigmax(), q.sigmay(), q.sigmaz(), q.sigmap(), q.sigmam()]",
    () => [sx, sy, sz, q.sigmap(), sm],
  ],
  [
    "identity and zero of a product space",
    "[q.qeye([2, 3]), q.qzero([2, 2]), q.identity(2)]",
    () => [q.qeye([2, 3]), q.qzero([2, 2]), q.identity(2)],
  ],
  ["position and momentum", "[q.position(4), q.momentum(4)]", () => [q.position(4), q.momentum(4)]],
  [
    "displacement and squeezing",
    "[q.displace(5, 0.3 - 0.2j), q.squeeze(5, 0.2 + 0.4j)]",
    () => [q.displace(5, { re: 0.3, im: -0.2 }), q.squeeze(5, { re: 0.2, im: 0.4 })],
  ],
  ["spins", "[*q.jmat(1.5), q.jmat(1, '+'), q.jmat(1, '-')]", () => [...q.jmat(1.5), q.jmat(1, "+"), q.jmat(1, "-")]],
  [
    "diagonals",
    "[q.qdiags([1, 2, 3]), q.qdiags([1, 2], 1), q.qdiags([[1, 2], [3, 4, 5]], [1, 0]), q.qdiags([[1j, 2]], [-1])]",
    () => [
      q.qdiags([1, 2, 3]),
      q.qdiags([1, 2], 1),
      q.qdiags(
        [
          [1, 2],
          [3, 4, 5],
        ],
        [1, 0],
      ),
      q.qdiags([[i(1), 2]], [-1]),
    ],
  ],
  ["projections", "[q.projection(3, 0, 2), q.fock_dm(3, 1)]", () => [q.projection(3, 0, 2), q.fockDm(3, 1)]],
  [
    "basis of a product space",
    "[q.basis([2, 3], [1, 0]), q.ket('101'), q.basis([2, 2])]",
    () => [q.basis([2, 3], [1, 0]), q.ket("101"), q.basis([2, 2])],
  ],
  [
    "order of tensor products",
    "[q.tensor(q.sigmax(), q.destroy(3)), q.tensor([q.basis(2, 1), q.basis(3, 2)])]",
    () => [q.tensor(sx, q.destroy(3)), two],
  ],
  [
    "Bell, GHZ and W states",
    "[q.bell_state(s) for s in ('00', '01', '10', '11')] + [q.ghz_state(3), q.w_state(3)]",
    () => [...(["00", "01", "10", "11"] as const).map((s) => q.bellState(s)), q.ghzState(3), q.wState(3)],
  ],
  [
    "coherent states",
    "[q.coherent(8, 0.7 + 0.3j), q.coherent(8, 0.7, method='analytic'), q.coherent_dm(5, 0.4)]",
    () => [q.coherent(8, { re: 0.7, im: 0.3 }), q.coherent(8, 0.7, "analytic"), q.coherentDm(5, 0.4)],
  ],
  [
    "thermal states",
    "[q.thermal_dm(6, 0.8), q.thermal_dm(4, 0), q.maximally_mixed_dm(3), q.thermal_dm(5, 2.5, method='analytic')]",
    () => [q.thermalDm(6, 0.8), q.thermalDm(4, 0), q.maximallyMixedDm(3), q.thermalDm(5, 2.5, "analytic")],
  ],
  [
    "products and powers",
    "[q.destroy(4) ** 3, q.sigmax() * q.sigmay(), q.commutator(q.sigmax(), q.sigmay()), q.commutator(q.sigmax(), q.sigmaz(), kind='anti')]",
    () => [a4.pow(3), sx.mul(sy), q.commutator(sx, sy), q.commutator(sx, sz, "anti")],
  ],
  [
    "trace, diagonal, overlap",
    "[mixed.tr(), *mixed.diag(), up.overlap(iplus), iplus.overlap(up)]",
    () => [mixed.tr(), ...mixed.diag(), up.overlap(iplus()), iplus().overlap(up)],
  ],
  [
    "norms",
    "[q.basis(3, 1).norm(), skew.norm(), skew.norm('fro'), skew.norm('one'), skew.norm('max'), mixed.norm()]",
    () => [q.basis(3, 1).norm(), skew.norm(), skew.norm("fro"), skew.norm("one"), skew.norm("max"), mixed.norm()],
  ],
  [
    "unit of states and operators",
    "[(q.basis(2, 0) * 3).unit(), (5 * mixed).unit()]",
    () => [up.scale(3).unit(), mixed.scale(5).unit()],
  ],
  [
    "unit of a pure density matrix of many levels",
    "[q.ket2dm(q.coherent(30, 1.5)).unit().tr()]",
    () => [q.ket2dm(q.coherent(30, 1.5)).unit().tr()],
  ],
  [
    "conjugates and transposes",
    "[skew.conj(), skew.trans(), skew.dag()]",
    () => [skew.conj(), skew.transpose(), skew.dag()],
  ],
  [
    "eigenvalues",
    "[*(q.sigmax() + 0.5 * q.sigmay()).eigenenergies(), q.num(4).groundstate()[0]]",
    () => [...sx.add(sy.scale(0.5)).eigenenergies(), q.num(4).groundstate()[0]],
  ],
  [
    "expectation of a ket",
    "[q.expect(q.sigmaz(), plus), q.expect(q.sigmam(), iplus), q.expect(q.num(8), q.coherent(8, 0.7))]",
    () => [q.expect(sz, plus), q.expect(sm, iplus()), q.expect(q.num(8), q.coherent(8, 0.7))],
  ],
  [
    "expectation of a density matrix",
    "[q.expect(q.sigmay(), mixed), q.expect(q.destroy(2), mixed)]",
    () => [q.expect(sy, mixed), q.expect(q.destroy(2), mixed)],
  ],
  ["expectation of a matrix that is not Hermitian", "[q.expect(q.sigmax(), skew)]", () => [q.expect(sx, skew)]],
  [
    "expectation of lists",
    "[*q.expect([q.sigmax(), q.sigmaz()], mixed), *q.expect(q.sigmaz(), [up, plus])]",
    () => [...q.expect([sx, sz], mixed), ...q.expect(sz, [up, plus])],
  ],
  [
    "variance",
    "[q.variance(q.sigmaz(), plus), q.variance(q.num(6), q.thermal_dm(6, 0.5))]",
    () => [q.variance(sz, plus), q.variance(q.num(6), q.thermalDm(6, 0.5))],
  ],
  [
    "partial trace of kets",
    "[entangled.ptrace(0), entangled.ptrace(1), two.ptrace([0, 1])]",
    () => [entangled.ptrace(0), entangled.ptrace(1), two.ptrace([0, 1])],
  ],
  [
    "partial trace of three parts",
    "[q.tensor(mixed, q.thermal_dm(3, 0.4), q.fock_dm(2, 1)).ptrace([0, 2])]",
    () => [q.tensor(mixed, q.thermalDm(3, 0.4), q.fockDm(2, 1)).ptrace([0, 2])],
  ],
  [
    "entropies",
    "[q.entropy_vn(mixed), q.entropy_vn(mixed, 2), q.entropy_linear(mixed), q.entropy_vn(entangled.ptrace(0), base=2)]",
    () => [q.entropyVn(mixed), q.entropyVn(mixed, 2), q.entropyLinear(mixed), q.entropyVn(entangled.ptrace(0), 2)],
  ],
  ["purity", "[mixed.purity(), werner.purity()]", () => [q.purity(mixed), q.purity(werner)]],
  [
    "fidelity",
    "[q.fidelity(mixed, q.thermal_dm(2, 0.5)), q.fidelity(up, plus), q.fidelity(up, mixed), q.fidelity(mixed, plus)]",
    () => [
      q.fidelity(mixed, q.thermalDm(2, 0.5)),
      q.fidelity(up, plus),
      q.fidelity(up, mixed),
      q.fidelity(mixed, plus),
    ],
  ],
  [
    "trace distance",
    "[q.tracedist(mixed, q.ket2dm(up)), q.tracedist(up, plus)]",
    () => [q.tracedist(mixed, q.ket2dm(up)), q.tracedist(up, plus)],
  ],
  [
    "concurrence and negativity",
    "[q.concurrence(werner), q.negativity(werner, 0), q.negativity(q.ket2dm(entangled), 1)]",
    () => [q.concurrence(werner), q.negativity(werner, 0), q.negativity(entangled, 1)],
  ],
  ["partial transpose", "[q.partial_transpose(werner, [1, 0])]", () => [q.partialTranspose(werner, [1, 0])]],
  [
    "Wigner function",
    "q.wigner(q.coherent(10, 0.5 + 0.3j), T(2, 3), T(1, 4)).ravel().tolist()",
    () => q.wigner(q.coherent(10, { re: 0.5, im: 0.3 }), grid(2, 3), grid(1, 4)).flat(),
  ],
  [
    "Wigner function with g = 2",
    "q.wigner(q.fock(5, 2), T(2, 3), T(1, 4), g=2).ravel().tolist()",
    () => q.wigner(q.fock(5, 2), grid(2, 3), grid(1, 4), 2).flat(),
  ],
  [
    "Wigner function of a mixture",
    "q.wigner(q.thermal_dm(8, 0.4), T(2, 3), T(1, 4), g=1).ravel().tolist()",
    () => q.wigner(q.thermalDm(8, 0.4), grid(2, 3), grid(1, 4), 1).flat(),
  ],
  [
    "Husimi function",
    "q.qfunc(q.coherent(10, 0.5j), T(2, 3), T(1, 4), g=2).ravel().tolist()",
    () => q.qfunc(q.coherent(10, i(0.5)), grid(2, 3), grid(1, 4), 2).flat(),
  ],
  [
    "sesolve, states",
    "q.sesolve(q.sigmax(), up, T(1, 3), options=S).states",
    () => q.sesolve(sx, up, grid(1, 3), exact).states,
  ],
  [
    "sesolve, final state",
    "[q.sesolve(q.sigmax(), up, T(1, 3), e_ops=[q.sigmaz()], options=S).final_state]",
    () => [q.sesolve(sx, up, grid(1, 3), { eOps: [sz], ...exact }).finalState],
  ],
  [
    "sesolve of one observable",
    "[x for x in q.sesolve(q.sigmax(), up, T(1, 3), e_ops=q.sigmaz(), options=S).expect[0]]",
    () => q.sesolve(sx, up, grid(1, 3), { eOps: sz, ...exact }).expect[0],
  ],
  [
    "sesolve of observables by name",
    "[*q.sesolve(q.sigmax(), up, T(1, 3), e_ops={'z': q.sigmaz()}, options=S).e_data['z']]",
    () => q.sesolve(sx, up, grid(1, 3), { eOps: { z: sz }, ...exact }).eData.z,
  ],
  [
    "sesolve of a function",
    "[*q.sesolve(q.sigmax(), up, T(1, 3), e_ops=[lambda t, s: t + q.expect(q.sigmaz(), s)], options=S).expect[0]]",
    () => q.sesolve(sx, up, grid(1, 3), { eOps: [(t, s) => t + Number(q.expect(sz, s))], ...exact }).expect[0],
  ],
  [
    "times in a typed array, no collapse operators as None, no observables as None",
    "[q.mesolve(sx + sz, plus, T(1, 3), None, e_ops=[sm], options=S).expect[0], q.sesolve(sx, up, T(1, 3), e_ops=None, options=S).states]",
    () => [
      q.mesolve(sx.add(sz), plus, Float64Array.from(grid(1, 3)) as never, null as never, { eOps: [sm], ...exact })
        .expect[0],
      q.sesolve(sx, up, grid(1, 3), { eOps: null as never, ...exact }).states,
    ],
  ],
  [
    "complex values of observables",
    "[*q.sesolve(q.sigmax() + q.sigmaz(), plus, T(1, 3), e_ops=[q.sigmam()], options=S).expect[0]]",
    () => q.sesolve(sx.add(sz), plus, grid(1, 3), { eOps: [sm], ...exact }).expect[0],
  ],
  [
    "times that do not start at 0",
    "[*q.sesolve([q.sigmaz(), [q.sigmax(), lambda t: np.cos(t)]], up, 2 + T(1, 3), e_ops=[q.sigmaz()], options=S).expect[0]]",
    () =>
      q.sesolve(
        [sz, [sx, (t) => t.cos()]],
        up,
        grid(1, 3).map((t) => 2 + t),
        { eOps: [sz], ...exact },
      ).expect[0],
  ],
  [
    "coefficients with arguments",
    "[*q.sesolve([q.sigmaz(), [q.sigmax(), lambda t, w: np.cos(w * t)]], up, T(1, 3), e_ops=[q.sigmaz()], args={'w': 3}, options=S).expect[0]]",
    () =>
      q.sesolve([sz, [sx, (t, { w }) => t.mul(w).cos()]], up, grid(1, 3), { eOps: [sz], args: { w: 3 }, ...exact })
        .expect[0],
  ],
  [
    "coefficients as values",
    "[*q.sesolve([q.sigmaz(), [q.sigmax(), np.sin(2 * T(3, 13)) * np.exp(-T(3, 13))]], up, T(3, 13), e_ops=[q.sigmaz()], options=S).expect[0]]",
    () => q.sesolve([sz, [sx, pulse]], up, ramp, { eOps: [sz], ...exact }).expect[0],
  ],
  [
    "complex coefficients",
    "[*q.sesolve([q.num(4), [q.destroy(4), lambda t: np.exp(1j * t)], [q.create(4), lambda t: np.exp(-1j * t)]], q.basis(4, 0), T(1, 3), e_ops=[q.num(4)], options=S).expect[0]]",
    () =>
      q.sesolve([q.num(4), [a4, phase(1)], [a4.dag(), phase(-1)]], q.basis(4, 0), grid(1, 3), {
        eOps: [q.num(4)],
        ...exact,
      }).expect[0],
  ],
  [
    "coefficients only",
    "[*q.sesolve([[q.sigmax(), lambda t: t]], up, T(1, 3), e_ops=[q.sigmaz()], options=S).expect[0]]",
    () => q.sesolve([[sx, (t) => t]], up, grid(1, 3), { eOps: [sz], ...exact }).expect[0],
  ],
  [
    "mesolve from a ket",
    "q.mesolve(q.sigmax(), up, T(1, 3), [0.5 * q.sigmam()], options=S).states",
    () => q.mesolve(sx, up, grid(1, 3), [sm.scale(0.5)], exact).states,
  ],
  [
    "mesolve of one collapse operator",
    "q.mesolve(q.sigmax(), mixed, T(1, 3), 0.5 * q.sigmam(), options=S).states",
    () => q.mesolve(sx, mixed, grid(1, 3), sm.scale(0.5), exact).states,
  ],
  [
    "mesolve without collapse operators",
    "q.mesolve(q.sigmax(), mixed, T(1, 3), [], options=S).states",
    () => q.mesolve(sx, mixed, grid(1, 3), [], exact).states,
  ],
  [
    "mesolve without collapse operators from a ket",
    "q.mesolve(q.sigmax(), up, T(1, 3), options=S).states",
    () => q.mesolve(sx, up, grid(1, 3), [], exact).states,
  ],
  [
    "collapse operators that depend on time",
    "[*q.mesolve(q.sigmax(), up, T(1, 3), [[q.sigmam(), lambda t: 0.3 * t]], e_ops=[q.sigmaz()], options=S).expect[0]]",
    () => q.mesolve(sx, up, grid(1, 3), [[sm, (t) => t.mul(0.3)]], { eOps: [sz], ...exact }).expect[0],
  ],
  [
    "collapse operators of values",
    "[*q.mesolve(q.sigmax(), up, T(3, 13), [[q.sigmam(), 1 + np.sin(2 * T(3, 13)) * np.exp(-T(3, 13))]], e_ops=[q.sigmaz()], options=S).expect[0]]",
    () => q.mesolve(sx, up, ramp, [[sm, pulse.map((x) => 1 + x)]], { eOps: [sz], ...exact }).expect[0],
  ],
  [
    "dephasing of coherences",
    "q.mesolve(0 * q.sigmaz(), plus, T(1, 2), [q.sigmaz()], options=S).states",
    () => q.mesolve(sz.scale(0), plus, grid(1, 2), [sz], exact).states,
  ],
  [
    "cavity and qubit",
    "[*q.mesolve(jc, q.tensor(q.basis(4, 0), up), T(2, 3), [0.3 * q.tensor(q.destroy(4), q.qeye(2))], e_ops=[q.tensor(q.num(4), q.qeye(2))], options=S).expect[0]]",
    () =>
      q.mesolve(jc(), q.tensor(q.basis(4, 0), up), grid(2, 3), [q.tensor(a4, q.qeye(2)).scale(0.3)], {
        eOps: [q.tensor(q.num(4), q.qeye(2))],
        ...exact,
      }).expect[0],
  ],
  [
    "steady states",
    "[q.steadystate(q.sigmax(), [q.sigmam()]), q.steadystate(q.num(4), [q.destroy(4), 0.5 * q.create(4)])]",
    () => [q.steadystate(sx, [sm]), q.steadystate(q.num(4), [a4, a4.dag().scale(0.5)])],
  ],
  [
    "propagators",
    "[q.propagator(q.sigmax() + q.sigmaz(), 0.7, options=S), *q.propagator(q.sigmax(), [0, 0.5], options=S)]",
    () => [q.propagator(sx.add(sz), 0.7, [], exact), ...q.propagator(sx, [0, 0.5], [], exact)],
  ],
  [
    "propagators of open systems",
    "[q.propagator(q.sigmax(), 0.7, [0.6 * q.sigmam()], options=S)]",
    () => [q.propagator(sx, 0.7, [sm.scale(0.6)], exact)],
  ],
  [
    "correlations",
    "[*q.correlation_2op_1t(q.sigmax(), up, T(1, 3), [q.sigmam()], q.sigmap(), q.sigmam(), options=S)]",
    () => q.correlation2op1t(sx, up, grid(1, 3), [sm], q.sigmap(), sm, exact),
  ],
  [
    "correlations of the steady state",
    "[*q.correlation_2op_1t(q.sigmax(), None, T(1, 3), [q.sigmam()], q.sigmax(), q.sigmay(), options=S)]",
    () => q.correlation2op1t(sx, null, grid(1, 3), [sm], sx, sy, exact),
  ],
];
const iplus = (): q.Qobj => up.add(down.scale(i(1))).unit();
const skew = q.Qobj.of([
  [1, { re: 2, im: 1 }],
  [i(0.5), -1],
]);
const phase = (w: number) => (t: Tensor) => complex(t.mul(w).cos(), t.mul(w).sin());
const jc = (): q.Qobj => {
  const [a, s] = [q.tensor(a4, q.qeye(2)), q.tensor(q.qeye(4), sm)];
  return a.dag().mul(s).add(a.mul(s.dag())).add(s.dag().mul(s).scale(0.3));
};

const definitions = `
import json, sys, warnings
warnings.filterwarnings("ignore")
import numpy as np, qutip as q
S = {"rtol": 1e-10, "atol": 1e-12, "nsteps": 100000, "progress_bar": "", "store_final_state": True}
T = lambda end, n: np.linspace(0, end, n)
up, down = q.basis(2, 0), q.basis(2, 1)
sx, sy, sz, sm = q.sigmax(), q.sigmay(), q.sigmaz(), q.sigmam()
plus, iplus = (up + down).unit(), (up + 1j * down).unit()
mixed = q.Qobj([[0.6, 0.2 + 0.1j], [0.2 - 0.1j, 0.4]])
skew = q.Qobj([[1, 2 + 1j], [0.5j, -1]])
werner = 0.7 * q.ket2dm(q.bell_state("11")) + 0.075 * q.qeye([2, 2])
two = q.tensor(q.basis(2, 1), q.basis(3, 2))
entangled = (q.basis([2, 3], [0, 1]) + 1j * q.basis([2, 3], [1, 2])).unit()
ca, cs = q.tensor(q.destroy(4), q.qeye(2)), q.tensor(q.qeye(4), q.sigmam())
jc = ca.dag() * cs + ca * cs.dag() + 0.3 * cs.dag() * cs
def flat(x):
    if isinstance(x, q.Qobj):
        return [y for z in x.full().ravel() for y in (float(z.real), float(z.imag))]
    if isinstance(x, (list, tuple, np.ndarray)):
        return [y for z in x for y in flat(z)]
    z = complex(x)
    return [z.real, z.imag]
for line in sys.stdin:
    try:
        print(json.dumps({"values": flat(eval(json.loads(line)))}))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
`;

function flat(x: Value): number[] {
  if (x instanceof q.Qobj) return Array.from(x.re, (re, k) => [re, x.im[k]]).flat();
  if (typeof x === "number") return [x, 0];
  if (Array.isArray(x)) return x.flatMap(flat);
  const { re, im } = x as { re: number; im: number };
  return [re, im];
}

const { python, skip } = testPython("qutip", "conventions of QuTiP");

describe("programs of QuTiP's users", { skip }, () => {
  let answers: { values?: number[]; error?: string }[] = [];
  before(() => {
    const input = programs.map(([, code]) => JSON.stringify(code)).join("\n");
    const done = spawnSync(python, ["-c", definitions], { input, encoding: "utf8", timeout: 120_000 });
    assert.equal(done.status, 0, done.stderr);
    answers = done.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  });
  programs.forEach(([name, , run], k) => {
    test(name, () => {
      const { values, error } = answers[k];
      assert.equal(error, undefined);
      const got = flat(run());
      assert.equal(got.length, values!.length);
      const worst = got.reduce((most, x, at) => Math.max(most, Math.abs(x - values![at])), 0);
      assert.ok(worst <= 1e-7, `differs by ${worst}`);
    });
  });
});
