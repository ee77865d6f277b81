// Random programs that move complex numbers about, against NumPy. Results of the first programs are stored, as a hash each;
// WEFT_FUZZ=2000 runs that many against NumPy instead.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../index.js";
import { testPython } from "../testing/python.js";
import { asFunction, type ComplexProgram, programOf } from "./complex-programs.js";
import { testDevices } from "./devices.js";
import { compiled, perProgram } from "./modes.js";

const testdata = fileURLToPath(new URL("../../testdata", import.meta.url));
const [wanted, first] = [Number(process.env.WEFT_FUZZ ?? 0), Number(process.env.WEFT_FUZZ_SEED ?? 0)];

interface Result {
  shape: readonly number[];
  re: number[];
  im: number[];
}

const hash = (results: Result[]): string =>
  createHash("sha256")
    .update(JSON.stringify(results.map(({ shape, re, im }) => [shape, re, im])))
    .digest("hex")
    .slice(0, 16);

/** The programs and the hashes of what NumPy makes of them. */
function expected(): { programs: ComplexProgram[]; hashes: string[] } {
  if (wanted === 0) {
    const { hashes } = JSON.parse(readFileSync(join(testdata, "complex-programs.json"), "utf8")) as {
      hashes: string[];
    };
    return { programs: hashes.map((_, seed) => programOf(seed)), hashes };
  }
  const { python, skip } = testPython("numpy", "complex programs against NumPy");
  assert.equal(skip, false);
  const programs = Array.from({ length: wanted }, (_, i) => programOf(first + i));
  const done = spawnSync(python, [join(testdata, "complex_programs.py")], {
    input: JSON.stringify(programs),
    encoding: "utf8",
    maxBuffer: 2 ** 31,
  });
  assert.equal(done.status, 0, done.stderr);
  return { programs, hashes: (JSON.parse(done.stdout) as Result[][]).map(hash) };
}

function read(t: weft.Tensor): Result {
  const numbers = Array.from(t.dataSync() as ArrayLike<number>, (x) => x + 0);
  if (!t.dtype.startsWith("complex")) return { shape: t.shape, re: numbers, im: numbers.map(() => 0) };
  const part = (k: number): number[] => numbers.filter((_, i) => i % 2 === k);
  return { shape: t.shape, re: part(0), im: part(1) };
}

describe("random programs that move complex numbers, as NumPy runs them", () => {
  for (const device of testDevices())
    test(device.name, () => {
      weft.useDevice(device.make());
      const { programs, hashes } = expected();
      const wrong: string[] = [];
      const together = perProgram(device.name, 20);
      for (let at = 0; at < programs.length; at += together) {
        const batch = programs.slice(at, at + together).map(asFunction);
        const all = compiled((...inputs: weft.Tensor[]) => {
          let next = 0;
          return batch.map(({ inputs: own, fn }) => fn(inputs.slice(next, (next += own.length))));
        });
        const results = all(...batch.flatMap(({ inputs }) => inputs)) as weft.Tensor[][];
        results.forEach((tensors, i) => {
          if (hash(tensors.map(read)) !== hashes[at + i])
            wrong.push(`${programs[at + i].seed} (${programs[at + i].dtype})`);
        });
      }
      assert.deepEqual(wrong, [], "seeds whose results differ from NumPy's");
    });
});
