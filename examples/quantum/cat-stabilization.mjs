// Two-photon dissipation stabilizes a cat state from the vacuum, and single-photon loss flips its parity at the rate
// 2 |alpha|^2 kappa (M. Mirrahimi et al., 2014).
import {
  basisState,
  densityOf,
  destroy,
  hamiltonian,
  identityOperator,
  lindblad,
  Operator,
  phaseSpaceSvg,
  tsit5,
} from "@weft/quantum";
import { Qobj, wigner } from "@weft/quantum/qutip";
import { main } from "./common.mjs";

export function solve({ levels = 18, alpha = 1.5, loss = 0.01 } = {}) {
  const a = destroy(levels);
  const parity = Operator.build(levels, levels, (i, j) => (i === j ? (-1) ** i : 0));
  // The even cat is proportional to the sum over even n of alpha^n / sqrt(n!) |n>.
  const amplitudes = Array.from({ length: levels }, (_, n) => {
    let x = 1;
    for (let k = 1; k <= n; k++) x *= alpha / Math.sqrt(k);
    return n % 2 === 0 ? x : 0;
  });
  const norm = Math.hypot(...amplitudes);
  const cat = Operator.build(levels, 1, (n) => amplitudes[n] / norm);
  const pairs = a.mul(a).sub(identityOperator(levels).scale(alpha ** 2));
  const run = (start, rate, duration) =>
    lindblad(
      {
        hamiltonian: hamiltonian({ static: Operator.zeros(levels) }),
        jumps: [{ operator: pairs }, ...(rate === 0 ? [] : [{ operator: a, rate }])],
      },
      start,
      { duration, method: tsit5({ relative: 1e-8, absolute: 1e-9 }), observables: { cat: densityOf(cat), parity } },
    );
  const prepared = run(densityOf(basisState(levels, 0)), 0, 3);
  prepared.check();
  const time = 2;
  const lossy = run(densityOf(cat), loss, time);
  const flips = -Math.log(lossy.expectations.parity.itemSync()) / time;
  const photons = alpha ** 2 * Math.tanh(alpha ** 2);
  const grid = Array.from({ length: 81 }, (_, k) => -4 + 0.1 * k);
  const state = new Qobj(Operator.fromPairs(levels, levels, prepared.final.dataSync()), [[levels], [levels]]);
  return {
    fidelity: prepared.expectations.cat.itemSync(),
    parityDecay: flips,
    publishedParityDecay: 2 * photons * loss,
    picture: phaseSpaceSvg(wigner(state, grid, grid), grid, grid, "A cat state from the vacuum"),
  };
}

await main(import.meta.url, solve);
