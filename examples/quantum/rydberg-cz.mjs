// The time-optimal CZ gate of two neutral atoms by one laser whose phase is modulated: Omega T = 7.612 (S. Jandura and G. Pupillo,
// 2022). In the blockade, |01> couples to |0r> with Omega and |11> to (|1r> + |r1>) / sqrt(2) with sqrt(2) Omega.
import { stack, tensor } from "@weft/core";
import { hamiltonian, minimize, Operator, pulsesSvg, schrodinger, shortestDuration } from "@weft/quantum";
import { main } from "./common.mjs";

const zero = { re: 0, im: 0 };
const pairs = (entry) =>
  Operator.build(4, 4, (i, j) => {
    if (Math.floor(i / 2) !== Math.floor(j / 2) || i === j) return zero;
    const size = (i < 2 ? 1 : Math.SQRT2) / 2;
    return entry(size, i > j);
  });
const x = pairs((size) => ({ re: size, im: 0 }));
const y = pairs((size, isRaised) => ({ re: 0, im: isRaised ? size : -size }));
const start = Operator.build(4, 1, (i) => (i % 2 === 0 ? Math.SQRT1_2 : 0));

/** Infidelity of the gate: phases of single atoms are free. */
function infidelity({ phases, theta }, duration) {
  const [n] = phases.shape;
  const h = hamiltonian({
    static: Operator.zeros(4),
    drives: [x, y],
    amplitudes: stack([phases.cos(), phases.sin()], 1),
  });
  const { final } = schrodinger(h, start, { duration, steps: n, method: "pwcExpm" });
  const turned = (k, factor) => {
    const amplitude = final.index(k).mul(Math.SQRT2);
    const [c, s] = [theta.mul(factor).cos(), theta.mul(factor).sin()];
    return {
      re: amplitude.real().mul(c).add(amplitude.imag().mul(s)),
      im: amplitude.imag().mul(c).sub(amplitude.real().mul(s)),
    };
  };
  const [a, b] = [turned(0, 1), turned(2, 2)];
  const re = a.re.mul(2).sub(b.re).add(1);
  const im = a.im.mul(2).sub(b.im);
  const weight = a.re.square().add(a.im.square()).mul(2).add(b.re.square()).add(b.im.square()).add(1);
  return re.square().add(im.square()).add(weight).div(20).neg().add(1);
}

function optimize(duration, given, segments, iterations, target) {
  const own = Array.from({ length: segments }, (_, k) => {
    const t = (k + 0.5) / segments - 0.5;
    return 0.9 * Math.sin(2 * Math.PI * t) + 0.3 * t;
  });
  const first = given ?? { phases: tensor(own, { dtype: "float64" }), theta: tensor(2.2, { dtype: "float64" }) };
  const { value, params } = minimize((p) => infidelity(p, duration), first, { iterations, target });
  return { infidelity: Math.max(0, value), params };
}

export function solve({ segments = 48, iterations = 300, search = true, target = 1e-5 } = {}) {
  const run = (duration, given) => optimize(duration, given, segments, iterations, target / 2);
  const found = search
    ? shortestDuration(run, { target, low: 6.5, high: 8.4, precision: 0.002 })
    : { duration: 7.7, ...run(7.7, null) };
  // The picture is for Omega / 2 pi = 5 MHz.
  const omega = 2 * Math.PI * 5e-3;
  const phases = Array.from(found.params.phases.dataSync(), Number);
  const times = phases.map((_, k) => (((k + 0.5) / segments) * found.duration) / omega);
  const quadrature = (name, value) => ({ name, x: times, y: phases.map((phase) => omega * value(phase)) });
  return {
    duration: found.duration,
    publishedDuration: 7.612,
    infidelity: found.infidelity,
    picture: pulsesSvg(
      [quadrature("in phase", Math.cos), quadrature("in quadrature", Math.sin)],
      "Time-optimal CZ gate",
    ),
  };
}

await main(import.meta.url, solve);
