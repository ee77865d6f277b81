// Random programs of every kind, divided over the devices of random meshes in random ways, against the same programs undivided. The
// undivided ones are compared with NumPy, PyTorch and plain JavaScript by the suites of their kinds. WEFT_FUZZ=1000 runs more of them,
// WEFT_FUZZ_SEED=7 starts elsewhere.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { Mesh, partitionFunction } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { asFunction, programOf } from "./complex-programs.js";
import { flowProgram, tensors } from "./flow-programs.js";
import { integerProgram, uploadInteger } from "./integer-programs.js";
import { list, upload } from "./jobs.js";
import { generator, randomPlacement, randomStrategy } from "./random-split.js";
import { shardedProblems } from "./sharded.js";
import { torchCall } from "./torch-calls.js";
import { trace } from "./traced.js";

interface Program {
  inputs: Tensor[];
  fn: (...inputs: Tensor[]) => Tensor[];
  loose: number;
}

const f64 = { dtype: "float64" } as const;

/** Gradients of a loop or branch by all inputs, beside its values. */
function flow(seed: number): Program {
  const { inputs, run } = flowProgram(seed);
  const total = (...x: Tensor[]): Tensor => run(tensors, x).reduce((sum, t) => sum.add(t.sum()), weft.zeros([], f64));
  return {
    inputs: inputs.map((numbers) => weft.tensor(numbers, f64)),
    fn: (...x) => [...run(tensors, x), ...(weft.grad(total, { argument: [0, 1, 2] })(...x) as unknown as Tensor[])],
    loose: 1e4,
  };
}

const kinds: Record<string, (seed: number) => Program> = {
  integers: (seed) => {
    const { inputs, run } = integerProgram(seed);
    return { inputs: inputs.map(uploadInteger), fn: (...x) => run(x), loose: 0 };
  },
  "complex numbers": (seed) => {
    const { inputs, fn } = asFunction(programOf(seed));
    return { inputs, fn: (...x) => fn(x), loose: 1 };
  },
  calls: (seed) => {
    const { inputs, fn } = torchCall(seed);
    return { inputs: inputs.map(upload), fn: (...x) => list(fn(...x)), loose: 1e5 };
  },
  "loops and branches": flow,
};

const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
const count = Number(process.env.WEFT_FUZZ ?? 24);
const meshes: Record<string, number>[] = [{ a: 2 }, { a: 3 }, { a: 2, b: 2 }, { a: 8 }];

describe("divided random programs", () => {
  before(() => void useDevice(new ReferenceDevice()));
  for (const [kind, make] of Object.entries(kinds))
    test(kind, () => {
      const wrong: string[] = [];
      for (let seed = first; seed < first + count; seed++) {
        const { inputs, fn: body, loose } = make(seed);
        const { fn: whole, args } = trace(body, inputs);
        const fn = simplify(whole);
        const draw = generator(`${kind} ${seed}`);
        const mesh = Mesh.of(meshes[draw(meshes.length)]);
        const params = fn.params.map(({ shape }) => randomPlacement(mesh, shape, draw));
        try {
          const parts = partitionFunction(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
          wrong.push(...shardedProblems(`${kind} ${seed} on ${mesh}`, fn, args, parts, loose).problems);
        } catch (error) {
          wrong.push(`${kind} ${seed} on ${mesh}: ${(error as Error).stack}`);
        }
      }
      assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 8).join("\n")}`);
    });
});
