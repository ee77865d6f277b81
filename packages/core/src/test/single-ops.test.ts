// Random calls of single operations with edge values, on the reference, the CPU and the emulated GPU, against NumPy and SciPy: integers
// digit by digit, floats within a few units in the last place. WEFT_FUZZ=10000 runs more calls, WEFT_FUZZ_SEED=7 starts elsewhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { testPython } from "../testing/python.js";
import { toleranceOf } from "./compare.js";
import { testDevicesAndEmulator } from "./devices.js";
import { compiled, perProgram } from "./modes.js";
import { type OpCall, pythonOfCalls, randomCall } from "./single-ops.js";

const { python, skip: noSciPy } = testPython("numpy", "single operations against NumPy and SciPy");

const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
const calls = Array.from({ length: Number(process.env.WEFT_FUZZ ?? 200) }, (_, i) => randomCall(first + i));

type Answer = [shape: number[], dtype: string, elements: string[]];
let answers: Answer[] = [];

before(() => {
  if (noSciPy !== false) return;
  const done = spawnSync(python, ["-"], { input: pythonOfCalls(calls), encoding: "utf8", maxBuffer: 1 << 29 });
  assert.equal(done.status, 0, done.stderr.slice(-2000));
  answers = JSON.parse(done.stdout) as Answer[];
});
after(() => void useDevice(new ReferenceDevice()));

const numberOf = (text: string): number =>
  text === "inf" ? Infinity : text === "-inf" ? -Infinity : text === "nan" ? NaN : Number(text);

/** What is wrong with a result, or null. */
function problem(
  { operation, dtypes, operands }: OpCall,
  result: Tensor,
  [shape, dtype, elements]: Answer,
): string | null {
  const about = `${operation.np} of ${dtypes.join(", ")}`;
  // Positions are int32 here and int64 in NumPy.
  const expected = /arg|lexsort|searchsorted|digitize/.test(operation.np) ? "int32" : dtype;
  if (result.dtype !== expected) return `${about}: ${result.dtype}, expected ${expected}`;
  if (String(result.shape) !== String(shape)) return `${about}: shape [${result.shape}], expected [${shape}]`;
  const got = Array.from(result.dataSync() as ArrayLike<number | bigint>, String);
  const isFloat = result.dtype.startsWith("float");
  const relative = toleranceOf(result.dtype) * (operation.loose ?? 1);
  // Results below the smallest normal number may have been flushed to it.
  const flushed = result.dtype === "float32" ? 1.2e-38 : 2.3e-308;
  const absolute = operation.ordered ? 8 * relative : flushed;
  const wrong = elements.findIndex((text, i) => {
    if (!isFloat)
      return got[i] !== text && Number(got[i]) !== Number(text === "True" ? 1 : text === "False" ? 0 : text);
    const [a, e] = [numberOf(got[i] === "NaN" ? "nan" : got[i]), numberOf(text)];
    return !(Object.is(a, e) || a === e || Math.abs(a - e) <= absolute + relative * Math.abs(e));
  });
  if (wrong < 0) return null;
  const from = operands.map(({ data }) => (data.length <= 20 ? `[${data}]` : `${data.length} numbers`)).join(", ");
  return `${about}: element ${wrong} of [${shape}] is ${got[wrong]}, expected ${elements[wrong]} (${from})`;
}

function check(together: number): void {
  const wrong: string[] = [];
  for (let at = 0; at < calls.length; at += together) {
    const group = calls.slice(at, at + together);
    const run = compiled((inputs: Tensor[][]) => group.map(({ operation }, i) => operation.fn(...inputs[i])));
    const upload = ({ dtypes, operands }: OpCall): Tensor[] =>
      operands.map(({ shape, data }, i) => weft.tensor(Float64Array.from(data), { shape, dtype: dtypes[i] }));
    const results = run(group.map(upload)) as Tensor[];
    results.forEach((result, i) => {
      const found = problem(group[i], result, answers[at + i]);
      if (found !== null) wrong.push(`call ${first + at + i}: ${found}`);
    });
  }
  assert.deepEqual(wrong, []);
}

describe("single operations against NumPy and SciPy", { skip: noSciPy }, () => {
  for (const { name, make } of testDevicesAndEmulator())
    test(name, () => {
      useDevice(make());
      check(perProgram(name, 50));
    });
});
