// Numbers that change from step to step (a learning rate, a time): the second time that a graph differs from an earlier one in
// its constants alone, those that differ become parameters, so that a loop compiles twice and not at every step. Numbers that a
// jitted function is called with become parameters at once.
import { functionOrder, type GraphFn, isOp, type Scalar, skeletonKey } from "../graph/index.js";

interface Seen {
  values: string[];
  /** Positions of constants that were seen to change. */
  varying: Set<number>;
}

/** Number of remembered graphs; the oldest is dropped first. */
const maxSeen = 1024;

const textOf = (value: Scalar): string =>
  typeof value === "number" ? (Object.is(value, -0) ? "-0" : String(value)) : `${textOf(value.re)},${textOf(value.im)}`;

export class ConstantLifter {
  #seen = new Map<string, Seen>();

  /**
   * The function with its changing constants as further parameters; the function itself where none changed so far. Constants with
   * one of the `likely` values count as changing from the start.
   */
  lift(fn: GraphFn, likely: readonly number[] = []): GraphFn {
    const params = new Set(fn.params);
    const constants = functionOrder(fn)
      .filter((node) => isOp(node, "const"))
      .filter((node) => !params.has(node));
    if (constants.length === 0) return fn;
    const key = skeletonKey(fn);
    const values = constants.map((node) => textOf(node.attrs.value));
    let seen = this.#seen.get(key);
    if (seen === undefined) {
      this.#seen.set(key, (seen = { values, varying: new Set() }));
      if (this.#seen.size > maxSeen) this.#seen.delete(this.#seen.keys().next().value!);
    }
    const expected = new Set(likely.map(textOf));
    values.forEach((value, i) => {
      if (value !== seen.values[i] || expected.has(value)) seen.varying.add(i);
    });
    const lifted = constants.filter((_, i) => seen.varying.has(i));
    return lifted.length === 0 ? fn : { params: [...fn.params, ...lifted], outputs: fn.outputs };
  }
}
