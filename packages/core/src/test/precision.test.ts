// The precision of products: by call, by scope and globally; in gradients, under vmap and in compiled programs. The
// reference device rounds operands as the tensor cores do, which shows that the policy arrived.
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import * as weft from "../index.js";

before(() => weft.setDevice("reference"));
afterEach(() => weft.setPrecision(null));

/** 1 + 2^-9 fits tf32 and float16 but not bfloat16; 1 + 2^-12 fits float32 alone; 1e6 does not fit float16. */
const a = () => weft.tensor([[1 + 2 ** -9, 1 + 2 ** -12, 1e6]]);
const b = () => weft.tensor([[1], [1], [1e-6]]);
const tiny = Math.fround(1e-6);
const rounded = (x: number, bits: number): number => {
  const unit = 2 ** (Math.floor(Math.log2(Math.abs(x))) - bits);
  return Math.round(x / unit) * unit;
};
const expected = {
  float32: 1 + 2 ** -9 + 1 + 2 ** -12 + 1e6 * tiny,
  tf32: 1 + 2 ** -9 + 1 + rounded(1e6, 10) * rounded(tiny, 10),
  bfloat16: 2 + rounded(1e6, 7) * rounded(tiny, 7),
  float16: Number.POSITIVE_INFINITY,
};
const close = (got: number, want: number): void => {
  if (!Number.isFinite(want)) assert.equal(got, want);
  else assert.ok(Math.abs(got - want) <= 2e-7 * Math.abs(want), `${got} is not ${want}`);
};
const value = (x: weft.Tensor): number => Number(x.dataSync()[0]);

test("a product of one call is computed as it asks", () => {
  for (const [name, want] of Object.entries(expected))
    close(value(weft.matmul(a(), b(), { precision: name as weft.PrecisionName })), want);
  close(value(a().matmul(b(), { precision: "bf16" })), expected.bfloat16);
  close(value(a().matmul(b())), expected.float32);
});

test("scopes nest and restore, also after an error; setPrecision holds from then on", () => {
  const now = (): number => value(a().matmul(b()));
  weft.setPrecision("tf32");
  close(now(), expected.tf32);
  weft.withPrecision("bf16", () => {
    close(now(), expected.bfloat16);
    weft.withPrecision("float32", () => close(now(), expected.float32));
    close(now(), expected.bfloat16);
    close(value(weft.einsum("ij,jk->ik", a(), b())), expected.bfloat16);
  });
  close(now(), expected.tf32);
  assert.throws(() => weft.withPrecision("bf16", () => assert.fail("inside")), /inside/);
  close(now(), expected.tf32);
  weft.setPrecision(null);
  close(now(), expected.float32);
});

test("gradients inherit the precision of the product they come from", () => {
  const loss = (x: weft.Tensor, w: weft.Tensor): weft.Tensor =>
    x
      .matmul(w, { precision: "bf16" })
      .mul(weft.tensor([[1 + 2 ** -9]]))
      .sum();
  const [dx, dw] = weft.grad(loss, { argument: [0, 1] })(a(), b()) as unknown as [weft.Tensor, weft.Tensor];
  // g = 1 + 2^-9 becomes 1 in bfloat16, and so do the operands.
  assert.deepEqual([...dx.dataSync()].slice(0, 2), [1, 1]);
  assert.deepEqual([...dw.dataSync()].slice(0, 2), [1, 1]);
});

test("compiled programs and vmap keep the policy they were traced under", () => {
  const f = weft.jit((x: weft.Tensor, y: weft.Tensor) => x.matmul(y));
  close(value(f(a(), b())), expected.float32);
  weft.withPrecision("bf16", () => close(value(f(a(), b())), expected.bfloat16));
  close(value(f(a(), b())), expected.float32);
  assert.equal(f.programs, 2);
  const batched = weft.vmap((x: weft.Tensor) => x.matmul(b(), { precision: "tf32" }));
  close(value(batched(weft.stack([a(), a()]))), expected.tf32);
});

test("half and double operands are not rounded any further, and wrong names are refused", () => {
  const x = a().cast("float64");
  assert.equal(value(x.matmul(b().cast("float64"), { precision: "bf16" })), value(x.matmul(b().cast("float64"))));
  assert.throws(
    () => weft.setPrecision("float8" as never),
    /setPrecision: there is no precision "float8"; known: float32/,
  );
  assert.throws(() => a().matmul(b(), { precision: "exact" as never }), /matmul: there is no precision "exact"/);
  assert.throws(() => weft.withPrecision("bf16", async () => 1), /asynchronous/);
});
