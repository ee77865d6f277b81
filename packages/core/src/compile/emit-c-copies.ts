// Kernels of the C dialect that are one operation on memory: dropout masks in blocks of random bits, and concatenations as copies.
import { isComplex, numel } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import { type EmittedKernel, unpackIndex } from "./emit-common.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, LoopVariable } from "./kernel.js";

const withoutInner = (ix: Ix, name: string): Ix => ix.substitute(new Map([[name, Ix.zero]]));

/** Whether an address has stride one along the inner variable, from a multiple of four on. */
function inFours(ix: Ix, name: string): boolean {
  const rest = withoutInner(ix, name);
  return ix.stride(name) === 1 && rest.constant % 4 === 0 && [...rest.terms.values()].every((t) => t.factor % 4 === 0);
}

/** A kernel that is only a dropout mask: whole blocks of random bits, four elements each. */
export function emitKept(kernel: LoopKernel): EmittedKernel | null {
  const [store, ...others] = kernel.stores;
  const { outer, inner } = kernel;
  if (others.length > 0 || kernel.reductions.length > 0 || inner.length !== 1) return null;
  const { value, address } = store;
  const [{ name, size }] = inner;
  if (value.kind !== "random" || value.draw !== "dropoutMask" || size % 4 !== 0) return null;
  if (!inFours(value.ix, name) || !inFours(address, name)) return null;
  const row = new EmitScope("    ");
  const top = new EmitScope("  ");
  const scopes = { top, row, element: new EmitScope("    ") };
  const printer = new BodyPrinter(kernel, scopes, new Set([name]), new Set(outer.map((v) => v.name)), name);
  if (value.args.some((key) => printer.depth(key) === 2)) return null;
  const [k0, k1] = value.args.map((key) => printer.value(key)[0]);
  const flat = outer.length === 0;
  const [from, count] = flat ? ["lo", "hi - lo"] : ["0", String(size / 4)];
  const number = `(uint64_t)(${withoutInner(value.ix, name).print()}) / 4 + ${from}`;
  const to = `(uint32_t*)(p${store.buffer} + ${withoutInner(address, name).print()}) + ${from}`;
  row.add(`w_dropout_mask_blocks(${to}, (uint32_t)${k0}, (uint32_t)${k1}, ${number}, ${count}, ${value.threshold}u);`);
  const body = flat
    ? row.lines
    : ["  for (long u = lo; u < hi; u++) {", ...unpackIndex(outer, "u").map((l) => `    ${l}`), ...row.lines, "  }"];
  const head = printer.pointers().map((l) => `  ${l}`);
  printer.tally.add("dropoutMask", kernel.size);
  return {
    text: [...head, ...top.lines, ...body].join("\n"),
    units: flat ? size / 4 : numel(outer.map((v) => v.size)),
    tally: printer.tally,
  };
}

type Load = Extract<KExpr, { kind: "load" }>;

/** A concatenation of contiguous arrays: the memory of each and its range in the result; null for anything else. */
function joinedParts(value: KExpr, { name, size }: LoopVariable): { low: number; high: number; load: Load }[] | null {
  const parts: { low: number; high: number; load: Load }[] = [];
  let end = Number.POSITIVE_INFINITY;
  for (let at: KExpr | null = value; at !== null; ) {
    const [test, chosen, rest]: (KExpr | null)[] =
      at.kind === "where" ? at.args : [(at as Load).guard ?? null, at, null];
    if (test?.kind !== "inRange" || chosen?.kind !== "load" || chosen.guard !== test) return null;
    const plain = test.ix.key === Ix.variable(name, size).key && chosen.dynamic.length === 0;
    // A single number (a loss among gradients) is copied from any layout.
    const isRun = chosen.address.stride(name) === 1 || test.high - test.low === 1;
    if (!plain || !isRun) return null;
    // Every position is in one part: the tests are consecutive.
    if (end !== Number.POSITIVE_INFINITY && test.low !== end) return null;
    end = test.high;
    parts.push({ low: test.low, high: test.high, load: chosen });
    at = rest ?? null;
  }
  return parts.length < 2 || parts[0].low !== 0 ? null : parts;
}

/** Average length from which the parts of rows are copied one by one. */
const minPart = 16;

/** A kernel that is only a concatenation (a bucket of gradients): one copy per part instead of a test per element. */
export function emitJoined(kernel: LoopKernel): EmittedKernel | null {
  const [store, ...others] = kernel.stores;
  const { outer, inner } = kernel;
  if (others.length > 0 || kernel.reductions.length > 0 || inner.length !== 1) return null;
  const [{ name, size }] = inner;
  const parts = joinedParts(store.value, inner[0]);
  if (parts === null || parts.at(-1)?.high !== size || store.address.stride(name) !== 1) return null;
  // Short parts of many rows are quicker as a test per element.
  if (outer.length > 0 && size < minPart * parts.length) return null;
  const [top, row] = [new EmitScope("  "), new EmitScope("    ")];
  const outerNames = new Set(outer.map((v) => v.name));
  const printer = new BodyPrinter(kernel, { top, row, element: row }, new Set([name]), outerNames, name);
  const from = new Map([[name, Ix.variable("a", size)]]);
  // Complex numbers are two elements of their array.
  const each = isComplex(store.value.dtype) ? 2 : 1;
  const place = (buffer: number, address: Ix): string =>
    `p${buffer} + ${each === 1 ? "" : `${each}*`}(${address.substitute(from).print()})`;
  const to = place(store.buffer, store.address);
  const isFlat = outer.length === 0;
  const body = parts.map(({ low, high, load }) => {
    const ends = isFlat
      ? `a = lo > ${low} ? lo : ${low}, b = hi < ${high} ? hi : ${high}; if (a < b)`
      : `a = ${low}, b = ${high};`;
    const bytes = `(b - a) * ${each} * sizeof(*p${store.buffer})`;
    return `  { const long ${ends} __builtin_memmove(${to}, ${place(load.buffer, load.address)}, ${bytes}); }`;
  });
  printer.tally.add("simple", (each * kernel.size) / 2);
  const rows = [
    "  for (long u = lo; u < hi; u++) {",
    ...unpackIndex(outer, "u").map((l) => `    ${l}`),
    ...body,
    "  }",
  ];
  return {
    text: [...printer.pointers().map((l) => `  ${l}`), ...top.lines, ...(isFlat ? body : rows)].join("\n"),
    units: isFlat ? size : numel(outer.map((v) => v.size)),
    tally: printer.tally,
  };
}
