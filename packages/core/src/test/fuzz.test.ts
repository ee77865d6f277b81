// Random programs on every device against the reference device without simplification: simplified (as the interpreter runs them), compiled,
// and divided over the devices of a random mesh. WEFT_FUZZ=1000 runs more programs, WEFT_FUZZ_SEED=7 uses another seed.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { Mesh, partitionFunction } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { gradientFn } from "./derivatives.js";
import { testDevices } from "./devices.js";
import { inputsFor, kinked, loopInputs, loops, program, smooth } from "./float-programs.js";
import { type Job, list, mismatches, upload } from "./jobs.js";
import { runRandom } from "./modes.js";
import { generator, randomPlacement, randomStrategy } from "./random-split.js";
import { shardedProblems } from "./sharded.js";
import { runAsTraced, trace } from "./traced.js";

const first = Number(process.env.WEFT_FUZZ_SEED ?? 0);
/** Found wrong once: the gradient of a loop of one step, whose states the reverse loop reads. */
const found = process.env.WEFT_FUZZ === undefined ? [10281] : [];
const seeds = [...Array.from({ length: Number(process.env.WEFT_FUZZ ?? 40) }, (_, i) => first + i), ...found];

const jobs = (): Job[] =>
  seeds.flatMap((seed) => {
    const common = { dtype: "float64" as const, inputs: inputsFor(seed), loose: 1e4 };
    const value = program(seed, 6 + (seed % 12), { ...smooth, ...kinked });
    const slope = gradientFn(program(seed, 4 + (seed % 8), smooth), [0, 1, 2]);
    const batch = { ...common, inputs: loopInputs(seed), fn: loops(seed) };
    return [
      { ...batch, name: `loops ${seed}` },
      ...(seed % 2 === 1 ? [{ ...batch, name: `gradient of loops ${seed}`, fn: gradientFn(batch.fn, [0, 1, 2]) }] : []),
      { ...common, name: `program ${seed}`, fn: value },
      ...(seed % 2 === 0 ? [{ ...common, name: `gradient of program ${seed}`, fn: slope }] : []),
    ];
  });

/** Fails unless `run` gives what the programs give as they were traced. */
function check(run: (all: Job[]) => ReturnType<typeof runRandom>): void {
  useDevice(new ReferenceDevice());
  const all = jobs();
  const expected = all.map(runAsTraced);
  assert.deepEqual(
    expected.flatMap((r, i) => (r instanceof Error ? [`${all[i].name}: ${r.stack}`] : [])).slice(0, 3),
    [],
  );
  const actual = run(all);
  const wrong = all.flatMap((job, i) => mismatches(job, actual[i], expected[i]));
  assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 20).join("\n")}`);
}

describe("random programs", () => {
  for (const device of testDevices())
    test(device.name, () =>
      check((all) => {
        useDevice(device.make());
        return runRandom(all, device.name, 12);
      }),
    );

  test("sharded", () => {
    useDevice(new ReferenceDevice());
    const wrong = jobs().flatMap(({ name, inputs, fn: body, loose }) => {
      const { fn: whole, args } = trace((...x) => list(body(...x)), inputs.map(upload));
      const fn = simplify(whole);
      const draw = generator(name);
      const mesh = [Mesh.of({ a: 2 }), Mesh.of({ a: 3 }), Mesh.of({ a: 2, b: 2 })][draw(3)];
      const params = fn.params.map(({ shape }) => randomPlacement(mesh, shape, draw));
      const parts = partitionFunction(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
      return shardedProblems(`${name} on ${mesh}`, fn, args, parts, loose).problems;
    });
    assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 20).join("\n")}`);
  });
});
