// Box constraints of minimization: projection onto the box, and the variables that a step may move.
import { WeftError } from "@weft/core/internal/graph";

/** Lowest and highest value by parameter name; parameters without an entry are free. */
export type Bounds = Readonly<Record<string, readonly [number, number]>>;

/** A box of one interval per entry of the parameter vector. */
export class Box {
  constructor(
    readonly low: Float64Array,
    readonly high: Float64Array,
  ) {}

  /** The box of named parameters, laid out one after the other. */
  static of(bounds: Bounds, names: readonly string[], sizes: readonly number[]): Box {
    for (const [name, [low, high]] of Object.entries(bounds)) {
      if (!names.includes(name))
        throw new WeftError(
          `minimize: bounds name "${name}", which is not a parameter; parameters are ${names.join(", ")}`,
        );
      if (!(low < high)) throw new WeftError(`minimize: the bounds of "${name}" must ascend, got [${low}, ${high}]`);
    }
    const side = (k: 0 | 1, otherwise: number): Float64Array =>
      Float64Array.from(names.flatMap((name, i) => new Array<number>(sizes[i]).fill(bounds[name]?.[k] ?? otherwise)));
    return new Box(side(0, Number.NEGATIVE_INFINITY), side(1, Number.POSITIVE_INFINITY));
  }

  /** The nearest point of the box. */
  project(x: Float64Array): Float64Array {
    return x.map((value, i) => Math.min(Math.max(value, this.low[i]), this.high[i]));
  }

  /** A vector without the entries whose descent would leave the box. */
  free(vector: Float64Array, x: Float64Array, gradient: Float64Array): Float64Array {
    const isHeld = (i: number): boolean =>
      (x[i] <= this.low[i] && gradient[i] > 0) || (x[i] >= this.high[i] && gradient[i] < 0);
    return vector.map((value, i) => (isHeld(i) ? 0 : value));
  }

  /** Step x -> project(x - gradient): zero exactly where the conditions for a minimum in the box hold. */
  projectedGradient(x: Float64Array, gradient: Float64Array): Float64Array {
    const moved = this.project(x.map((value, i) => value - gradient[i]));
    return x.map((value, i) => value - moved[i]);
  }
}
