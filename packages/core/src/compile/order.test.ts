// Random graphs of element-wise work, reductions, products, loops and collectives have a schedule with the traits of every device.
// Nothing is compiled. Nodes that are computed together must not need, through others, what they compute: a collective waits for
// those before it, whatever it reads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cudaScheduleOptions } from "../device/cuda/source.js";
import { bareCollective, type GraphFn, isOp, type Node, numel, sameShape } from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { Dice } from "../test/dice.js";
import { memoryKey } from "./memory-key.js";
import { type Schedule, type ScheduleOptions, scheduleFunction } from "./schedule.js";

const devices: Record<string, ScheduleOptions> = {
  cpu: { parallelRows: 16, longReduction: 32768, separateDraws: true },
  cuda: cudaScheduleOptions,
  "short reductions": { parallelRows: 1024, longReduction: 32, splitColumns: 512, columnsInRows: 32, overwrites: true },
};

const collective = (operand: Node, sequence: number): Node =>
  make("collective", [operand], {
    ...bareCollective,
    kind: "allReduce",
    groups: [[0, 1]],
    rank: 0,
    sequence,
    shape: operand.shape,
    dtype: operand.dtype,
  });

/** Three steps of x = x * y + 0.5 by lanes, with x after each step. */
function loop(x: Node, y: Node): Node[] {
  const [c, k] = [x, y].map(({ shape, dtype }) => build.input(shape, dtype));
  const next = build.shift(build.mul(c, k), 0.5);
  const attrs = { body: { params: [k, c], outputs: [next, next] }, consts: 1, carries: 1, length: 3, reverse: false };
  return build.picks(make("scan", [y, x], attrs));
}

function randomGraph(dice: Dice): GraphFn {
  const shape = dice.pick([[8], [4, 6], [128, 16, 64]]);
  const last = shape.length - 1;
  const params = Array.from({ length: 3 }, () => build.input(shape, "float32"));
  const nodes = [...params];
  let sequence = 0;
  const any = (): Node => dice.pick(dice.chance(60) ? nodes.slice(-6) : nodes);
  const grow = (): Node[] => {
    const x = any();
    switch (dice.below(12)) {
      case 0:
      case 1:
        return [collective(x, sequence++)];
      case 2:
        return loop(x, any()).map((y) => (sameShape(y.shape, shape) ? y : build.reduce("sum", y, [0])));
      case 3:
        return [build.unreduce(build.reduce("max", x, [last]), shape, [last])];
      case 4:
        return [build.unreduce(build.reduce("sum", x, [0]), shape, [0])];
      case 5:
        return [build.unary("sin", build.flip(x, [last]))];
      case 6:
        return [build.cumsum(x, last)];
      case 7: {
        const y = build.reshape(x, [shape[0], numel(shape.slice(1))]);
        return [build.reshape(build.matmul(build.matmul(y, build.transpose(y)), y), shape)];
      }
      case 8:
        return [
          build.pad(
            build.sliceAxis(x, last, 1, shape[last]),
            shape.map(() => 0),
            shape.map((_, i) => Number(i === last)),
          ),
        ];
      default:
        return [build.binary(dice.pick(["add", "mul", "max"] as const), x, any())];
    }
  };
  for (let i = 6 + dice.below(30); i > 0; i--) nodes.push(...grow());
  return { params, outputs: nodes.filter((_, i) => i >= params.length && dice.chance(30)).concat(nodes.slice(-1)) };
}

/** Values are read after they were written, and collectives are issued and awaited in their order. */
function check({ fn, steps, locations }: Schedule, name: string): void {
  const written = new Set(fn.params.map((param) => memoryKey(param)));
  const phases = { start: [] as number[], finish: [] as number[] };
  const demand = (node: Node): void =>
    assert.ok(!locations.has(memoryKey(node)) || written.has(memoryKey(node)), `${name}: %${node.id} is read early`);
  for (const step of steps) {
    const kernels = step.kind === "kernel" ? [step.kernel] : step.kind === "batch" ? step.kernels : [];
    for (const kernel of kernels) kernel.buffers.forEach((node, i) => void (kernel.written.has(i) || demand(node)));
    for (const kernel of kernels)
      kernel.buffers.forEach((node, i) => void (kernel.written.has(i) && written.add(memoryKey(node))));
    if (step.kind === "collective") {
      phases[step.phase].push(step.node.attrs.sequence);
      if (step.phase === "finish") written.add(memoryKey(step.node));
    } else if ("node" in step) {
      for (const input of step.node.inputs) if (!isOp(input, "pick")) demand(input);
      (step.node.outputs ?? [step.node]).forEach((_, i) => void written.add(memoryKey(step.node, i)));
      if (step.kind === "library" && step.epilogue !== null)
        step.epilogue.buffers.forEach(
          (node, i) => void (step.epilogue!.written.has(i) && written.add(memoryKey(node))),
        );
    }
  }
  for (const order of Object.values(phases))
    assert.deepEqual(
      order,
      [...order].sort((a, b) => a - b),
      `${name}: the order of collectives`,
    );
}

test("random graphs have a schedule with the traits of every device", () => {
  for (let seed = 0; seed < 150; seed++) {
    const fn = randomGraph(new Dice(seed));
    for (const [device, options] of Object.entries(devices)) {
      const name = `graph ${seed} for ${device}`;
      let plan: Schedule;
      try {
        plan = scheduleFunction(fn, options);
      } catch (error) {
        throw new Error(`${name}: ${(error as Error).message}`, { cause: error });
      }
      check(plan, name);
    }
  }
});

test("a loop does not take in a collective that is issued after one that reads the loop", () => {
  const [x, y] = [build.input([8], "float32"), build.input([8], "float32")];
  const [end] = loop(x, y);
  const fn = { params: [x, y], outputs: [collective(end, 0), build.mul(end, collective(y, 1))] };
  for (const [name, options] of Object.entries(devices)) check(scheduleFunction(fn, options), name);
});
