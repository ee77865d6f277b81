// debug.nans and debug.infinities name the operation and the line that gives the first NaN or infinity; running out of memory inside a
// program leaves a session that works.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, tensor } from "../index.js";

afterEach(() => {
  weft.debug.nans(false);
  weft.debug.infinities(false);
  weft.debug.recordSites(false);
});

const here = /nans\.test\.[jt]s:\d+/;
const message = (body: () => unknown): string => {
  try {
    body();
  } catch (error) {
    assert.ok(error instanceof weft.WeftError, String(error));
    return error.message;
  }
  return "";
};

for (const name of weft.CpuDevice.available() ? ["reference", "cpu"] : ["reference"]) {
  const use = (): void => void weft.useDevice(name === "cpu" ? new weft.CpuDevice() : new weft.ReferenceDevice());

  test(`${name}: the first operation that gives NaN is named with its line`, () => {
    use();
    weft.debug.nans();
    const text = message(() => tensor([1, -1]).log().mul(2).sum().itemSync());
    assert.match(text, /^log\(float32\[2\]\) gave NaN at /);
    assert.match(text, here);
    // Infinities are not looked for, and become NaN later.
    const late = message(() =>
      tensor([0, 1])
        .log()
        .mul(tensor([0, 1]))
        .sum()
        .itemSync(),
    );
    assert.match(late, /^mul\(.*\) gave NaN/);
    assert.match(
      message(() => tensor([Number.NaN, 1]).add(1).dataSync()),
      /that the program reads holds NaN/,
    );
    assert.equal(
      message(() => tensor([1, 2]).log().sum().itemSync()),
      "",
    );
    weft.debug.nans(false);
    assert.equal(
      message(() => tensor([1, -1]).log().sum().itemSync()),
      "",
    );
  });

  test(`${name}: infinities, complex numbers, reads in the background`, async () => {
    use();
    weft.debug.infinities();
    assert.match(
      message(() => tensor([0, 1]).log().dataSync()),
      /^log\(float32\[2\]\) gave an infinity at .*nans\.test/,
    );
    assert.equal(
      message(() => tensor([1, -1]).log().dataSync()),
      "",
      "NaN is not looked for",
    );
    weft.debug.nans();
    await assert.rejects(() => tensor([4, -4]).sqrt().data(), /^WeftError: sqrt\(.*\) gave NaN or an infinity/);
    const zero = weft.complex(tensor([0, 1]), tensor([0, 1]));
    assert.match(
      message(() => weft.div(1, zero).dataSync()),
      /gave NaN or an infinity/,
    );
  });

  test(`${name}: inside jit, in gradients and with donated memory`, () => {
    use();
    weft.debug.nans();
    const step = weft.jit(
      (w: Tensor, x: Tensor) =>
        w.sub(
          weft
            .grad((v: Tensor) => v.mul(x).sqrt().sum())(w)
            .mul(0.1),
        ),
      { donate: [0] },
    );
    const w = step(tensor([1, 2]), tensor([1, 1]));
    const text = message(() => step(w, tensor([1, -1])));
    assert.match(text, /^sqrt\(float32\[2\]\) gave NaN/);
    assert.match(text, here);
    // 0 / 0 in the gradient alone.
    const slope = weft.jit((x: Tensor) => weft.grad((v: Tensor) => v.sqrt().mul(0).sum())(x));
    assert.match(
      message(() => slope(tensor([0, 1]))),
      /gave NaN.* at .*nans\.test|gave NaN, .*nans\.test/,
    );
  });
}

test("out of memory in a call gives a clear error, leaks nothing, and the session goes on", {
  skip: !weft.CpuDevice.available(),
}, async () => {
  const before = process.env.WEFT_CPU_MEMORY;
  const device = new weft.CpuDevice();
  weft.useDevice(device);
  const many = weft.jit((x: Tensor) => [1, 2, 3, 4].map((k) => x.mul(k)));
  const x = weft.ones([1 << 18]).realize();
  for (const y of many(x)) y.dispose();
  weft.collectGarbage();
  const used = device.memory().usedBytes;
  device.trim();
  process.env.WEFT_CPU_MEMORY = String(used + 2.5 * x.size * 4);
  try {
    assert.throws(() => many(x), weft.OutOfMemoryError);
    await assert.rejects(() => weft.concat([x, x, x, x]).sin().data(), weft.OutOfMemoryError);
    assert.ok(device.memory().usedBytes <= used, `${device.memory().usedBytes} bytes in use, ${used} before`);
  } finally {
    if (before === undefined) delete process.env.WEFT_CPU_MEMORY;
    else process.env.WEFT_CPU_MEMORY = before;
  }
  const results = many(x);
  assert.equal(results[3].sum().itemSync(), 4 * x.size);
});
