// Counts what a kernel does while it is printed: operations by class, and how often. The numbers price the kernel
// (cost/kernel-cost.ts); they are those of the text, so nothing is guessed about what is kept, repeated or hoisted.

import { classOf, type OpClass } from "../cost/index.js";
import type { UnaryFn } from "../graph/index.js";
import type { KExpr } from "./kernel.js";
import type { LaneItem, LaneProgram } from "./lane.js";

/** Work of a scalar statement beside that of a vector lane: vectors have eight lanes, and scalars less to wait for. */
const scalarWeight = 4;

export class Tally {
  readonly ops: Partial<Record<OpClass, number>> = {};
  rows = 0;

  add(op: OpClass, count: number): void {
    this.ops[op] = (this.ops[op] ?? 0) + count;
  }

  /** An expression that is computed `times` times, as part of a vector or by itself. */
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
      // Neighbours load together; what lies apart is loaded one by one, and where data says so, looked up.
      if (step === null) this.add("lookup", times);
      else if (Math.abs(step) > 1) this.add("strided", times);
      else this.add("simple", 0.5 * count + (expr.guard === null ? 0 : count));
    }
  }
}

/** What all lanes of a program do through all its loops; loads and what is kept between stretches move with the lanes. */
export function tallyLanes(program: LaneProgram): Tally {
  const tally = new Tally();
  const count = (items: readonly LaneItem[], times: number): void => {
    for (const item of items) {
      if (item.kind === "loop") {
        tally.add("simple", item.states.length * item.loop.length * times);
        count(item.items, item.loop.length * times);
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
