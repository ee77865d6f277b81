// Linear algebra of the CUDA device with LAPACK in the place of cuSOLVER, against the reference device: layouts,
// triangles, phases, signs, and NaN where there is no answer.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as weft from "../../../index.js";
import { findOpenBlas } from "../../cpu/openblas.js";
import { useCudaLibraries } from "../driver.js";
import { CudaDevice } from "../index.js";
import { canEmulate, emulatedLibraries } from "./index.js";

const skip = !canEmulate() ? "no C++ compiler" : findOpenBlas() === null ? "no LAPACK" : false;
const calls = { log: [] as string[] };
const reference = new weft.ReferenceDevice();
let device: CudaDevice;

before(() => {
  if (skip !== false) return;
  const found = useCudaLibraries(emulatedLibraries(calls));
  device = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
});
after(() => weft.setDevice(reference));

const dtypes = ["float32", "float64", "complex64", "complex128"] as const;
type Matrices = (typeof dtypes)[number];

/** Numbers without a pattern, the same on both devices. */
function numbers(shape: number[], dtype: Matrices, seed: number): weft.Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  const draw = (i: number): number => {
    const x = Math.sin((i + 1) * 12.9898 + seed * 78.233) * 43758.5453;
    return Math.fround(x - Math.floor(x) - 0.5);
  };
  const re = weft.tensor(
    Float64Array.from({ length: size }, (_, i) => draw(i)),
    { shape },
  );
  const im = weft.tensor(
    Float64Array.from({ length: size }, (_, i) => draw(i + size)),
    { shape },
  );
  const whole = dtype.startsWith("complex") ? weft.complex(re, im) : re;
  return whole.cast(dtype);
}

/** Runs on both devices and compares; returns the solver calls. */
function agree(dtype: Matrices, make: () => weft.Tensor[]): string[] {
  const values = (on: weft.Device): ArrayLike<number>[] => {
    weft.setDevice(on);
    return make().map((t) => t.dataSync() as ArrayLike<number>);
  };
  const expected = values(reference);
  calls.log.length = 0;
  const tolerance = dtype === "float32" || dtype === "complex64" ? 2e-4 : 1e-9;
  values(device).forEach((got, k) => {
    assert.equal(got.length, expected[k].length);
    for (let i = 0; i < got.length; i++) {
      const want = expected[k][i];
      const same =
        (Number.isNaN(got[i]) && Number.isNaN(want)) || Math.abs(got[i] - want) <= tolerance * (1 + Math.abs(want));
      assert.ok(same, `${dtype}: result ${k}, element ${i}: ${got[i]}, expected ${want}`);
    }
  });
  // Each result is read on its own, so a call may come twice.
  const own = calls.log.filter((name) => !name.startsWith("w_") && !/^k\d/.test(name) && !name.startsWith("cublasG"));
  return [...new Set(own)];
}

const hermitian = (a: weft.Tensor): weft.Tensor => a.add(a.adjoint());
const positive = (a: weft.Tensor): weft.Tensor => {
  const n = a.shape[a.rank - 1];
  return a.matmul(a.adjoint()).add(weft.eye(n).cast(a.dtype));
};

test("cholesky: one matrix, a batch, and NaN where it is not positive definite", { skip }, () => {
  for (const dtype of dtypes) {
    assert.deepEqual(
      agree(dtype, () => [weft.cholesky(positive(numbers([5, 5], dtype, 1)))]),
      ["potrf"],
    );
    assert.deepEqual(
      agree(dtype, () => [weft.cholesky(positive(numbers([3, 2, 4, 4], dtype, 2)))]),
      ["potrfBatched"],
    );
  }
  const mixed = agree("float64", () => [
    weft.cholesky(
      weft.tensor(
        [
          [
            [4, 0],
            [2, 5],
          ],
          [
            [1, 2],
            [2, 1],
          ],
        ],
        { dtype: "float64" },
      ),
    ),
  ]);
  assert.deepEqual(mixed, ["potrfBatched"], "only the second of the two is NaN");
  agree("float64", () => [
    weft.cholesky(
      weft.tensor(
        [
          [Number.NaN, 0],
          [2, 5],
        ],
        { dtype: "float64" },
      ),
    ),
  ]);
});

test("triangular systems: both triangles, adjoint, unit diagonal, alone and in batches", { skip }, () => {
  for (const dtype of dtypes)
    for (const lower of [true, false])
      for (const adjoint of [true, false])
        for (const unit of [true, false])
          for (const [shape, call] of [
            [[4, 4], "trsm"],
            [[3, 4, 4], "trsmBatched"],
          ] as const) {
            const log = agree(dtype, () => {
              const a = numbers([...shape], dtype, 3).add(weft.eye(4).cast(dtype).mul(3));
              const b = numbers([...shape.slice(0, -1), 3], dtype, 4);
              return [weft.triangularSolve(a, b, { lower, adjoint, unit })];
            });
            assert.deepEqual(log, [call]);
          }
});

test("triangular systems of one right side are solved as vectors", { skip }, () => {
  for (const dtype of ["float32", "float64"] as const)
    for (const lower of [true, false])
      for (const adjoint of [true, false])
        for (const unit of [true, false])
          for (const n of [1, 5, 33]) {
            const log = agree(dtype, () => {
              const a = numbers([n, n], dtype, 3).add(weft.eye(n).cast(dtype).mul(n));
              return [weft.triangularSolve(a, numbers([n, 1], dtype, 4), { lower, adjoint, unit })];
            });
            assert.deepEqual(log, ["trsv"]);
          }
});

test("many small Cholesky factors, a warp each: NaN where there is none, the upper triangle does not count", {
  skip,
}, () => {
  for (const [n, dtype] of [
    [1, "float32"],
    [5, "float64"],
    [8, "float32"],
    [13, "float32"],
    [16, "float64"],
    [23, "float32"],
    [32, "float32"],
  ] as const) {
    agree(dtype, () => {
      const a = positive(numbers([70, n, n], dtype, 5).mul(0.5));
      const at = weft.arange(0, 70).reshape([70, 1, 1]);
      const upper = weft.triu(weft.ones([n, n]), 1).equal(1);
      const bad = weft.where(at.equal(3), weft.eye(n).mul(-1), weft.where(at.equal(7), Number.NaN, 0)).cast(dtype);
      return [weft.cholesky(weft.where(upper, Number.NaN, a.add(bad.mul(3))))];
    });
    assert.ok(calls.log.includes(`w_small_cholesky_${dtype}`), calls.log.join(", "));
  }
});

test("many small systems, a warp each: row exchanges, singular matrices, NaN", { skip }, () => {
  for (const [n, k, dtype] of [
    [1, 1, "float64"],
    [3, 5, "float32"],
    [8, 8, "float64"],
    [17, 2, "float64"],
    [32, 1, "float32"],
  ] as const) {
    agree(dtype, () => {
      const a = numbers([66, n, n], dtype, 5).add(weft.eye(n).cast(dtype));
      // A zero first pivot needs an exchange; one matrix is zero, and one has no number.
      const which = weft.arange(0, 66).reshape([66, 1, 1]);
      const corner = weft.arange(0, n).reshape([n, 1]).add(weft.arange(0, n)).equal(0);
      const pivot = n === 1 ? a : weft.where(corner, 0, a);
      const some = weft.where(which.equal(3), 0, weft.where(which.equal(5), Number.NaN, pivot));
      const filled = weft.where(which.equal(5), weft.eye(n), some).cast(dtype);
      const { permutation, l, u } = weft.lu(filled);
      return [weft.solve(some.cast(dtype), numbers([66, n, k], dtype, 6)), permutation, l, u, weft.det(filled)];
    });
    assert.ok(
      ["w_small_solve", "w_small_lu"].every((kernel) => calls.log.some((name) => name.startsWith(kernel))),
      `${calls.log}`,
    );
  }
});

test("solve and det: right sides of any width, singular matrices, large ones by their own call", { skip }, () => {
  for (const dtype of dtypes) {
    const log = agree(dtype, () => {
      const a = numbers([2, 5, 5], dtype, 5).add(weft.eye(5).cast(dtype).mul(2));
      return [weft.solve(a, numbers([2, 5, 3], dtype, 6)), weft.det(a), weft.det(numbers([1, 1], dtype, 7))];
    });
    assert.deepEqual(log, ["getrfBatched"]);
  }
  agree("float64", () => [
    weft.solve(
      weft.tensor(
        [
          [1, 2],
          [2, 4],
        ],
        { dtype: "float64" },
      ),
      weft.tensor([[1], [1]], { dtype: "float64" }),
    ),
  ]);
  const large = agree("complex128", () => {
    const a = numbers([260, 260], "complex128", 8).mul(0.05).add(weft.eye(260).cast("complex128"));
    return [weft.solve(a, numbers([260, 2], "complex128", 9)), weft.det(a)];
  });
  assert.deepEqual(large, ["getrf"]);
});

test("eigh: values, phases of the vectors, batches, and NaN for what is not finite", { skip }, () => {
  for (const dtype of dtypes) {
    const one = agree(dtype, () => {
      const { values, vectors } = weft.eigh(hermitian(numbers([6, 6], dtype, 10)));
      return [values, vectors];
    });
    assert.deepEqual(one, ["syevd"]);
    const many = agree(dtype, () => {
      const { values, vectors } = weft.eigh(hermitian(numbers([4, 3, 3], dtype, 11)));
      return [values, vectors];
    });
    assert.deepEqual(many, ["syevBatched"]);
  }
  agree("float64", () => {
    const { values, vectors } = weft.eigh(
      weft.tensor(
        [
          [
            [1, 0],
            [0, 2],
          ],
          [
            [Number.NaN, 0],
            [0, 2],
          ],
        ],
        { dtype: "float64" },
      ),
    );
    return [values, vectors];
  });
});

test("qr: square, tall, wide, batches; the diagonal of r is real and not negative", { skip }, () => {
  for (const dtype of dtypes)
    for (const shape of [
      [4, 4],
      [2, 5, 3],
      [3, 5],
      [4, 1],
    ])
      agree(dtype, () => {
        const { q, r } = weft.qr(numbers(shape, dtype, 12));
        return [q, r];
      });
});

test("svd: small ones together, large ones one by one, what does not depend on signs", { skip }, () => {
  const parts = (shape: number[], dtype: Matrices) => () => {
    const { u, s, vh } = weft.svd(numbers(shape, dtype, 13));
    const back = u.mul(s.cast(u.dtype).unsqueeze(-2)).matmul(vh);
    return [s, back, u.matmul(u.adjoint()), vh.adjoint().matmul(vh)];
  };
  for (const dtype of dtypes)
    for (const shape of [
      [4, 4],
      [3, 5, 2],
      [2, 3, 6],
    ])
      assert.deepEqual(agree(dtype, parts(shape, dtype)), ["gesvdjBatched"]);
  for (const shape of [
    [34, 3],
    [3, 34],
    [2, 33, 4],
  ])
    assert.ok(agree("complex128", parts(shape, "complex128")).every((name) => name === "gesvd"));
});

test("without the solver library the host computes", { skip }, () => {
  const found = useCudaLibraries({ ...emulatedLibraries(calls), solver: null });
  const other = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
  calls.log.length = 0;
  weft.setDevice(other);
  const { values } = weft.eigh(
    weft.tensor([
      [2, 1],
      [1, 2],
    ]),
  );
  assert.deepEqual(
    [...(values.dataSync() as Float32Array)].map((x) => Math.round(x * 1e5) / 1e5),
    [1, 3],
  );
  assert.ok(!calls.log.includes("syevd"));
});
