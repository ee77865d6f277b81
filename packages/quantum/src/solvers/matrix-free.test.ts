// Matrix-free right-hand sides against products of matrices on the host, and their gradients against finite differences.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { CpuDevice, useDevice } from "@weft/core";
import type { Tensor } from "@weft/core/internal/tensor";
import * as weft from "@weft/core/internal/tensor";
import {
  applyLeft,
  basisState,
  densityOf,
  destroy,
  identityOperator,
  joinPlanes,
  numberOperator,
  Operator,
  planesOf,
  sparseDiagonals,
  tensorDiagonals,
} from "../operators/index.js";
import { commutatorOf, dissipator } from "./hermitian.js";
import { lindblad } from "./lindblad.js";
import { explainRightHandSide, lindbladTerms, rateCost, schrodingerTerms, usesTerms } from "./matrix-free.js";
import { tsit5 } from "./methods.js";
import { checkJumps, type Hamiltonian, type Jump, onWholeSpace, timeGrid } from "./problem.js";
import { schrodinger } from "./schrodinger.js";

const f64 = { dtype: "float64" } as const;
const grid = timeGrid({ duration: 1, steps: 10 });

/** Numbers in [-1, 1) that look random, the same in every run. */
function sequence(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

function randomOperator(n: number, seed: number): Operator {
  const next = sequence(seed);
  return Operator.build(n, n, () => ({ re: next(), im: next() }));
}
const hermitian = (n: number, seed: number): Operator => {
  const a = randomOperator(n, seed);
  return a.add(a.adjoint());
};

/** Three sites of different sizes, dense complex matrices on one, two and distant sites. */
const dims = [2, 3, 2];
const mixed: Hamiltonian = {
  dims,
  static: [
    { sites: [1], matrix: hermitian(3, 1) },
    { sites: [0, 1], matrix: hermitian(6, 2) },
    { sites: [0, 2], matrix: hermitian(4, 3) },
  ],
  drives: [
    { sites: [2], matrix: hermitian(2, 4) },
    { sites: [0], matrix: hermitian(2, 5) },
  ],
  amplitudes: (t) => weft.stack([t.cos(), t.mul(0.3)], 1),
};
const decays: Jump[] = [
  { operator: randomOperator(3, 6), sites: [1], rate: 0.3 },
  { operator: randomOperator(4, 7), sites: [0, 2], rate: 0.2 },
];
const whole = (h: Hamiltonian, sites: readonly number[], matrix: Operator): Operator =>
  onWholeSpace(h, { sites, matrix }, "complex128") as Operator;
const u = [0.7, -0.4];
const generatorOf = (h: Hamiltonian): Operator =>
  [
    ...h.static.map((t) => whole(h, t.sites, t.matrix as Operator)),
    ...h.drives.map((t, k) => whole(h, t.sites, t.matrix as Operator).scale(u[k])),
  ].reduce((a, b) => a.add(b));

function same(got: Tensor, want: Operator, tolerance: number): void {
  const numbers = got.dataSync() as Float64Array;
  want.re.forEach((re, k) => {
    const error = Math.hypot(numbers[2 * k] - re, numbers[2 * k + 1] - want.im[k]);
    assert.ok(error <= tolerance, `element ${k} differs by ${error}`);
  });
}

/** M coupled three-level cavities, the first one driven. */
function cavities(count: number, segments: number): { hamiltonian: Hamiltonian; jumps: Jump[] } {
  const [a, n] = [destroy(3), numberOperator(3)];
  const hop = a.kron(a.adjoint()).add(a.adjoint().kron(a)).scale(0.2);
  return {
    hamiltonian: {
      dims: Array.from({ length: count }, () => 3),
      static: [
        ...Array.from({ length: count }, (_, i) => ({ sites: [i], matrix: n.scale(0.3 + 0.05 * i) })),
        ...Array.from({ length: count - 1 }, (_, i) => ({ sites: [i, i + 1], matrix: hop })),
      ],
      drives: [{ sites: [0], matrix: a.add(a.adjoint()) }],
      amplitudes: weft.tensor(
        Array.from({ length: segments }, (_, k) => [0.2 * Math.sin(0.1 * k)]),
        f64,
      ),
    },
    jumps: Array.from({ length: count }, (_, i) => ({ operator: a, sites: [i], rate: 0.05 })),
  };
}
const firstLevels = (count: number): Operator =>
  Array.from({ length: count }, () => basisState(3, 1)).reduce((x, y) => x.kron(y));

// Not on the reference device, which takes minutes for these graphs: the host's matrices are the reference.
describe("on the CPU", { skip: CpuDevice.available() ? false : "no C compiler on this machine" }, () => {
  before(() => void useDevice(new CpuDevice()));

  test("the Lindblad right-hand side equals products of whole matrices", () => {
    const rho = randomOperator(12, 8);
    const hermite = rho.mul(rho.adjoint());
    const rate = lindbladTerms(mixed, checkJumps(decays, mixed), grid);
    const got = weft.jit((x: Tensor, v: Tensor) => rate(x, v))(hermite.tensor(), weft.tensor(u, f64));
    const want = decays.reduce(
      (sum, { operator, sites, rate: r }) =>
        sum.add(dissipator(whole(mixed, sites!, operator as Operator))(hermite).scale(r as number)),
      commutatorOf(generatorOf(mixed))(hermite),
    );
    same(got, want, 1e-12 * want.size());
  });

  test("-i H psi of states and columns", () => {
    const generator = generatorOf(mixed).scale({ re: 0, im: -1 });
    const rate = schrodingerTerms(mixed, grid);
    for (const columns of [1, 5]) {
      const psi = Operator.build(12, columns, (i, j) => ({ re: Math.sin(i + 3 * j), im: Math.cos(2 * i - j) }));
      const x = columns === 1 ? psi.tensor().squeeze(1) : psi.tensor();
      same(rate(x, weft.tensor(u, f64)), generator.mul(psi), 1e-12 * generator.size());
    }
  });

  test("sparse rows", () => {
    const dense = Operator.build(5, 5, (i, j) => ((i * 3 + j) % 4 === 0 ? { re: i + 1, im: -j } : 0));
    const [starts, columns, re, im]: number[][] = [[0], [], [], []];
    for (let i = 0; i < 5; i++) {
      for (let j = 0; j < 5; j++) {
        const x = dense.at(i, j);
        if (x.re !== 0 || x.im !== 0) void [columns.push(j), re.push(x.re), im.push(x.im)];
      }
      starts.push(columns.length);
    }
    const [table] = tensorDiagonals([sparseDiagonals(5, { starts, columns, re, im })], "float64");
    const psi = Operator.build(5, 2, (i, j) => ({ re: i - j, im: i * j }));
    same(joinPlanes(applyLeft(table, planesOf(psi.tensor()), 0)), dense.mul(psi), 1e-13);
    assert.throws(() => sparseDiagonals(2, { starts: [0, 1, 2], columns: [0, 2], re: [1, 1] }), /column 2 in row 1/);
    assert.throws(() => sparseDiagonals(2, { starts: [0, 1], columns: [0], re: [1] }), /needs 3 starts/);
  });

  test("the whole evolution equals the dense one: fixed and adaptive steps, batches", () => {
    const { hamiltonian: h, jumps } = cavities(3, 10);
    const rho = densityOf(firstLevels(3));
    const run = (representation: "matrix" | "matrix-free") =>
      lindblad({ hamiltonian: h, jumps }, rho, { duration: 2, steps: 20, representation }).final;
    const [dense, free] = [run("matrix").dataSync(), run("matrix-free").dataSync()] as Float64Array[];
    dense.forEach((x, k) => void assert.ok(Math.abs(x - free[k]) < 1e-12, `element ${k}`));
    const steady = { ...h, amplitudes: (t: Tensor) => t.mul(0.4).sin().unsqueeze(1) };
    const adaptiveRun = (representation: "matrix" | "matrix-free") =>
      lindblad({ hamiltonian: steady, jumps }, rho, { duration: 1, method: tsit5(), representation }).final;
    const [d2, f2] = [adaptiveRun("matrix").dataSync(), adaptiveRun("matrix-free").dataSync()] as Float64Array[];
    d2.forEach((x, k) => void assert.ok(Math.abs(x - f2[k]) < 1e-10, `adaptive, element ${k}`));
    const scales = weft.tensor([0.5, 1, 2], f64);
    const scaled = (s: Tensor, representation: "matrix" | "matrix-free"): Tensor =>
      lindblad({ hamiltonian: { ...h, amplitudes: (h.amplitudes as Tensor).mul(s) }, jumps }, rho, {
        duration: 2,
        steps: 10,
        representation,
      }).final.index(0, 0);
    const batch = weft
      .vmap((s: Tensor) => weft.real(scaled(s, "matrix-free")))(scales)
      .dataSync() as Float64Array;
    const each = [0, 1, 2].map((k) => weft.real(scaled(scales.index(k), "matrix")).itemSync());
    each.forEach((x, k) => void assert.ok(Math.abs(x - batch[k]) < 1e-12, `batch ${k}`));
  });

  test("gradients with respect to amplitudes, rates and matrices", () => {
    const { hamiltonian: h } = cavities(3, 4);
    const rho = densityOf(firstLevels(3));
    const target = identityOperator(27).map((re, _, k) => [re * Math.sin(k), 0]);
    const loss = (amplitudes: Tensor, rate: Tensor, coupling: Tensor): Tensor => {
      const static_ = [...h.static.slice(0, 3), { sites: [1, 2], matrix: coupling }];
      const jumps = [{ operator: destroy(3), sites: [0], rate }];
      const system = { hamiltonian: { ...h, static: static_, amplitudes }, jumps };
      const { final } = lindblad(system, rho, { duration: 1, steps: 4, representation: "matrix-free" });
      return weft.real(final.mul(target.tensor())).sum();
    };
    const a = destroy(3);
    const at: Tensor[] = [
      weft.tensor([[0.1], [0.4], [-0.3], [0.2]], f64),
      weft.tensor(0.3, f64),
      a.kron(a.adjoint()).add(a.adjoint().kron(a)).scale(0.2).tensor(),
    ];
    const [value, gradients] = weft.jit((x: Tensor, y: Tensor, z: Tensor) =>
      weft.valueAndGrad(loss, { argument: [0, 1, 2] })(x, y, z),
    )(at[0], at[1], at[2]);
    const compiled = weft.jit((x: Tensor, y: Tensor, z: Tensor) => loss(x, y, z));
    const h0 = 1e-5;
    const along = (k: number, direction: Tensor): number => {
      const moved = (sign: number): number =>
        compiled(
          ...(at.map((x, j) => (j === k ? x.add(direction.mul(sign * h0)) : x)) as [Tensor, Tensor, Tensor]),
        ).itemSync();
      return (moved(1) - moved(-1)) / (2 * h0);
    };
    assert.ok(Math.abs(value.itemSync() - compiled(at[0], at[1], at[2]).itemSync()) < 1e-12);
    const [du, dr, dm] = gradients;
    const close = (got: number, want: number, name: string): void =>
      void assert.ok(Math.abs(got - want) < 1e-8, `${name}: ${got}, finite differences ${want}`);
    for (let k = 0; k < 4; k++) {
      const direction = weft.tensor(
        [0, 1, 2, 3].map((j) => [j === k ? 1 : 0]),
        f64,
      );
      close(du.index(k, 0).itemSync(), along(0, direction), `amplitude ${k}`);
    }
    close(dr.itemSync(), along(1, weft.tensor(1, f64)), "rate");
    // A Hermitian direction: 9 complex entries at once.
    const direction = hermitian(9, 11);
    const overlap = weft.real(dm.mul(direction.tensor())).sum().itemSync();
    const conjugate = weft.real(dm.conj().mul(direction.tensor())).sum().itemSync();
    const want = along(2, direction.tensor());
    assert.ok(Math.min(Math.abs(overlap - want), Math.abs(conjugate - want)) < 1e-7, `matrix: ${overlap}, ${want}`);
  });

  test("one kernel per stage", () => {
    const { hamiltonian: h, jumps } = cavities(4, 10);
    const f = weft.jit(
      (amplitudes: Tensor, rho: Tensor) =>
        lindblad({ hamiltonian: { ...h, amplitudes }, jumps }, rho, { duration: 1, steps: 10 }).final,
    );
    const kernels = f.kernels(h.amplitudes as Tensor, densityOf(firstLevels(4)).tensor());
    // Before the loop, one kernel checks that the initial state is Hermitian.
    const loops = kernels.filter((name) => !name.startsWith("row_max_conj_sub_abs"));
    assert.ok(loops.length === 1 && kernels.length <= 2 && /x4$|^blocks/.test(loops[0]), kernels.join(", "));
  });

  test("the reverse pass takes no stage again, and its sums are divided like its other kernels", () => {
    const { hamiltonian: h, jumps } = cavities(4, 10);
    const rho = densityOf(firstLevels(4)).tensor();
    const run = (gradient: "stored" | "checkpointed") =>
      weft.jit((amplitudes: Tensor) =>
        weft.valueAndGrad((u: Tensor) => {
          const { final } = lindblad({ hamiltonian: { ...h, amplitudes: u }, jumps }, rho, {
            duration: 1,
            steps: 10,
            gradient,
          });
          return weft.real(final.index(0, 0));
        })(amplitudes),
      );
    const amplitudes = h.amplitudes as Tensor;
    const stored = run("stored");
    // Forward four stages and the copy of the state; back four adjoints, the first of four inner products, and their last sum.
    const loops = stored.kernels(amplitudes).filter((name) => name.startsWith("scan_"));
    assert.deepEqual(loops, ["scan_10x5", "scan_10x6"]);
    const [value, slopes] = stored(amplitudes);
    const [other, again] = run("checkpointed")(amplitudes);
    assert.equal(value.itemSync(), other.itemSync());
    const [a, b] = [slopes.dataSync(), again.dataSync()] as Float64Array[];
    a.forEach((x, k) => void assert.ok(Math.abs(x - b[k]) < 1e-15, `slope ${k}: ${x}, ${b[k]}`));
  });

  test("kets: an adaptive evolution of 81 levels equals the exponential of each segment", () => {
    const { hamiltonian: h } = cavities(4, 2);
    const psi = firstLevels(4);
    const exact = schrodinger(h, psi, { duration: 1, steps: 2, method: "pwcExpm" }).final.dataSync() as Float64Array;
    const method = tsit5({ relative: 1e-11, absolute: 1e-12 });
    const got = schrodinger(h, psi, { duration: 1, method }).final.dataSync() as Float64Array;
    exact.forEach((x, k) => void assert.ok(Math.abs(x - got[k]) < 1e-9, `element ${k}: ${got[k]}, ${x}`));
  });
});

test("the choice between terms and matrices follows the cost", () => {
  const { hamiltonian: chain, jumps } = cavities(4, 1);
  const cost = rateCost(chain, checkJumps(jumps, chain));
  // Diagonal, six hops, two drives; from both sides; four jumps.
  assert.deepEqual(cost, { terms: 2 * 9 + 4, dense: 9 * 81 });
  assert.ok(usesTerms(chain, checkJumps(jumps, chain)) && usesTerms(chain, null));
  const full: Hamiltonian = {
    dims: [16],
    static: [{ sites: [0], matrix: hermitian(16, 1) }],
    drives: [],
    amplitudes: null,
  };
  assert.ok(!usesTerms(full, null));
  assert.match(explainRightHandSide({ hamiltonian: chain, jumps }), /^matrix-free: 22 terms per element; .* 729 mult/);
  assert.match(explainRightHandSide(full), /^whole matrices: 16 multiplications per element; terms would take 31/);
});
