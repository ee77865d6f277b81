// Lindblad ensembles written only with tensor functions, as a user would: vmap over tasks of a scan over time with small density
// matrices, RK4 with one step per segment.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";

type Complex = { re: number; im: number };
type Entry = number | Complex;
const c = (re: number, im = 0): Complex => ({ re, im });
const complex = (x: Entry): Complex => (typeof x === "number" ? c(x) : x);
const times = (a: Complex, b: Complex): Complex => c(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
const kron = (a: Entry[][], b: Entry[][]): Complex[][] =>
  a.flatMap((ra) => b.map((rb) => ra.flatMap((x) => rb.map((y) => times(complex(x), complex(y))))));
const matrix = (rows: Entry[][]): Tensor =>
  weft.tensor(rows.map((row) => row.map(complex)) as never, { dtype: "complex64" }).realize();

const operators = {
  i: [
    [1, 0],
    [0, 1],
  ],
  x: [
    [0, 1],
    [1, 0],
  ],
  y: [
    [0, c(0, -1)],
    [c(0, 1), 0],
  ],
  z: [
    [1, 0],
    [0, -1],
  ],
  lower: [
    [0, 1],
    [0, 0],
  ],
  raise: [
    [0, 0],
    [1, 0],
  ],
  excited: [
    [0, 0],
    [0, 1],
  ],
} satisfies Record<string, Entry[][]>;
type Name = keyof typeof operators;

/** Jump operator L, its adjoint, L^H L (null: the identity, which costs no product), and its rate. */
interface Jump {
  l: Tensor;
  adjoint: Tensor;
  square: Tensor | null;
  rate: Tensor;
}

function slopeOf(rho: Tensor, h: Tensor, jumps: readonly Jump[], minusI: Tensor): Tensor {
  const commutator = h.matmul(rho).sub(rho.matmul(h)).mul(minusI);
  return jumps.reduce((sum, { l, adjoint, square, rate }) => {
    const loss = square === null ? rho : square.matmul(rho).add(rho.matmul(square)).mul(0.5);
    return sum.add(l.matmul(rho).matmul(adjoint).sub(loss).mul(rate));
  }, commutator);
}

/** Density matrix after all segments of `pulse`; `hamiltonian` maps the controls of a segment to H. */
function evolve(
  start: Tensor,
  pulse: Tensor,
  dt: number,
  hamiltonian: (controls: Tensor) => Tensor,
  jumps: Jump[],
): Tensor {
  const minusI = weft.tensor(c(0, -1) as never, { dtype: "complex64" });
  const step = (rho: Tensor, controls: Tensor): [Tensor, null] => {
    const h = hamiltonian(controls.cast("complex64"));
    const slope = (state: Tensor): Tensor => slopeOf(state, h, jumps, minusI);
    const k1 = slope(rho);
    const k2 = slope(rho.add(k1.mul(dt / 2)));
    const k3 = slope(rho.add(k2.mul(dt / 2)));
    const k4 = slope(rho.add(k3.mul(dt)));
    const sum = k1.add(k2.mul(2)).add(k3.mul(2)).add(k4);
    return [rho.add(sum.mul(dt / 6)), null];
  };
  return weft.scan(step, start, pulse)[0];
}

type EnsembleLoss = (pulses: Tensor, dephasing: Tensor, relaxation: Tensor) => Tensor;

/** Mean infidelity of a bit flip over tasks: 2 x 2 density matrices, drives x and y, relaxation and dephasing. */
export function oneQubitLoss(steps = 60): EnsembleLoss {
  const m = (name: Name): Tensor => matrix(operators[name]);
  const [x, y, z, lower, raise, excited] = (["x", "y", "z", "lower", "raise", "excited"] as const).map(m);
  const start = matrix([
    [1, 0],
    [0, 0],
  ]);
  const infidelity: EnsembleLoss = (pulse, dephasing, relaxation) => {
    const [d, r] = [dephasing.cast("complex64"), relaxation.cast("complex64")];
    const rho = evolve(start, pulse, 1 / steps, (u) => x.mul(u.index(0)).add(y.mul(u.index(1))), [
      { l: lower, adjoint: raise, square: excited, rate: r },
      { l: z, adjoint: z, square: null, rate: d.mul(0.5) },
    ]);
    return weft.real(rho.index(1, 1)).neg().add(1);
  };
  return (pulses, dephasing, relaxation) => weft.vmap(infidelity)(pulses, dephasing, relaxation).mean();
}

/** Mean over tasks and 12 product states: 4 x 4 density matrices, six controls, four decay channels. */
export function twoQubitLoss(steps = 60): EnsembleLoss {
  const on = (a: Name, b: Name): Tensor => matrix(kron(operators[a], operators[b]));
  const zz = matrix(kron(operators.z, operators.z).map((row) => row.map((x) => c(2 * x.re, 2 * x.im))));
  const pairs: [Name, Name][] = [
    ["x", "i"],
    ["y", "i"],
    ["i", "x"],
    ["i", "y"],
    ["z", "i"],
    ["i", "z"],
  ];
  const controls = pairs.map(([a, b]) => on(a, b));
  const identity = on("i", "i");
  const [zi, iz] = [on("z", "i"), on("i", "z")];
  const single: Complex[][] = [
    [1, 0],
    [0, 1],
    [Math.SQRT1_2, Math.SQRT1_2],
    [Math.SQRT1_2, c(0, Math.SQRT1_2)],
  ].map((state) => state.map(complex));
  const starts = single
    .flatMap((a, i) => single.filter((_, j) => j !== i).map((b) => a.flatMap((p) => b.map((q) => times(p, q)))))
    .map((psi) => psi.map((p) => psi.map((q) => times(p, c(q.re, -q.im)))));
  const initial = weft.tensor(starts as never, { dtype: "complex64" }).realize();
  const overlap = (pulse: Tensor, dephasing: Tensor, relaxation: Tensor, start: Tensor): Tensor => {
    const [d, r] = [dephasing.mul(0.5).cast("complex64"), relaxation.cast("complex64")];
    const hamiltonian = (u: Tensor): Tensor => controls.reduce((sum, k, i) => sum.add(k.mul(u.index(i))), zz);
    const rho = evolve(start, pulse, Math.PI / 4 / steps, hamiltonian, [
      { l: zi, adjoint: zi, square: identity, rate: d },
      { l: iz, adjoint: iz, square: identity, rate: d },
      { l: on("lower", "i"), adjoint: on("raise", "i"), square: on("excited", "i"), rate: r },
      { l: on("i", "lower"), adjoint: on("i", "raise"), square: on("i", "excited"), rate: r },
    ]);
    return weft.real(rho.mul(start.transpose()).sum());
  };
  const task: EnsembleLoss = (pulse, dephasing, relaxation) =>
    weft
      .vmap(overlap, { inAxes: [null, null, null, 0] })(pulse, dephasing, relaxation, initial)
      .mean()
      .neg()
      .add(1);
  return (pulses, dephasing, relaxation) => weft.vmap(task)(pulses, dephasing, relaxation).mean();
}
