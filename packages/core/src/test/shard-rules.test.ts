// Sharding constraints: annotations in the program, rules for named scopes, separate rules for gradients. All of them can be
// ignored and have no effect on one device.
import assert from "node:assert/strict";
import { afterEach, before, describe, test } from "node:test";
import { h200 } from "../cost/index.js";
import { functionOrder, type GraphFn, type Node, range, structuralKey } from "../graph/index.js";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import {
  Mesh,
  Placement,
  type PlannerOptions,
  parseRules,
  partitionFunction,
  planSharding,
  type ShardingPlan,
} from "../shard/index.js";
import { copyGraph, simplify } from "../transform/index.js";
import { shardedProblems } from "./sharded.js";
import { type Traced, trace } from "./traced.js";

before(() => void useDevice(new ReferenceDevice()));
afterEach(() => {
  delete process.env.WEFT_IGNORE_ANNOTATIONS;
});

const planOf = (fn: GraphFn, options: Partial<PlannerOptions> = {}): ShardingPlan =>
  planSharding(fn, { ranks: range(8), rates: h200, params: fn.params.map(() => null), ...options });
const traced = (fn: (...x: Tensor[]) => Tensor[], ...inputs: Tensor[]): Traced => {
  const made = trace(fn, inputs);
  return { fn: simplify(copyGraph(made.fn)), args: made.args };
};
const find = (fn: GraphFn, op: string, which: (node: Node) => boolean = () => true): Node[] =>
  functionOrder(fn).filter((node) => node.op === op && which(node));

function expectEqual({ fn, args }: Traced, p: ShardingPlan): ReturnType<typeof partitionFunction> {
  const parts = partitionFunction(fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });
  assert.deepEqual(shardedProblems("pinned", fn, args, parts, 20).problems, []);
  return parts;
}

describe("sharding annotations in the program", () => {
  const program = (): Traced =>
    traced(
      (x, w) => [weft.shard(weft.matmul(weft.shard(x, { 0: "rows" }), w), { 0: "rows", 1: "columns" })],
      weft.randn([8, 6], { seed: 1 }),
      weft.randn([6, 12], { seed: 2 }),
    );

  test("create the mesh that they name, and are respected however small the problem", () => {
    const t = program();
    const p = planOf(t.fn);
    assert.deepEqual(
      p.mesh.axes.map(({ name }) => name),
      ["rows", "columns"],
    );
    const parts = expectEqual(t, p);
    assert.equal(String(parts.results[0]), "[rows, columns]");
    for (const pin of find(t.fn, "pin")) assert.ok(String(parts.placements.get(pin)![0]).startsWith("[rows"));
  });

  test("can be ignored, when planning and when tracing", () => {
    const t = program();
    assert.equal(planOf(t.fn, { ignoreAnnotations: true }).mesh.size, 1);
    process.env.WEFT_IGNORE_ANNOTATIONS = "1";
    assert.equal(planOf(t.fn).mesh.size, 1);
    assert.equal(find(program().fn, "pin").length, 0);
  });

  test("apply to the gradient, or to another dimension of it if given", () => {
    const loss = (options: object) => (x: Tensor) => weft.shard(x.mul(x), { 0: "a" }, options).square().sum();
    const dims = (options: object): string[][] => {
      const t = traced((x) => [weft.grad(loss(options))(x) as Tensor], weft.ones([4, 4]));
      return find(t.fn, "pin").map((pin) => (pin as Node<"pin">).attrs.dims.map(String));
    };
    assert.deepEqual(dims({}), [
      ["a", ""],
      ["a", ""],
    ]);
    assert.deepEqual(dims({ backward: { 1: "a" } }), [
      ["a", ""],
      ["", "a"],
    ]);
  });

  test("are batched, differentiated, and rejected where they are invalid", () => {
    const x = weft.arange(6).reshape([2, 3]);
    const mapped = weft.vmap((row: Tensor) => weft.shard(row, { 0: "a" }).mul(2))(x);
    assert.deepEqual([...mapped.dataSync()], [0, 2, 4, 6, 8, 10]);
    assert.throws(() => weft.shard(x, { 2: "a" }), /no dimension 2 in a tensor of 2/);
    assert.throws(() => weft.shard(x, { 0: "a", 1: "a" }), /names one twice/);
    assert.equal(String(weft.shard(x, { "-1": "a" }).shape), "2,3");
  });
});

describe("rules for named scopes", () => {
  const model = (): Traced =>
    traced(
      (x, a, b) => {
        const loss = (first: Tensor): Tensor => {
          const hidden = weft.named("encoder", () => weft.named("0", () => weft.relu(weft.matmul(x, first))));
          return weft.named("head", () => weft.matmul(hidden, b)).sum();
        };
        return weft.valueAndGrad(loss)(a) as Tensor[];
      },
      weft.randn([8, 4], { seed: 1 }),
      weft.randn([4, 16], { seed: 2 }),
      weft.randn([16, 3], { seed: 3 }),
    );
  const inPart = (name: string, backward: boolean) => (node: Node) =>
    node.scope?.name === name && node.scope.backward === backward;

  test("scope names survive simplification and copies, and gradients carry them with a marker", () => {
    const { fn } = model();
    assert.equal(find(fn, "matmul", inPart("encoder.0", false)).length, 1);
    assert.equal(find(fn, "matmul", inPart("head", false)).length, 1);
    assert.ok(find(fn, "matmul", inPart("encoder.0", true)).length >= 1);
    const plain = (name: string): string => {
      const t = traced((x) => [weft.named(name, () => x.mul(x))], weft.ones([2]));
      return structuralKey(t.fn);
    };
    assert.equal(plain("a"), plain("a"));
    assert.notEqual(plain("a"), plain("b"));
  });

  test("split what their scope computes, forward and backward by separate rules", () => {
    const t = model();
    const rules = parseRules({
      scopes: { encoder: { shard: { axis: 0 }, backward: { axis: 1 } }, head: { shard: { axis: null } } },
    });
    const p = planOf(t.fn, { rules });
    const parts = expectEqual(t, p);
    const placed = (node: Node): string => String(parts.placements.get(node)![0]);
    assert.deepEqual(find(t.fn, "matmul", inPart("encoder.0", false)).map(placed), ["[d, -]"]);
    assert.deepEqual(find(t.fn, "matmul", inPart("head", false)).map(placed), ["[-, -]"]);
    for (const node of find(t.fn, "matmul", inPart("encoder.0", true))) assert.equal(placed(node), "[-, d]");
  });

  test("nest: the nearest scope counts; devices and mesh axes can be named", () => {
    const t = model();
    const rules = parseRules({
      scopes: { encoder: { shard: { axis: 0 }, scopes: { 0: { shard: { axis: -1, mesh: "wide", devices: 4 } } } } },
    });
    const p = planOf(t.fn, { rules });
    assert.equal(String(p.mesh), "wide=4");
    const parts = expectEqual(t, p);
    const [node] = find(t.fn, "matmul", inPart("encoder.0", false));
    assert.equal(String(parts.placements.get(node)![0]), "[-, wide]");
    assert.equal(planOf(t.fn, { rules, ignoreAnnotations: true }).mesh.size, 1);
  });

  test("invalid rules are rejected by name", () => {
    assert.throws(() => parseRules({}), /give \{ scopes/);
    assert.throws(() => parseRules({ scopes: { a: { shards: {} } } }), /scope a: "shards" is not one of/);
    assert.throws(() => parseRules({ scopes: { a: { shard: { axis: "x" } } } }), /scope a.shard.axis: a whole number/);
    assert.throws(
      () => parseRules({ scopes: { a: { shard: { axis: 0, devices: 0 } } } }),
      /devices: a whole number > 0/,
    );
    assert.throws(() => weft.named("a b", () => 1), /a name has letters/);
  });
});

test("debug.sharding draws which device holds which part", () => {
  const x = weft.ones([4, 2]);
  assert.equal(weft.debug.sharding(x), "[4, 2] is whole on reference");
  const mesh = Mesh.of({ d: 2 });
  const device = new (class extends ReferenceDevice {
    placement(): Placement {
      return Placement.split(mesh, [4, 2], { 0: "d" });
    }
  })();
  useDevice(device);
  const drawn = weft.debug.sharding(weft.ones([4, 2]));
  useDevice(new ReferenceDevice());
  assert.match(drawn, /\[4, 2\] as \[d, -\] on 2 devices/);
  assert.match(drawn, /0\.\.1 \| 0/);
});
