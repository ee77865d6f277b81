// Random integer and gather programs on the reference, the CPU and the emulated GPU against NumPy, digit by digit.
// WEFT_FUZZ=1000 runs more of them, WEFT_FUZZ_SEED=7 starts elsewhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import * as weft from "../index.js";
import { CpuDevice, ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { testPython } from "../testing/python.js";
import { testDevicesAndEmulator } from "./devices.js";
import { integerProgram, pythonOf, uploadInteger } from "./integer-programs.js";
import { compiled, perProgram } from "./modes.js";

const { python, skip: noNumPy } = testPython("numpy", "integer programs against NumPy");

const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
const programs = Array.from({ length: Number(process.env.WEFT_FUZZ ?? 60) }, (_, i) => integerProgram(first + i));

type Answer = [shape: number[], digits: string[]];
let answers: Answer[][] = [];

before(() => {
  if (noNumPy !== false) return;
  useDevice(new ReferenceDevice());
  const done = spawnSync(python, ["-"], { input: pythonOf(programs), encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr.slice(-2000));
  answers = JSON.parse(done.stdout) as Answer[][];
});
after(() => void useDevice(new ReferenceDevice()));

const shown = (t: Tensor): Answer => [[...t.shape], Array.from(t.dataSync() as ArrayLike<number | bigint>, String)];

function check(together: number): void {
  const wrong: string[] = [];
  for (let at = 0; at < programs.length; at += together) {
    const group = programs.slice(at, at + together);
    const all = compiled((args: Tensor[][]) => group.map(({ run }, i) => run(args[i])));
    const results = all(group.map(({ inputs }) => inputs.map(uploadInteger))) as Tensor[][];
    results.forEach((tensors, i) => {
      const got = JSON.stringify(tensors.map(shown));
      if (got !== JSON.stringify(answers[at + i])) wrong.push(`program ${first + at + i}`);
    });
  }
  assert.deepEqual(wrong, []);
}

describe("integer programs against NumPy", { skip: noNumPy }, () => {
  for (const { name, make } of testDevicesAndEmulator())
    test(name, () => {
      useDevice(make());
      check(perProgram(name, 10));
    });
});

test("a pad of a flip of a reshaped flip reads every element from its place", {
  skip: CpuDevice.available() ? false : "no C compiler",
}, () => {
  useDevice(new CpuDevice());
  const numbers = Array.from({ length: 12 }, (_, i) => i + 1);
  const program = weft.jit((x: Tensor) =>
    x
      .flip([1])
      .reshape([1, -1])
      .flip([1])
      .pad([
        [0, 0],
        [1, 0],
      ]),
  );
  const got = program(weft.tensor(numbers, { dtype: "int32" }).reshape([3, 4]).realize()).dataSync();
  assert.deepEqual(Array.from(got as Int32Array), [0, 9, 10, 11, 12, 5, 6, 7, 8, 1, 2, 3, 4]);
});

describe("an operand of a library is read through views that undo each other, one of which is a result too", () => {
  const numbers = [
    [5, 10, 4],
    [-4, 127, -2],
    [17, 3, 8],
  ];
  const undone: Record<string, (x: Tensor) => [Tensor, Tensor]> = {
    flips: (x) => [x.flip(0), x.flip(0).flip(0)],
    "flips of both axes": (x) => [x.flip([0, 1]), x.flip([0, 1]).flip(1).flip(0)],
    transposes: (x) => [x.permute([1, 0]), x.permute([1, 0]).permute([1, 0])],
    "a roll and back": (x) => [x.roll(1, 0), x.roll(1, 0).roll(-1, 0)],
  };
  const users: Record<string, (x: Tensor) => Tensor> = {
    sort: (x) => x.sort(0),
    cumsum: (x) => x.cumsum(0),
    scatterAdd: (x) =>
      weft.scatterAdd(
        weft.zeros([3, 3]),
        weft.tensor(
          [
            [2, 0, 2],
            [1, 1, 0],
            [0, 2, 1],
          ],
          { dtype: "int32" },
        ),
        x,
        0,
      ),
    matmul: (x) => x.matmul(x),
    det: (x) => weft.det(x),
  };
  const x = (): Tensor => weft.tensor(numbers);
  for (const { name, make } of testDevicesAndEmulator())
    for (const [views, undo] of Object.entries(undone))
      test(`${name}, ${views}`, () => {
        useDevice(new ReferenceDevice());
        const expected = Object.values(users).map((use) => use(x()).arraySync());
        useDevice(make());
        Object.entries(users).forEach(([user, use], i) => {
          const [seen, result] = compiled((a: Tensor) => {
            const [view, back] = undo(a);
            return [view, use(back)];
          })(x()) as [Tensor, Tensor];
          const got = user === "det" ? Math.round(result.itemSync() as number) : result.arraySync();
          assert.deepEqual(got, user === "det" ? Math.round(expected[i] as number) : expected[i], user);
          assert.equal(seen.shape.length, 2);
        });
      });
});
