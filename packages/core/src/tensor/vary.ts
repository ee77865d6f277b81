// Sizes that change from call to call of a jitted function: the options that declare them, the sizes of buckets, and the padded
// program that calls of one bucket share.
import { type GraphFn, InternalError, type Shape, showValue, structuralKey, WeftError } from "../graph/index.js";
import { UnpaddableError } from "../ops/index.js";
import { type PaddedFunction, padFunction } from "../transform/index.js";
import type { Tensor } from "./tensor.js";
import { treeLeaves } from "./tree.js";

/**
 * Which sizes of the arguments change: a list of positions of arguments whose leading axis changes, or an object from
 * positions to an axis or several. For an argument that is a tree, they are the axes of all its tensors.
 *
 * @inline
 */
export type VaryingAxes = readonly number[] | Readonly<Record<number, number | readonly number[]>>;

/** Sizes that programs are compiled for: a list, or a function that rounds a size up. @inline */
export type Buckets = readonly number[] | ((size: number) => number);

const powerOfTwo = (size: number): number => 2 ** Math.ceil(Math.log2(size));

function bucketFunction(buckets: Buckets | undefined): (size: number) => number {
  if (buckets === undefined) return powerOfTwo;
  if (typeof buckets === "function") {
    return (size) => {
      const rounded = buckets(size);
      if (!Number.isSafeInteger(rounded) || rounded < size)
        throw new WeftError(`jit: buckets(${size}) is ${rounded}; it must be a whole number of at least ${size}`);
      return rounded;
    };
  }
  if (!Array.isArray(buckets))
    throw new WeftError(`jit: buckets are a list of sizes or a function, got ${showValue(buckets)}`);
  const bad = buckets.find((size) => !Number.isSafeInteger(size) || size < 1);
  if (bad !== undefined) throw new WeftError(`jit: buckets has ${bad}; sizes are whole numbers of at least 1`);
  const sorted = [...buckets].sort((a: number, b: number) => a - b);
  // Larger sizes are not padded.
  return (size) => sorted.find((bucket) => bucket >= size) ?? size;
}

function axesByArgument(vary: VaryingAxes): Map<number, readonly number[]> {
  if (typeof vary !== "object" || vary === null)
    throw new WeftError(`jit: vary is a list of arguments, or an object from arguments to axes, got ${String(vary)}`);
  const entries: [unknown, unknown][] = Array.isArray(vary) ? vary.map((at) => [at, 0]) : Object.entries(vary);
  return new Map(
    entries.map(([position, axes]) => {
      const list = Array.isArray(axes) ? (axes as unknown[]) : [axes];
      const at = Number(position);
      if (!Number.isInteger(at) || at < 0)
        throw new WeftError(`jit: vary names the argument ${String(position)}; give positions of arguments, from 0`);
      const bad = list.find((axis) => !Number.isInteger(axis));
      if (bad !== undefined || list.length === 0)
        throw new WeftError(`jit: vary gives ${String(axes)} for argument ${at}; give an axis or a list of axes`);
      return [at, list as number[]];
    }),
  );
}

/** Shapes of the arguments of a call, and those of its bucket. */
interface BucketShapes {
  /** Sizes of the bucket. */
  readonly bucket: readonly Shape[];
  /** Other sizes of the same bucket, which show what depends on them. */
  readonly probe: readonly Shape[];
}

/** The declared axes of a function and its buckets. */
export class VaryingSizes {
  readonly #axes: Map<number, readonly number[]>;
  readonly #bucketOf: (size: number) => number;

  constructor(vary: VaryingAxes, buckets: Buckets | undefined) {
    this.#axes = axesByArgument(vary);
    this.#bucketOf = bucketFunction(buckets);
  }

  /** The bucket of a call; null if its sizes are compiled as they are, because they share a program with no other ones. */
  shapes(args: readonly unknown[]): BucketShapes | null {
    let isShared = true;
    let hasProbe = false;
    const bucket: Shape[] = [];
    const probe: Shape[] = [];
    args.forEach((arg, position) => {
      const axes = this.#axes.get(position) ?? [];
      for (const leaf of treeLeaves(arg)) {
        const [full, other] = [[...leaf.shape], [...leaf.shape]];
        for (const axis of axes) {
          const at = this.#axisOf(leaf, axis, position);
          const size = leaf.shape[at];
          // Axes of size 0 and 1 have rules of their own: broadcasting, empty sums.
          if (size < 2) isShared = false;
          else {
            full[at] = this.#bucketOf(size);
            const below = full[at] - 1;
            if (size < full[at]) hasProbe = true;
            else if (below >= 2 && this.#bucketOf(below) === full[at]) {
              other[at] = below;
              hasProbe = true;
            }
          }
        }
        bucket.push(full);
        probe.push(other);
      }
    });
    return isShared && hasProbe ? { bucket, probe } : null;
  }

  #axisOf(leaf: Tensor, axis: number, position: number): number {
    const rank = leaf.shape.length;
    const at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank)
      throw new WeftError(
        `jit: vary names axis ${axis} of argument ${position}, which has a tensor of shape [${leaf.shape.join(", ")}]`,
      );
    return at;
  }
}

/** The program of a bucket: its traces so far that differ in what they show. */
export class Bucket {
  readonly #traces: GraphFn[];
  #key: string | null = null;
  /** Why calls of this bucket are compiled for their own shapes; null if they share a program. */
  exact: string | null = null;

  constructor(bucket: GraphFn, probe: GraphFn) {
    this.#traces = [bucket, probe];
  }

  /** The function for a call, equal to that of earlier calls unless this one shows that more depends on the size. */
  pad(call: GraphFn): PaddedFunction | null {
    if (this.exact !== null) return null;
    try {
      const padded = padFunction([...this.#traces, call]);
      const key = structuralKey(padded.fn);
      if (key !== this.#key && this.#key !== null) this.#traces.push(call);
      this.#key = key;
      return padded;
    } catch (error) {
      // A graph that cannot be built is no reason to fail: the call has a program of its own.
      if (!(error instanceof UnpaddableError || error instanceof InternalError)) throw error;
      this.exact = error.message;
      return null;
    }
  }
}
