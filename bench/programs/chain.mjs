// The fluxonium chain's cost as a program (W4): X on n two-level qubits, 4,999 symmetric steps of merged gates, complex128,
// loss 1 - |tr(X^H U)|^2 / 4^n, its gradient by reversal with respect to amplitudes and couplings. Columns are lanes; with
// chunks > 1 pieces of time are lanes too. node bench/programs/chain.mjs [device] [n] [steps] [chunks]
import { pathToFileURL } from "node:url";
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";

const duration = 50;
const f64 = { dtype: "float64" };

export function chainHamiltonian(n, p) {
  const w = Array.from({ length: n }, (_, i) => 2 * Math.PI * (0.5 + 0.08 * i));
  const pairs = Array.from({ length: n - 1 }, (_, i) => [i, i + 1]);
  const frequencies = weft.tensor(w, f64);
  return {
    dims: w.map(() => 2),
    static: [
      ...w.map((x, i) => ({ sites: [i], matrix: quantum.sigmaZ.scale(-x / 2) })),
      ...pairs.map((sites) => ({ sites, matrix: quantum.pauli("YY").tensor().mul(p.jc) })),
      ...pairs.map((sites) => ({ sites, matrix: quantum.pauli("XX").tensor().mul(p.jl) })),
    ],
    drives: w.map((_, i) => ({ sites: [i], matrix: quantum.sigmaX })),
    amplitudes: (t) => {
      const envelope = t
        .mul((2 * Math.PI) / duration)
        .cos()
        .neg()
        .add(1)
        .mul(0.5)
        .unsqueeze(1);
      return envelope.mul(p.amp).mul(t.unsqueeze(1).mul(frequencies).cos());
    },
  };
}

/** The same loss as the JAX peer's, for its amplitudes and couplings. */
export const chainLoss = (n, options) => (p) => {
  const { final } = quantum.propagator(chainHamiltonian(n, p), { duration, ...options });
  const overlap = quantum.pauli("X".repeat(n)).tensor().mul(final).sum();
  return overlap
    .abs()
    .square()
    .div(-(4 ** n))
    .add(1);
};

export const chainParameters = (n) => ({
  amp: weft.full([n], 0.13, f64),
  jc: weft.tensor(0.02, f64),
  jl: weft.tensor(-0.01, f64),
});

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [device = "cpu", n = 2, steps = 4999, chunks = 1, strategy] = process.argv.slice(2);
  weft.setDevice(device);
  const p = chainParameters(Number(n));
  const f = weft.jit((x) =>
    weft.valueAndGrad(chainLoss(Number(n), { steps: Number(steps), chunks: Number(chunks), strategy }))(x),
  );
  const t0 = performance.now();
  const [value, gradient] = f(p);
  const first = value.itemSync();
  const t1 = performance.now();
  const again = f(p);
  again[1].jl.itemSync();
  const t2 = performance.now();
  const kernels = f.kernels(p);
  console.log(
    JSON.stringify({
      device,
      n: Number(n),
      steps: Number(steps),
      chunks: Number(chunks),
      value: first,
      amp: Array.from(gradient.amp.dataSync()),
      jc: gradient.jc.itemSync(),
      jl: gradient.jl.itemSync(),
      firstMs: t1 - t0,
      againMs: t2 - t1,
      kernels: kernels.length,
      lanes: kernels.filter((k) => /lane|scan/.test(k)),
    }),
  );
}
