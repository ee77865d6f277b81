// Lifts constants that change from step to step (a learning rate, a time) to parameters of the program. Constants are lifted the second time
// that a graph differs from an earlier one only in them, so that a loop compiles twice and not at every step. Numbers that are arguments of a
// jitted function are lifted at once.
import {
  type DType,
  type GraphFn,
  isInexact,
  type Scalar,
  type Structure,
  scalarKey,
  storedScalar,
} from "../graph/index.js";

interface Seen {
  values: readonly string[];
  /** Positions of constants that were seen to change. */
  varying: Set<number>;
}

/** A number as a constant of a dtype holds it: rounded by float and complex dtypes. */
const inFloat = (x: number, dtype: DType): Scalar => (isInexact(dtype) ? storedScalar(x, dtype) : x);

/** Number of remembered graphs; the oldest is dropped first. */
const maxSeen = 1024;

export class ConstantLifter {
  #seen = new Map<string, Seen>();

  /**
   * The function with its changing constants as further parameters; the function itself where none changed so far. Constants with
   * one of the `likely` values count as changing from the start.
   */
  lift(structure: Structure, likely: readonly number[] = []): GraphFn {
    const { fn, skeleton, constants, values } = structure;
    if (values.length === 0) return fn;
    let seen = this.#seen.get(skeleton);
    if (seen === undefined) {
      this.#seen.set(skeleton, (seen = { values, varying: new Set() }));
      if (this.#seen.size > maxSeen) this.#seen.delete(this.#seen.keys().next().value!);
    }
    const expected = new Map<DType, Set<string>>();
    for (let i = 0; i < values.length; i++) {
      const { dtype } = constants[i];
      if (!expected.has(dtype)) expected.set(dtype, new Set(likely.map((x) => scalarKey(inFloat(x, dtype)))));
      if (values[i] !== seen.values[i] || expected.get(dtype)!.has(values[i])) seen.varying.add(i);
    }
    return seen.varying.size === 0 ? fn : structure.withParameters(seen.varying);
  }
}
