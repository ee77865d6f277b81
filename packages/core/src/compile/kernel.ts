// Lowers a fusion group to loops: the expression of every stored value and reduction over common loop variables, with
// symbolic addresses. Knows nothing of C or CUDA; the dialects print what is built here.
import {
  type BinaryFn,
  type DType,
  InternalError,
  isHalf,
  isOp,
  type Node,
  numel,
  type OpAttrs,
  type ReduceFn,
  type Scalar,
  type UnaryFn,
} from "../graph/index.js";
import { numbering } from "../ops/index.js";
import { affineIndex } from "./affine.js";
import { isExtremum, isReduction, reductionOperand } from "./fuse-rules.js";
import type { Fusion, FusionGroup } from "./fusion-group.js";
import { delinearize, Ix, linearize } from "./index-expr.js";
import { collapse, indexCells, partition, splitVariable } from "./loop-variables.js";
import { addressIn, isView, throughView } from "./views.js";

export interface LoopVariable {
  name: string;
  size: number;
}

/** A scalar expression inside a loop. Addresses may change while loops are shaped; everything else is fixed. */
export type KExpr = { id: number; dtype: DType } & (
  | { kind: "load"; buffer: number; address: Ix; guard: KExpr | null; dynamic: KExpr[] }
  | { kind: "const"; value: Scalar }
  | { kind: "index"; ix: Ix; dynamic: KExpr[] }
  | { kind: "inRange"; ix: Ix; low: number; high: number; dynamic: KExpr[] }
  | { kind: "unary"; fn: UnaryFn; args: KExpr[] }
  | { kind: "binary"; fn: BinaryFn; args: KExpr[] }
  | { kind: "where"; args: KExpr[] }
  | { kind: "cast"; args: KExpr[] }
  | { kind: "random"; draw: OpAttrs["random"]["kind"]; threshold: number; ix: Ix; args: KExpr[]; dynamic: KExpr[] }
  /** An index from data: clamped to [0, size), visible to addresses under its name. */
  | { kind: "dynamic"; name: string; size: number; args: KExpr[] }
  | { kind: "reduced"; slot: number }
);

export interface Reduction {
  slot: number;
  /** "spread": the sum of squared deviations from the mean. */
  fn: ReduceFn | "argmax" | "argmin" | "spread";
  dtype: DType;
  argument: KExpr;
  /** The index along the row, for argmax and argmin. */
  position: Ix;
}

export interface Store {
  buffer: number;
  address: Ix;
  value: KExpr;
}

/** A sum over the rows of a piece, for every column; result [pieces, columns]. */
interface ColumnSum {
  buffer: number;
  argument: KExpr;
  /** Rows per piece. */
  depth: number;
}

export interface LoopKernel {
  kind: "rows" | "columns";
  /** Independent iterations; the dialect distributes them over threads. */
  outer: LoopVariable[];
  /** Rows: the elements of a row. Columns: the one vectorized variable. */
  inner: LoopVariable[];
  /** Columns only: the reduced variables. */
  reduced: LoopVariable[];
  reductions: Reduction[];
  stores: Store[];
  /** Rows only. */
  columnSums: ColumnSum[];
  /** Everything that is read, for the scheduler. */
  loads: { buffer: number; address: Ix }[];
  /** Buffers of the kernel as nodes, by local number. */
  buffers: Node[];
  /** Local numbers of the buffers that are written. */
  written: Set<number>;
  /** Total loop iterations, and arithmetic per iteration. */
  size: number;
  cost: number;
  name: string;
}

type Body = KExpr extends infer T ? (T extends KExpr ? Omit<T, "id"> : never) : never;

class KernelBuilder {
  readonly #memo = new Map<string, KExpr>();
  readonly #pool = new Map<string, KExpr>();
  readonly buffers: Node[] = [];
  readonly #slots = new Map<Node, number>();
  readonly reductions: Reduction[] = [];
  readonly #reducedBy = new Map<Node, number>();
  readonly expressions: KExpr[] = [];
  variables: LoopVariable[] = [];
  readonly #hasExtremum: boolean;
  #position = Ix.zero;

  constructor(
    readonly group: FusionGroup,
    readonly fusion: Fusion,
    readonly params: ReadonlySet<Node>,
  ) {
    this.#hasExtremum = group.members.some(isExtremum);
  }

  #make(body: Body): KExpr {
    const expr = { id: this.expressions.length, ...body } as KExpr;
    this.expressions.push(expr);
    return expr;
  }

  bufferOf(node: Node): number {
    let slot = this.#slots.get(node);
    if (slot === undefined) {
      slot = this.buffers.length;
      this.buffers.push(node);
      this.#slots.set(node, slot);
    }
    return slot;
  }

  /** Loop variables fine enough that every reshape in the group becomes a plain sum, where sizes allow it. */
  chooseVariables(required: readonly number[]): void {
    const { size } = this.group;
    // Where shapes do not agree, as those of a transposed operand, what is written decides: its index is not to be divided.
    const written = new Set<number>();
    const wanted = new Set<number>();
    for (const shape of this.#shapes()) {
      let suffix = 1;
      for (let i = shape.dims.length - 1; i >= 0; i--) {
        suffix *= shape.dims[i];
        (shape.isStored ? written : wanted).add(suffix * shape.scale);
      }
    }
    const descending = (sizes: ReadonlySet<number>): number[] => [...sizes].sort((x, y) => y - x);
    const fits = (chain: number[], next: number): boolean =>
      chain.every((b) => (b < next ? next % b === 0 : b % next === 0));
    const chain: number[] = [];
    for (const b of [1, size, ...required, ...descending(written), ...descending(wanted)])
      if (b > 0 && b <= size && !chain.includes(b) && fits(chain, b)) chain.push(b);
    chain.sort((x, y) => y - x);
    this.variables = [];
    for (let i = 0; i + 1 < chain.length; i++) this.variables.push({ name: `v${i}`, size: chain[i] / chain[i + 1] });
    this.#position = Ix.zero;
    this.variables.forEach((v, i) => {
      this.#position = this.#position.add(Ix.variable(v.name, v.size).times(chain[i + 1]));
    });
  }

  /** Shapes of everything that the group reads element by element with its domain. */
  #shapes(): { dims: readonly number[]; scale: number; isStored: boolean }[] {
    const { size, inner, kind } = this.group;
    const rowSize = kind === "rows" && inner !== null ? inner : 0;
    const found: { dims: readonly number[]; scale: number; isStored: boolean }[] = [];
    const seen = new Set<Node>();
    const stack = [...this.group.members.flatMap((m) => (isReduction(m) ? [...m.inputs, m] : [m]))];
    while (stack.length > 0 && seen.size < 2000) {
      const node = stack.pop()!;
      if (seen.has(node)) continue;
      seen.add(node);
      const n = numel(node.shape);
      const isMember = this.group.level.has(node);
      const isStored = isMember && this.fusion.stored.has(node);
      if (n === size) found.push({ dims: node.shape, scale: 1, isStored });
      else if (rowSize > 0 && n * rowSize === size) found.push({ dims: node.shape, scale: rowSize, isStored });
      const inlined =
        !this.params.has(node) && (isView(node) || isMember || !this.fusion.stored.has(node)) && !this.#isLibrary(node);
      if (inlined) stack.push(...node.inputs);
    }
    return found;
  }

  #isLibrary(node: Node): boolean {
    return node.op === "pick" || this.fusion.library.includes(node);
  }

  /** The index of a member at its own level. */
  ownIndex(node: Node, shape = node.shape): Ix[] {
    const isRow = this.group.level.get(node) === "row" && (this.group.inner !== null || this.group.kind === "columns");
    return delinearize(isRow ? this.resultPosition : this.#position, shape);
  }

  /** The value of a stored member; a view that is written out is resolved once more. */
  copyOrValue(node: Node): KExpr {
    const index = this.ownIndex(node);
    if (!isView(node)) return this.value(node, index);
    const below = throughView(node, index);
    return this.value(below.node, below.index);
  }

  get position(): Ix {
    return this.#position;
  }

  /** The position in the results of the group's reductions. */
  get resultPosition(): Ix {
    const { columns, inner } = this.group;
    if (columns === null) return this.#position.div(inner ?? 1);
    const [, reduced, after] = columns;
    return this.#position
      .div(reduced * after)
      .times(after)
      .add(this.#position.mod(after));
  }

  /** The value of a node at an index. */
  value(node: Node, index: readonly Ix[], guard: KExpr | null = null): KExpr {
    const key = `${node.id}@${index.map((i) => i.key).join(",")}@${guard?.id ?? ""}`;
    let expr = this.#memo.get(key);
    if (expr === undefined) {
      expr = this.#value(node, index, guard);
      this.#memo.set(key, expr);
    }
    return expr;
  }

  #value(node: Node, index: readonly Ix[], guard: KExpr | null): KExpr {
    const own = this.group.level.has(node);
    const slot = this.#reducedBy.get(node);
    if (slot !== undefined) return this.#pooled(`r${slot}`, { kind: "reduced", slot, dtype: node.dtype });
    if (this.params.has(node) || this.#isLibrary(node) || (this.fusion.stored.has(node) && !own))
      return this.#load(node, index, guard);
    if (own && isReduction(node)) throw new InternalError(`reduction %${node.id} is read before it is finished`);
    if (isView(node)) {
      const place = throughView(node, index);
      return this.value(place.node, place.index, guard);
    }
    const computed = this.#computed(node, index, guard);
    return own && this.#countsRounded(node) ? this.#rounded(computed) : computed;
  }

  /** Whether other kernels read a number that this one finds an extremum of: as it is stored, in a half type. */
  #countsRounded(node: Node): boolean {
    return isHalf(node.dtype) && !isOp(node, "cast") && this.fusion.stored.has(node) && this.#hasExtremum;
  }

  #rounded(x: KExpr): KExpr {
    const wide = this.#make({ kind: "cast", args: [x], dtype: "float32" });
    return this.#make({ kind: "cast", args: [wide], dtype: x.dtype });
  }

  #load(node: Node, index: readonly Ix[], guard: KExpr | null): KExpr {
    const address = addressIn(this.fusion.layouts, node, index);
    const buffer = this.bufferOf(node);
    const dynamic = this.#dynamicIn(address);
    return this.#pooled(`l${buffer}:${address.key}:${guard?.id ?? ""}`, {
      kind: "load",
      buffer,
      address,
      guard,
      dynamic,
      dtype: node.dtype,
    });
  }

  /** The data indices inside an address: they are computed before it. */
  #dynamicIn(ix: Ix): KExpr[] {
    return this.expressions.filter((e) => e.kind === "dynamic" && ix.mentions(e.name));
  }

  #pooled(key: string, body: Body): KExpr {
    let expr = this.#pool.get(key);
    if (expr === undefined) {
      expr = this.#make(body);
      this.#pool.set(key, expr);
    }
    return expr;
  }

  #computed(node: Node, index: readonly Ix[], guard: KExpr | null): KExpr {
    const { dtype } = node;
    const args = (): KExpr[] => node.inputs.map((input) => this.value(input, index, guard));
    if (isOp(node, "const")) return this.#make({ kind: "const", value: node.attrs.value, dtype });
    if (isOp(node, "iota")) {
      const ix = index[node.attrs.axis];
      return this.#make({ kind: "index", ix, dynamic: this.#dynamicIn(ix), dtype });
    }
    if (isOp(node, "unary")) return this.#make({ kind: "unary", fn: node.attrs.fn, args: args(), dtype });
    if (isOp(node, "binary")) return this.#make({ kind: "binary", fn: node.attrs.fn, args: args(), dtype });
    if (isOp(node, "where")) return this.#make({ kind: "where", args: args(), dtype });
    if (isOp(node, "cast")) return this.#make({ kind: "cast", args: args(), dtype });
    if (isOp(node, "pad")) return this.#padded(node, index, guard);
    if (isOp(node, "concat")) return this.#joined(node, index, guard);
    if (isOp(node, "gather")) return this.#gathered(node, index, guard);
    if (isOp(node, "random")) return this.#drawn(node, index, guard);
    throw new InternalError(`${node.op} cannot be computed inside a loop`);
  }

  #and(guard: KExpr | null, test: KExpr): KExpr {
    return guard === null ? test : this.#make({ kind: "binary", fn: "and", args: [guard, test], dtype: "bool" });
  }

  #inRange(ix: Ix, low: number, high: number): KExpr | null {
    const [least, most] = ix.range();
    if (least >= low && most < high) return null;
    return this.#pooled(`in${ix.key}:${low}:${high}`, {
      kind: "inRange",
      ix,
      low,
      high,
      dynamic: this.#dynamicIn(ix),
      dtype: "bool",
    });
  }

  #padded(node: Node<"pad">, index: readonly Ix[], guard: KExpr | null): KExpr {
    const [x] = node.inputs;
    const { low } = node.attrs;
    let inside: KExpr | null = null;
    let all = guard;
    index.forEach((ix, i) => {
      const test = this.#inRange(ix, low[i], low[i] + x.shape[i]);
      if (test === null) return;
      inside = this.#and(inside, test);
      all = this.#and(all, test);
    });
    // Inside of an axis of one element, the index is zero; tests along other axes stay free of it.
    const value = this.value(
      x,
      index.map((ix, i) => (x.shape[i] === 1 ? Ix.zero : ix.plus(-low[i]))),
      all,
    );
    if (inside === null) return value;
    const zero = this.#make({ kind: "const", value: 0, dtype: node.dtype });
    return this.#make({ kind: "where", args: [inside, value, zero], dtype: node.dtype });
  }

  #joined(node: Node<"concat">, index: readonly Ix[], guard: KExpr | null): KExpr {
    const { axis } = node.attrs;
    let from = node.shape[axis];
    let result: KExpr | null = null;
    for (let i = node.inputs.length - 1; i >= 0; i--) {
      const part = node.inputs[i];
      from -= part.shape[axis];
      if (part.shape[axis] === 0) continue;
      const test = this.#inRange(index[axis], from, from + part.shape[axis]);
      const all = test === null ? guard : this.#and(guard, test);
      const value = this.value(
        part,
        index.map((ix, k) => (k === axis ? ix.plus(-from) : ix)),
        all,
      );
      result =
        result === null || test === null
          ? value
          : this.#make({ kind: "where", args: [test, value, result], dtype: node.dtype });
    }
    return result ?? this.#make({ kind: "const", value: 0, dtype: node.dtype });
  }

  #gathered(node: Node<"gather">, index: readonly Ix[], guard: KExpr | null): KExpr {
    const { axis, batch } = node.attrs;
    const [x, indices] = node.inputs;
    const size = x.shape[axis];
    if (size === 0) return this.#make({ kind: "const", value: 0, dtype: node.dtype });
    const width = indices.shape.length - batch;
    const at = [...index.slice(0, batch), ...index.slice(axis, axis + width)];
    const position = this.value(indices, at, guard);
    const known = affineIndex(position);
    const [low, high] = known?.range() ?? [-1, -1];
    if (known !== null && low >= 0 && high < size)
      return this.value(x, [...index.slice(0, axis), known, ...index.slice(axis + width)], guard);
    const name = `g${position.id}_${size}`;
    this.#pooled(name, { kind: "dynamic", name, size, args: [position], dtype: "int32" });
    const source = [...index.slice(0, axis), Ix.variable(name, size), ...index.slice(axis + width)];
    return this.value(x, source, guard);
  }

  #drawn(node: Node<"random">, index: readonly Ix[], guard: KExpr | null): KExpr {
    const [key] = node.inputs;
    const lead = key.shape.length - 1;
    const words = [0, 1].map((w) => this.value(key, [...index.slice(0, lead), Ix.constant(w)], guard));
    const { kind: draw, threshold = 0 } = node.attrs;
    const ix = drawNumber(node, index);
    return this.#make({
      kind: "random",
      draw,
      threshold,
      ix,
      dynamic: this.#dynamicIn(ix),
      args: words,
      dtype: node.dtype,
    });
  }

  /** Adds a reduction of the group; later expressions refer to it by its slot. */
  reduce(node: Node, position: Ix): void {
    const { operand: x, isSpread } = reductionOperand(node, this.fusion.onePass);
    const argument = this.value(x, delinearize(this.#position, x.shape));
    const slot = this.reductions.length;
    const { fn: plain } = isOp(node, "reduce") ? node.attrs : (node as Node<"argreduce">).attrs;
    const fn = isSpread ? "spread" : plain;
    this.reductions.push({ slot, fn, dtype: node.dtype, argument, position });
    this.#reducedBy.set(node, slot);
  }
}

/** The index of an element in its random draw. */
export function drawNumber(node: Node<"random">, index: readonly Ix[]): Ix {
  const { shape, start } = numbering(node.attrs);
  const lead = node.inputs[0].shape.length - 1;
  return linearize(
    index.slice(lead).map((at, i) => at.plus(start[i])),
    shape,
  );
}

const costs: Partial<Record<KExpr["kind"], number>> = { load: 1, unary: 3, binary: 1, where: 1, cast: 1, random: 60 };

function finish(
  builder: KernelBuilder,
  kind: LoopKernel["kind"],
  stores: Store[],
  split: (variables: LoopVariable[]) => LoopVariable[][],
  columnSums: ColumnSum[] = [],
): LoopKernel {
  const cells = indexCells(builder.expressions, stores, builder.reductions);
  const parts = split(builder.variables.filter((v) => v.size > 1)).map((part) => collapse(part, cells));
  let [outer, reduced, inner] = parts;
  if (kind === "rows" && builder.group.inner === null) {
    // No reduction: the last variable is vectorized, the others are distributed over threads.
    const all = outer;
    inner = all.slice(-1);
    outer = all.slice(0, -1);
    const count = numel(outer.map((v) => v.size));
    const [last] = inner;
    const pieces = last === undefined ? 1 : ([64, 48, 32, 24, 16, 12, 8, 4, 2].find((p) => last.size % p === 0) ?? 1);
    if (outer.length > 0 && count < 16 && last.size >= 8192 && pieces > 1) {
      const [o, i] = splitVariable(cells, last, pieces);
      outer = [...outer, o];
      inner = [i];
    }
  }
  if (kind === "columns") {
    outer = [...outer, ...inner.slice(0, -1)];
    inner = inner.slice(-1);
  }
  const cost = builder.expressions.reduce((n, e) => n + (costs[e.kind] ?? 0), 0);
  return {
    kind,
    outer,
    inner,
    reduced,
    reductions: builder.reductions,
    stores,
    columnSums,
    loads: builder.expressions.flatMap((e) => (e.kind === "load" ? [{ buffer: e.buffer, address: e.address }] : [])),
    buffers: builder.buffers,
    written: new Set([...stores, ...columnSums].map((s) => s.buffer)),
    size: builder.group.size,
    cost,
    name: kernelName(builder, kind),
  };
}

/** A short name of the kernel: its reductions and its most characteristic functions. */
function kernelName(builder: KernelBuilder, kind: LoopKernel["kind"]): string {
  const words: string[] = [];
  for (const r of builder.reductions) words.push(r.fn);
  if ([...builder.group.level.values()].includes("columns")) words.push("colsum");
  for (const e of builder.expressions) {
    if (e.kind === "unary" || e.kind === "binary") words.push(e.fn);
    else if (e.kind === "random" || e.kind === "dynamic") words.push(e.kind === "random" ? "random" : "gather");
  }
  const distinct = [...new Set(words)];
  const shown = distinct.slice(0, 4).join("_") || "copy";
  const { group } = builder;
  const domain = group.inner === null ? String(group.size) : `${group.size / Math.max(1, group.inner)}x${group.inner}`;
  return `${kind === "columns" ? "col" : group.inner === null ? "map" : "row"}_${shown}_${kind === "columns" ? group.columns!.join("x") : domain}`;
}

export function buildKernel(group: FusionGroup, fusion: Fusion, params: ReadonlySet<Node>): LoopKernel {
  const builder = new KernelBuilder(group, fusion, params);
  const stores: Store[] = [];
  if (group.kind === "columns") {
    const [, reduced, after] = group.columns!;
    builder.chooseVariables([after, reduced * after]);
    const position = builder.position;
    for (const node of group.members) if (isReduction(node)) builder.reduce(node, position.div(after).mod(reduced));
    for (const node of group.members)
      if (fusion.stored.has(node)) {
        const value = isReduction(node) ? builder.value(node, []) : builder.copyOrValue(node);
        stores.push({ buffer: builder.bufferOf(node), address: builder.resultPosition, value });
      }
    const inReduced = (stride: number): boolean => stride >= after && stride < reduced * after;
    return finish(builder, "columns", stores, (variables) =>
      partition(variables, group.size, (stride) => (stride >= reduced * after ? 0 : inReduced(stride) ? 1 : 2)),
    );
  }
  const inner = group.inner ?? 1;
  builder.chooseVariables(group.inner === null ? [] : [inner]);
  const columnSums: ColumnSum[] = [];
  const inColumns = (node: Node): boolean => group.level.get(node) === "columns";
  for (const node of group.members)
    if (isReduction(node) && !inColumns(node)) builder.reduce(node, builder.position.mod(inner));
  for (const node of group.members) {
    if (inColumns(node)) {
      const [x] = node.inputs;
      const argument = builder.value(x, delinearize(builder.position, x.shape));
      const depth = group.size / (inner * (numel(node.shape) / inner));
      columnSums.push({ buffer: builder.bufferOf(node), argument, depth });
      continue;
    }
    if (!fusion.stored.has(node)) continue;
    const isRow = group.level.get(node) === "row" && group.inner !== null;
    const address = isRow ? builder.resultPosition : builder.position;
    const value = isReduction(node) ? builder.value(node, []) : builder.copyOrValue(node);
    stores.push({ buffer: builder.bufferOf(node), address, value });
  }
  const split = (variables: LoopVariable[]): LoopVariable[][] =>
    group.inner === null
      ? [variables, [], []]
      : partition(variables, group.size, (stride) => (stride >= inner ? 0 : 2));
  return finish(builder, "rows", stores, split, columnSums);
}
