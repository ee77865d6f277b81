// Sums over lanes: one lane's contribution to a tensor that adds up what all lanes of some axes have, and carries of loops that are
// only added to.
import { functionOrder, isOp, kindOf, type Node, numel } from "../graph/index.js";
import { Ix, linearize } from "./index-expr.js";
import type { LaneOps, LaneValue } from "./lane-ops.js";
import { type LaneScalar, NotLane, readsLane } from "./lane-scalar.js";
import type { Env, LaneEvaluator } from "./lane-value.js";
import { isView, throughView } from "./views.js";

/** The sums over lanes of one lane program. */
export class LaneSums {
  readonly #evaluator: LaneEvaluator;
  readonly #ops: LaneOps;
  readonly #laneDependent = new Map<LaneScalar, boolean>();

  constructor(evaluator: LaneEvaluator) {
    this.#evaluator = evaluator;
    this.#ops = evaluator.ops;
  }

  /** This lane's contribution to a tensor that is a sum over the lanes of the axes after `laneAxes`. */
  numbers(node: Node, laneAxes: number, env: Env): LaneScalar[] {
    const axes = this.#evaluator.prefix.map((_, i) => i).slice(laneAxes);
    const count = numel(node.shape.slice(laneAxes));
    return Array.from({ length: count }, (_, e) =>
      this.partial(node, this.#evaluator.elementIndex(node.shape, e, laneAxes), axes, env),
    ).flat();
  }

  /** The lane's contribution to a value that is a sum over the lanes of some axes; computed once, because graphs share values. */
  partial(node: Node, index: readonly Ix[], axes: readonly number[], env: Env): LaneValue {
    if (axes.length === 0) return this.#evaluator.value(node, index, env);
    const key = `sum over ${axes.join(",")} of ${node.id}@${index.map((i) => i.key).join(",")}`;
    const cached = env.memo.get(key);
    if (cached !== undefined) return cached;
    const reason = env.refused.get(key);
    if (reason !== undefined) throw reason;
    try {
      const value = this.#partial(node, index, axes, env);
      env.memo.set(key, value);
      return value;
    } catch (error) {
      if (error instanceof NotLane) env.refused.set(key, error);
      throw error;
    }
  }

  #partial(node: Node, index: readonly Ix[], axes: readonly number[], env: Env): LaneValue {
    const share = (x: Node, at: readonly Ix[] = index): LaneValue => this.partial(x, at, axes, env);
    if (isView(node) && !env.bindings.has(node)) {
      const place = throughView(node, index);
      return share(place.node, place.index);
    }
    const { inputs } = node;
    if (isOp(node, "const")) {
      if (node.attrs.value === 0) return this.#ops.constant(0, node.dtype);
    } else if (isOp(node, "unary") && linearUnary.has(node.attrs.fn)) return this.#ops.unary(node, share(inputs[0]));
    else if (isOp(node, "cast") && kindOf(node.dtype) !== "int" && kindOf(node.dtype) !== "bool")
      return this.#ops.cast(share(inputs[0]), inputs[0].dtype, node.dtype);
    else if (isOp(node, "binary")) {
      const { fn } = node.attrs;
      if (fn === "add" || fn === "sub" || fn === "complex")
        return this.#ops.binary(node, share(inputs[0]), share(inputs[1]));
      if (fn === "div") return this.#ops.binary(node, share(inputs[0]), this.#same(inputs[1], index, axes, env));
      if (fn === "mul")
        return this.#either(
          () => this.#ops.binary(node, share(inputs[0]), this.#same(inputs[1], index, axes, env)),
          () => this.#ops.binary(node, this.#same(inputs[0], index, axes, env), share(inputs[1])),
        );
    } else if (isOp(node, "where"))
      return this.#ops.where(this.#same(inputs[0], index, axes, env)[0], share(inputs[1]), share(inputs[2]));
    else if (isOp(node, "pad")) return this.#ops.pad(node, index, (x, at) => share(x, at));
    else if (isOp(node, "concat")) return this.#ops.concat(node, index, (x, at) => share(x, at));
    else if (isOp(node, "reduce") && node.attrs.fn === "sum") return this.#reduce(node, index, axes, env);
    else if (isOp(node, "matmul")) return this.#matmul(node, index, axes, env);
    throw new NotLane(`${node.op} over all lanes`);
  }

  #either(...ways: (() => LaneValue)[]): LaneValue {
    let reason: unknown = null;
    for (const way of ways) {
      try {
        return way();
      } catch (error) {
        if (!(error instanceof NotLane)) throw error;
        reason = error;
      }
    }
    throw reason;
  }

  /** A factor that is uniform over the lanes of some axes. */
  #same(node: Node, index: readonly Ix[], axes: readonly number[], env: Env): LaneValue {
    const value = this.#evaluator.value(node, index, env);
    if (value.some((v) => this.#dependsOnLane(v, axes))) throw new NotLane("a product of two sums over lanes");
    return value;
  }

  #dependsOnLane(s: LaneScalar, axes: readonly number[]): boolean {
    if (axes.length !== this.#evaluator.prefix.length) return s.op !== "const";
    return readsLane(s, this.#laneDependent);
  }

  /** This lane's positions on an axis of `size` that runs over lanes (and possibly a few elements per lane). */
  #lanePositions(size: number, axes: readonly number[]): { positions: Ix[]; left: number[] }[] {
    const found: { positions: Ix[]; left: number[] }[] = [];
    for (let used = axes.length; used > 0; used--) {
      const taken = axes.slice(0, used);
      const sizes = taken.map((a) => this.#evaluator.prefix[a]);
      const total = numel(sizes);
      if (size % total !== 0 || size / total > 64) continue;
      const at = linearize(
        taken.map((a) => this.#evaluator.lane[a]),
        sizes,
      );
      const more = size / total;
      found.push({ positions: Array.from({ length: more }, (_, i) => at.times(more).plus(i)), left: axes.slice(used) });
      if (more > 1)
        found.push({ positions: Array.from({ length: more }, (_, i) => at.plus(i * total)), left: axes.slice(used) });
    }
    return found;
  }

  #reduce(node: Node<"reduce">, index: readonly Ix[], axes: readonly number[], env: Env): LaneValue {
    const [x] = node.inputs;
    const { axes: reduced } = node.attrs;
    const ways = reduced.flatMap((axis) =>
      this.#lanePositions(x.shape[axis], axes).map(({ positions, left }) => (): LaneValue => {
        const others = reduced.filter((a) => a !== axis);
        // Inserts the lane's position at the reduced axis; the other reduced axes are unrolled or belong to other lanes.
        let outer = 0;
        const full = x.shape.map((_, a) => (reduced.includes(a) ? Ix.zero : index[outer++]));
        return this.#ops.sum(
          positions.flatMap((position) => {
            full[axis] = position;
            return this.#overOthers(x, full, others, left, env);
          }),
        );
      }),
    );
    return this.#either(...ways, () =>
      this.#ops.sum(this.#ops.along(x, reduced, index, (operand, at) => this.partial(operand, at, axes, env))),
    );
  }

  #overOthers(x: Node, full: readonly Ix[], others: number[], left: readonly number[], env: Env): LaneValue[] {
    if (others.length === 0) return [this.partial(x, full, left, env)];
    const [axis, ...rest] = others;
    const at = (position: Ix): Ix[] => full.map((ix, a) => (a === axis ? position : ix));
    for (const { positions, left: after } of left.length > 0 ? this.#lanePositions(x.shape[axis], left) : []) {
      try {
        return positions.flatMap((position) => this.#overOthers(x, at(position), rest, after, env));
      } catch (error) {
        if (!(error instanceof NotLane)) throw error;
      }
    }
    if (x.shape[axis] > 4096) throw new NotLane("a long reduction in a lane");
    return Array.from({ length: x.shape[axis] }, (_, i) =>
      this.#overOthers(x, at(Ix.constant(i)), rest, left, env),
    ).flat();
  }

  #matmul(node: Node, index: readonly Ix[], axes: readonly number[], env: Env): LaneValue {
    const [a, b] = node.inputs;
    const rank = node.shape.length;
    const batch = index.slice(0, rank - 2);
    const [row, column] = index.slice(rank - 2);
    const k = a.shape[rank - 1];
    const left = (at: Ix): readonly Ix[] => [...batch, row, at];
    const right = (at: Ix): readonly Ix[] => [...batch, at, column];
    const over = this.#lanePositions(k, axes).map(({ positions, left: after }) => (): LaneValue => {
      if (after.length > 0) throw new NotLane("a product over some lanes");
      return this.#ops.sum(
        positions.map((p) =>
          this.#ops.multiply(this.#evaluator.value(a, left(p), env), this.#evaluator.value(b, right(p), env)),
        ),
      );
    });
    if (k > 4096) return this.#either(...over);
    const places = Array.from({ length: k }, (_, i) => Ix.constant(i));
    return this.#either(
      ...over,
      () =>
        this.#ops.sum(
          places.map((p) =>
            this.#ops.multiply(this.partial(a, left(p), axes, env), this.#same(b, right(p), axes, env)),
          ),
        ),
      () =>
        this.#ops.sum(
          places.map((p) =>
            this.#ops.multiply(this.#same(a, left(p), axes, env), this.partial(b, right(p), axes, env)),
          ),
        ),
    );
  }
}

const linearUnary: ReadonlySet<string> = new Set(["neg", "real", "imag", "conj"]);

const additions = new WeakMap<object, (Node | "unchanged" | null)[]>();

/** The value that each step adds to a carry without other uses; null where the carry has other uses. */
export function accumulated(node: Node<"scan">, c: number): Node | "unchanged" | null {
  const { body, consts, carries } = node.attrs;
  let found = additions.get(body);
  if (found === undefined) {
    found = Array.from({ length: carries }, (_, i) => {
      const param = body.params[consts + i];
      const next = body.outputs[i];
      if (next === param) return "unchanged";
      const uses = functionOrder(body).flatMap((n) => n.inputs.filter((x) => x === param)).length;
      const shown = body.outputs.filter((o) => o === param).length;
      if (uses !== 1 || shown > 0 || !isOp(next, "binary") || next.attrs.fn !== "add") return null;
      const [a, b] = next.inputs;
      if (a === param && b !== param) return b;
      return b === param && a !== param ? a : null;
    });
    additions.set(body, found);
  }
  return found[c];
}
