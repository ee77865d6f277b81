// Time loops with stored or checkpointed gradients.
import { scan, type Tensor, treeLeaves, treeMap } from "@weft/core/internal/tensor";
import type { GradientMethod } from "./methods.js";

/** One step of a time loop. */
type TimeStep<C, X> = (carry: C, x: X) => C;

const rows = <X>(xs: X, from: number, to: number): X =>
  treeMap((x: Tensor) => x.slice([from, ...x.shape.slice(1).map(() => 0)], [to, ...x.shape.slice(1)]), xs);

/** Splits the leading axis into `count` equal pieces: [count * length, ...] -> [count, length, ...]. */
const piecesOf = <X>(xs: X, count: number): X =>
  treeMap((x: Tensor) => x.reshape([count, x.shape[0] / count, ...x.shape.slice(1)]), xs);

/** Splits n steps into `count` pieces of equal length and a remainder. */
export function splitSteps(n: number, count: number): { count: number; length: number; rest: number } {
  const pieces = Math.max(1, Math.min(count, n));
  const length = Math.floor(n / pieces);
  return { count: pieces, length, rest: n - pieces * length };
}

/** Checkpoints of a loop of n steps. */
const checkpointsOf = (n: number, { checkpoints }: GradientMethod): number => checkpoints ?? Math.round(Math.sqrt(n));

/** The most steps whose states the reverse pass of `runSteps` stores at a time. */
export const storedSteps = (n: number, gradient: GradientMethod): number =>
  gradient.kind === "checkpointed" ? splitSteps(n, checkpointsOf(n, gradient)).length : n;

const plain = <C, X>(step: TimeStep<C, X>, init: C, xs: X, length: number): C =>
  scan((c: C, x: X) => [step(c, x), []], init, xs, { length })[0];

/**
 * Runs all steps and returns the last carry. "checkpointed" is a nested loop: the outer loop stores its carries, the inner loop
 * is rematerialized in the reverse pass. Pass `n` if `xs` has no leaves, which is the case without drives.
 */
export function runSteps<C, X>(
  step: TimeStep<C, X>,
  init: C,
  xs: X,
  gradient: GradientMethod,
  n = treeLeaves(xs)[0].shape[0],
): C {
  if (gradient.kind !== "checkpointed" || n < 4) return plain(step, init, xs, n);
  const { count, length, rest } = splitSteps(n, checkpointsOf(n, gradient));
  const middle = scan(
    (c: C, piece: X) => [plain(step, c, piece, length), []],
    init,
    piecesOf(rest === 0 ? xs : rows(xs, 0, count * length), count),
    { length: count },
  )[0];
  return rest === 0 ? middle : plain(step, middle, rows(xs, count * length, n), rest);
}

/** The first `count * length` rows in pieces, and the remaining rows or null. */
function cutRows<X>(xs: X, count: number, length: number, n: number): { pieces: X; rest: X | null } {
  const used = count * length;
  return { pieces: piecesOf(used === n ? xs : rows(xs, 0, used), count), rest: used === n ? null : rows(xs, used, n) };
}

/** Snapshots after every piece of the steps: [pieces, ...]. `advance` runs one piece. */
export function runSaving<C, X, Y>(
  advance: (carry: C, xs: X) => C,
  init: C,
  xs: X,
  pieces: number,
  emit: (carry: C) => Y,
): [C, Y] {
  return scan(
    (c: C, piece: X) => {
      const next = advance(c, piece);
      return [next, emit(next)];
    },
    init,
    piecesOf(xs, pieces),
  );
}

/** Largest size in bytes of tables that are computed from the inputs of the steps; computing them takes several times that. */
const blockBytes = 4 << 20;

/**
 * Runs steps whose tables (such as maps) are computed from their inputs in batches. Tables of all steps are stored at once if
 * they are small; else blocks of steps compute theirs, also in the reverse pass.
 */
export function runBlocks<C, T>(
  step: TimeStep<C, T>,
  init: C,
  inputs: Tensor,
  options: { tables(inputs: Tensor): T; bytes: number; gradient: GradientMethod },
): C {
  const { tables, bytes, gradient } = options;
  const [n] = inputs.shape;
  const block = Math.max(1, Math.floor(blockBytes / bytes));
  if (block >= n) return runSteps(step, init, tables(inputs), gradient, n);
  const count = Math.floor(n / block);
  const { pieces, rest } = cutRows(inputs, count, block, n);
  const whole = (carry: C, piece: Tensor): C => plain(step, carry, tables(piece), piece.shape[0]);
  const middle = plain(whole, init, pieces, count);
  return rest === null ? middle : whole(middle, rest);
}
