// Code generation in a thread gives the program that it gives on the main thread, and leaves the event loop free meanwhile.
import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../../ops/index.js";
import { simplify } from "../../transform/index.js";
import { generateProgram } from "./generate.js";
import { generateAsync } from "./generate-async.js";

/** A function of many nodes: arithmetic, a complex part, a product, a loop, random numbers and special constants. */
function largeFunction(rounds: number) {
  const [x, key] = [build.input([16, 8], "float32", "x"), build.input([2], "int32", "key")];
  let y = x;
  for (let i = 0; i < rounds; i++)
    y = build.add(build.unary(i % 2 === 0 ? "sin" : "tanh", y), build.scale(x, i % 7 === 0 ? -0 : 1 / (i + 1)));
  const z = build.unary("abs", build.mul(build.toComplex(y, x), build.full([16, 8], { re: 0, im: 1 }, "complex64")));
  const noise = build.make("random", [key], { kind: "normal", shape: [16, 8], dtype: "float32" });
  const [carry, row] = [build.input([8], "float32", "carry"), build.input([8], "float32", "row")];
  const body = { params: [carry, row], outputs: [build.unary("tanh", build.add(carry, row)), carry] };
  const start = build.full([8], Number.NEGATIVE_INFINITY, "float32");
  const loop = build.make("scan", [start, y], { body, consts: 0, carries: 1, length: 16, reverse: false });
  const gram = build.matmul(build.transpose(z), build.add(z, noise));
  return simplify({ params: [x, key], outputs: [gram, ...build.picks(loop), y] });
}

test("a thread generates the same program", async () => {
  for (const rounds of [5, 300]) {
    const fn = largeFunction(rounds);
    const options = { donated: [true, false] };
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    const program = await generateAsync(fn, options);
    clearInterval(timer);
    assert.deepEqual(program, JSON.parse(JSON.stringify(generateProgram(fn, options))));
    if (rounds === 300) assert.ok(ticks > 0, "the event loop ran meanwhile");
  }
});

test("several requests at once are answered, and errors are those of the main thread", async () => {
  const functions = [310, 320, 330].map(largeFunction);
  const programs = await Promise.all(functions.map((fn) => generateAsync(fn, {})));
  programs.forEach((program, i) => {
    assert.deepEqual(program.units, generateProgram(functions[i], {}).units);
  });
  const bad = largeFunction(300);
  const broken = {
    params: bad.params,
    outputs: [...bad.outputs, build.make("data", [], { shape: [3], dtype: "float32" })],
  };
  assert.throws(() => generateProgram(broken, {}));
  await assert.rejects(generateAsync(broken, {}), Error);
});

test("long chains of constants and of views become several loops", () => {
  let x = build.full([8], 0.5, "float32");
  for (let i = 0; i < 6000; i++) x = build.unary("sin", x);
  assert.ok(generateProgram({ params: [], outputs: [x] }, {}).kernels.length > 1);
  const start = build.input([8], "float32");
  let y = start;
  for (let i = 0; i < 20_000; i++) y = build.reshape(build.permute(build.reshape(y, [2, 4]), [1, 0]), [8]);
  assert.ok(generateProgram({ params: [start], outputs: [build.unary("sin", y)] }, {}).kernels.length > 1);
});
