// Reductions of many short rows in C: a block of rows is copied transposed, so that a vector holds one element of several rows. Vectors
// along a short row would be partly empty, and joining their lanes at its end would cost more than the row. Rows that overlap, such as
// windows, lie next to each other already: they are read where they are.
import { isExpensive } from "../cost/index.js";
import { bytesOf, type DType, isComplex, kindOf, numel, range } from "../graph/index.js";
import { BodyPrinter, EmitScope } from "./body.js";
import {
  chooseStash,
  comparedValues,
  initial,
  isArg,
  linearAddress,
  loadsUnder,
  maxSharedLines,
  mentionsAny,
  unpackIndex,
} from "./emit-common.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction, Store } from "./kernel.js";
import { computeType, storageType, storeText, wrapText } from "./scalar.js";
import type { Tally } from "./tally.js";

type Load = Extract<KExpr, { kind: "load" }>;

/** Rows of whole vectors are as good by themselves from `whole` elements on, others from `length`. */
const narrow = { length: 64, whole: 48, rows: 256 };
/** Overlapping rows whose elements are apart in memory are never good by themselves. */
const longest = 512;
/** Bytes of all tiles of a block of rows: most of the first-level cache. */
const tileBytes = 32 << 10;
const rowCounts = [64, 32, 16];
const vectorLanes = 16;
/** Elements of a row that are reduced at a time. */
const elementsAtOnce = 4;

interface Tile {
  name: string;
  dtype: DType;
  loads: Load[];
  store: Store | null;
}

interface NarrowPlan {
  length: number;
  units: number;
  /** Rows of a block. */
  rows: number;
  tiles: Tile[];
  /** The variable along which rows lie next to each other; blocks end with it. Null where all operands are copied. */
  along: LoopVariable | null;
}

/** Values of rows: each is kept in an array, one element per row of the block. */
class RowScope extends EmitScope {
  readonly names: { type: string; name: string }[] = [];

  override define(type: string, text: string): string {
    const before = this.lines.length;
    const name = super.define(type, text);
    if (this.lines.length > before) this.names.push({ type: type.replace(/^const /, ""), name });
    return name;
  }

  override definePair(type: string, statement: (re: string, im: string) => string): [string, string] {
    const pair = super.definePair(type, statement);
    for (const name of pair) this.names.push({ type, name });
    return pair;
  }
}

/** The tiles of a kernel; null where rows are long or few, or operands are read otherwise. */
function narrowPlan(kernel: LoopKernel): NarrowPlan | null {
  const { outer, inner, reductions, columnSums, stores, buffers } = kernel;
  const [variable, ...others] = inner;
  const units = numel(outer.map((v) => v.size));
  if (variable === undefined || others.length + columnSums.length > 0 || reductions.length === 0) return null;
  const length = variable.size;
  const isShort = length < (length % vectorLanes === 0 ? narrow.whole : narrow.length);
  if (length < 2 || length > longest) return null;
  if (units < narrow.rows || reductions.some((r) => isArg(r) || isComplex(r.argument.dtype))) return null;
  const names = new Set([variable.name]);
  const outside = new Set(outer.map((v) => v.name));
  const linear = linearAddress([...outer, ...inner]).key;
  const last = outer.at(-1);
  let overlaps = false;
  let isApart = true;
  const tiles: Tile[] = [];
  const add = (dtype: DType): Tile => {
    const tile: Tile = { name: `q${tiles.length}`, dtype, loads: [], store: null };
    tiles.push(tile);
    return tile;
  };
  for (const load of loadsUnder([...reductions.map((r) => r.argument), ...stores.map((s) => s.value)])) {
    if (load.guard !== null || load.dynamic.length > 0 || isComplex(load.dtype)) return null;
    // A number of the row, or one of the column, is read as it is.
    if (!mentionsAny(load.address, names) || !mentionsAny(load.address, outside)) continue;
    if (load.address.key !== linear) {
      const [step, stride] = [load.address.stride(variable.name), last && load.address.stride(last.name)];
      if (step === null || stride === undefined || stride === null || stride < 0) return null;
      overlaps ||= stride > 0;
      isApart &&= stride < 2 && (stride === 0 || step > 1);
      if (stride < 2) continue;
      if (step !== 1) return null;
    } else isApart = false;
    const known = tiles.find(({ loads }) =>
      loads.some((l) => l.buffer === load.buffer && l.address.equals(load.address)),
    );
    (known ?? add(load.dtype)).loads.push(load);
  }
  const along = overlaps && last !== undefined && last.size >= rowCounts[0] ? last : null;
  if (along === null && (overlaps || tiles.length === 0)) return null;
  if (!isShort && (along === null || !isApart)) return null;
  for (const store of stores) {
    const { dtype } = buffers[store.buffer];
    if (isComplex(dtype)) return null;
    if (!mentionsAny(store.address, names)) continue;
    if (store.address.key !== linear) return null;
    add(dtype).store = store;
  }
  const bytes = tiles.reduce((sum, { dtype }) => sum + length * bytesOf(dtype), 0);
  const rows = rowCounts.find((n) => n * bytes <= tileBytes);
  return rows === undefined ? null : { length, units, rows, tiles, along };
}

const isFloat = (dtype: DType): boolean => kindOf(dtype) === "float";

/** The statement that adds an element to the accumulator of its row. NaN propagates. */
function update(r: Reduction, value: string): string {
  const at = `a${r.slot}[r_]`;
  if (r.fn === "sum" || r.fn === "prod") return `${at} ${r.fn === "sum" ? "+" : "*"}= ${value};`;
  const nan = isFloat(r.argument.dtype) ? ` || ${value} != ${value}` : "";
  return `${at} = (${value} ${r.fn === "max" ? ">" : "<"} ${at}${nan}) ? ${value} : ${at};`;
}

/** The kernel with several rows side by side; null where another form is as good. */
export function emitNarrowC(kernel: LoopKernel): { text: string; units: number; tally: Tally } | null {
  const plan = narrowPlan(kernel);
  if (plan === null) return null;
  const { length, units, rows, tiles, along } = plan;
  const { outer, inner } = kernel;
  const [{ name: variable }] = inner;
  const names = new Set([variable]);
  const [top, row] = [new EmitScope("  "), new RowScope("      ")];
  const scopes = { top, row, element: new EmitScope("        ") };
  const place = `${variable} * ${rows} + r_`;
  const printer = new BodyPrinter(kernel, scopes, names, new Set(outer.map((v) => v.name)), place);
  for (const { name, loads } of tiles) for (const { id } of loads) printer.tiles.set(id, { name, index: place });
  const isWorthStash = (e: KExpr): boolean =>
    e.kind === "random" || ((e.kind === "unary" || e.kind === "binary") && isExpensive(e.fn));
  const compared = comparedValues(kernel);
  chooseStash(printer, kernel, (e) => (isWorthStash(e) || compared.has(e) ? "stash" : "visit"));
  const stashes = [...printer.stash.values()].map(({ name, dtype }) => ({ name, type: computeType[dtype] }));
  const elementStores = tiles.flatMap(({ name, store }) => (store === null ? [] : [{ name, store }]));
  const stageOf = (s: Store): number => printer.stage(s.value);
  const last = Math.max(
    ...kernel.reductions.map((r) => printer.stage(r.argument)),
    ...elementStores.map(({ store }) => stageOf(store)),
  );
  /** Reductions that are finished, and values of rows that are known. */
  const finished: Reduction[] = [];
  const declared: string[] = [];
  let known = 0;
  const body: string[] = [];
  const own = along === null ? unpackIndex(outer, "u") : [`const long ${along.name} = f_ + r_; (void)${along.name};`];
  const index = ["const long u = u_ + r_; (void)u;", ...own];
  const restored = (count: number): string[] => [
    ...finished.map((r) => `const ${computeType[r.argument.dtype]} r${r.slot} = a${r.slot}[r_]; (void)r${r.slot};`),
    ...row.names.slice(0, count).map(({ type, name }) => `const ${type} ${name} = m${name}[r_]; (void)${name};`),
  ];
  /** The loop that computes the values of rows which were printed since the last one, and more statements. */
  const rowLoop = (more: readonly string[]): void => {
    const [before, fresh] = [known, row.names.slice(known)];
    const lines = row.lines.splice(0);
    known = row.names.length;
    if (lines.length + more.length === 0) return;
    declared.push(...fresh.map(({ type, name }) => `${type} m${name}[${rows}] __attribute__((aligned(64)));`));
    body.push(
      '    _Pragma("omp simd")',
      "    for (long r_ = 0; r_ < count; r_++) {",
      ...[...index, ...restored(before)].map((l) => `      ${l}`),
      ...lines,
      ...[...fresh.map(({ name }) => `m${name}[r_] = ${name};`), ...more].map((l) => `      ${l}`),
      "    }",
    );
  };
  const written = new Set<number>();
  for (let stage = 0; stage <= last; stage++) {
    const reductions = kernel.reductions.filter((r) => printer.stage(r.argument) === stage);
    const stores = elementStores.filter(({ store }) => stageOf(store) === stage);
    if (reductions.length + stores.length === 0) continue;
    const element = new EmitScope("        ");
    scopes.element = element;
    // The first pass computes and writes a stashed value; only later passes read it.
    const fresh = new Map([...printer.stash].filter(([id]) => !written.has(id)));
    for (const id of fresh.keys()) printer.stash.delete(id);
    for (const r of reductions) {
      const type = computeType[r.argument.dtype];
      declared.push(`${type} a${r.slot}[${rows}] __attribute__((aligned(64)));`);
      body.push(`    for (long r_ = 0; r_ < ${rows}; r_++) a${r.slot}[r_] = ${initial(r.fn, r.argument.dtype)};`);
      element.add(update(r, printer.value(r.argument)[0]));
      printer.tally.add("simple", 2 * kernel.size);
    }
    for (const { name, store } of stores) {
      const { dtype } = kernel.buffers[store.buffer];
      for (const line of storeText(name, place, dtype, printer.value(store.value))) element.add(line);
      printer.tally.add("simple", 2 * kernel.size);
    }
    for (const [id, stash] of fresh) {
      const value = element.values.get(id);
      printer.stash.set(id, stash);
      if (value === undefined) continue;
      written.add(id);
      element.add(`${stash.name}[${place}] = ${value[0]};`);
    }
    rowLoop([]);
    // Several elements of a row at a time: accumulators are read and written once.
    const isShared = stores.length + fresh.size === 0 && element.lines.length <= maxSharedLines;
    const shared = isShared ? length - (length % elementsAtOnce) : 0;
    const overRows = (lines: readonly string[]): string[] => [
      '      _Pragma("omp simd")',
      `      for (long r_ = 0; r_ < ${along === null ? rows : "count"}; r_++) {`,
      ...[...index, ...restored(known)].map((l) => `        ${l}`),
      ...lines,
      "      }",
      "    }",
    ];
    const several = range(elementsAtOnce).flatMap((k) => [
      `        { const long ${variable} = e_ + ${k};`,
      ...element.lines,
      "        }",
    ]);
    if (shared > 0) body.push(`    for (long e_ = 0; e_ < ${shared}; e_ += ${elementsAtOnce}) {`, ...overRows(several));
    if (shared < length)
      body.push(
        `    for (long ${variable} = ${shared}; ${variable} < ${length}; ${variable}++) {`,
        ...overRows(element.lines),
      );
    finished.push(...reductions);
    const wrapped = reductions.flatMap((r) => {
      const name = `a${r.slot}[r_]`;
      return wrapText(name, r.dtype) === name ? [] : [`${name} = ${wrapText(name, r.dtype)};`];
    });
    rowLoop(wrapped);
  }
  const rowStores = kernel.stores.filter((s) => !elementStores.some(({ store }) => store === s));
  const writes = rowStores.flatMap((s) => {
    const value = printer.value(s.value);
    return storeText(`p${s.buffer}`, s.address.print(), kernel.buffers[s.buffer].dtype, value);
  });
  rowLoop(writes);
  const perLine = along === null ? 0 : Math.ceil(along.size / rows);
  const blocks = along === null ? Math.ceil(units / rows) : (units / along.size) * perLine;
  const block =
    along === null
      ? [`const long u_ = b_ * ${rows}, count = ${units} - u_ < ${rows} ? ${units} - u_ : ${rows};`]
      : [
          `const long f_ = b_ % ${perLine} * ${rows}, o_ = b_ / ${perLine}, u_ = o_ * ${along.size} + f_; (void)u_;`,
          `const long count = ${along.size} - f_ < ${rows} ? ${along.size} - f_ : ${rows};`,
          ...unpackIndex(outer.slice(0, -1), "o_"),
        ];
  printer.tally.add("simple", tiles.length * kernel.size);
  const text = [
    ...printer.pointers().map((l) => `  ${l}`),
    ...top.lines,
    "  for (long b_ = lo; b_ < hi; b_++) {",
    ...block.map((l) => `    ${l}`),
    ...tiles.map(
      ({ name, dtype }) => `    ${storageType[dtype]} ${name}[${length * rows}] __attribute__((aligned(64)));`,
    ),
    ...stashes.map(({ name, type }) => `    ${type} ${name}[${length * rows}] __attribute__((aligned(64)));`),
    ...declared.map((l) => `    ${l}`),
    ...tiles.flatMap(({ name, dtype, loads }) => {
      const [load] = loads;
      if (load === undefined) return [];
      const copy = (from: string, stride: number): string =>
        `w_transpose_${bytesOf(dtype)}(p${load.buffer} + ${from}, ${stride}, ${name}, ${rows}, count, ${length});`;
      if (along === null || load.address.key === linearAddress([...outer, ...inner]).key)
        return [`    ${copy(`u_ * ${length}`, length)}`];
      // Inside the braces, the variables have their values at the first element of the block.
      const first = `const long ${along.name} = f_, ${variable} = 0; (void)${along.name}; (void)${variable};`;
      return [`    { ${first} ${copy(`(${load.address.print()})`, load.address.stride(along.name) ?? 0)} }`];
    }),
    ...body,
    // All reads before all writes: a result may alias an operand.
    ...elementStores.map(({ name, store }) => {
      const bytes = bytesOf(kernel.buffers[store.buffer].dtype);
      return `    w_transpose_${bytes}(${name}, ${rows}, p${store.buffer} + u_ * ${length}, ${length}, ${length}, count);`;
    }),
    "  }",
  ].join("\n");
  return { text, units: blocks, tally: printer.tally };
}
