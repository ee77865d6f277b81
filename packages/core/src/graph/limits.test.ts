import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { checkExtent, limits, shortened } from "./index.js";

test("dimensions and elements have limits, for every tensor that a program makes", () => {
  const most = new Array<number>(limits.rank).fill(1);
  assert.equal(weft.ones(most).shape.length, limits.rank);
  assert.throws(() => weft.ones([...most, 1]), /13 dimensions, and 12 are the most; reshape it/);
  assert.throws(() => weft.ones([2, 3]).reshape([2, 3, ...most]), /14 dimensions/);
  assert.throws(() => checkExtent([2 ** 30, 2 ** 30]), /elements, and 562949953421312 are the most/);
  // A dimension of none hides no others: strides are products of all.
  assert.throws(() => checkExtent([0, 2 ** 40, 2 ** 40]), /are the most/);
  for (const bad of [-1, 1.5, Number.NaN, 2 ** 53, "4" as never])
    assert.throws(() => checkExtent([bad]), /whole number/);
});

test("a text that is too long keeps its beginning and its end", () => {
  assert.equal(shortened("abc", 10), "abc");
  const cut = shortened(`begin${"x".repeat(50_000)}end`);
  assert.ok(cut.length <= limits.text && cut.startsWith("begin") && cut.endsWith("end"));
  assert.match(cut, /50008 characters/);
});
