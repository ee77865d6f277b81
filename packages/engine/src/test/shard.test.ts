// Sharded equals unsharded: every case of the device suites, split over 2, 3 and 8 devices and a 2 x 4 mesh, run side
// by side in one process. Strategies are drawn at random (seeded), so that every way of splitting every op is met.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Node } from "../graph/index.js";
import { ReferenceDevice, useDevice } from "../index.js";
import { factorsOf } from "../ops/index.js";
import { Mesh, Placement, partition, type Strategy } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { cases } from "./cases/index.js";
import { differentiable, gradientFn } from "./derivatives.js";
import { functionOf, jobOf, list, upload } from "./jobs.js";
import { shardedProblems } from "./sharded.js";
import { trace } from "./traced.js";

const meshes: [string, Mesh][] = [
  ["2 devices", Mesh.of({ d: 2 })],
  ["3 devices", Mesh.of({ d: 3 })],
  ["8 devices", Mesh.of({ d: 8 })],
  ["a 2 x 4 mesh", Mesh.of({ batch: 2, model: 4 })],
];

/** A small seeded generator: the same splits on every run. */
function generator(seed: string): (n: number) => number {
  let state = 2166136261;
  for (const c of seed) state = Math.imul(state ^ c.charCodeAt(0), 16777619);
  return (n) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % n;
  };
}

function randomPlacement(mesh: Mesh, shape: readonly number[], draw: (n: number) => number): Placement {
  const by: Record<number, string[]> = {};
  const dims = shape.map((_, i) => i).filter((i) => shape[i] > 1);
  for (const { name } of mesh.axes) {
    if (dims.length === 0 || draw(4) === 0) continue;
    const dim = dims[draw(dims.length)];
    by[dim] = [...(by[dim] ?? []), name];
  }
  return Placement.split(mesh, shape, by);
}

/** Each mesh axis cuts one of the factors, or none, or follows the operands (null). */
function randomStrategy(mesh: Mesh, draw: (n: number) => number): (node: Node) => Strategy | null {
  return (node) => {
    const usable = factorsOf(node)
      .factors.map((_, f) => f)
      .filter((f) => factorsOf(node).factors[f].size > 1);
    if (usable.length === 0 || draw(3) === 0) return null;
    const split: Record<string, number> = {};
    for (const { name } of mesh.axes) if (draw(5) > 0) split[name] = usable[draw(usable.length)];
    return { split, carry: [] };
  };
}

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
            const follow = partition(fn, { mesh, params });
            const random = partition(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
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
          const parts = partition(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
          return shardedProblems(job.name, fn, traced.args, parts, 1000 * job.loose).problems;
        } catch (error) {
          return [`${job.name}: ${(error as Error).stack}`];
        }
      });
      assert.equal(wrong.length, 0, `${wrong.length} mismatches\n${wrong.slice(0, 10).join("\n")}`);
    });
  }
});
