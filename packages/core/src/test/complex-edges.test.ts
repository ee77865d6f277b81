// Complex functions at infinite, NaN, zero and extreme parts against NumPy (testdata/complex_edges.py), with the signs of zeros.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, useDevice } from "../index.js";
import { testDevicesAndEmulator } from "./devices.js";

const file = new URL("../../testdata/complex-edges.json", import.meta.url);
const tables = JSON.parse(readFileSync(file, "utf8")) as Record<string, Record<string, string>>;
const functions = weft as unknown as Record<string, (z: Tensor) => Tensor>;

const toNumber = (text: string): number => Number(text.replace("?", "").replace("inf", "Infinity"));

/** Whether a part is what the table says, within a tolerance; "?" leaves the sign of a zero or an infinity open. */
function agrees(got: number, text: string, tolerance: number): boolean {
  const expected = toNumber(text);
  if (text.endsWith("?")) return Math.abs(got) === expected;
  if (expected === 0 && got === 0) return Object.is(got, expected);
  return Object.is(got, expected) || Math.abs(got - expected) <= tolerance;
}

for (const { name: deviceName, make } of testDevicesAndEmulator())
  describe(`complex edge values on ${deviceName}`, () => {
    before(() => void useDevice(make()));
    for (const [dtype, table] of Object.entries(tables)) {
      const real = dtype === "complex64" ? "float32" : "float64";
      const parts = table.parts.split(" ").map(toNumber);
      const [re, im] = [parts.flatMap((a) => parts.map(() => a)), parts.flatMap(() => parts)];
      test(dtype, () => {
        const problems: string[] = [];
        const names = Object.keys(table).filter((name) => name !== "parts");
        // Compiled: small programs outside jit are interpreted.
        const program = weft.jit((x: Tensor, y: Tensor) => names.map((name) => functions[name](weft.complex(x, y))));
        const results = program(weft.tensor(re, { dtype: real }), weft.tensor(im, { dtype: real }));
        for (const [at, name] of names.entries()) {
          const y = results[at];
          const got = y.dtype === dtype ? [y.real(), y.imag()].map((t) => t.dataSync()) : [y.dataSync()];
          const expected = table[name].split(" ");
          re.forEach((_, i) => {
            const texts = got.map((_, k) => expected[got.length * i + k]);
            const size = Math.max(...texts.map((text) => Math.abs(toNumber(text))).filter(Number.isFinite), 0);
            const tolerance = size * (real === "float32" ? 1e-6 : 4e-15);
            if (got.every((part, k) => agrees(Number(part[i]), texts[k], tolerance))) return;
            problems.push(`${name}(${re[i]}, ${im[i]}): ${got.map((part) => part[i])}, expected ${texts}`);
          });
        }
        assert.equal(problems.length, 0, `${problems.length} mismatches\n${problems.join("\n")}`);
      });
    }
  });
