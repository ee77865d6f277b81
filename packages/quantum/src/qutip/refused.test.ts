// What a user of QuTiP may write that is refused here, with the reason: programs that QuTiP refuses too, that it understands
// differently, or whose result would be wrong.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as q from "./index.js";

const grid = (end: number, n: number): number[] => Array.from({ length: n }, (_, k) => (end * k) / (n - 1));
const up = q.basis(2, 0);
const [sx, sz, sm] = [q.sigmax(), q.sigmaz(), q.sigmam()];
const mixed = q.Qobj.of([
  [0.6, { re: 0.2, im: 0.1 }],
  [{ re: 0.2, im: -0.1 }, 0.4],
]);
const entangled = q
  .basis([2, 3], [0, 1])
  .add(q.basis([2, 3], [1, 2]).scale({ re: 0, im: 1 }))
  .unit();

describe("what QuTiP refuses, or means differently, is refused", () => {
  const other = q.tensor(q.destroy(3), q.destroy(2));
  const own = q.tensor(q.destroy(2), q.destroy(3));
  const refused: [string, () => unknown, RegExp][] = [
    ["sums of other subsystems", () => own.add(other), /Qobj.add: its dimensions \[3, 2\]/],
    ["products of other subsystems", () => own.mul(other), /Qobj.mul: its dimensions/],
    [
      "entropies of what is no state",
      () => q.entropyVn(q.qdiags([[1.5, -0.5]], [0])),
      /entropyVn: needs .* eigenvalue -0\.5/,
    ],
    ["fidelities of what is no state", () => q.fidelity(up, sm), /not Hermitian/],
    ["infinite temperature", () => q.thermalDm(3, Number.POSITIVE_INFINITY), /finite number >= 0/],
    ["levels that a spin does not have", () => q.spinState(1, 0.5), /spinState: m must be one of/],
    ["negativity of a missing subsystem", () => q.negativity(q.bellState(), 2), /no subsystem 2 in 0\.\.1/],
    ["a number in place of an operator", () => sx.mul(2 as never), /use scale/],
    [
      "states of other subsystems",
      () => q.sesolve(q.qeye([2, 3]), q.basis([3, 2]), [0, 1]),
      /initial state: its dimensions/,
    ],
    [
      "observables of other subsystems",
      () => q.sesolve(q.qeye([2, 2]), q.basis([2, 2]), [0, 1], { eOps: [q.num(4)] }),
      /eOps\[0\]: its dimensions/,
    ],
    [
      "collapse operators of other subsystems",
      () => q.mesolve(q.qeye([2, 2]), q.basis([2, 2]), [0, 1], [q.destroy(4)]),
      /cOps\[0\]: its dimensions/,
    ],
    ["expectations of other subsystems", () => q.expect(q.num(4), q.basis([2, 2])), /expect: op: its dimensions/],
    ["variance of an operator that is not Hermitian", () => q.variance(sm, up), /not Hermitian/],
    [
      "coefficients of numbers",
      () => q.sesolve([sz, [sx, (t: unknown) => Math.cos(t as number)]] as never, up, [0, 1]),
      /operators take tensors of one element/,
    ],
    [
      "coefficients that are numbers",
      () => q.sesolve([sz, [sx, () => 0.5]] as never, up, [0, 1]),
      /must return a tensor, got 0.5/,
    ],
    [
      "coefficients as strings",
      () => q.sesolve([sz, [sx, "cos(w*t)"]] as never, up, [0, 1]),
      /got the string "cos\(w\*t\)"/,
    ],
    ["values at too few times", () => q.sesolve([sz, [sx, [1, 2, 3]]], up, [0, 1, 2, 3]), /3 values for 4 times/],
    ["observables as the argument of options", () => q.sesolve(sz, up, [0, 1], [sz] as never), /write \{ eOps/],
    ["a dictionary of options", () => q.sesolve(sz, up, [0, 1], { options: {} } as never), /QuTiP's options is/],
    ["a method of QuTiP", () => q.sesolve(sz, up, [0, 1], { method: "adams" as never }), /adams/],
    ["a density matrix for sesolve", () => q.sesolve(sz, mixed, [0, 1]), /mesolve/],
    ["a state that is not normalized", () => q.sesolve(sz, up.scale(2), [0, 1]), /norm 2 instead of 1/],
    [
      "a matrix that is no state",
      () =>
        q.mesolve(
          sz,
          q.Qobj.of([
            [1.5, 0],
            [0, -0.5],
          ]),
          [0, 1],
          [sz],
        ),
      /negative eigenvalue/,
    ],
    ["an effective Hamiltonian", () => q.sesolve(sm, up, [0, 1]), /not Hermitian/],
    ["equal times", () => q.sesolve(sz, up, [0, 1, 1]), /1 at index 2/],
    ["steady states without decay", () => q.steadystate(sz, []), /not unique/],
    ["steady states of dephasing", () => q.steadystate(sx.scale(0), [sz]), /not unique/],
    [
      "steady states of two conserved parities",
      () => q.steadystate(q.num(6).scale(0), [q.destroy(6).pow(2)]),
      /not unique/,
    ],
    [
      "steady states of a qubit beside another",
      () => q.steadystate(q.tensor(sz, q.qeye(2)), [q.tensor(sm, q.qeye(2))]),
      /not unique/,
    ],
    ["subsystems in another order", () => entangled.ptrace([1, 0]), /must ascend/],
    ["NaN", () => q.coherent(4, Number.NaN), /entry in row 0 and column 0 is not a finite number/],
    ["matrices of strings", () => q.Qobj.of([["1" as never, 0]]), /not a finite number/],
    ["a factor that is a string", () => sx.scale("2" as never), /not a finite number/],
    ["displacements of infinity", () => q.displace(3, Number.POSITIVE_INFINITY), /not a finite number/],
    ["a state of norm 0 in units of its norm", () => q.zeroKet(2).unit(), /norm is 0/],
    ["numbers as factors of a tensor product", () => q.tensor(2 as never, sx), /factor 0: needs a Qobj, got number/],
    ["expectations of a name", () => q.expect("sz" as never, up), /op: needs a Qobj, got string/],
    ["one list of dimensions", () => q.Qobj.of([[1]], [1, 1] as never), /dims are two lists/],
    ["norms that do not exist", () => sx.norm("nuc" as never), /kind must be/],
    ["commutators that do not exist", () => q.commutator(sx, sz, "jordan" as never), /kind must be/],
    ["levels of a coherent state", () => q.coherent(2.5, 1, "analytic"), /whole number from 1/],
    ["qubits of a GHZ state", () => q.ghzState(60), /from 1 to 24, got 60/],
    ["qubits of a W state", () => q.wState(0), /from 1 to 24, got 0/],
    ["masks of other numbers", () => q.partialTranspose(q.bellState(), [1, 2]), /0 or 1/],
    ["variance in a state that is not normalized", () => q.variance(sz, up.scale(2)), /norm of a state is 1, got 2/],
    ["Wigner functions of operators that are no states", () => q.wigner(sm, [0], [0]), /not Hermitian/],
    ["times that are no list", () => q.sesolve(sz, up, 1 as never), /list of times, got number/],
    ["no options", () => q.sesolve(sz, up, [0, 1], null as never), /options are an object/],
    [
      "correlations in a state that is not normalized",
      () => q.correlation2op1t(sx, up.scale(2), [0, 1], [sm], sm, sm),
      /norm 2 instead of 1/,
    ],
    [
      "correlations by fixed steps",
      () => q.correlation2op1t(sx, up, [0, 1], [sm], sm, sm, { method: "rk4", steps: 3 }),
      /correlations need a method that controls its error/,
    ],
    [
      "values of a collapse operator whose spline is negative between two times",
      () => q.mesolve(sx, up, grid(2, 5), [[sm, [0, 0.2, 0.5, 0.1, 0.4]]]),
      /cOps\[0\]: the cubic spline through the squared values falls to -0\.0\d+ at t = /,
    ],
    [
      "jumps in steps that are too long",
      () => q.mcsolve(sx.scale(20), up, [0, 1.5, 3], [sm], { ntraj: 2, substeps: 1 }),
      /after 2 steps of rk4; use more steps/,
    ],
    [
      "measurements in steps that are too long",
      () => q.smesolve(sx.scale(20), up, [0, 1.5, 3], [], [sm], { ntraj: 2, substeps: 1 }),
      /2 steps of rouchon1 leave an estimated error of/,
    ],
    [
      "fixed steps that are too long",
      () =>
        q.sesolve([sz.scale(5), [sx, (t) => t.mul(7).cos()]], up, [0, 10], {
          method: "pwcExpm",
          steps: 10,
          eOps: [sz],
        }),
      /10 steps of pwcExpm leave an estimated error of 1\.\de-1 .* more than 0\.001; use more steps/,
    ],
    ["levels that do not exist", () => q.basis(2, 2), /no level/],
    ["digits that are no levels", () => q.ket("0a"), /no level/],
    ["mcsolve of a mixed state", () => q.mcsolve(sz, mixed, [0, 1], [sm]), /ket/],
    ["seeds as a list", () => q.mcsolve(sz, up, [0, 1], [sm], { seeds: [1] } as never), /did you mean "seed"/],
  ];
  for (const [name, run, message] of refused) test(name, () => assert.throws(run, message));
});
