import assert from "node:assert/strict";
import { test } from "node:test";
import { build, composed, decodeFunction, make, verify } from "../ops/index.js";
import { structuralKey } from "./hash.js";
import { toPlain } from "./serialize.js";

const through = (fn: Parameters<typeof toPlain>[0]) => decodeFunction(JSON.parse(JSON.stringify(toPlain(fn))));

test("a function survives the way through text: structure, loops, several results, special numbers", () => {
  const x = build.input([4, 4], "float32");
  const c = build.input([], "float32");
  const body = (() => {
    const carry = build.input([], "float32");
    return { params: [carry], outputs: [build.binary("add", carry, build.constant(Number.NaN, "float32"))] };
  })();
  const loop = make("scan", [c], { body, consts: 0, carries: 1, length: 3, reverse: false });
  const eigen = make("eigh", [x], {});
  const minusZero = build.constant(-0, "float32");
  const fn = {
    params: [x, c],
    outputs: [
      make("pick", [eigen], { index: 1 }),
      make("pick", [loop], { index: 0 }),
      build.constant(Number.NEGATIVE_INFINITY, "float32"),
      minusZero,
    ],
  };
  verify(fn);
  const back = through(fn);
  verify(back);
  assert.equal(structuralKey(back), structuralKey(fn));
  assert.ok(Object.is((back.outputs[3].attrs as { value: number }).value, -0));
});

test("damaged functions are refused with a reason", () => {
  const x = build.input([2], "float32");
  const good = toPlain({ params: [x], outputs: [build.unary("exp", x)] });
  const broken: [unknown, RegExp][] = [
    [null, /missing/],
    [{ ...good, outputs: [7] }, /results/],
    [{ ...good, nodes: [["unary", [3], {}, ["float32", [2]]]] }, /operand/],
    [{ ...good, nodes: [["unary", [0], { fn: "exp" }, ["float99", [2]]]] }, /dtype/],
    [{ ...good, nodes: [["unary", [0], { fn: "exp" }, ["float32", [-1]]]] }, /shape/],
    [{ ...good, nodes: ["unary"] }, /no list/],
    [{ ...good, nodes: [["unary", [0], { x: { $: "evil" } }, ["float32", [2]]]] }, /no attribute/],
  ];
  for (const [value, reason] of broken) assert.throws(() => decodeFunction(value), reason);
  let deep: unknown = 1;
  for (let i = 0; i < 1000; i++) deep = [deep];
  assert.throws(() => decodeFunction({ ...good, nodes: [["unary", [0], deep, ["float32", [2]]]] }), /an object/);
});

test("a dropout mask of an old tape, where its kind is called kept, is decoded", () => {
  const key = build.input([2], "int32");
  const fn = { params: [key], outputs: [composed.dropoutMask([8], 0.5, key)] };
  const old = JSON.parse(JSON.stringify(toPlain(fn)).replace('"dropoutMask"', '"kept"'));
  assert.equal(structuralKey(decodeFunction(old)), structuralKey(fn));
});
