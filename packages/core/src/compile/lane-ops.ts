// Semantics of each op for one lane: the value of a node at an index as scalars of the pool. A complex number is two
// scalars. How operands are found (parameters, loops, memory) is up to the caller.
import {
  type DType,
  isComplex,
  isOp,
  kindOf,
  type Node,
  numel,
  realOf,
  type Scalar,
  unaryFns,
} from "../graph/index.js";
import { delinearize, Ix } from "./index-expr.js";
import { drawNumber } from "./kernel.js";
import { type LaneScalar, NotLane, type ScalarPool } from "./lane-scalar.js";

/** One scalar, or two for a complex number. */
export type LaneValue = readonly LaneScalar[];

/** Returns the value of an operand at an index. */
export type Lookup = (node: Node, index: readonly Ix[]) => LaneValue;

/** Maximum number of elements that one reduction, selection or sum may unroll to. */
const maxUnrolled = 4096;
const laneUnary: ReadonlySet<string> = new Set(unaryFns);

export class LaneOps {
  constructor(readonly pool: ScalarPool) {}

  constant(value: Scalar, dtype: DType): LaneValue {
    const { re, im } = typeof value === "number" ? { re: value, im: 0 } : value;
    const real = realOf(dtype);
    const { pool } = this;
    return isComplex(dtype) ? [pool.constant(re, real), pool.constant(im, real)] : [pool.constant(re, real)];
  }

  /** An index as a number. */
  position(ix: Ix, dtype: DType, loopOf: (ix: Ix) => LaneScalar["loop"]): LaneValue {
    const real = realOf(dtype);
    const at = ix.isConstant
      ? this.pool.constant(ix.constant, real)
      : this.pool.make("lane", real, [], { address: ix, loop: loopOf(ix) });
    return isComplex(dtype) ? [at, this.pool.constant(0, real)] : [at];
  }

  multiply(x: LaneValue, y: LaneValue): LaneValue {
    const { pool } = this;
    if (x.length === 1) return [pool.mul(x[0], y[0])];
    return [pool.sub(pool.mul(x[0], y[0]), pool.mul(x[1], y[1])), pool.add(pool.mul(x[0], y[1]), pool.mul(x[1], y[0]))];
  }

  sum(values: readonly LaneValue[]): LaneValue {
    return values.reduce((total, v) => total.map((t, i) => this.pool.add(t, v[i])));
  }

  unary(node: Node<"unary">, x: LaneValue): LaneValue {
    const { fn } = node.attrs;
    const { dtype } = node.inputs[0];
    const { pool } = this;
    if (!isComplex(dtype)) {
      if (fn === "neg") return [pool.neg(x[0])];
      if (fn === "real" || fn === "conj") return x;
      if (fn === "imag") return [pool.constant(0, dtype)];
      if (!laneUnary.has(fn)) throw new NotLane(`${fn} in a lane`);
      return [this.#call(fn, node.dtype, x[0])];
    }
    const [re, im] = x;
    const real = realOf(dtype);
    switch (fn) {
      case "neg":
        return [pool.neg(re), pool.neg(im)];
      case "conj":
        return [re, pool.neg(im)];
      case "real":
        return [re];
      case "imag":
        return [im];
      case "abs":
        return [pool.is(im, 0) ? this.#call("abs", real, re) : pool.make("hypot", real, [re, im])];
      case "exp": {
        if (pool.is(im, 0)) return [this.#call("exp", real, re), im];
        const [c, s] = [this.#call("cos", real, im), this.#call("sin", real, im)];
        const size = this.#call("exp", real, re);
        return pool.is(re, 0) ? [c, s] : [pool.mul(size, c), pool.mul(size, s)];
      }
      case "reciprocal":
        return this.#quotient([pool.constant(1, real), pool.constant(0, real)], x, real);
      default:
        return this.#complexFunction(fn, re, im, real);
    }
  }

  /** Complex functions by real ones, as in the devices' preludes. */
  #complexFunction(fn: string, re: LaneScalar, im: LaneScalar, real: DType): LaneValue {
    const { pool } = this;
    const call = (name: string, x: LaneScalar): LaneScalar => this.#call(name, real, x);
    const size = (): LaneScalar => pool.make("hypot", real, [re, im]);
    const zero = pool.constant(0, real);
    const choose = (test: LaneScalar, a: LaneScalar, b: LaneScalar): LaneScalar => this.where(test, [a], [b])[0];
    const turned = (a: string, b: string, x: LaneScalar, y: LaneScalar): LaneScalar => pool.mul(call(a, x), call(b, y));
    switch (fn) {
      case "sign": {
        const h = size();
        const isZero = pool.make("eq", "bool", [h, zero]);
        return [re, im].map((x) => choose(isZero, zero, pool.div(x, h)));
      }
      case "log":
        return [call("log", size()), pool.make("atan2", real, [im, re])];
      case "sqrt": {
        const x = call("sqrt", pool.mul(pool.add(size(), call("abs", re)), pool.constant(0.5, real)));
        const y = choose(
          pool.make("eq", "bool", [x, zero]),
          zero,
          pool.div(call("abs", im), pool.mul(x, pool.constant(2, real))),
        );
        const right = pool.make("le", "bool", [zero, re]);
        const height = choose(right, y, x);
        return [choose(right, x, y), choose(pool.make("lt", "bool", [im, zero]), pool.neg(height), height)];
      }
      case "sin":
        return [turned("sin", "cosh", re, im), turned("cos", "sinh", re, im)];
      case "cos":
        return [turned("cos", "cosh", re, im), pool.neg(turned("sin", "sinh", re, im))];
      case "sinh":
        return [turned("sinh", "cos", re, im), turned("cosh", "sin", re, im)];
      case "cosh":
        return [turned("cosh", "cos", re, im), turned("sinh", "sin", re, im)];
      default:
        throw new NotLane(`complex ${fn} in a lane`);
    }
  }

  /** A function of one real number; odd and even functions propagate signs. */
  #call(fn: string, dtype: DType, x: LaneScalar): LaneScalar {
    const { pool } = this;
    if (fn === "neg") return pool.neg(x);
    if (x.op === "neg" && (fn === "sin" || fn === "tanh" || fn === "erf" || fn === "reciprocal"))
      return pool.neg(this.#call(fn, dtype, x.args[0]));
    if (x.op === "neg" && (fn === "cos" || fn === "abs")) return this.#call(fn, dtype, x.args[0]);
    if (x.op === "const" && kindOf(dtype) === "float") {
      const rule = foldable[fn];
      const value = rule?.(x.value);
      if (value !== undefined && Number.isFinite(value))
        return pool.constant(dtype === "float32" ? Math.fround(value) : value, dtype);
    }
    return pool.make(fn, dtype, [x]);
  }

  binary(node: Node<"binary">, a: LaneValue, b: LaneValue): LaneValue {
    const { fn } = node.attrs;
    const { dtype } = node.inputs[0];
    const { pool } = this;
    if (fn === "complex") return [a[0], b[0]];
    if (fn === "add") return a.map((x, i) => pool.add(x, b[i]));
    if (fn === "sub") return a.map((x, i) => pool.sub(x, b[i]));
    if (fn === "mul") return this.multiply(a, b);
    if (!isComplex(dtype)) {
      if (fn === "div") return [pool.div(a[0], b[0])];
      const folded = a[0].op === "const" && b[0].op === "const" ? compared[fn]?.(a[0].value, b[0].value) : undefined;
      return [folded === undefined ? pool.make(fn, node.dtype, [a[0], b[0]]) : pool.constant(folded, node.dtype)];
    }
    const real = realOf(dtype);
    if (fn === "div") return pool.is(b[1], 0) ? a.map((x) => pool.div(x, b[0])) : this.#quotient(a, b, real);
    throw new NotLane(`complex ${fn} in a lane`);
  }

  /** A complex quotient by the prelude's function, once for each part; the compiler merges the common part. */
  #quotient(a: LaneValue, b: LaneValue, real: DType): LaneValue {
    return ["quotient_re", "quotient_im"].map((op) => this.pool.make(op, real, [...a, ...b]));
  }

  where(test: LaneScalar, a: LaneValue, b: LaneValue): LaneValue {
    if (test.op === "const") return test.value !== 0 ? a : b;
    return a.map((x, i) => (x === b[i] ? x : this.pool.make("where", x.dtype, [test, x, b[i]])));
  }

  cast(x: LaneValue, from: DType, to: DType): LaneValue {
    const real = realOf(to);
    const one = (v: LaneScalar): LaneScalar => {
      if (v.dtype === real) return v;
      if (v.op === "const" && kindOf(to) !== "bool") {
        const value = kindOf(real) === "int" ? Math.trunc(v.value) : v.value;
        return this.pool.constant(real === "float32" ? Math.fround(value) : value, real);
      }
      return this.pool.make("cast", real, [v]);
    };
    if (to === "bool" && isComplex(from)) throw new NotLane("complex to bool in a lane");
    if (isComplex(to)) return [one(x[0]), x.length === 2 ? one(x[1]) : this.pool.constant(0, real)];
    return [one(x[0])];
  }

  matmul(node: Node, index: readonly Ix[], value: Lookup): LaneValue {
    const [a, b] = node.inputs;
    const rank = node.shape.length;
    const batch = index.slice(0, rank - 2);
    const [row, column] = index.slice(rank - 2);
    const terms: LaneValue[] = [];
    for (let k = 0; k < a.shape[rank - 1]; k++) {
      const at = Ix.constant(k);
      terms.push(this.multiply(value(a, [...batch, row, at]), value(b, [...batch, at, column])));
    }
    return this.sum(terms);
  }

  /** The values along the reduced axes, in order. */
  along(x: Node, axes: readonly number[], index: readonly Ix[], value: Lookup): LaneValue[] {
    const sizes = axes.map((a) => x.shape[a]);
    if (numel(sizes) > maxUnrolled) throw new NotLane("a long reduction in a lane");
    return Array.from({ length: numel(sizes) }, (_, i) => {
      const inside = delinearize(Ix.constant(i), sizes);
      let outer = 0;
      const at = x.shape.map((_d, axis) => (axes.includes(axis) ? inside[axes.indexOf(axis)] : index[outer++]));
      return value(x, at);
    });
  }

  reduce(node: Node<"reduce">, index: readonly Ix[], value: Lookup): LaneValue {
    const { fn, axes } = node.attrs;
    const values = this.along(node.inputs[0], axes, index, value);
    if (fn === "sum") return this.sum(values);
    if (fn === "prod") return values.reduce((p, v) => this.multiply(p, v));
    return values.reduce((m, v) => [this.pool.make(fn, node.dtype, [m[0], v[0]])]);
  }

  argreduce(node: Node<"argreduce">, index: readonly Ix[], value: Lookup): LaneValue {
    const { fn, axis } = node.attrs;
    const values = this.along(node.inputs[0], [axis], index, value).map((v) => v[0]);
    const { pool } = this;
    let best = values[0];
    let at = pool.constant(0, "int32");
    values.slice(1).forEach((v, i) => {
      const further = fn === "argmax" ? pool.make("lt", "bool", [best, v]) : pool.make("lt", "bool", [v, best]);
      // The first NaN wins over every number.
      const isNaN = (x: LaneScalar): LaneScalar => pool.make("ne", "bool", [x, x]);
      const first = pool.make("and", "bool", [isNaN(v), pool.make("eq", "bool", [best, best])]);
      const better = kindOf(v.dtype) === "float" ? pool.make("or", "bool", [further, first]) : further;
      best = pool.make("where", v.dtype, [better, v, best]);
      at = pool.make("where", "int32", [better, pool.constant(i + 1, "int32"), at]);
    });
    return [at];
  }

  cumsum(node: Node<"cumsum">, index: readonly Ix[], value: Lookup): LaneValue {
    const { axis, reverse, fn } = node.attrs;
    const at = index[axis];
    if (fn !== undefined) throw new NotLane("a long running function");
    if (!at.isConstant) throw new NotLane("a running sum over lanes");
    const n = node.shape[axis];
    const places = reverse
      ? Array.from({ length: n - at.constant }, (_, i) => n - 1 - i)
      : Array.from({ length: at.constant + 1 }, (_, i) => i);
    return this.sum(
      places.map((i) =>
        value(
          node.inputs[0],
          index.map((ix, a) => (a === axis ? Ix.constant(i) : ix)),
        ),
      ),
    );
  }

  concat(node: Node<"concat">, index: readonly Ix[], value: Lookup): LaneValue {
    const { axis } = node.attrs;
    const at = index[axis];
    if (!at.isConstant) throw new NotLane("lanes are joined");
    let from = 0;
    for (const part of node.inputs) {
      if (at.constant < from + part.shape[axis])
        return value(
          part,
          index.map((ix, i) => (i === axis ? Ix.constant(at.constant - from) : ix)),
        );
      from += part.shape[axis];
    }
    throw new NotLane("an index beyond a concatenation");
  }

  pad(node: Node<"pad">, index: readonly Ix[], value: Lookup): LaneValue {
    const [x] = node.inputs;
    const { low, high } = node.attrs;
    for (let axis = 0; axis < low.length; axis++) {
      if (low[axis] === 0 && high[axis] === 0) continue;
      const at = index[axis];
      if (!at.isConstant) throw new NotLane("lanes are padded");
      if (at.constant < low[axis] || at.constant >= low[axis] + x.shape[axis]) return this.constant(0, node.dtype);
    }
    return value(
      x,
      index.map((ix, i) => ix.plus(-low[i])),
    );
  }

  /** Selects one of a few values by a runtime index: a chain of selects. */
  gather(node: Node<"gather">, index: readonly Ix[], value: Lookup): LaneValue {
    const { axis, batch } = node.attrs;
    const [x, indices] = node.inputs;
    const inner = indices.shape.length - batch;
    const [at] = value(indices, [...index.slice(0, batch), ...index.slice(axis, axis + inner)]);
    const element = (k: number): LaneValue =>
      value(x, [...index.slice(0, axis), Ix.constant(k), ...index.slice(axis + inner)]);
    const n = x.shape[axis];
    if (at.op === "const") return element(Math.min(Math.max(at.value, 0), n - 1));
    if (n > 64) throw new NotLane("a large table in a lane");
    let chosen = element(n - 1);
    for (let k = n - 2; k >= 0; k--)
      chosen = this.where(this.pool.make("le", "bool", [at, this.pool.constant(k, at.dtype)]), element(k), chosen);
    return chosen;
  }

  scatterAdd(node: Node<"scatterAdd">, index: readonly Ix[], value: Lookup): LaneValue {
    const { axis, batch } = node.attrs;
    const [base, indices, updates] = node.inputs;
    const at = index[axis];
    if (!at.isConstant) throw new NotLane("a scatter over lanes");
    const sizes = indices.shape.slice(batch);
    if (numel(sizes) > maxUnrolled / 8) throw new NotLane("a long scatter in a lane");
    const terms: LaneValue[] = [value(base, index)];
    for (let i = 0; i < numel(sizes); i++) {
      const place = delinearize(Ix.constant(i), sizes);
      const [target] = value(indices, [...index.slice(0, batch), ...place]);
      const update = value(updates, [...index.slice(0, axis), ...place, ...index.slice(axis + 1)]);
      const { pool } = this;
      const hit =
        target.op === "const"
          ? pool.constant(Number(target.value === at.constant), "bool")
          : pool.make("eq", "bool", [target, pool.constant(at.constant, target.dtype)]);
      terms.push(this.where(hit, update, this.constant(0, node.dtype)));
    }
    return this.sum(terms);
  }

  random(node: Node<"random">, index: readonly Ix[], value: Lookup, loopOf: (ix: Ix) => LaneScalar["loop"]): LaneValue {
    const { kind, dtype, threshold } = node.attrs;
    if (isComplex(dtype)) throw new NotLane("complex random numbers in a lane");
    const [key] = node.inputs;
    const lead = index.slice(0, key.shape.length - 1);
    const words = [0, 1].map((k) => value(key, [...lead, Ix.constant(k)])[0]);
    const address = drawNumber(node, index);
    const name = threshold === undefined ? `random_${kind}` : `random_${kind}_${threshold}`;
    return [this.pool.make(name, dtype, words, { address, loop: loopOf(address) })];
  }

  /** An op that needs nothing but the values of its operands. */
  apply(node: Node, index: readonly Ix[], value: Lookup): LaneValue | null {
    const arg = (i: number): LaneValue => value(node.inputs[i], index);
    if (isOp(node, "const")) return this.constant(node.attrs.value, node.dtype);
    if (isOp(node, "unary")) return this.unary(node, arg(0));
    if (isOp(node, "binary")) return this.binary(node, arg(0), arg(1));
    if (isOp(node, "where")) return this.where(arg(0)[0], arg(1), arg(2));
    if (isOp(node, "cast")) return this.cast(arg(0), node.inputs[0].dtype, node.dtype);
    if (isOp(node, "matmul")) return this.matmul(node, index, value);
    if (isOp(node, "reduce")) return this.reduce(node, index, value);
    if (isOp(node, "argreduce")) return this.argreduce(node, index, value);
    if (isOp(node, "cumsum")) return this.cumsum(node, index, value);
    if (isOp(node, "concat")) return this.concat(node, index, value);
    if (isOp(node, "pad")) return this.pad(node, index, value);
    if (isOp(node, "gather")) return this.gather(node, index, value);
    if (isOp(node, "scatterAdd")) return this.scatterAdd(node, index, value);
    return null;
  }
}

const foldable: Partial<Record<string, (x: number) => number>> = {
  abs: Math.abs,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  reciprocal: (x) => 1 / x,
  sign: Math.sign,
  exp: Math.exp,
  log: Math.log,
  sin: Math.sin,
  cos: Math.cos,
  floor: Math.floor,
  ceil: Math.ceil,
  trunc: Math.trunc,
};

const compared: Partial<Record<string, (a: number, b: number) => number>> = {
  eq: (a, b) => Number(a === b),
  ne: (a, b) => Number(a !== b),
  lt: (a, b) => Number(a < b),
  le: (a, b) => Number(a <= b),
  max: Math.max,
  min: Math.min,
  and: (a, b) => a & b,
  or: (a, b) => a | b,
  xor: (a, b) => a ^ b,
};
