// The programs of the quantum rows, written as a user would: vmap over tasks of a scan over time with small matrices.
// Nothing here knows how they are compiled.

const c = (re, im = 0) => ({ re, im });

/** Single-qubit Lindblad ensemble (2x2 density matrices), RK4, one step a segment: mean of 1 - F over the tasks. */
export function singleQubit(weft, { steps = 60, time = 1 } = {}) {
  const dt = time / steps;
  const matrix = (rows) =>
    weft
      .tensor(
        rows.map((r) => r.map((x) => (typeof x === "number" ? c(x) : x))),
        { dtype: "complex64" },
      )
      .realize();
  const sx = matrix([
    [0, 1],
    [1, 0],
  ]);
  const sy = matrix([
    [0, c(0, -1)],
    [c(0, 1), 0],
  ]);
  const sz = matrix([
    [1, 0],
    [0, -1],
  ]);
  const sm = matrix([
    [0, 1],
    [0, 0],
  ]);
  const sp = matrix([
    [0, 0],
    [1, 0],
  ]);
  const n = matrix([
    [0, 0],
    [0, 1],
  ]);
  const start = matrix([
    [1, 0],
    [0, 0],
  ]);
  const minusI = weft.tensor(c(0, -1), { dtype: "complex64" });
  // gd, gr: dephasing and relaxation; L = sqrt(gr) |0><1|, sqrt(gd/2) sz.
  const rhs = (rho, h, gd, gr) => {
    const commutator = h.matmul(rho).sub(rho.matmul(h)).mul(minusI);
    const relax = sm
      .matmul(rho)
      .matmul(sp)
      .sub(n.matmul(rho).add(rho.matmul(n)).mul(0.5));
    const dephase = sz.matmul(rho).matmul(sz).sub(rho);
    return commutator.add(relax.mul(gr)).add(dephase.mul(gd.mul(0.5)));
  };
  const infidelity = (u, gd, gr) => {
    const [d, r] = [gd.cast("complex64"), gr.cast("complex64")];
    const step = (rho, ut) => {
      const z = ut.cast("complex64");
      const h = sx.mul(z.index(0)).add(sy.mul(z.index(1)));
      const k1 = rhs(rho, h, d, r);
      const k2 = rhs(rho.add(k1.mul(dt / 2)), h, d, r);
      const k3 = rhs(rho.add(k2.mul(dt / 2)), h, d, r);
      const k4 = rhs(rho.add(k3.mul(dt)), h, d, r);
      return [
        rho.add(
          k1
            .add(k2.mul(2))
            .add(k3.mul(2))
            .add(k4)
            .mul(dt / 6),
        ),
        null,
      ];
    };
    const [rho] = weft.scan(step, start, u);
    return weft.real(rho.index(1, 1)).neg().add(1);
  };
  return { infidelity, loss: (u, gd, gr) => weft.vmap(infidelity)(u, gd, gr).mean() };
}

const kron = (a, b) =>
  a.flatMap((ra) =>
    b.map((rb) => ra.flatMap((x) => rb.map((y) => c(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)))),
  );
const complexRows = (rows) => rows.map((r) => r.map((x) => (typeof x === "number" ? c(x) : x)));
const pauli = {
  i: complexRows([
    [1, 0],
    [0, 1],
  ]),
  x: complexRows([
    [0, 1],
    [1, 0],
  ]),
  y: complexRows([
    [0, c(0, -1)],
    [c(0, 1), 0],
  ]),
  z: complexRows([
    [1, 0],
    [0, -1],
  ]),
  m: complexRows([
    [0, 1],
    [0, 0],
  ]),
  p: complexRows([
    [0, 0],
    [1, 0],
  ]),
  n: complexRows([
    [0, 0],
    [0, 1],
  ]),
};

/** Two qubits (4x4), six controls, four decay channels, RK4, averaged over 12 initial states. */
export function twoQubits(weft, { steps = 60, time = Math.PI / 4 } = {}) {
  const dt = time / steps;
  const matrix = (rows) => weft.tensor(rows, { dtype: "complex64" }).realize();
  const on = (a, b) => matrix(kron(pauli[a], pauli[b]));
  const zz = matrix(kron(pauli.z, pauli.z).map((r) => r.map((x) => c(2 * x.re, 2 * x.im))));
  const controls = [on("x", "i"), on("y", "i"), on("i", "x"), on("i", "y"), on("z", "i"), on("i", "z")];
  const jumps = [
    { l: on("z", "i"), r: on("z", "i"), n: on("i", "i"), rate: 0 },
    { l: on("i", "z"), r: on("i", "z"), n: on("i", "i"), rate: 0 },
    { l: on("m", "i"), r: on("p", "i"), n: on("n", "i"), rate: 1 },
    { l: on("i", "m"), r: on("i", "p"), n: on("i", "n"), rate: 1 },
  ];
  const minusI = weft.tensor(c(0, -1), { dtype: "complex64" });
  const rhs = (rho, h, rates) =>
    jumps.reduce(
      (sum, { l, r, n, rate }) =>
        sum.add(
          l
            .matmul(rho)
            .matmul(r)
            .sub(n.matmul(rho).add(rho.matmul(n)).mul(0.5))
            .mul(rates[rate]),
        ),
      h.matmul(rho).sub(rho.matmul(h)).mul(minusI),
    );
  const single = [
    [1, 0],
    [0, 1],
    [Math.SQRT1_2, Math.SQRT1_2],
    [Math.SQRT1_2, c(0, Math.SQRT1_2)],
  ].map((v) => v.map((x) => (typeof x === "number" ? c(x) : x)));
  const states = single
    .flatMap((a, i) => single.filter((_, j) => j !== i).map((b) => [a, b]))
    .map(([a, b]) => {
      const psi = a.flatMap((x) => b.map((y) => c(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)));
      return psi.map((x) => psi.map((y) => c(x.re * y.re + x.im * y.im, x.im * y.re - x.re * y.im)));
    });
  const starts = weft.tensor(states, { dtype: "complex64" }).realize();
  const one = (u, gd, gr, start) => {
    const rates = [gd.mul(0.5).cast("complex64"), gr.cast("complex64")];
    const step = (rho, ut) => {
      const z = ut.cast("complex64");
      const h = controls.reduce((sum, k, i) => sum.add(k.mul(z.index(i))), zz);
      const k1 = rhs(rho, h, rates);
      const k2 = rhs(rho.add(k1.mul(dt / 2)), h, rates);
      const k3 = rhs(rho.add(k2.mul(dt / 2)), h, rates);
      const k4 = rhs(rho.add(k3.mul(dt)), h, rates);
      return [
        rho.add(
          k1
            .add(k2.mul(2))
            .add(k3.mul(2))
            .add(k4)
            .mul(dt / 6),
        ),
        null,
      ];
    };
    const [rho] = weft.scan(step, start, u);
    return weft.real(rho.mul(start.transpose()).sum());
  };
  const task = (u, gd, gr) =>
    weft
      .vmap(one, { inAxes: [null, null, null, 0] })(u, gd, gr, starts)
      .mean()
      .neg()
      .add(1);
  return { loss: (u, gd, gr) => weft.vmap(task)(u, gd, gr).mean() };
}

/**
 * X gate on a chain of n two-level qubits, Trotter order 2, complex128, to the specification of the peers' gpu_chain.py:
 * columns and pieces of time are lanes; the gradient runs states back through the gates.
 */
export function chain(weft, { n, steps = 4999, pieces = 1, time = 50 } = {}) {
  const D = 2 ** n;
  const h = time / steps;
  const w = Array.from({ length: n }, (_, i) => 2 * Math.PI * (0.5 + 0.08 * i));
  const dtype = "complex128";
  const matrix = (rows) => weft.tensor(rows, { dtype }).realize();
  const yy = matrix(kron(pauli.y, pauli.y));
  const xx = matrix(kron(pauli.x, pauli.x));
  const eye = matrix(kron(pauli.i, pauli.i));
  const one = matrix(pauli.i);
  const sx = matrix(pauli.x);
  const energies = w.map((x) =>
    matrix([
      [c(Math.cos((x * h) / 4), Math.sin((x * h) / 4)), c(0)],
      [c(0), c(Math.cos((x * h) / 4), -Math.sin((x * h) / 4))],
    ]),
  );
  const length = Math.floor(steps / pieces);
  const times = Array.from({ length: steps }, (_, k) => (k + 0.5) * h);
  const shape = weft
    .tensor(
      times.map((t) => w.map((x) => (0.5 * (1 - Math.cos((2 * Math.PI * t) / time)) * Math.cos(x * t) * h) / 2)),
      { dtype: "float64" },
    )
    .realize();
  const minusI = c(0, -1);
  const expi = (id, p, a) => id.mul(weft.cos(a).cast(dtype)).add(p.mul(weft.sin(a).cast(dtype).mul(minusI)));
  const put = (psi, gate, before, m) => gate.matmul(psi.reshape([before, m, D / before / m])).reshape([D]);
  const slots = [];
  for (let i = 0; i < n; i++) slots.push(["e", i, i]);
  for (let i = 0; i < n - 1; i++) slots.push(["c", 0, i], ["l", 0, i]);
  for (let i = 0; i < n; i++) slots.push(["d", i, i]);
  const all = [...slots, ...[...slots].reverse()];
  const gateOf = (gates, drives, [kind, k]) => (kind === "e" ? energies[k] : kind === "d" ? drives[k] : gates[kind]);
  const run = (gates, drives, psi) =>
    weft.scan(
      (s, x) => [
        all.reduce(
          (q, slot) => put(q, gateOf(gates, x, slot), 2 ** slot[2], slot[0] === "e" || slot[0] === "d" ? 2 : 4),
          s,
        ),
        null,
      ],
      psi,
      drives,
    )[0];
  const reversible = weft.customVjp(
    (gates, drives, psi) => run(gates, drives, psi),
    ([gates, drives], result, cotangent) => {
      const start = { psi: result, lambda: cotangent, c: weft.zerosLike(gates.c), l: weft.zerosLike(gates.l) };
      const [end, each] = weft.scan(
        (carry, x) => {
          let { psi, lambda } = carry;
          const sums = { c: carry.c, l: carry.l };
          const own = x.map(() => null);
          for (const slot of [...all].reverse()) {
            const [kind, k, i] = slot;
            const m = kind === "e" || kind === "d" ? 2 : 4;
            const gate = gateOf(gates, x, slot);
            const back = gate.conj().transpose();
            const [before, after] = [2 ** i, D / 2 ** i / m];
            const earlier = back.matmul(psi.reshape([before, m, after]));
            const g = lambda.reshape([before, m, after]);
            if (kind !== "e") {
              const outer = g.matmul(earlier.conj().transpose()).sum(0);
              if (kind === "d") own[k] = own[k] === null ? outer : own[k].add(outer);
              else sums[kind] = sums[kind].add(outer);
            }
            psi = earlier.reshape([D]);
            lambda = back.matmul(g).reshape([D]);
          }
          return [{ psi, lambda, ...sums }, own];
        },
        start,
        drives,
        { reverse: true },
      );
      return [{ c: end.c, l: end.l }, each, end.lambda];
    },
  );
  const loss = (amp, jc, jl) => {
    const gates = { c: expi(eye, yy, jc.mul(h / 2)), l: expi(eye, xx, jl.mul(h / 2)) };
    const angles = shape.mul(amp);
    const drives = w.map((_, i) => expi(one, sx, angles.index(":", i).reshape([steps, 1, 1])));
    const basis = weft.eye(D, { dtype });
    const columns = (d) =>
      weft
        .vmap((psi) => reversible(gates, d, psi))(basis)
        .transpose();
    let total;
    if (pieces === 1) total = columns(drives);
    else {
      const cut = drives.map((d) => d.slice([0, 0, 0], [pieces * length, 2, 2]).reshape([pieces, length, 2, 2]));
      let maps = weft.vmap(columns)(cut);
      while (maps.shape[0] > 1) {
        const m = maps.shape[0];
        const even = m - (m % 2);
        const pairs = maps.index(`1:${even}:2`).matmul(maps.index(`0:${even}:2`));
        maps = m % 2 === 0 ? pairs : weft.concat([pairs, maps.index(`${m - 1}:${m}`)]);
      }
      total = maps.index(0);
      if (pieces * length < steps)
        total = columns(drives.map((d) => d.slice([pieces * length, 0, 0], [steps, 2, 2]))).matmul(total);
    }
    // The target is X on every qubit: the anti-diagonal.
    const trace = weft.flip(total, 0).mul(weft.eye(D, { dtype })).sum();
    return weft
      .abs(trace)
      .square()
      .div(D * D)
      .neg()
      .add(1);
  };
  return { loss };
}

const f64 = { dtype: "float64" };
const chainOf = (n, pieces) => (weft) => ({
  fn: (amp, jc, jl) => weft.valueAndGrad(chain(weft, { n, pieces }).loss, { argument: [0, 1, 2] })(amp, jc, jl),
  args: [weft.full([n], 0.13, f64), weft.full([], 0.02, f64), weft.full([], -0.01, f64)],
});

const fluxonium = (n) => async (weft) => {
  const { Chain, evolve, gate, processInfidelity } = await import("../../packages/quantum/dist/index.js");
  const chain = Chain.fluxonium({ qubits: n });
  const target = gate("X", n);
  const loss = (p) => processInfidelity(evolve(chain.with(p), { steps: 4999, method: "trotter2" }), target);
  return { fn: (p) => weft.valueAndGrad(loss)(p), args: [chain.parameters()] };
};

export const programs = {
  w1: (weft) => ({
    fn: (u, gd, gr) => weft.valueAndGrad(singleQubit(weft).loss)(u, gd, gr),
    args: [weft.full([4096, 60, 2], Math.PI / 2), weft.full([4096], 0.05), weft.full([4096], 0.025)],
  }),
  "w1-large": (weft) => ({
    fn: (u, gd, gr) => weft.valueAndGrad(singleQubit(weft).loss)(u, gd, gr),
    args: [weft.full([65536, 60, 2], Math.PI / 2), weft.full([65536], 0.05), weft.full([65536], 0.025)],
  }),
  "w1-solver": async (weft) => {
    const { basisState, densityOf, sigmaMinus, sigmaX, sigmaY, sigmaZ, lindblad, hamiltonian } = await import(
      "../../packages/quantum/dist/index.js"
    );
    const one = (u, gd, gr) => {
      const h = hamiltonian({ static: sigmaZ.scale(0), drives: [sigmaX, sigmaY], amplitudes: u });
      const jumps = [
        { operator: sigmaMinus, rate: gr },
        { operator: sigmaZ.scale(Math.SQRT1_2), rate: gd },
      ];
      return lindblad({ hamiltonian: h, jumps }, densityOf(basisState(2, 0)), {
        duration: 1,
        steps: 60,
        dtype: "complex64",
      })
        .final.index(1, 1)
        .real();
    };
    return {
      fn: (u, gd, gr) =>
        weft.valueAndGrad((...x) =>
          weft
            .vmap(one)(...x)
            .mean(),
        )(u, gd, gr),
      args: [weft.full([4096, 60, 2], Math.PI / 2), weft.full([4096], 0.05), weft.full([4096], 0.025)],
    };
  },
  w3: (weft) => ({
    fn: (u, gd, gr) => weft.valueAndGrad(twoQubits(weft).loss)(u, gd, gr),
    args: [weft.full([4096, 60, 6], 0.3), weft.full([4096], 0.05), weft.full([4096], 0.025)],
  }),
  "fluxonium-2": fluxonium(2),
  "fluxonium-4": fluxonium(4),
  "fluxonium-6": fluxonium(6),
  "chain-2": chainOf(2, 128),
  "chain-4": chainOf(4, 128),
  "chain-6": chainOf(6, 64),
};
