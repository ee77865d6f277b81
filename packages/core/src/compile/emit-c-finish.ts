// Reductions of rows in C that end with an expensive function of their results: it is computed for several rows at a time, by vectors.
import { isTranscendental } from "../cost/index.js";
import { isComplex } from "../graph/index.js";
import { type BodyPrinter, EmitScope } from "./body.js";
import { isArg, storeLines, unpackIndex } from "./emit-common.js";
import type { KExpr, LoopKernel, Store } from "./kernel.js";
import { computeType } from "./scalar.js";

/** Rows whose results are computed together. */
const togetherRows = 16;

/**
 * The loops over rows that end with an expensive function of their reductions, as norms and logarithms of sums do: it is computed for
 * several rows at a time, by vectors. Null for other kernels.
 */
export function finishedTogether(
  kernel: LoopKernel,
  printer: BodyPrinter,
  stores: readonly Store[],
  hasElements: boolean,
): ((row: readonly string[]) => string[]) | null {
  const { outer, reductions } = kernel;
  if (hasElements || outer.length !== 1 || outer[0].size < togetherRows || reductions.length === 0) return null;
  if (reductions.some((r) => isArg(r) || isComplex(r.argument.dtype))) return null;
  const below = new Set(stores.map(({ value }) => value).filter((value) => printer.depth(value) === 1));
  for (const expr of below) if ("args" in expr) for (const arg of expr.args) below.add(arg);
  const isLong = (e: KExpr): boolean => (e.kind === "unary" || e.kind === "binary") && isTranscendental(e.fn);
  if (![...below].some(isLong)) return null;
  const last = new EmitScope("      ");
  printer.scopes.row = last;
  for (const line of storeLines(kernel, printer, stores)) last.add(line);
  const kept = reductions.map((r) => ({ name: `r${r.slot}`, type: computeType[r.argument.dtype] }));
  const index = unpackIndex(outer, "u").map((l) => `      ${l}`);
  return (row) => [
    `  for (long b_ = lo; b_ < hi; b_ += ${togetherRows}) {`,
    `    const long e_ = b_ + ${togetherRows} < hi ? b_ + ${togetherRows} : hi;`,
    ...kept.map(({ name, type }) => `    ${type} m${name}[${togetherRows}] __attribute__((aligned(64)));`),
    "    for (long u = b_; u < e_; u++) {",
    ...index,
    ...row,
    ...kept.map(({ name }) => `      m${name}[u - b_] = ${name};`),
    "    }",
    '    _Pragma("omp simd")',
    "    for (long u = b_; u < e_; u++) {",
    ...index,
    ...kept.map(({ name, type }) => `      const ${type} ${name} = m${name}[u - b_]; (void)${name};`),
    ...last.lines,
    "    }",
    "  }",
  ];
}
