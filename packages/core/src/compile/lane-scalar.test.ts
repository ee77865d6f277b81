// Sums of lane scalars: the same terms in another order are one scalar, different terms never are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ix } from "./index-expr.js";
import { type LaneScalar, ScalarPool } from "./lane-scalar.js";

/** A pool with `count` different loads, whose ids are their positions. */
function loads(count: number): { pool: ScalarPool; terms: LaneScalar[]; sum: (...ids: number[]) => LaneScalar } {
  const pool = new ScalarPool(1e5);
  const terms = Array.from({ length: count }, (_, i) =>
    pool.make("load", "float64", [], { input: 0, address: Ix.constant(i) }),
  );
  const sum = (...ids: number[]): LaneScalar => ids.map((i) => terms[i]).reduce((a, b) => pool.add(a, b));
  return { pool, terms, sum };
}

test("sums of the same terms in another order are one scalar", () => {
  const { pool, terms, sum } = loads(4);
  assert.equal(sum(0, 1, 2, 3), sum(3, 1, 0, 2));
  assert.equal(pool.add(sum(0, 1), sum(2, 3)), sum(2, 1, 0, 3));
  // -(a + b) - c is the negative of c + a + b.
  const negative = pool.sub(pool.neg(sum(0, 1)), terms[2]);
  assert.equal(pool.neg(negative), sum(2, 0, 1));
});

test("sums with different terms are not merged when their digests collide", () => {
  // Found by a search over all sums of three terms: both digests modulo both primes agree.
  const { sum } = loads(1100);
  const [a, b] = [sum(163, 203, 427), sum(50, 360, 1014)];
  assert.deepEqual(a.sum, b.sum, "these sums no longer collide: search for others");
  assert.notEqual(a, b);
});

test("terms that cancel do not make two sums equal", () => {
  const { pool, terms, sum } = loads(3);
  // (a + b) - b and (a + c) - c round differently: compensated summation depends on it.
  assert.notEqual(pool.sub(sum(0, 1), terms[1]), pool.sub(sum(0, 2), terms[2]));
});

test("sums with exponentially many terms are compared by their shared partial sums", () => {
  const { pool, terms } = loads(3);
  let [a, b, c] = [terms[0], terms[1], pool.add(terms[0], terms[1])];
  for (let i = 0; i < 60; i++) [a, b, c] = [b, c, pool.add(b, c)];
  assert.ok(c.terms > 1e12);
  assert.equal(pool.add(pool.add(a, terms[2]), b), pool.add(c, terms[2]));
});
