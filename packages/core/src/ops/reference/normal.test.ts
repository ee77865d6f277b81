// The formulas of normal numbers against the logarithm and cosine of the language, over words at random and at the ends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { normal32, normal64 } from "./normal.js";
import { threefry2x32 } from "./random.js";

const ends = [
  0, 1, 255, 256, 0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0xbfffffff, 0xc0000000, 0xffffff00, 0xffffffff,
];
const words = [
  ...ends.flatMap((a) => ends.map((b) => [a, b] as const)),
  ...Array.from({ length: 20_000 }, (_, i) => threefry2x32(1, 2, i, 0)),
];

const check = (
  got: (a: number, b: number) => number,
  u: (a: number) => number,
  v: (b: number) => number,
  tolerance: number,
): void => {
  for (const [a, b] of words) {
    const radius = Math.sqrt(-2 * Math.log(u(a)));
    const exact = radius * Math.cos(2 * Math.PI * v(b));
    const value = got(a, b);
    assert.ok(Math.abs(value - exact) <= tolerance * radius, `${a}, ${b}: ${value}, exactly ${exact}`);
  }
};

test("float32 is within a few roundings of the exact transform", () => {
  check(
    normal32,
    (a) => ((a >>> 8) + 1) * 2 ** -24,
    (b) => (b >>> 8) * 2 ** -24,
    1e-6,
  );
});

test("float64 is within a few roundings of the exact transform", () => {
  check(
    normal64,
    (a) => (a + 1) * 2 ** -32,
    (b) => b * 2 ** -32,
    4e-15,
  );
});
