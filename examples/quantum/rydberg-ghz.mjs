// A GHZ state in a chain of Rydberg atoms by optimized Rabi frequency and detuning (A. Omran et al., 2019): Omega / 2 pi up to 5 MHz,
// nearest neighbors interact with 24 MHz, and the edges have their own light shift. Times in microseconds, 1.1 in the experiment.
import { stack, tensor } from "@weft/core";
import { basisState, minimize, Operator, pulsesSvg, schrodinger, sigmaX } from "@weft/quantum";
import { main } from "./common.mjs";

export function solve({ atoms = 4, duration = 1.1, segments = 44, iterations = 150, target = 5e-3 } = {}) {
  const mhz = 2 * Math.PI;
  const excited = Operator.build(2, 2, (i, j) => (i === 1 && j === 1 ? 1 : 0));
  const sites = Array.from({ length: atoms }, (_, k) => k);
  const distant = sites.flatMap((i) => sites.filter((j) => j > i).map((j) => [i, j]));
  const structure = {
    dims: sites.map(() => 2),
    static: [
      ...distant.map(([i, j]) => ({ sites: [i, j], matrix: excited.kron(excited).scale((24 * mhz) / (j - i) ** 6) })),
      // The light shift of the edges makes both orders of the chain equally likely.
      ...[0, atoms - 1].map((k) => ({ sites: [k], matrix: excited.scale(4.5 * mhz) })),
    ],
    drives: [
      ...sites.map((k) => ({ sites: [k], matrix: sigmaX.scale(0.5) })),
      ...sites.map((k) => ({ sites: [k], matrix: excited.scale(-1) })),
    ],
  };
  const order = (first) => sites.reduce((sum, k) => 2 * sum + ((k + first) % 2), 0);
  const [even, odd] = [order(0), order(1)];
  const drives = ({ rabi, detuning }) => {
    const omega = rabi
      .tanh()
      .add(1)
      .mul(2.5 * mhz);
    const delta = detuning.mul(mhz);
    return stack([...sites.map(() => omega), ...sites.map(() => delta)], 1);
  };
  const loss = (p) => {
    const { final } = schrodinger({ ...structure, amplitudes: drives(p) }, basisState(2 ** atoms, 0), {
      duration,
      steps: segments,
      method: "pwcExpm",
    });
    // The relative phase of the two orders is free: a shift of the detuning afterwards sets it.
    const [a, b] = [even, odd].map((s) => final.index(s).abs());
    return a.add(b).square().mul(-0.5).add(1);
  };
  const ramp = Array.from({ length: segments }, (_, k) => (k + 0.5) / segments);
  const start = {
    rabi: tensor(
      ramp.map((t) => 2 * Math.sin(Math.PI * t) - 0.6),
      { dtype: "float64" },
    ),
    detuning: tensor(
      ramp.map((t) => -12 + 26 * t),
      { dtype: "float64" },
    ),
  };
  const { value, params } = minimize(loss, start, { iterations, target: target / 2, bounds: { detuning: [-25, 25] } });
  const table = drives(params);
  const times = ramp.map((t) => 1e3 * t * duration);
  const curve = (name, column) => ({
    name,
    x: times,
    y: Array.from(table.index(":", column).dataSync(), (v) => Number(v) / 1e3),
  });
  return {
    fidelity: 1 - value,
    picture: pulsesSvg([curve("Rabi frequency", 0), curve("detuning", atoms)], `GHZ state of ${atoms} Rydberg atoms`),
  };
}

await main(import.meta.url, solve);
