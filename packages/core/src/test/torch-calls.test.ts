// Random calls of functions that PyTorch has too, on every device: results, gradients, and vmap over a batch of one call, in float64.
// WEFT_FUZZ=1000 runs more of them, WEFT_FUZZ_SEED=7 starts elsewhere.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { patient, testPython } from "../testing/python.js";
import { difference, type Result, toleranceOf } from "./compare.js";
import { testDevices } from "./devices.js";
import { type Job, list, runEagerly } from "./jobs.js";
import { runRandom } from "./modes.js";
import { type TorchCall, torchCall } from "./torch-calls.js";

const { python, skip } = testPython("torch", "random calls against PyTorch");
const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
const calls = Array.from({ length: Number(process.env.WEFT_FUZZ ?? 120) }, (_, i) => torchCall(first + i));

type Answer = [shape: number[], numbers: number[]][] | string;
let answers: Answer[] = [];

before(() => {
  if (skip !== false) return;
  const script = fileURLToPath(new URL("../../testdata/torch_calls.py", import.meta.url));
  const input = JSON.stringify(calls.map(({ inputs, torch, grads }) => ({ inputs, torch, grads })));
  const done = spawnSync(python, [script], { ...patient, input, encoding: "utf8", maxBuffer: 1 << 29 });
  assert.equal(done.status, 0, done.stderr.slice(-2000));
  // Python prints NaN and infinities as words that JSON does not have.
  answers = JSON.parse(
    done.stdout.replaceAll(/-?(NaN|Infinity)/g, (word) => `"${word}"`),
    (_, x) => (x === "NaN" ? Number.NaN : x === "Infinity" ? Infinity : x === "-Infinity" ? -Infinity : x),
  ) as Answer[];
});
after(() => void useDevice(new ReferenceDevice()));

const weighted = (x: Tensor): Tensor =>
  x.mul(weft.cos(weft.arange(0, x.size, 1, { dtype: "float64" })).reshape([...x.shape])).sum();

/** Results, and gradients of their weighted sum. */
function withGradients({ fn, grads }: TorchCall): (...inputs: Tensor[]) => Tensor[] {
  return (...inputs) => {
    if (grads.length === 0) return list(fn(...inputs));
    const loss = (...args: Tensor[]): [Tensor, Tensor[]] => {
      const results = list(fn(...args));
      const total = results.filter((r) => r.dtype === "float64").map(weighted);
      return [total.reduce((p, q) => p.add(q)), results];
    };
    const [slopes, results] = weft.grad(loss as never, { argument: grads, hasAux: true })(
      ...(inputs as never[]),
    ) as unknown as [Tensor[], Tensor[]];
    return [...results, ...slopes];
  };
}

const jobOf = (call: TorchCall): Job => ({
  name: call.name,
  dtype: "float64",
  inputs: call.inputs,
  fn: withGradients(call),
  loose: 1,
});

/** The same over a batch of two: the call itself, and the call with half of every number. */
const batchOf = (call: TorchCall): Job => ({
  ...jobOf(call),
  fn: (...inputs) => {
    const batches = inputs.map((x) => weft.stack([x, x.dtype === "float64" ? x.mul(0.5) : x], 0));
    return weft
      .vmap((...args: Tensor[]) => withGradients(call)(...args))(...batches)
      .map((t) => t.index(0));
  },
});

/** What is wrong with the results of a call, or nothing. */
function problems(call: TorchCall, got: Result[] | Error, answer: Answer): string[] {
  const about = `${call.name}: ${call.torch} of ${call.inputs.map(({ shape }) => `[${shape}]`).join(", ")}`;
  if (typeof answer === "string") return [`${about}: PyTorch says ${answer}`];
  if (got instanceof Error) return [`${about}: ${got.message}`];
  return answer.flatMap(([shape, data], i) => {
    if (got[i] === undefined) return [`${about}: no result ${i}`];
    const actual = { ...got[i], dtype: "float64" as const };
    const rtol = 10 * toleranceOf("float64") * (call.loose ?? 1);
    const found = difference(actual, { shape, data, dtype: "float64" }, { rtol });
    return found === null ? [] : [`${about}: result ${i}: ${found}`];
  });
}

describe("random calls as PyTorch runs them", { skip }, () => {
  for (const device of testDevices()) {
    const run = (jobs: Job[]): (Result[] | Error)[] =>
      device.name === "reference" ? jobs.map(runEagerly) : runRandom(jobs, device.name, 20);
    test(`results and gradients on ${device.name}`, () => {
      useDevice(device.make());
      const got = run(calls.map(jobOf));
      assert.deepEqual(
        calls.flatMap((call, i) => problems(call, got[i], answers[i])),
        [],
      );
    });
    if (device.name === "reference")
      test("every third inside vmap", () => {
        useDevice(device.make());
        const chosen = calls.map((call, i) => ({ call, answer: answers[i] })).filter((_, i) => i % 3 === 0);
        const got = run(chosen.map(({ call }) => batchOf(call)));
        assert.deepEqual(
          chosen.flatMap(({ call, answer }, i) => problems(call, got[i], answer)),
          [],
        );
      });
  }
});
