// Perfect state transfer along a chain of spins: couplings sqrt(n (N - n)) move an excitation from one end to the other with
// fidelity 1 at t = pi / lambda (M. Christandl, N. Datta, A. Ekert and A. Landahl, 2004). Equal couplings do not.
import { basisState, krylov, populationsSvg, schrodinger, sigmaMinus } from "@weft/quantum";
import { main } from "./common.mjs";

export function solve({ spins = 7, saves = 60 } = {}) {
  const lambda = 1;
  const duration = Math.PI / lambda;
  const hop = sigmaMinus.kron(sigmaMinus.adjoint());
  const chain = (coupling) => ({
    dims: new Array(spins).fill(2),
    static: Array.from({ length: spins - 1 }, (_, k) => ({
      sites: [k, k + 1],
      matrix: hop.add(hop.adjoint()).scale(coupling(k + 1)),
    })),
    drives: [],
    amplitudes: null,
  });
  const at = (site) => 2 ** (spins - 1 - site);
  const times = Array.from({ length: saves + 1 }, (_, k) => (duration * k) / saves);
  const transfer = (coupling) => {
    const run = schrodinger(chain(coupling), basisState(2 ** spins, at(0)), {
      tsave: times,
      steps: saves,
      method: krylov({ dimension: 8 }),
    });
    run.check();
    const weights = run.states.abs().square();
    return Array.from({ length: spins }, (_, site) => Array.from(weights.index(":", at(site)).dataSync(), Number));
  };
  const engineered = transfer((n) => (lambda / 2) * Math.sqrt(n * (spins - n)));
  // Equal couplings of the same largest value.
  const equal = transfer(() => (lambda / 2) * Math.sqrt(Math.floor(spins / 2) * Math.ceil(spins / 2)));
  const curves = engineered.map((y, site) => ({ name: `spin ${site + 1}`, x: times, y }));
  return {
    fidelity: engineered[spins - 1][saves],
    equalCouplings: Math.max(...equal[spins - 1]),
    picture: populationsSvg(curves, `An excitation moves along ${spins} spins`),
  };
}

await main(import.meta.url, solve);
