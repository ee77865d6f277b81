// Pictures: the positions of what is drawn, against closed forms, and documents that are well-formed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inflateSync } from "node:zlib";
import { linearScale } from "@weft/formats/svg";
import { basisState, Operator } from "../operators/index.js";
import { spectrumOf } from "./curves.js";
import { blochSvg, blochVector, errorBudgetSvg, levelsSvg, phaseSpaceSvg, populationsSvg, pulsesSvg } from "./index.js";

/** Every element is closed, and no text breaks out of its element. */
function assertWellFormed(svg: string): void {
  const open: string[] = [];
  for (const [, close, name, rest] of svg.matchAll(/<(\/?)([a-z]+)([^<>]*)>/gi))
    if (close === "/") assert.equal(open.pop(), name);
    else if (!rest.endsWith("/")) open.push(name);
  assert.deepEqual(open, []);
  assert.doesNotMatch(svg, /NaN|Infinity|undefined/);
}

test("Bloch vectors of states", () => {
  const s = Math.SQRT1_2;
  const plusI = Operator.from([[s], [{ re: 0, im: s }]]);
  const near = (got: number[], want: number[]): void =>
    got.forEach((x, k) => void assert.ok(Math.abs(x - want[k]) < 1e-12, `${got}`));
  near(blochVector(plusI), [0, 1, 0]);
  near(blochVector(basisState(2, 1)), [0, 0, -1]);
  near(
    blochVector([
      [0.5, 0.2],
      [0.2, 0.5],
    ]),
    [0.4, 0, 0],
  );
  assert.throws(() => blochVector(basisState(3, 0)), /needs a qubit/);
  const svg = blochSvg([
    [0, 0, 1],
    [0, 0, -1],
  ]);
  assertWellFormed(svg);
  assert.match(svg, /z -1\.000/);
  assertWellFormed(blochSvg([]));
});

test("pixels of a phase-space function: its maximum is red, its minimum blue, rows count upwards", () => {
  const svg = phaseSpaceSvg(
    [
      [1, 0],
      [0, -1],
    ],
    [0, 1],
    [0, 1],
    'a < b & "c"',
  );
  assertWellFormed(svg);
  const png = Buffer.from(/base64,([^"]+)/.exec(svg)![1], "base64");
  const at = png.indexOf("IDAT");
  const raw = inflateSync(png.subarray(at + 4, at + 4 + png.readUInt32BE(at - 4)));
  const pixel = (row: number, column: number): number[] => [
    ...raw.subarray(row * 7 + 1 + 3 * column, row * 7 + 4 + 3 * column),
  ];
  assert.deepEqual(pixel(1, 0), [178, 24, 43]);
  assert.deepEqual(pixel(0, 1), [33, 102, 172]);
  assert.deepEqual(pixel(0, 0), [247, 247, 247]);
  assert.throws(() => phaseSpaceSvg([[1, 2]], [0, 1], [0, 1]), /needs 2 rows of 2 values/);
});

test("the spectrum of a Gaussian is Gaussian", () => {
  const x = Array.from({ length: 2001 }, (_, k) => -10 + k / 100);
  const { x: f, y } = spectrumOf({ name: "g", x, y: x.map((t) => Math.exp(-t * t)) }, 1, 10);
  f.forEach((w, k) => {
    const wanted = Math.sqrt(Math.PI) * Math.exp(-((Math.PI * w) ** 2));
    assert.ok(Math.abs(y[k] - wanted) < 1e-9, `${w}: ${y[k]}, wanted ${wanted}`);
  });
});

test("curves, levels and budgets are well-formed, also in extreme cases", () => {
  const flat = { name: "<flat>", x: [0, 1, 2], y: [0, 0, 0] };
  for (const svg of [
    populationsSvg([flat]),
    pulsesSvg([flat, { name: "u", x: [0, 1, 2], y: [0, 1e-9, 0] }]),
    levelsSvg([{ name: "q", levels: [{ label: "0", energy: 0 }] }]),
    errorBudgetSvg([
      { name: "infidelity", value: 0 },
      { name: "steps", value: 1e-18 },
    ]),
  ])
    assertWellFormed(svg);
  assert.throws(() => populationsSvg([{ name: "x", x: [0, 1], y: [Number.NaN, Number.NaN] }]), /no finite values/);
  const { ticks, at } = linearScale([0, 10], [100, 200]);
  assert.deepEqual(ticks, [0, 2, 4, 6, 8, 10]);
  assert.equal(at(5), 150);
});
