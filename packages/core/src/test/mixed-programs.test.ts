// Random programs of mixed dtypes and shapes of every kind on the reference, the CPU and the emulated GPU against NumPy, exactly: dtypes,
// shapes and values, called twice with other numbers, inside vmap along random axes, and with donated arguments. WEFT_FUZZ=1000 runs
// more of them, WEFT_FUZZ_SEED=7 starts elsewhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { testPython } from "../testing/python.js";
import { testDevicesAndEmulator } from "./devices.js";
import { Dice } from "./dice.js";
import { type MixedInput, type MixedProgram, mixedProgram, pythonOf, uploadMixed } from "./mixed-programs.js";
import { compiled, perProgram } from "./modes.js";

const { python, skip: noNumPy } = testPython("numpy", "mixed programs against NumPy");
const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
const programs = Array.from({ length: Number(process.env.WEFT_FUZZ ?? 60) }, (_, i) => mixedProgram(first + i));
const prologue = readFileSync(new URL("../../testdata/mixed_programs.py", import.meta.url), "utf8");

type Answer = [dtype: string, shape: number[], numbers: string[]];
/** By program, call and result. */
let answers: Answer[][][] = [];

before(() => {
  if (noNumPy !== false) return;
  useDevice(new ReferenceDevice());
  const source = programs.map((program, i) => pythonOf(program, `f${i}`, program.inputs)).join("\n");
  const input = `${prologue}\n${source}\nprint(json.dumps(results))\n`;
  const done = spawnSync(python, ["-"], { input, encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr.slice(-2000));
  answers = JSON.parse(done.stdout) as Answer[][][];
});
after(() => void useDevice(new ReferenceDevice()));

const text = (x: number): string =>
  Number.isNaN(x) ? "nan" : x === Infinity ? "inf" : x === -Infinity ? "-inf" : String(x + 0);
const shown = (t: Tensor): string =>
  JSON.stringify([t.dtype, t.shape, Array.from(t.dataSync() as ArrayLike<number | bigint>, (x) => text(Number(x)))]);
const wanted = ([dtype, shape, numbers]: Answer): string =>
  JSON.stringify([dtype, shape, numbers.map((x) => text(x === "nan" ? NaN : Number(x.replace("inf", "Infinity"))))]);

type Call = (program: MixedProgram, args: Tensor[]) => Tensor[];

/** Both sets of arguments as one batch, along a random axis of each argument; the results of the two members. */
function mapped(program: MixedProgram, sets: readonly Tensor[][], dice: Dice): Tensor[][] {
  const inAxes = sets[0].map(({ rank }) => dice.below(rank + 1));
  const batch = sets[0].map((x, i) => weft.stack([x, sets[1][i]], inAxes[i]));
  const results = weft.vmap((...args: Tensor[]) => program.run(args), { inAxes })(...batch);
  return [0, 1].map((i) => results.map((t) => t.take(weft.tensor([i], { dtype: "int32" }), 0).squeeze(0)));
}

/** Names of the programs whose results differ from NumPy's. */
function mismatches(together: number, donate: boolean): string[] {
  const wrong: string[] = [];
  for (let at = 0; at < programs.length; at += together) {
    const group = programs.slice(at, at + together);
    const note = (i: number, call: number, got: Tensor[], how: string): void => {
      const expected = answers[at + i][call].map(wanted);
      got.forEach((t, k) => {
        const have = shown(t);
        if (have !== expected[k])
          wrong.push(`program ${first + at + i}, call ${call}, result ${k}, ${how}: ${have} instead of ${expected[k]}`);
      });
    };
    const upload = (call: 0 | 1): Tensor[][] =>
      group.map(({ inputs }) => inputs[call].map((x: MixedInput) => uploadMixed(x)));
    const run: Call = ({ run: body }, args) => body(args);
    const all = compiled(
      (args: Tensor[][]) => group.map((program, i) => run(program, args[i])),
      donate ? { donate: [0] } : {},
    );
    for (const call of [0, 1] as const)
      for (const [i, got] of all(upload(call)).entries()) note(i, call, got, "called");
    const dice = new Dice(first + at);
    const both = compiled((a: Tensor[][], b: Tensor[][]) =>
      group.map((program, i) => mapped(program, [a[i], b[i]], dice)),
    );
    both(upload(0), upload(1)).forEach((members, i) => {
      members.forEach((got, call) => {
        note(i, call, got, "mapped");
      });
    });
  }
  return wrong;
}

describe("programs of mixed dtypes against NumPy", { skip: noNumPy }, () => {
  for (const { name, make } of testDevicesAndEmulator())
    test(name, () => {
      useDevice(make());
      const wrong = mismatches(perProgram(name, 12), first % 2 === 1);
      assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 12).join("\n")}`);
    });
});
