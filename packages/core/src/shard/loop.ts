// Estimated cost of a loop on a device that holds a shard of it: every step on the local part of each value, or arithmetic
// alone where the loop compiles to a lane kernel with its state in registers (docs/lanes.md).

import {
  arithmetic,
  expectedSteps,
  type Local,
  laneLimits,
  type OpWork,
  opCost,
  type Rates,
  wholeOf,
  workTime,
} from "../cost/index.js";
import { isComplex, isOp, type Node, numel, outputAvals, type Shape } from "../graph/index.js";
import { bodyDimensions, factorsOf } from "../ops/index.js";
import type { Problem } from "./problem.js";

export class Loop {
  readonly inRegisters: boolean;

  constructor(
    readonly node: Node<"scan">,
    readonly body: Problem,
  ) {
    this.inRegisters = this.#isLane();
  }

  /** Seconds of all steps, for the local shapes of the operands and results. */
  seconds(rates: Rates, local: Local): number {
    const shares = this.#shares(local);
    const dimensions = bodyDimensions(this.node);
    const cut = (inner: Node, index: number, shape: Shape): number[] =>
      shape.map((size, axis) => size * (shares[dimensions(inner, index, axis)] ?? 1));
    let seconds = 0;
    for (const { node } of this.body.items) {
      const own: Local = {
        operands: node.inputs.map((input) => cut(...sourceOf(input), input.shape)),
        results: outputAvals(node).map(({ shape }, i) => cut(node, i, shape)),
      };
      const work = this.body.work.get(node)!;
      seconds += this.inRegisters
        ? this.#scalarTime(node, work, own, rates)
        : workTime(node, work, own, rates, (part) => this.body.loopTime(node as Node<"scan">, rates, part));
    }
    return expectedSteps(this.node.attrs) * seconds;
  }

  /** Fraction of each factor of the loop that this device holds. */
  #shares(local: Local): number[] {
    const { factors, inputs, outputs } = factorsOf(this.node);
    const shares = factors.map(() => 1);
    const whole = wholeOf(this.node);
    const note = (maps: typeof inputs, parts: readonly Shape[], all: readonly Shape[]): void =>
      maps.forEach((dims, i) => {
        dims.forEach((map, axis) => {
          if (map === null || all[i][axis] === 0) return;
          shares[map.factor] = Math.min(shares[map.factor], parts[i][axis] / all[i][axis]);
        });
      });
    note(inputs, local.operands, whole.operands);
    note(outputs, local.results, whole.results);
    return shares;
  }

  /** Time of a node of a step whose operands and result are in registers. */
  #scalarTime(node: Node, work: OpWork, local: Local, rates: Rates): number {
    if (isOp(node, "scan")) return this.body.loopTime(node, rates, local);
    if (work.kind === "nothing") return 0;
    const elements = Math.max(numel(local.operands[0] ?? []), numel(local.results[0]));
    if (work.kind !== "matmul") return arithmetic(node, elements, rates);
    const whole = opCost(node).flops;
    return (whole * numel(local.results[0])) / Math.max(1, numel(node.shape)) / rates.simple;
  }

  /** Whether one problem of the batch is small enough for a lane kernel. */
  #isLane(): boolean {
    const { consts, carries } = this.node.attrs;
    const dimensions = bodyDimensions(this.node);
    /** Elements of one problem: dimensions that are split with the loop enumerate problems. */
    const own = (inner: Node, index: number, shape: Shape): number =>
      shape.reduce((n, size, axis) => (dimensions(inner, index, axis) < 0 ? n * size : n), 1);
    const numbers = (inner: Node): number => {
      const [source, index] = sourceOf(inner);
      return own(source, index, inner.shape) * (isComplex(inner.dtype) ? 2 : 1);
    };
    const state = this.node.attrs.body.params
      .slice(consts, consts + carries)
      .reduce((n, param) => n + numbers(param), 0);
    if (state > laneLimits.state || factorsOf(this.node).factors.length === 0) return false;
    let scalars = 0;
    for (const { node } of this.body.items) {
      const { kind } = this.body.work.get(node)!;
      if (kind === "linalg" || kind === "sort") return false;
      if (kind === "nothing") continue;
      const inner = isOp(node, "matmul") ? node.inputs[0].shape[node.inputs[0].shape.length - 1] : 1;
      scalars += numbers(node) * inner;
    }
    return scalars <= laneLimits.scalars;
  }
}

const sourceOf = (node: Node): [Node, number] => (isOp(node, "pick") ? [node.inputs[0], node.attrs.index] : [node, 0]);
