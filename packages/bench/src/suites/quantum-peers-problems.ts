// Problems of the documentation and the tests of QuTiP and dynamiqs, written with @weft/quantum/qutip. The ids and the numbers are
// those of packages/bench/peers/quantum_peers.py.
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { floquetModes, hamiltonian } from "@weft/quantum";
import * as q from "@weft/quantum/qutip";

type Value = number | { re: number; im: number };

/** Numbers of values; complex ones are pairs, as soon as one of the list is complex. */
function flat(values: readonly (Value | readonly Value[])[]): number[] {
  return values.flatMap((row) => {
    const list = Array.isArray(row) ? (row as Value[]) : [row as Value];
    const isComplex = list.some((x) => typeof x !== "number");
    return list.flatMap((x) => (typeof x === "number" ? (isComplex ? [x, 0] : [x]) : [x.re, x.im]));
  });
}

const grid = (end: number, count: number): number[] => Array.from({ length: count }, (_, k) => (end * k) / (count - 1));
const linspace = (low: number, high: number, count: number): number[] => grid(high - low, count).map((x) => x + low);
const root = Math.sqrt;
const [up, down, lower] = [q.basis(2, 0), q.basis(2, 1), q.sigmam()];
const [sx, sy, sz] = [q.sigmax(), q.sigmay(), q.sigmaz()];

const se = (H: q.QobjEvo, psi: q.Qobj, times: number[], eOps: q.Qobj[]): number[] =>
  flat(q.sesolve(H, psi, times, { eOps }).expect);
const me = (H: q.QobjEvo, rho: q.Qobj, times: number[], cOps: q.CollapseOperator[], eOps: q.Qobj[]): number[] =>
  flat(q.mesolve(H, rho, times, cOps, { eOps }).expect);
const entries = (x: q.Qobj): number[] =>
  Array.from({ length: x.rows * x.columns }, (_, k) => [x.re[k], x.im[k]]).flat();
const product = (...factors: q.Qobj[]): q.Qobj => factors.reduce((a, b) => a.mul(b));
const sum = (...terms: q.Qobj[]): q.Qobj => terms.reduce((a, b) => a.add(b));

/** A cavity of n levels and a qubit. */
function cavityAndQubit(n: number): { a: q.Qobj; s: q.Qobj; photons: q.Qobj; excited: q.Qobj } {
  const [a, s] = [q.tensor(q.destroy(n), q.qeye(2)), q.tensor(q.qeye(n), lower)];
  return { a, s, photons: a.dag().mul(a), excited: s.dag().mul(s) };
}
const exchange = (a: q.Qobj, b: q.Qobj): q.Qobj => a.dag().mul(b).add(a.mul(b.dag()));
const jaynesCummings = (n: number): q.Qobj => {
  const { a, s, photons, excited } = cavityAndQubit(n);
  return sum(photons, excited, exchange(a, s).scale(0.05)).scale(2 * Math.PI);
};
const kerrTerm = (a: q.Qobj): q.Qobj => product(a.dag(), a.dag(), a, a);
const quadrature = (a: q.Qobj): q.Qobj => a.add(a.dag());
const site = (operator: q.Qobj, k: number, n: number, levels = 2): q.Qobj =>
  q.tensor(...Array.from({ length: n }, (_, i) => (i === k ? operator : q.qeye(levels))));
const range = (n: number): number[] => Array.from({ length: n }, (_, k) => k);
const bell = (center: number, width: number, size: number) => (t: Tensor) =>
  t.sub(center).div(width).square().neg().exp().mul(size);
const phase = (w: number) => (t: Tensor) => weft.complex(t.mul(w).cos(), t.mul(w).sin());
const cosine = (w: number) => (t: Tensor) => t.mul(w).cos();

/** Largest difference of two lists of numbers; infinite if they have different lengths. */
export const largestDifference = (a: readonly number[], b: readonly number[]): number =>
  a.length !== b.length ? Number.POSITIVE_INFINITY : a.reduce((worst, x, k) => Math.max(worst, Math.abs(x - b[k])), 0);

/** The problems, by id. */
export const problems: Record<string, () => number[]> = {
  rabi: () => se(sx.scale(Math.PI * 0.2), up, grid(10, 21), [sz, sy]),
  "detuned-rabi": () => se(sz.scale(0.5).add(sx.scale(0.3)), up, grid(8, 17), [sz]),
  decay: () => me(sz.scale(0.5), up, grid(10, 11), [lower.scale(root(0.3))], [sz]),
  dephasing: () => me(sz.scale(0.5), up.add(down).unit(), grid(6, 13), [sz.scale(root(0.1))], [sx, sy]),
  "driven-qubit": () => me(sx.scale(0.4), up, grid(12, 13), [lower.scale(root(0.2))], [sz, sy]),
  "cavity-decay": () => me(q.num(12), q.coherent(12, 1.2), grid(5, 11), [q.destroy(12).scale(root(0.4))], [q.num(12)]),
  "cavity-field": () => {
    const a = q.destroy(14);
    const h = q.num(14).scale(0.7).add(quadrature(a).scale(0.5));
    return me(h, q.basis(14, 0), grid(6, 7), [a.scale(root(0.5))], [a]);
  },
  "jaynes-cummings": () => {
    const { photons, excited } = cavityAndQubit(8);
    return se(jaynesCummings(8), q.tensor(q.basis(8, 0), up), grid(25, 26), [photons, excited]);
  },
  "jaynes-cummings-open": () => {
    const { a, s, photons, excited } = cavityAndQubit(8);
    const jumps = [a.scale(root(0.005 * 1.63)), a.dag().scale(root(0.005 * 0.63)), s.scale(root(0.05))];
    return me(jaynesCummings(8), q.tensor(q.basis(8, 0), up), grid(25, 11), jumps, [photons, excited]);
  },
  "kerr-revival": () => {
    const a = q.destroy(16);
    return se(kerrTerm(a).scale(0.5), q.coherent(16, 1.5, "analytic").unit(), grid(2 * Math.PI, 9), [a]);
  },
  "driven-kerr": () => {
    const a = q.destroy(16);
    const h = sum(kerrTerm(a).scale(0.1), q.num(16).scale(-0.4), quadrature(a).scale(0.6));
    return me(h, q.basis(16, 0), grid(5, 11), [a.scale(root(0.3))], [q.num(16)]);
  },
  "thermal-bath": () => {
    const a = q.destroy(14);
    const jumps = [a.scale(root(0.2 * 1.5)), a.dag().scale(root(0.2 * 0.5))];
    return me(q.num(14), q.basis(14, 3), grid(10, 11), jumps, [q.num(14)]);
  },
  "landau-zener": () =>
    se([sx.scale(0.25), [sz.scale(0.5), (t: Tensor) => t.sub(10).mul(1.5)]], up, grid(20, 11), [sz]),
  "cosine-drive": () => se([sz.scale(0.5), [sx.scale(0.3), cosine(1.1)]], up, grid(10, 11), [sz]),
  "rotating-drive": () => {
    const a = q.destroy(10);
    const h: q.QobjEvo = [q.num(10), [a.scale(0.2), phase(0.9)], [a.dag().scale(0.2), phase(-0.9)]];
    return se(h, q.basis(10, 0), grid(8, 9), [q.num(10)]);
  },
  "gaussian-pulse": () =>
    me([[sx.scale(0.5), bell(5, root(2), root(Math.PI / 2))]], up, grid(10, 11), [lower.scale(root(0.02))], [sz]),
  "decay-in-time": () => {
    const rate = (t: Tensor) => t.mul(-0.25).exp().mul(root(0.3));
    return me(sz.scale(0.5), up, grid(6, 7), [[lower, rate]], [sz]);
  },
  heisenberg: () => {
    const n = 4;
    const pairs = range(n - 1).flatMap((k) =>
      [sx, sy, sz].map((s) =>
        site(s, k, n)
          .mul(site(s, k + 1, n))
          .scale(0.25),
      ),
    );
    const start = q.tensor(...range(n).map((k) => (k === 0 ? down : up)));
    const observables = range(n).map((k) => site(sz, k, n));
    return se(sum(...pairs), start, grid(10, 11), observables);
  },
  "ising-dephasing": () => {
    const n = 3;
    const fields = range(n).map((k) => site(sx, k, n).scale(0.7));
    const pairs = range(n - 1).map((k) =>
      site(sz, k, n)
        .mul(site(sz, k + 1, n))
        .scale(0.4),
    );
    const jumps = range(n).map((k) => site(sz, k, n).scale(root(0.05)));
    return me(
      sum(...fields, ...pairs),
      q.tensor(up, up, up),
      grid(5, 6),
      jumps,
      range(n).map((k) => site(sz, k, n)),
    );
  },
  "steady-qubit": () => entries(q.steadystate(sx.scale(0.4).add(sz.scale(0.1)), [lower.scale(root(0.3))])),
  "steady-kerr": () => {
    const a = q.destroy(14);
    const h = sum(kerrTerm(a).scale(0.2), q.num(14).scale(-0.3), quadrature(a).scale(0.5));
    const rho = q.steadystate(h, [a.scale(root(0.5))]);
    return flat([q.expect(q.num(14), rho), q.expect(quadrature(a), rho), q.purity(rho)]);
  },
  "unitary-propagator": () => entries(q.propagator([sz.scale(0.5), [sx.scale(0.3), cosine(1.1)]], 4)),
  "open-propagator": () => entries(q.propagator(sx.scale(0.4).add(sz.scale(0.2)), 2, [lower.scale(root(0.3))])),
  "emission-correlation": () => {
    const jumps = [lower.scale(root(0.4))];
    return flat([q.correlation2op1t(sx.scale(0.5), null, grid(10, 11), jumps, lower.dag(), lower)]);
  },
  entanglement: () => {
    const { a, s } = cavityAndQubit(6);
    const start = q.tensor(q.coherent(6, 0.6), up);
    return q.sesolve(exchange(a, s).scale(0.3), start, grid(6, 7)).states.map((x) => q.entropyVn(q.ptrace(x, 1)));
  },
  "cat-wigner": () => {
    const cat = q
      .coherent(20, 1.5, "analytic")
      .add(q.coherent(20, -1.5, "analytic"))
      .unit();
    return q.wigner(cat, linspace(-3, 3, 13), linspace(-2, 2, 9)).flat();
  },
  husimi: () =>
    q.qfunc(q.coherent(16, { re: 0.8, im: 0.3 }, "analytic"), linspace(-2, 2, 7), linspace(-2, 2, 7)).flat(),
  squeezing: () => {
    const state = product(q.squeeze(40, 0.4), q.displace(40, 0.5), q.basis(40, 0));
    return flat([q.variance(q.position(40), state), q.variance(q.momentum(40), state), q.expect(q.num(40), state)]);
  },
  "mixed-measures": () => {
    const plusI = up.add(down.scale({ re: 0, im: 1 })).unit();
    const a = q.ket2dm(up).scale(0.7).add(q.ket2dm(plusI).scale(0.3));
    const b = q.Qobj.of([
      [0.6, 0.2],
      [0.2, 0.4],
    ]);
    return [q.fidelity(a, b), q.tracedist(a, b), q.entropyVn(a), q.entropyLinear(b), a.mul(b).trace().re];
  },
  werner: () => {
    const rho = q
      .ket2dm(q.bellState("11"))
      .scale(0.8)
      .add(q.tensor(q.qeye(2), q.qeye(2)).scale(0.05));
    return [q.concurrence(rho), q.negativity(rho, 0)];
  },
  "one-axis-twisting": () => {
    const [jx, jy, jz] = (["x", "y", "z"] as const).map((k) => q.jmat(5, k));
    const start = jx.eigenstates()[1].at(-1)!;
    return se(jz.mul(jz).scale(0.1), start, grid(6, 7), [jx, jy.mul(jy), jy.mul(jz).add(jz.mul(jy))]);
  },
  floquet: () => {
    const h = hamiltonian({
      static: sz.scale(0.5),
      drives: [sx.scale(0.4)],
      amplitudes: (t) => cosine(1.7)(t).unsqueeze(1),
    });
    const { energies } = floquetModes(h, { duration: (2 * Math.PI) / 1.7, steps: 400, method: "trotter4" });
    return Array.from(energies.dataSync() as Float64Array).sort((x, y) => x - y);
  },
  optomechanics: () => {
    const [a, b] = [q.tensor(q.destroy(5), q.qeye(8)), q.tensor(q.qeye(5), q.destroy(8))];
    const [na, nb] = [a.dag().mul(a), b.dag().mul(b)];
    const h = sum(na.scale(0.5), nb, na.mul(quadrature(b)).scale(-0.2), quadrature(a).scale(0.3));
    const jumps = [a.scale(root(0.3)), b.scale(root(0.05))];
    return me(h, q.tensor(q.basis(5, 0), q.basis(8, 0)), grid(6, 7), jumps, [na, nb]);
  },
  stirap: () => {
    const [k01, k12] = [0, 1].map((k) => q.basis(3, k).mul(q.basis(3, k + 1).dag()));
    const h: q.QobjEvo = [
      [quadrature(k01), bell(6, 2, 3)],
      [quadrature(k12), bell(4, 2, 3)],
    ];
    return se(
      h,
      q.basis(3, 0),
      grid(10, 6),
      range(3).map((k) => q.ket2dm(q.basis(3, k))),
    );
  },
  "cat-stabilization": () => {
    const a = q.destroy(16);
    const parity = q.Qobj.of(range(16).map((i) => range(16).map((j) => (i === j ? (-1) ** i : 0))));
    const jump = a.mul(a).sub(q.qeye(16).scale(2));
    return me(a.scale(0), q.basis(16, 0), grid(3, 7), [jump], [q.num(16), parity]);
  },
};

/** A Kerr cavity of n levels under a drive that depends on time. */
function drivenKerr(n: number): number[] {
  const a = q.destroy(n);
  const h: q.QobjEvo = [kerrTerm(a).scale(0.1), [quadrature(a).scale(0.8), cosine(0.3)]];
  return me(h, q.basis(n, 0), grid(10, 11), [a.scale(root(0.2))], [q.num(n)]);
}

/** Coupled cavities of three levels. */
function cavityChain(sites: number): number[] {
  const a = q.destroy(3);
  const on = (operator: q.Qobj, k: number): q.Qobj => site(operator, k, sites, 3);
  const terms = [
    ...range(sites).map((k) => on(kerrTerm(a), k).scale(0.3)),
    ...range(sites - 1).map((k) => exchange(on(a, k), on(a, k + 1)).scale(0.2)),
  ];
  const start = q.tensor(...range(sites).map((k) => q.basis(3, k === 0 ? 1 : 0)));
  const jumps = range(sites).map((k) => on(a, k).scale(root(0.1)));
  return me(
    sum(...terms),
    start,
    grid(5, 6),
    jumps,
    range(sites).map((k) => on(q.num(3), k)),
  );
}

/** Problems of several sizes, for times. */
export const sized: Record<string, () => number[]> = {
  "kerr-16": () => drivenKerr(16),
  "kerr-32": () => drivenKerr(32),
  "kerr-64": () => drivenKerr(64),
  "chain-9": () => cavityChain(2),
  "chain-27": () => cavityChain(3),
  "chain-81": () => cavityChain(4),
};
