// Prints the expressions of a kernel into nested scopes: before the loops, once per row, once per element. A value is
// computed in the outermost scope that defines its variables, and only where it is used.
import { type DType, isComplex, isHalf, numel } from "../graph/index.js";
import { clampText, guardBox, type Interval, sizeIn, tests } from "./guards.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, Store } from "./kernel.js";
import {
  binaryValue,
  type CValue,
  castValue,
  computeType,
  constantValue,
  type Emitter,
  eachPart,
  elementsPerBlock,
  loadText,
  randomName,
  randomText,
  selectText,
  storageType,
  unaryValue,
  wrapText,
} from "./scalar.js";
import { Tally } from "./tally.js";

/** 0: before all loops, 1: once per outer iteration, 2: inside the innermost loop. */
export type Depth = 0 | 1 | 2;

export class EmitScope implements Emitter {
  readonly lines: string[] = [];
  readonly #indent: string;
  readonly values = new Map<number, CValue>();
  /** Names of loop variables clamped to an interval. */
  readonly clamped = new Map<string, string>();
  static #next = 0;

  constructor(indent: string) {
    this.#indent = indent;
  }

  static reset(): void {
    EmitScope.#next = 0;
  }

  add(line: string): void {
    this.lines.push(this.#indent + line);
  }

  /** Appends formatted text. */
  append(lines: readonly string[]): void {
    this.lines.push(...lines);
  }

  define(type: string, text: string): string {
    if (/^(\(?-?[0-9][0-9.e+-]*[fu]?\)?|[a-z]+[0-9]+[ri]?)$/.test(text)) return text;
    const name = `t${EmitScope.#next++}`;
    this.add(`${type} ${name} = ${text};`);
    return name;
  }

  definePair(type: string, statement: (re: string, im: string) => string): [string, string] {
    const [re, im] = [`t${EmitScope.#next++}`, `t${EmitScope.#next++}`];
    this.add(`${type} ${re}, ${im};`);
    this.add(statement(re, im));
    return [re, im];
  }
}

/** Elements that are contiguous along `variable` are loaded by one statement before the loop over them, `j`. */
interface VectorLoads {
  variable: string;
  width: number;
  /** Where the loads are, in front of the elements of a vector. */
  scope: EmitScope;
}

/**
 * The address of a vector's first element, in terms of the variable's value there; null where it is not contiguous and
 * aligned.
 */
export function vectorBase(address: Ix, { variable, width }: { variable: string; width: number }): Ix | null {
  if (address.stride(variable) !== 1) return null;
  const rest = address.substitute(new Map([[variable, Ix.zero]]));
  if (rest.constant % width !== 0 || [...rest.terms.values()].some(({ factor }) => factor % width !== 0)) return null;
  return rest.add(Ix.variable(firstOf(variable), 2 ** 52));
}

/** The array of a kept vector: one vector per round `c`. */
export const keptName = (id: number): string => `k${id}_`;

/** The name of a variable's value at the first element of a vector. */
export const firstOf = (variable: string): string => `${variable}b`;

/**
 * A variable whose guarded loads are not clamped, and the conditions under which every such address of a row lies in its
 * buffer. Contiguous loads whose result a select discards are much faster than loads at clamped indices.
 */
interface UnclampedRow {
  variable: string;
  size: number;
  conditions: Set<string>;
}

/** Prints the values of one kernel. `inner` are the variables of the innermost loop, `reduced` the reductions by slot. */
export class BodyPrinter {
  readonly tally = new Tally();
  readonly #depths = new Map<number, Depth>();
  readonly #stages = new Map<number, number>();
  /** Vector loads along a variable; see VectorLoads. */
  vector: VectorLoads | null = null;
  /** See UnclampedRow. */
  unclamped: UnclampedRow | null = null;
  /** The index of a reduction's result where a thread has several. */
  reducedAt = "";
  /** Loads that were copied before: expression id -> array and index there, and whether halves were converted to floats. */
  readonly tiles = new Map<number, { name: string; index: string; isWide?: boolean; isRead?: boolean }>();
  /** Stores of halves that go to an array of floats first. */
  readonly halfRows = new Map<Store, { place: string; isWritten: boolean }>();
  /** Vectors that stay in registers between passes over a row: expression id -> whether they were loaded. */
  readonly keptVectors = new Map<number, boolean>();
  /** Row buffers that hold a value between two passes over a row: expression id -> name. */
  readonly stash = new Map<number, { name: string; dtype: DType }>();

  constructor(
    readonly kernel: LoopKernel,
    readonly scopes: { top: EmitScope; row: EmitScope; element: EmitScope },
    readonly innerNames: ReadonlySet<string>,
    readonly outerNames: ReadonlySet<string>,
    /** Position inside the row, for stashed values. */
    readonly rowPosition: string,
  ) {}

  #wide: Set<number> | null = null;

  /** Whether a value counts with full precision: it reaches a result or reduction without being rounded to a half type. */
  #isWide(expr: KExpr): boolean {
    if (this.#wide === null) {
      const wide = new Set<number>();
      const visit = (at: KExpr): void => {
        if (wide.has(at.id) || isHalf(at.dtype)) return;
        wide.add(at.id);
        for (const part of this.#parts(at)) visit(part);
      };
      const { stores, reductions, columnSums, buffers } = this.kernel;
      for (const { buffer, value } of stores) if (!isHalf(buffers[buffer].dtype)) visit(value);
      for (const { argument } of [...reductions, ...columnSums]) visit(argument);
      this.#wide = wide;
    }
    return this.#wide.has(expr.id);
  }

  #ixDepth(ix: Ix): Depth {
    for (const name of this.innerNames) if (ix.mentions(name)) return 2;
    for (const name of this.outerNames) if (ix.mentions(name)) return 1;
    return 0;
  }

  #parts(expr: KExpr): KExpr[] {
    const guard = expr.kind === "load" && expr.guard !== null ? [expr.guard] : [];
    return [...("dynamic" in expr ? expr.dynamic : []), ...("args" in expr ? expr.args : []), ...guard];
  }

  depth(expr: KExpr): Depth {
    const cached = this.#depths.get(expr.id);
    if (cached !== undefined) return cached;
    let depth: Depth = 0;
    for (const part of this.#parts(expr)) depth = Math.max(depth, this.depth(part)) as Depth;
    if (expr.kind === "load") depth = Math.max(depth, this.#ixDepth(expr.address)) as Depth;
    if ("ix" in expr) depth = Math.max(depth, this.#ixDepth(expr.ix)) as Depth;
    if (expr.kind === "reduced") depth = Math.max(depth, 1) as Depth;
    this.#depths.set(expr.id, depth);
    return depth;
  }

  /** The number of passes over the row that must finish before the value can be computed. */
  stage(expr: KExpr): number {
    const cached = this.#stages.get(expr.id);
    if (cached !== undefined) return cached;
    let stage = 0;
    for (const part of this.#parts(expr)) stage = Math.max(stage, this.stage(part));
    if (expr.kind === "reduced") stage = this.stage(this.kernel.reductions[expr.slot].argument) + 1;
    this.#stages.set(expr.id, stage);
    return stage;
  }

  #scopeFor(expr: KExpr): EmitScope {
    const { top, row, element } = this.scopes;
    return [top, row, element][this.depth(expr)];
  }

  value(expr: KExpr): CValue {
    const scope = this.#scopeFor(expr);
    const cached = scope.values.get(expr.id);
    if (cached !== undefined) return cached;
    const stashed = this.stash.get(expr.id);
    const value =
      stashed !== undefined && scope === this.scopes.element
        ? this.#fromStash(scope, stashed, expr.dtype)
        : this.#compute(expr, scope);
    if (stashed === undefined || scope !== this.scopes.element) this.#count(expr);
    scope.values.set(expr.id, value);
    return value;
  }

  /** The vectorized variable is the innermost one. */
  #count(expr: KExpr): void {
    const depth = this.depth(expr);
    if (depth === 0) return;
    if (this.#isScaling(expr)) {
      this.tally.add("simple", this.kernel.size);
      return;
    }
    const { size, inner, reduced } = this.kernel;
    const within = [...inner, ...reduced].reduce((n, v) => (this.innerNames.has(v.name) ? n * v.size : n), 1);
    const last = inner[inner.length - 1]?.name;
    this.tally.note(expr, depth === 2 ? size : size / within, depth === 2, () => {
      if (expr.kind !== "load" || last === undefined) return 1;
      // Where an index is a quotient or a remainder, adjacent elements may be anywhere, as in a gather.
      return expr.dynamic.some((index) => this.depth(index) === 2) ? null : expr.address.stride(last);
    });
  }

  #fromStash(scope: EmitScope, { name }: { name: string }, dtype: DType): CValue {
    const type = computeType[dtype];
    if (!isComplex(dtype)) return [scope.define(type, `${name}[${this.rowPosition}]`)];
    return [
      scope.define(type, `${name}[2*(${this.rowPosition})]`),
      scope.define(type, `${name}[2*(${this.rowPosition}) + 1]`),
    ];
  }

  #compute(expr: KExpr, scope: EmitScope): CValue {
    const { dtype } = expr;
    const type = computeType[dtype];
    if ("dynamic" in expr) for (const index of expr.dynamic) this.value(index);
    switch (expr.kind) {
      case "const":
        return constantValue(expr.value, dtype);
      case "index": {
        const text = wrapText(`(${type})(${expr.ix.print()})`, dtype);
        const value = [scope.define(type, text)] as const;
        return isComplex(dtype) ? [value[0], type === "double" ? "0.0" : "0.0f"] : value;
      }
      case "inRange": {
        const ix = expr.ix.print();
        return [scope.define("int", `(${ix}) >= ${expr.low} && (${ix}) < ${expr.high}`)];
      }
      case "load":
        return this.#load(expr, scope);
      case "unary":
        return unaryValue(scope, expr.fn, this.value(expr.args[0]), expr.args[0].dtype, dtype, !this.#isWide(expr));
      case "binary":
        if (this.#isScaling(expr)) return this.#byReciprocal(expr.args[0], expr.args[1], scope);
        return binaryValue(
          scope,
          expr.fn,
          this.value(expr.args[0]),
          this.value(expr.args[1]),
          expr.args[0].dtype,
          dtype,
        );
      case "where": {
        const [test, a, b] = expr.args.map((arg) => this.value(arg));
        return eachPart(a, (part, i) => scope.define(type, selectText(type, test[0], part, b[i])));
      }
      case "cast":
        return castValue(scope, this.value(expr.args[0]), expr.args[0].dtype, dtype);
      case "dynamic": {
        const [at] = this.value(expr.args[0]);
        scope.add(`const long ${expr.name} = ${at} < 0 ? 0 : ${at} >= ${expr.size} ? ${expr.size - 1} : ${at};`);
        return [expr.name];
      }
      case "random": {
        const [k0, k1] = expr.args.map((arg) => this.value(arg)[0]);
        const drawn = scope === this.scopes.element ? this.#drawVector(expr, k0, k1) : null;
        if (drawn !== null) return [scope.define(type, drawn)];
        return [scope.define(type, randomText(expr.draw, dtype, k0, k1, expr.ix.print(), expr.threshold))];
      }
      case "reduced":
        return isComplex(dtype) ? [`r${expr.slot}r`, `r${expr.slot}i`] : [`r${expr.slot}${this.reducedAt}`];
    }
  }

  #isScaling(expr: KExpr): boolean {
    if (expr.kind !== "binary" || expr.fn !== "div" || expr.dtype !== "float32") return false;
    return this.depth(expr) === 2 && this.depth(expr.args[1]) === 1;
  }

  /**
   * Division by a loop invariant: one division outside, products inside (one ulp more error). Very large and very small
   * divisors have no reciprocal of full precision: they and the dividend are scaled first.
   */
  #byReciprocal(dividend: KExpr, divisor: KExpr, scope: EmitScope): CValue {
    const outer = this.#scopeFor(divisor);
    const [d] = this.value(divisor);
    let inverse = this.#inverses.get(d);
    if (inverse === undefined) {
      const scale = outer.define("float", `w_scale_f(w_abs_f(${d}))`);
      inverse = { scale, of: outer.define("float", `1.0f / (${d} * ${scale})`) };
      this.#inverses.set(d, inverse);
    }
    return [scope.define("float", `${this.value(dividend)[0]} * ${inverse.scale} * ${inverse.of}`)];
  }
  readonly #inverses = new Map<string, { scale: string; of: string }>();

  #load(expr: Extract<KExpr, { kind: "load" }>, scope: EmitScope): CValue {
    const { dtype } = expr;
    const type = computeType[dtype];
    const tile = this.tiles.get(expr.id);
    if (tile !== undefined) {
      tile.isRead = true;
      const stored = tile.isWide ? "float32" : dtype;
      const part = (k: 0 | 1): string => scope.define(type, loadText(tile.name, tile.index, stored, k));
      return isComplex(dtype) ? [part(0), part(1)] : [part(0)];
    }
    const wide = scope === this.scopes.element ? this.#loadVector(expr) : null;
    if (wide !== null) return [scope.define(type, loadText(wide, "j", dtype))];
    const address = this.#addressInRange(expr, scope);
    if (address === null) return constantValue(0, dtype);
    const part = (k: 0 | 1): string => scope.define(type, loadText(`p${expr.buffer}`, address, dtype, k));
    return isComplex(dtype) ? [part(0), part(1)] : [part(0)];
  }

  /** A number of a half type that is only moved, as it is in memory; null where something is computed. */
  moved(expr: KExpr): string | null {
    const isMove = (e: KExpr): boolean =>
      e.kind === "load" ||
      (e.kind === "const" && e.value === 0 && !Object.is(e.value, -0)) ||
      (e.kind === "where" && e.args.slice(1).every(isMove));
    return isHalf(expr.dtype) && isMove(expr) ? this.#moved(expr) : null;
  }

  #moved(expr: KExpr): string {
    const scope = this.#scopeFor(expr);
    const type = storageType[expr.dtype];
    if (expr.kind === "where") {
      const [test] = this.value(expr.args[0]);
      const [a, b] = expr.args.slice(1).map((arg) => this.#moved(arg));
      return scope.define(type, `${test} ? ${a} : ${b}`);
    }
    if (expr.kind !== "load") return "0";
    for (const index of expr.dynamic) this.value(index);
    this.#count(expr);
    const tile = this.tiles.get(expr.id);
    if (tile !== undefined && !tile.isWide) return scope.define(type, `${tile.name}[${tile.index}]`);
    const address = this.#addressInRange(expr, scope);
    return address === null ? "0" : scope.define(type, `p${expr.buffer}[${address}]`);
  }

  /**
   * The address of a load. Where its guard fails it reads another valid element, which the select of the guard discards.
   * Null where there is nothing to read.
   */
  #addressInRange({ address, guard, buffer }: Extract<KExpr, { kind: "load" }>, scope: EmitScope): string | null {
    if (guard === null) return address.print();
    const box = guardBox(guard);
    if (box === "never" || numel(this.kernel.buffers[buffer].shape) === 0) return null;
    if (box === null) {
      const row = scope === this.scopes.element ? this.#addressInRow(address, guard, buffer, scope) : null;
      if (row !== null) return row;
      const [test] = this.value(guard);
      return scope.define("const long", `(${address.print()}) & -(long)(${test} != 0)`);
    }
    const free = this.unclamped?.variable;
    // Conditions are tested before a row, where positions that are gathered inside of it are not known.
    const isKnown = [...address.variables()].every((name) => this.innerNames.has(name) || this.outerNames.has(name));
    const stride = free === undefined || !isKnown ? null : address.stride(free);
    const clamped = [...box].flatMap(([name, interval]) => {
      if (!address.mentions(name) || (name === free && stride !== null)) return [];
      const at = this.#clamp(name, interval, address, scope);
      return at === null ? [] : [[name, Ix.variable(at, interval.high)] as const];
    });
    const place = address.substitute(new Map(clamped));
    if (stride !== null && free !== undefined && box.has(free)) this.#requireInBuffer(place, stride, buffer);
    return place.print();
  }

  /**
   * The address of a load whose guard consists of tests of the row and of ranges along it: in a row where the former fail it reads
   * somewhere else, so that neighbors stay neighbors. Null for other guards, and where a row may be longer than the buffer.
   */
  #addressInRow(address: Ix, guard: KExpr, buffer: number, scope: EmitScope): string | null {
    const all = [...tests(guard)];
    const box = guardBox(all.filter((test) => this.depth(test) === 2));
    const parts = address.apart(this.innerNames, this.outerNames);
    if (box === null || box === "never" || parts === null) return null;
    const [low, high] = parts.inner.range();
    const other = Math.max(0, -low);
    if (high + other >= numel(this.kernel.buffers[buffer].shape)) return null;
    const test = all.filter((t) => this.depth(t) < 2).map((t) => this.value(t)[0]);
    const { row } = this.scopes;
    const key = `${parts.rest.key}:${other}:${test.join()}`;
    const chosen = test.length === 0 ? parts.rest.print() : `${test.join(" && ")} ? ${parts.rest.print()} : ${other}`;
    const start = row.clamped.get(key) ?? row.define("const long", chosen);
    row.clamped.set(key, start);
    const free = this.unclamped?.variable;
    const stride = free === undefined ? null : parts.inner.stride(free);
    const clamped = [...box].flatMap(([name, interval]) => {
      if (!parts.inner.mentions(name) || (name === free && stride !== null)) return [];
      const at = this.#clamp(name, interval, parts.inner, scope);
      return at === null ? [] : [[name, Ix.variable(at, interval.high)] as const];
    });
    const place = parts.inner.substitute(new Map(clamped)).add(Ix.variable(start, 2 ** 52));
    if (stride !== null && free !== undefined && box.has(free)) this.#requireInBuffer(place, stride, buffer, true);
    return place.print();
  }

  /** `always`: the address starts at a place that is only known when the program runs. */
  #requireInBuffer(address: Ix, stride: number, buffer: number, always = false): void {
    const { variable, size, conditions } = this.unclamped!;
    const [first, last] = [0, size - 1].map((at) => address.substitute(new Map([[variable, Ix.constant(at)]])));
    const [low, high] = stride < 0 ? [last, first] : [first, last];
    const count = numel(this.kernel.buffers[buffer].shape);
    if (always || low.range()[0] < 0) conditions.add(`(${low.print()}) >= 0`);
    if (always || high.range()[1] >= count) conditions.add(`(${high.print()}) < ${count}`);
  }

  /** The name of a clamped variable, defined where the variable itself is; null where it is always in range. */
  #clamp(name: string, interval: Interval, address: Ix, scope: EmitScope): string | null {
    const { row, element } = this.scopes;
    const home = this.innerNames.has(name) ? element : this.outerNames.has(name) ? row : scope;
    return this.#clampedIn(home, name, sizeIn(address, name), interval);
  }

  #clampedIn(home: EmitScope, name: string, size: number, interval: Interval): string | null {
    const clamp = clampText(name, size, interval);
    if (clamp === name) return null;
    // Without clamped indices along a row, the first and last rows of an interval are the ones that may leave the buffer.
    const { low, high } = interval;
    const middle = `${name} >= ${low} && ${name} < ${high} ? ${name} : ${(low + high) >> 1}`;
    const text = this.unclamped === null ? clamp : middle;
    const key = `${name}:${low}:${high}${this.unclamped === null ? "" : " unclamped"}`;
    let known = home.clamped.get(key);
    if (known === undefined) {
      known = home.define("const long", text);
      home.clamped.set(key, known);
    }
    return known;
  }

  /** As {@link vectorBase}, in range where the guard of a load fails. Null where it holds for a part of a vector only. */
  #vectorPlace({ address, guard, buffer }: Extract<KExpr, { kind: "load" }>, vector: VectorLoads): Ix | null {
    const base = vectorBase(address, vector);
    if (base === null || guard === null) return base;
    const box = guardBox(guard);
    if (box === null || box === "never" || numel(this.kernel.buffers[buffer].shape) === 0) return null;
    const { variable, width, scope } = vector;
    const clamped = new Map<string, Ix>();
    for (const [name, { low, high }] of box) {
      if (!address.mentions(name)) continue;
      if (name === variable) {
        if (low % width !== 0 || high % width !== 0) return null;
        const last = width - 1;
        const interval = { low, high: high - last };
        const first = this.#clampedIn(scope, firstOf(name), sizeIn(address, name) - last, interval);
        if (first !== null) clamped.set(firstOf(name), Ix.variable(first, high));
      } else {
        // Inner variables are defined where the loads are, which come before those of the elements.
        const home = this.outerNames.has(name) ? this.scopes.row : scope;
        const at = this.#clampedIn(home, name, sizeIn(address, name), { low, high });
        if (at !== null) clamped.set(name, Ix.variable(at, high));
      }
    }
    return base.substitute(clamped);
  }

  /** The array that holds the vector of a load; null where its elements are loaded one by one. */
  #loadVector(expr: Extract<KExpr, { kind: "load" }>): string | null {
    if (this.vector === null || isComplex(expr.dtype) || expr.dynamic.some((index) => this.depth(index) === 2))
      return null;
    const base = this.#vectorPlace(expr, this.vector);
    if (base === null) return null;
    const { width } = this.vector;
    const loaded = this.keptVectors.get(expr.id);
    if (loaded !== undefined) {
      const name = `${keptName(expr.id)}[c]`;
      if (!loaded) this.vector.scope.add(`w_load<${width}>(${name}, p${expr.buffer} + ${base.print()});`);
      return name;
    }
    const name = `l${expr.id}_`;
    this.vector.scope.add(
      `__align__(16) ${storageType[expr.dtype]} ${name}[${width}]; w_load<${width}>(${name}, p${expr.buffer} + ${base.print()});`,
    );
    return name;
  }

  /** Random numbers of a vector: all words of every block of random bits. Null where elements are drawn one by one. */
  #drawVector(expr: Extract<KExpr, { kind: "random" }>, k0: string, k1: string): string | null {
    const shared = elementsPerBlock(expr.draw, expr.dtype);
    if (this.vector === null || shared === 1 || this.vector.width % shared !== 0) return null;
    const base = vectorBase(expr.ix, this.vector);
    if (base === null || expr.args.some((key) => this.depth(key) === 2)) return null;
    const { width } = this.vector;
    const name = `d${expr.id}_`;
    const [type, draw] = [expr.draw === "dropoutMask" ? "uint8_t" : "float", randomName(expr.draw, expr.dtype)];
    const rest = expr.draw === "dropoutMask" ? `, ${expr.threshold}u` : "";
    const args = `${name}, (uint32_t)${k0}, (uint32_t)${k1}, (uint64_t)(${base.print()})${rest}`;
    this.vector.scope.add(`${type} ${name}[${width}]; ${draw}_vector<${width}>(${args});`);
    return `${name}[j]`;
  }

  /** `const float* p0 = ...;` for every buffer. Not restrict: a result may alias an operand. */
  pointers(): string[] {
    return this.kernel.buffers.map((node, i) => {
      const type = storageType[node.dtype];
      const constness = this.kernel.written.has(i) ? "" : "const ";
      return `${constness}${type}* p${i} = (${constness}${type}*)p[${i}];`;
    });
  }
}
