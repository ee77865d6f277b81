// Sharded equals unsharded: every case of the device suites, split over 2, 3 and 8 devices and a 2 x 4 mesh, in one process.
// Strategies are random (seeded), so that every split of every op is covered.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ReferenceDevice, useDevice } from "../index.js";
import { Mesh, partitionFunction } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { cases } from "./cases/index.js";
import { differentiable, gradientFn } from "./derivatives.js";
import { functionOf, jobOf, list, upload } from "./jobs.js";
import { generator, randomPlacement, randomStrategy } from "./random-split.js";
import { shardedProblems } from "./sharded.js";
import { trace } from "./traced.js";

const meshes: [string, Mesh][] = [
  ["2 devices", Mesh.of({ d: 2 })],
  ["3 devices", Mesh.of({ d: 3 })],
  ["8 devices", Mesh.of({ d: 8 })],
  ["a 2 x 4 mesh", Mesh.of({ batch: 2, model: 4 })],
];

const groups = new Map<string, { item: (typeof cases)[number]; index: number }[]>();
cases.forEach((item, index) => {
  const key = functionOf(item.name);
  groups.set(key, [...(groups.get(key) ?? []), { item, index }]);
});

for (const [where, mesh] of meshes) {
  describe(`every op over ${where}`, () => {
    for (const [name, items] of groups) {
      test(name, () => {
        useDevice(new ReferenceDevice());
        const wrong = items.flatMap(({ item, index }) => {
          const dtype = item.dtypes[index % item.dtypes.length];
          const job = jobOf(item, dtype);
          const traced = trace((...x) => list(job.fn(...x)), job.inputs.map(upload));
          const fn = simplify(traced.fn);
          const draw = generator(`${job.name} ${where}`);
          const params = fn.params.map((param) => randomPlacement(mesh, param.shape, draw));
          const label = `${job.name} on ${where}`;
          try {
            const follow = partitionFunction(fn, { mesh, params });
            const random = partitionFunction(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
            return [
              ...shardedProblems(`${label}, following`, fn, traced.args, follow, job.loose).problems,
              ...shardedProblems(`${label}, at random`, fn, traced.args, random, job.loose).problems,
            ];
          } catch (error) {
            return [`${label}: ${(error as Error).stack}`];
          }
        });
        assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 10).join("\n")}`);
      });
    }
  });
}

/** The gradients of a case in double precision as one function of its inputs. */
function gradientJob(item: (typeof cases)[number]): ReturnType<typeof jobOf> | null {
  const dtype = item.dtypes.find((d) => d === "float64" || d === "complex128");
  if (dtype === undefined || item.grad === false) return null;
  const job = jobOf(item, dtype);
  const wrt = differentiable(job.inputs, item.grad);
  return { ...job, name: `gradient of ${job.name}`, fn: gradientFn(job.fn, wrt) };
}

describe("every gradient over 3 devices", () => {
  const mesh = Mesh.of({ d: 3 });
  for (const [name, items] of groups) {
    const jobs = items.flatMap(({ item }) => gradientJob(item) ?? []);
    if (jobs.length === 0) continue;
    test(name, () => {
      useDevice(new ReferenceDevice());
      const wrong = jobs.flatMap((job) => {
        const traced = trace((...x) => list(job.fn(...x)), job.inputs.map(upload));
        const fn = simplify(traced.fn);
        const draw = generator(job.name);
        const params = fn.params.map((param) => randomPlacement(mesh, param.shape, draw));
        try {
          const parts = partitionFunction(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
          return shardedProblems(job.name, fn, traced.args, parts, 1000 * job.loose).problems;
        } catch (error) {
          return [`${job.name}: ${(error as Error).stack}`];
        }
      });
      assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 10).join("\n")}`);
    });
  }
});
