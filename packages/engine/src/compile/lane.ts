// Lane kernels: a scan over a batch of small independent problems as ONE kernel. Each lane (a GPU thread, a SIMD lane)
// carries one problem through all steps with its state in registers. The step is unrolled to scalars here, so that what
// is zero, one or real folds away; whether a scan can be cut into lanes is found by trying.
import {
  type DType,
  functionOrder,
  isComplex,
  isOp,
  kindOf,
  type Node,
  numel,
  realOf,
  type Scalar,
  unaryFns,
} from "../graph/index.js";
import { delinearize, Ix, linearize } from "./index-expr.js";
import { isView, throughView } from "./views.js";

/** A real number inside the step of a lane. */
export interface LaneScalar {
  id: number;
  /** "const", "load", "state", "lane" (an index), or the name of a function of its arguments. */
  op: string;
  args: LaneScalar[];
  dtype: DType;
  /** const: the value; state: its number. */
  value: number;
  /** load: which scan input, at which element, and which part of a complex number. */
  input: number;
  address: Ix | null;
  part: 0 | 1;
  /** Whether it changes from step to step. */
  varies: boolean;
}

type LaneValue = readonly LaneScalar[];

export interface LaneOutput {
  value: LaneScalar;
  /** Position among the numbers (complex parts counted) that one lane has of this result. */
  slot: number;
}

export interface LaneKernel {
  lanes: number;
  length: number;
  reverse: boolean;
  /** Numbers of each carry that a lane holds, and the first state variable of each. */
  carries: { first: number; count: number; dtype: DType }[];
  /** New values of the state variables after a step. */
  next: LaneScalar[];
  /** Results of each step, by output of the scan. */
  ys: { output: number; values: LaneScalar[]; dtype: DType }[];
  consts: number;
  /** Every scalar that is needed, operands first. */
  order: LaneScalar[];
  flops: number;
}

class NotLane extends Error {}

const maxScalars = 24000;
const maxState = 512;
const laneDTypes: ReadonlySet<DType> = new Set([
  "bool",
  "int32",
  "int64",
  "float32",
  "float64",
  "complex64",
  "complex128",
] as const);
/** Functions of one real number; parts of complex ones are handled where they are read. */
const laneUnary: ReadonlySet<string> = new Set(unaryFns);

class LaneBuilder {
  readonly #pool = new Map<string, LaneScalar>();
  readonly #memo = new Map<string, LaneValue>();
  readonly #params = new Map<Node, number>();
  readonly #stateStart: number[] = [];
  readonly scalars: LaneScalar[] = [];
  readonly #lane: Ix;

  constructor(
    readonly node: Node<"scan">,
    readonly lanes: number,
    readonly prefix: readonly number[],
  ) {
    this.#lane = Ix.variable("b", lanes);
    node.attrs.body.params.forEach((param, i) => {
      this.#params.set(param, i);
    });
  }

  #make(op: string, dtype: DType, args: LaneScalar[], extra: Partial<LaneScalar> = {}): LaneScalar {
    const { value = 0, input = -1, address = null, part = 0 } = extra;
    const key = `${op}|${dtype}|${args.map((a) => a.id).join(",")}|${Object.is(value, -0) ? "-0" : value}|${input}|${address?.key ?? ""}|${part}`;
    const known = this.#pool.get(key);
    if (known !== undefined) return known;
    if (this.scalars.length >= maxScalars) throw new NotLane("the step is too large to unroll");
    const varies = extra.varies ?? args.some((a) => a.varies);
    const made = { id: this.scalars.length, op, args, dtype, value, input, address, part, varies };
    this.scalars.push(made);
    this.#pool.set(key, made);
    return made;
  }

  constant(value: number, dtype: DType): LaneScalar {
    return this.#make("const", dtype, [], { value });
  }

  // Arithmetic that folds what is known. A factor of zero is exact here: loads of NaN times a structural zero do not occur
  // in what users wrote, because the zero was a constant of their program.
  #is(x: LaneScalar, value: number): boolean {
    return x.op === "const" && x.value === value;
  }

  add(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.#is(a, 0)) return b;
    if (this.#is(b, 0)) return a;
    if (b.op === "neg") return this.sub(a, b.args[0]);
    if (a.op === "neg") return this.sub(b, a.args[0]);
    return this.#fold("add", a, b, (x, y) => x + y);
  }

  sub(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.#is(b, 0)) return a;
    if (this.#is(a, 0)) return this.neg(b);
    if (b.op === "neg") return this.add(a, b.args[0]);
    return this.#fold("sub", a, b, (x, y) => x - y);
  }

  mul(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.#is(a, 0)) return a;
    if (this.#is(b, 0)) return b;
    if (this.#is(a, 1)) return b;
    if (this.#is(b, 1)) return a;
    if (this.#is(a, -1)) return this.neg(b);
    if (this.#is(b, -1)) return this.neg(a);
    if (a.op === "neg" && b.op === "neg") return this.mul(a.args[0], b.args[0]);
    if (a.op === "neg") return this.neg(this.mul(a.args[0], b));
    if (b.op === "neg") return this.neg(this.mul(a, b.args[0]));
    return a.id <= b.id ? this.#fold("mul", a, b, (x, y) => x * y) : this.#fold("mul", b, a, (x, y) => x * y);
  }

  neg(a: LaneScalar): LaneScalar {
    if (a.op === "neg") return a.args[0];
    if (a.op === "const") return this.constant(a.value === 0 ? 0 : -a.value, a.dtype);
    if (a.op === "sub") return this.sub(a.args[1], a.args[0]);
    return this.#make("neg", a.dtype, [a]);
  }

  #fold(op: string, a: LaneScalar, b: LaneScalar, rule: (x: number, y: number) => number): LaneScalar {
    if (a.op === "const" && b.op === "const" && kindOf(a.dtype) === "float") {
      const value = rule(a.value, b.value);
      if (Number.isFinite(value)) return this.constant(a.dtype === "float32" ? Math.fround(value) : value, a.dtype);
    }
    return this.#make(op, a.dtype, [a, b]);
  }

  #multiply(x: LaneValue, y: LaneValue): LaneValue {
    if (x.length === 1) return [this.mul(x[0], y[0])];
    return [this.sub(this.mul(x[0], y[0]), this.mul(x[1], y[1])), this.add(this.mul(x[0], y[1]), this.mul(x[1], y[0]))];
  }

  #sum(values: readonly LaneValue[]): LaneValue {
    return values.reduce((total, v) => total.map((t, i) => this.add(t, v[i])));
  }

  /** The value of a node at an index that may mention the lane. */
  value(node: Node, index: readonly Ix[]): LaneValue {
    const key = `${node.id}@${index.map((i) => i.key).join(",")}`;
    const known = this.#memo.get(key);
    if (known !== undefined) return known;
    if (!laneDTypes.has(node.dtype)) throw new NotLane(`${node.dtype} in a lane`);
    const value = this.#value(node, index);
    this.#memo.set(key, value);
    return value;
  }

  #value(node: Node, index: readonly Ix[]): LaneValue {
    const param = this.#params.get(node);
    if (param !== undefined) return this.#param(node, param, index);
    if (isView(node)) {
      const place = throughView(node, index);
      return this.value(place.node, place.index);
    }
    const arg = (i: number): LaneValue => this.value(node.inputs[i], index);
    if (isOp(node, "const")) return this.#constantValue(node.attrs.value, node.dtype);
    if (isOp(node, "iota")) return this.#position(index[node.attrs.axis], node.dtype);
    if (isOp(node, "unary")) return this.#unary(node, arg(0));
    if (isOp(node, "binary")) return this.#binary(node, arg(0), arg(1));
    if (isOp(node, "where")) return this.#where(arg(0)[0], arg(1), arg(2));
    if (isOp(node, "cast")) return this.#cast(arg(0), node.inputs[0].dtype, node.dtype);
    if (isOp(node, "matmul")) return this.#matmul(node, index);
    if (isOp(node, "reduce")) return this.#reduce(node, index);
    if (isOp(node, "concat")) return this.#concat(node, index);
    if (isOp(node, "pad")) return this.#pad(node, index);
    throw new NotLane(`${node.op} in a lane`);
  }

  #constantValue(value: Scalar, dtype: DType): LaneValue {
    const { re, im } = typeof value === "number" ? { re: value, im: 0 } : value;
    const real = realOf(dtype);
    return isComplex(dtype) ? [this.constant(re, real), this.constant(im, real)] : [this.constant(re, real)];
  }

  #position(ix: Ix, dtype: DType): LaneValue {
    const real = realOf(dtype);
    const at = ix.isConstant ? this.constant(ix.constant, real) : this.#make("lane", real, [], { address: ix });
    return isComplex(dtype) ? [at, this.constant(0, real)] : [at];
  }

  /** A carry is state of this lane only; constants and inputs of the step are loads. */
  #param(node: Node, param: number, index: readonly Ix[]): LaneValue {
    const { consts, carries } = this.node.attrs;
    const address = linearize(index, node.shape);
    const parts = isComplex(node.dtype) ? 2 : 1;
    const real = realOf(node.dtype);
    const isCarry = param >= consts && param < consts + carries;
    if (isCarry) {
      const count = numel(node.shape) / this.lanes;
      const own = address.add(this.#lane.times(-count));
      if (!own.isConstant || own.constant < 0 || own.constant >= count)
        throw new NotLane("lanes read each other's state");
      const first = this.#stateStart[param - consts] + own.constant * parts;
      return Array.from({ length: parts }, (_, k) => this.#make("state", real, [], { value: first + k, varies: true }));
    }
    const varies = param >= consts + carries;
    return Array.from({ length: parts }, (_, k) =>
      this.#make("load", real, [], { input: param, address, part: k as 0 | 1, varies }),
    );
  }

  #unary(node: Node<"unary">, x: LaneValue): LaneValue {
    const { fn } = node.attrs;
    const { dtype } = node.inputs[0];
    if (!isComplex(dtype)) {
      if (fn === "neg") return [this.neg(x[0])];
      if (fn === "real" || fn === "conj") return x;
      if (fn === "imag") return [this.constant(0, dtype)];
      if (!laneUnary.has(fn)) throw new NotLane(`${fn} in a lane`);
      return [this.#make(fn, node.dtype, [x[0]])];
    }
    const [re, im] = x;
    const real = realOf(dtype);
    const call = (name: string, a: LaneScalar): LaneScalar => this.#make(name, real, [a]);
    const square = (): LaneScalar => this.add(this.mul(re, re), this.mul(im, im));
    switch (fn) {
      case "neg":
        return [this.neg(re), this.neg(im)];
      case "conj":
        return [re, this.neg(im)];
      case "real":
        return [re];
      case "imag":
        return [im];
      case "abs":
        return [call("sqrt", square())];
      case "exp": {
        const size = call("exp", re);
        if (this.#is(im, 0)) return [size, im];
        const [c, s] = [call("cos", im), call("sin", im)];
        return this.#is(re, 0) ? [c, s] : [this.mul(size, c), this.mul(size, s)];
      }
      case "reciprocal": {
        const d = this.#make("reciprocal", real, [square()]);
        return [this.mul(re, d), this.neg(this.mul(im, d))];
      }
      default:
        throw new NotLane(`complex ${fn} in a lane`);
    }
  }

  #binary(node: Node<"binary">, a: LaneValue, b: LaneValue): LaneValue {
    const { fn } = node.attrs;
    const { dtype } = node.inputs[0];
    if (fn === "complex") return [a[0], b[0]];
    if (fn === "add") return a.map((x, i) => this.add(x, b[i]));
    if (fn === "sub") return a.map((x, i) => this.sub(x, b[i]));
    if (fn === "mul") return this.#multiply(a, b);
    if (!isComplex(dtype)) return [this.#make(fn, node.dtype, [a[0], b[0]])];
    const real = realOf(dtype);
    if (fn === "div") {
      if (this.#is(b[1], 0)) return a.map((x) => this.#make("div", real, [x, b[0]]));
      const d = this.#make("reciprocal", real, [this.add(this.mul(b[0], b[0]), this.mul(b[1], b[1]))]);
      return this.#multiply(a, [b[0], this.neg(b[1])]).map((x) => this.mul(x, d));
    }
    throw new NotLane(`complex ${fn} in a lane`);
  }

  #where(test: LaneScalar, a: LaneValue, b: LaneValue): LaneValue {
    if (test.op === "const") return test.value !== 0 ? a : b;
    return a.map((x, i) => (x === b[i] ? x : this.#make("where", x.dtype, [test, x, b[i]])));
  }

  #cast(x: LaneValue, from: DType, to: DType): LaneValue {
    const real = realOf(to);
    const one = (v: LaneScalar): LaneScalar => {
      if (v.dtype === real) return v;
      if (v.op === "const" && kindOf(to) !== "bool")
        return this.constant(kindOf(real) === "int" ? Math.trunc(v.value) : v.value, real);
      return this.#make("cast", real, [v]);
    };
    if (to === "bool" && isComplex(from)) throw new NotLane("complex to bool in a lane");
    if (isComplex(to)) return [one(x[0]), x.length === 2 ? one(x[1]) : this.constant(0, real)];
    return [one(x[0])];
  }

  #matmul(node: Node, index: readonly Ix[]): LaneValue {
    const [a, b] = node.inputs;
    const rank = node.shape.length;
    const batch = index.slice(0, rank - 2);
    const [row, column] = index.slice(rank - 2);
    const terms: LaneValue[] = [];
    for (let k = 0; k < a.shape[rank - 1]; k++) {
      const at = Ix.constant(k);
      terms.push(this.#multiply(this.value(a, [...batch, row, at]), this.value(b, [...batch, at, column])));
    }
    return this.#sum(terms);
  }

  #reduce(node: Node<"reduce">, index: readonly Ix[]): LaneValue {
    const { fn, axes } = node.attrs;
    const [x] = node.inputs;
    const sizes = axes.map((a) => x.shape[a]);
    if (numel(sizes) > 4096) throw new NotLane("a long reduction in a lane");
    const values: LaneValue[] = [];
    for (let i = 0; i < numel(sizes); i++) {
      const inside = delinearize(Ix.constant(i), sizes);
      let kept = 0;
      const at = x.shape.map((_, axis) => (axes.includes(axis) ? inside[axes.indexOf(axis)] : index[kept++]));
      values.push(this.value(x, at));
    }
    if (fn === "sum") return this.#sum(values);
    if (fn === "prod") return values.reduce((p, v) => this.#multiply(p, v));
    return values.reduce((m, v) => [this.#make(fn, node.dtype, [m[0], v[0]])]);
  }

  #concat(node: Node<"concat">, index: readonly Ix[]): LaneValue {
    const { axis } = node.attrs;
    const at = index[axis];
    if (!at.isConstant) throw new NotLane("lanes are joined");
    let from = 0;
    for (const part of node.inputs) {
      if (at.constant < from + part.shape[axis])
        return this.value(
          part,
          index.map((ix, i) => (i === axis ? Ix.constant(at.constant - from) : ix)),
        );
      from += part.shape[axis];
    }
    throw new NotLane("an index beyond a concatenation");
  }

  #pad(node: Node<"pad">, index: readonly Ix[]): LaneValue {
    const [x] = node.inputs;
    const { low, high } = node.attrs;
    for (let axis = 0; axis < low.length; axis++) {
      if (low[axis] === 0 && high[axis] === 0) continue;
      const at = index[axis];
      if (!at.isConstant) throw new NotLane("lanes are padded");
      if (at.constant < low[axis] || at.constant >= low[axis] + x.shape[axis])
        return this.#constantValue(0, node.dtype);
    }
    return this.value(
      x,
      index.map((ix, i) => ix.plus(-low[i])),
    );
  }

  /** All numbers that one lane has of a tensor with the lanes' axes in front. */
  laneNumbers(node: Node): LaneScalar[] {
    const total = numel(node.shape);
    const lead = this.prefix.every((d, i) => node.shape[i] === d);
    if (!lead) throw new NotLane("a result without the lanes' axes");
    const count = total / this.lanes;
    const numbers: LaneScalar[] = [];
    for (let e = 0; e < count; e++)
      numbers.push(...this.value(node, delinearize(this.#lane.times(count).plus(e), node.shape)));
    return numbers;
  }

  build(): LaneKernel {
    const { body, carries: carryCount, consts, length, reverse } = this.node.attrs;
    const carries: LaneKernel["carries"] = [];
    let first = 0;
    for (let c = 0; c < carryCount; c++) {
      const param = body.params[consts + c];
      if (!this.prefix.every((d, i) => param.shape[i] === d)) throw new NotLane("a carry without the lanes' axes");
      const count = (numel(param.shape) / this.lanes) * (isComplex(param.dtype) ? 2 : 1);
      this.#stateStart.push(first);
      carries.push({ first, count, dtype: realOf(param.dtype) });
      first += count;
    }
    if (first > maxState) throw new NotLane(`${first} numbers of state a lane`);
    const next = body.outputs.slice(0, carryCount).flatMap((output) => this.laneNumbers(output));
    const ys = body.outputs.slice(carryCount).map((output, i) => ({
      output: carryCount + i,
      values: this.laneNumbers(output),
      dtype: realOf(output.dtype),
    }));
    const order = needed([...next, ...ys.flatMap((y) => y.values)]);
    const flops = order.filter((s) => s.varies && s.args.length > 0).length;
    return { lanes: this.lanes, length, reverse, carries, next, ys, consts, order, flops };
  }
}

/** Operands before users, without recursion. */
function needed(roots: readonly LaneScalar[]): LaneScalar[] {
  const seen = new Set<LaneScalar>();
  const stack = [...roots];
  while (stack.length > 0) {
    const s = stack.pop()!;
    if (seen.has(s)) continue;
    seen.add(s);
    stack.push(...s.args);
  }
  // Scalars are numbered in the order in which they were made: operands first.
  return [...seen].sort((a, b) => a.id - b.id);
}

/** Leading axes that all carries share. */
function sharedPrefix(node: Node<"scan">): number[] {
  const { body, consts, carries } = node.attrs;
  const shapes = body.params.slice(consts, consts + carries).map((p) => p.shape);
  if (shapes.length === 0) return [];
  const prefix: number[] = [];
  for (let i = 0; shapes.every((s) => i < s.length && s[i] === shapes[0][i]); i++) prefix.push(shapes[0][i]);
  return prefix;
}

/** The scan as a lane kernel over as many lanes as possible, or null where it does not fall apart into small problems. */
export function laneKernel(node: Node<"scan">): LaneKernel | null {
  if (node.attrs.length === 0 || node.attrs.carries === 0 || numel(node.inputs[node.attrs.consts].shape) === 0)
    return null;
  // Cheap look first: ops that never fit.
  if (
    functionOrder(node.attrs.body).some(
      (n) => n.op === "scan" || n.outputs !== null || n.op === "gather" || n.op === "random",
    )
  )
    return null;
  const prefix = sharedPrefix(node);
  for (let rank = prefix.length; rank >= 0; rank--) {
    const axes = prefix.slice(0, rank);
    const lanes = numel(axes);
    if (rank === 0 && prefix.length > 0 && numel(prefix) > 64) break;
    try {
      return new LaneBuilder(node, lanes, axes).build();
    } catch (error) {
      if (!(error instanceof NotLane)) throw error;
    }
  }
  return null;
}
