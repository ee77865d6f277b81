// Rows of float16 numbers in C: they are converted before and after the loops over a row, many by one instruction. Inside loops, compilers
// would convert them one by one, by arithmetic on their bits, or by calls that leave no number in a register.
import type { BodyPrinter } from "./body.js";
import { loadsUnder } from "./emit-common.js";
import { Ix } from "./index-expr.js";
import type { LoopKernel } from "./kernel.js";

/** Elements that are converted at a time where rows have no end. */
const chunk = 512;
/** The shortest rows that are converted, and the bytes of all arrays of a row, which stay in the cache. */
const limits = { length: 32, bytes: 1 << 16 };

/** Lines around the loops over a row: before them, and after them. */
interface HalfRows {
  before(): string[];
  after(): string[];
}

const none: HalfRows = { before: () => [], after: () => [] };

/** Lets a printer read and write rows of float16 numbers as arrays of floats. */
export function withHalfRows(kernel: LoopKernel, printer: BodyPrinter, flat: boolean): HalfRows {
  const { inner, reductions, stores, columnSums, buffers } = kernel;
  const [variable, ...others] = inner;
  if (variable === undefined || others.length + columnSums.length > 0 || variable.size < limits.length) return none;
  const { name, size } = variable;
  const isNext = (address: Ix): boolean => address.stride(name) === 1;
  const first = (address: Ix): string => address.substitute(new Map([[name, Ix.zero]])).print();
  const loads = loadsUnder([...reductions.map((r) => r.argument), ...stores.map((s) => s.value)]).filter(
    (l) => l.dtype === "float16" && l.guard === null && l.dynamic.length === 0 && isNext(l.address),
  );
  const results = stores.filter((s) => buffers[s.buffer].dtype === "float16" && isNext(s.address));
  const length = flat ? Math.min(size, chunk) : size;
  if (4 * length * (loads.length + results.length) > limits.bytes) return none;
  const at = flat
    ? { index: `${name} - lo`, start: " + lo", count: "hi - lo" }
    : { index: name, start: "", count: size };
  const tiles = loads.map((load, i) => {
    const tile = { name: `w${i}_`, index: at.index, isWide: true, isRead: false };
    printer.tiles.set(load.id, tile);
    return { tile, load };
  });
  const rows = results.map((store, i) => {
    const row = { place: `n${i}_[${at.index}]`, isWritten: false };
    printer.halfRows.set(store, row);
    return { row, store, name: `n${i}_` };
  });
  const array = (of: string): string => `    float ${of}[${length}] __attribute__((aligned(64)));`;
  return {
    before: () => [
      ...rows.filter(({ row }) => row.isWritten).map((r) => array(r.name)),
      ...tiles
        .filter(({ tile }) => tile.isRead)
        .flatMap(({ tile, load }) => [
          array(tile.name),
          `    w_widen_h(p${load.buffer} + (${first(load.address)})${at.start}, ${tile.name}, ${at.count});`,
        ]),
    ],
    after: () =>
      rows
        .filter(({ row }) => row.isWritten)
        .map(
          ({ name: from, store }) =>
            `    w_narrow_h(${from}, p${store.buffer} + (${first(store.address)})${at.start}, ${at.count});`,
        ),
  };
}

/** A loop over parts of a range that are as long as the arrays of floats. */
export const inChunks = (lines: readonly string[]): string[] => [
  `  for (long from_ = lo, end_ = hi; from_ < end_; from_ += ${chunk}) {`,
  `    const long lo = from_, hi = from_ + ${chunk} < end_ ? from_ + ${chunk} : end_;`,
  ...lines,
  "  }",
];
