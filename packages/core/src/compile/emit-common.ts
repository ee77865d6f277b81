// Parts that both dialects share: sums and products, values stored between passes, loop variables from a linear index, stores.
import { type DType, isComplex, isHalf, kindOf, numel } from "../graph/index.js";
import type { BodyPrinter } from "./body.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { type CValue, computeType, literal, storeText, wrapText } from "./scalar.js";
import type { Tally } from "./tally.js";

const lowest: Record<DType, string> = {
  bool: "0",
  int8: "-128",
  uint8: "0",
  int16: "-32768",
  uint16: "0",
  int32: "INT32_MIN",
  uint32: "0u",
  int64: "INT64_MIN",
  uint64: "UINT64_C(0)",
  float16: "-w_inf_f()",
  bfloat16: "-w_inf_f()",
  float32: "-w_inf_f()",
  float64: "-w_inf_d()",
  complex64: "0",
  complex128: "0",
};
const highest: Record<DType, string> = {
  ...lowest,
  bool: "1",
  int8: "127",
  uint8: "255",
  int16: "32767",
  uint16: "65535",
  int32: "INT32_MAX",
  uint32: "UINT32_MAX",
  int64: "INT64_MAX",
  uint64: "UINT64_MAX",
  float16: "w_inf_f()",
  bfloat16: "w_inf_f()",
  float32: "w_inf_f()",
  float64: "w_inf_d()",
};

export const initial = (fn: Reduction["fn"], dtype: DType): string =>
  fn === "sum" || fn === "spread"
    ? literal(0, dtype)
    : fn === "prod"
      ? literal(1, dtype)
      : fn === "max" || fn === "argmax"
        ? lowest[dtype]
        : highest[dtype];

export const isArg = (r: Reduction): boolean => r.fn === "argmax" || r.fn === "argmin";
/** Statements that compute the outer variables from one linear index. */
export function unpackIndex(variables: readonly LoopVariable[], from: string): string[] {
  const lines: string[] = [];
  let below = numel(variables.map((v) => v.size));
  variables.forEach((v, i) => {
    below /= v.size;
    const divided = below === 1 ? from : `${from} / ${below}`;
    lines.push(`const long ${v.name} = ${i === 0 ? divided : `(${divided}) % ${v.size}`};`);
  });
  return lines;
}

/** The address of an element in memory that has the shape of the loops. */
export function linearAddress(variables: readonly LoopVariable[]): Ix {
  let stride = 1;
  return [...variables].reverse().reduce((sum, { name, size }) => {
    const term = Ix.variable(name, size).times(stride);
    stride *= size;
    return sum.add(term);
  }, Ix.zero);
}

/** The loads that expressions consist of, those of guards and data indices included. */
export function loadsUnder(roots: readonly KExpr[]): Extract<KExpr, { kind: "load" }>[] {
  const found: Extract<KExpr, { kind: "load" }>[] = [];
  const seen = new Set<number>();
  const stack = [...roots];
  while (stack.length > 0) {
    const expr = stack.pop()!;
    if (seen.has(expr.id)) continue;
    seen.add(expr.id);
    if (expr.kind === "load") found.push(expr);
    const guard = expr.kind === "load" && expr.guard !== null ? [expr.guard] : [];
    stack.push(...("args" in expr ? expr.args : []), ...("dynamic" in expr ? expr.dynamic : []), ...guard);
  }
  return found;
}

export const writeText = (kernel: LoopKernel, s: Store, value: CValue): string[] =>
  storeText(`p${s.buffer}`, s.address.print(), kernel.buffers[s.buffer].dtype, value);

/** Functions of one or two numbers of a half type whose results are numbers of that type. */
const keepsRounding: ReadonlySet<string> = new Set(["neg", "abs", "max", "min", "sign", "floor", "ceil", "trunc"]);

/** Whether a value of a half type is a number of that type already: it was loaded, or rounded by a conversion. */
function isRounded(expr: KExpr): boolean {
  if (expr.kind === "load" || expr.kind === "cast") return true;
  if (expr.kind === "const") return expr.value === 0 || Math.abs(Number(expr.value)) === Number.POSITIVE_INFINITY;
  if (expr.kind === "where") return expr.args.slice(1).every(isRounded);
  return (expr.kind === "unary" || expr.kind === "binary") && keepsRounding.has(expr.fn) && expr.args.every(isRounded);
}

/**
 * The statements of stores in C. All reads come before all writes: a result may alias an operand. Numbers of half types that need no
 * rounding are not rounded once more, and those that are only moved are not converted.
 */
export function storeLines(kernel: LoopKernel, printer: BodyPrinter, stores: readonly Store[]): string[] {
  const lines = stores.map((s) => {
    const { dtype } = kernel.buffers[s.buffer];
    const place = `p${s.buffer}[${s.address.print()}]`;
    const moved = s.value.dtype === dtype ? printer.moved(s.value) : null;
    if (moved !== null) return [`${place} = ${moved};`];
    const row = printer.halfRows.get(s);
    const write = (value: CValue): string[] => {
      if (row === undefined) return writeText(kernel, s, value);
      row.isWritten = true;
      return [`${row.place} = ${value[0]};`];
    };
    // A conversion to a half type rounds when it is stored: nothing is widened again in between.
    if (isHalf(dtype) && s.value.kind === "cast" && s.value.dtype === dtype) {
      const [unrounded] = s.value.args;
      if (computeType[unrounded.dtype] === "float") return write(printer.value(unrounded));
    }
    const value = printer.value(s.value);
    const name = dtype === "bfloat16" ? "w_bfloat_of" : dtype === "float16" ? "w_half_of" : null;
    if (row !== undefined || name === null || s.value.dtype !== dtype || !isRounded(s.value)) return write(value);
    return [`${place} = ${name}(${value[0]});`];
  });
  return lines.flat();
}

export const mentionsAny = (address: { mentions(name: string): boolean }, names: ReadonlySet<string>): boolean =>
  [...names].some((name) => address.mentions(name));

/** Statements of one reduction: declarations, the update for an element, and the end. */
export interface ReductionCode {
  declare: string[];
  update: string[];
  end: string[];
}

/** The code of a sum or product with an accumulator of the given C type; null for other reductions. */
export function foldCode(r: Reduction, value: CValue, name: string, type: string): ReductionCode | null {
  const { dtype } = r.argument;
  if (isComplex(dtype)) {
    const [re, im] = value as readonly [string, string];
    const product = `{ ${type} a = ${name}r * ${re} - ${name}i * ${im}; ${name}i = ${name}r * ${im} + ${name}i * ${re}; ${name}r = a; }`;
    return {
      declare: [`${type} ${name}r = ${literal(r.fn === "sum" ? 0 : 1, dtype)}, ${name}i = ${literal(0, dtype)};`],
      update: r.fn === "sum" ? [`${name}r += ${re};`, `${name}i += ${im};`] : [product],
      end: [],
    };
  }
  if (r.fn !== "sum" && r.fn !== "prod") return null;
  return {
    declare: [`${type} ${name} = ${initial(r.fn, dtype)};`],
    update: [`${name} ${r.fn === "sum" ? "+" : "*"}= ${value[0]};`],
    end: wrapText(name, r.dtype) === name ? [] : [`${name} = ${wrapText(name, r.dtype)};`],
  };
}

/**
 * Chooses the values that one pass over a row computes and a later pass reads back: those for which `rule` says "stash".
 * "skip" excludes a value and its operands.
 */
export function chooseStash(
  printer: BodyPrinter,
  kernel: LoopKernel,
  rule: (expr: KExpr) => "stash" | "visit" | "skip",
): void {
  const firstUse = new Map<number, number>();
  const visit = (expr: KExpr, stage: number): void => {
    const action = rule(expr);
    if (action === "skip" || printer.depth(expr) < 2) return;
    const first = firstUse.get(expr.id);
    if (action === "stash" && first !== undefined && first < stage) {
      printer.stash.set(expr.id, { name: `s${expr.id}`, dtype: expr.dtype });
      return;
    }
    // A shared value is visited once per pass, however many paths lead to it.
    if (first === stage) return;
    if (first === undefined) firstUse.set(expr.id, stage);
    if ("args" in expr) for (const arg of expr.args) visit(arg, stage);
  };
  const uses = [
    ...[...kernel.reductions, ...kernel.columnSums].map(({ argument }) => argument),
    ...kernel.stores.map(({ value }) => value),
  ].map((expr) => ({ stage: printer.stage(expr), expr }));
  for (const { stage, expr } of uses.sort((a, b) => a.stage - b.stage)) visit(expr, stage);
}

/**
 * Values that are compared with the largest or smallest of them, as in gradients: computed again in another loop, a product and a sum may
 * be fused there and not here, and no element would be equal.
 */
export function comparedValues({ reductions, columnSums, stores }: LoopKernel): ReadonlySet<KExpr> {
  const isFound = (e: KExpr): boolean =>
    e.kind === "cast" ? isFound(e.args[0]) : e.kind === "reduced" && ["max", "min"].includes(reductions[e.slot].fn);
  const found = new Set<KExpr>();
  const seen = new Set<KExpr>();
  const waiting = [...stores.map(({ value }) => value), ...[...reductions, ...columnSums].map((r) => r.argument)];
  for (let e = waiting.pop(); e !== undefined; e = waiting.pop()) {
    if (seen.has(e) || !("args" in e)) continue;
    seen.add(e);
    waiting.push(...e.args);
    if (e.kind === "binary" && e.fn === "eq" && e.args.some(isFound))
      for (const x of e.args) if ("args" in x && !isFound(x)) found.add(x);
  }
  return found;
}

/** A printed kernel. */
export interface EmittedKernel {
  /** The function without its name: equal texts are equal kernels. */
  text: string;
  /** Number of outer iterations to distribute. */
  units: number;
  /** Operation counts of the text. */
  tally: Tally;
  /** Column sums: the width of a column. */
  columns?: number;
}

/** Longer expressions keep the processor busy by themselves: more accumulators do not help. */
export const maxSharedLines = 6;

export const isFloatKind = (dtype: DType): boolean => kindOf(dtype) === "float";
