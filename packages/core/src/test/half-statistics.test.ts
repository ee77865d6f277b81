// Statistics of float16 whose sums or counts leave its range: they are computed in float32 and rounded once, as NumPy and PyTorch do.
// The expected values are exact.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { onEachDevice } from "./devices.js";

const half = { dtype: "float16" } as const;

onEachDevice(() => {
  /** 70,000 numbers, one half 300 and the other 100: mean 200, variance 10,000. */
  const x = (): weft.Tensor =>
    weft.concat([weft.full([35000], 300, half).realize(), weft.full([35000], 100, half).realize()]);
  const cases: Record<string, { of: (x: weft.Tensor) => weft.Tensor; is: number }> = {
    mean: { of: weft.mean, is: 200 },
    variance: { of: weft.variance, is: 10000 },
    std: { of: weft.std, is: 100 },
    nanmean: { of: weft.nanmean, is: 200 },
    nanvar: { of: weft.nanvar, is: 10000 },
    nanstd: { of: weft.nanstd, is: 100 },
    // (300^2 + 100^2) / (300 + 100)
    average: { of: (t) => weft.average(t, undefined, { weights: t }), is: 250 },
    l1Loss: { of: (t) => weft.l1Loss(t, 0), is: 200 },
    cov: { of: (t) => weft.cov(t, { correction: 0 }), is: 10000 },
    corrcoef: { of: (t) => weft.corrcoef(weft.stack([t, t])).index(0, 1), is: 1 },
    // sqrt(40000) of ones
    norm: { of: () => weft.norm(weft.full([40000], 1, half).realize()), is: 200 },
    vectorNorm: { of: () => weft.vectorNorm(weft.full([8], 64, half).realize(), { order: 3 }), is: 128 },
    cosineSimilarity: { of: (t) => weft.cosineSimilarity(t, t), is: 1 },
    // log(2^17) = 11.7835, in steps of 2^-7
    logsumexp: { of: () => weft.logsumexp(weft.full([2 ** 17], 0, half).realize()), is: 11.78125 },
  };
  for (const [name, { of, is }] of Object.entries(cases))
    test(`${name} of many halves`, () => {
      const result = of(x());
      assert.equal(result.dtype, "float16");
      assert.equal(result.itemSync(), is);
    });

  test("the gradient of a mean over many halves is one over their number", () => {
    const [slope] = weft
      .grad((t: weft.Tensor) => t.mul(0.5).mean())(weft.full([2 ** 17], 3, half))
      .dataSync() as Float32Array;
    // 2^-18 is a subnormal number of float16.
    assert.equal(slope, 2 ** -18);
  });
});
