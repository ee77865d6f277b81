// Counts the operations of a kernel by class while it is printed. The counts are those of the generated text, so that cost
// estimates (cost/kernel-cost.ts) need no assumptions about stashed, repeated or hoisted values.

import { classOf, expectedSteps, type OpClass } from "../cost/index.js";
import type { UnaryFn } from "../graph/index.js";
import type { KExpr } from "./kernel.js";
import type { LaneItem, LaneProgram } from "./lane.js";

/** Cost of a scalar statement relative to a vector lane: vectors have eight lanes, and scalars fewer stalls. */
const scalarWeight = 4;

export class Tally {
  readonly ops: Partial<Record<OpClass, number>> = {};
  rows = 0;

  add(op: OpClass, count: number): void {
    this.ops[op] = (this.ops[op] ?? 0) + count;
  }

  /** An expression that is computed `times` times, vectorized or scalar. */
  note(expr: KExpr, times: number, isVector: boolean, stride: (name: "load") => number | null): void {
    const count = isVector ? times : times * scalarWeight;
    if (expr.kind === "unary" || expr.kind === "binary") {
      const [op, each] = classOf(expr.fn, expr.args[0].dtype);
      this.add(op, count * each);
    } else if (expr.kind === "where" || expr.kind === "cast") this.add("simple", count);
    else if (expr.kind === "inRange") this.add("simple", 3 * count);
    else if (expr.kind === "random") this.add(expr.draw === "normal" ? "normal" : "uniform", times);
    else if (expr.kind === "dynamic") this.add("simple", 2 * count);
    else if (expr.kind === "load") {
      const step = isVector ? stride("load") : 1;
      // Contiguous elements load together; strided ones are loaded one by one, and data-dependent ones count as lookups.
      if (step === null) this.add("lookup", times);
      else if (Math.abs(step) > 1) this.add("strided", times);
      else this.add("simple", 0.5 * count + (expr.guard === null ? 0 : count));
    }
  }
}

/** Operations of all lanes of a program through all its loops; loads and values stored between stretches are per lane. */
export function tallyLanes(program: LaneProgram): Tally {
  const tally = new Tally();
  const count = (items: readonly LaneItem[], times: number): void => {
    for (const item of items) {
      if (item.kind === "loop") {
        tally.add("simple", item.states.length * expectedSteps(item.loop) * times);
        count(item.items, expectedSteps(item.loop) * times);
        continue;
      }
      tally.rows += times / 16;
      for (const s of item.scalars) {
        if (s.args.length === 0) tally.add("simple", s.op === "const" ? 0 : 0.5 * times);
        else {
          const [op, each] = classOf(s.op as UnaryFn, s.args[0].dtype);
          // A product and the sum that takes it are one instruction.
          const isJoined = (s.op === "add" || s.op === "sub") && s.args.some((arg) => arg.op === "mul");
          tally.add(op, (isJoined ? 0.5 : 1) * each * times);
        }
      }
      tally.add("simple", 0.5 * (item.stores.length + item.recorded.length) * times);
    }
  };
  count(program.items, program.lanes);
  return tally;
}
