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

export const programs = {
  w1: (weft) => ({
    fn: (u, gd, gr) => weft.valueAndGrad(singleQubit(weft).loss)(u, gd, gr),
    args: [weft.full([4096, 60, 2], Math.PI / 2), weft.full([4096], 0.05), weft.full([4096], 0.025)],
  }),
};
