// Steps as lists of small unitary gates on a state of many sites, and the time loop with each gradient method. Reversal runs state
// and cotangent backwards through the gates, so it stores two states for any number of steps.
import {
  adjoint,
  concat,
  customVjp,
  grad,
  matmul,
  ones,
  scan,
  type Tensor,
  vmap,
  where,
  zerosLike,
} from "@weft/core/internal/tensor";
import { phase } from "./exponential.js";
import { runSteps } from "./loop.js";
import type { GradientMethod } from "./methods.js";
import { parameterSlopes, type StepAngles } from "./step-angles.js";

/** One gate of a step: its sites and the index of its matrix. */
export interface Slot {
  sites: readonly number[];
  /** "fixed": equal in all steps; "table": one matrix per step; "phases": diagonal exp(-i angle) with angles per step. */
  kind: "fixed" | "table" | "phases";
  index: number;
}

interface GateTensors {
  /** [m, m] each */
  fixed: Tensor[];
  /** [steps, m, m] each */
  tables: Tensor[];
  /** Real, [steps, m] each */
  angles: Tensor[];
}

export interface GateProgram extends GateTensors {
  dims: readonly number[];
  slots: readonly Slot[];
  /** Indices of the steps [steps], in float64. */
  at: Tensor;
  /** Angles as a function of the step index, or null; with it the tables of angles are not computed. */
  stepAngles: StepAngles | null;
  /** With `stepAngles`: number of steps whose angles are tabulated at a time. */
  block?: number;
  /** Steps from this index on change nothing: pieces of unequal length run in one loop. */
  end?: Tensor;
}

/** What a step gives, or what was before it if the step lies behind the end of a piece. */
const until = <T extends Tensor | Tensor[]>(end: Tensor | undefined, k: Tensor, after: T, before: T): T => {
  if (end === undefined) return after;
  const one = (x: Tensor, y: Tensor): Tensor => where(k.less(end), x, y);
  return (
    Array.isArray(after) ? after.map((x, i) => one(x, (before as Tensor[])[i])) : one(after, before as Tensor)
  ) as T;
};

interface StepGates {
  tables: Tensor[];
  phases: Tensor[];
}

/** Reshapes a state to [before, m, after] around the sites of a gate, and back; non-adjacent sites are transposed. */
function around(dims: readonly number[], sites: readonly number[]) {
  const contiguous = sites.every((s, k) => k === 0 || s === sites[k - 1] + 1);
  const m = sites.reduce((p, s) => p * dims[s], 1);
  const D = dims.reduce((a, b) => a * b, 1);
  if (contiguous) {
    const before = dims.slice(0, sites[0]).reduce((a, b) => a * b, 1);
    return {
      open: (x: Tensor): Tensor => x.reshape([before, m, D / m / before]),
      close: (x: Tensor): Tensor => x.reshape([D]),
    };
  }
  const order = [...sites, ...dims.map((_, k) => k).filter((k) => !sites.includes(k))];
  const back = dims.map((_, k) => order.indexOf(k));
  return {
    open: (x: Tensor): Tensor =>
      x
        .reshape([...dims])
        .permute(order)
        .reshape([1, m, D / m]),
    close: (x: Tensor): Tensor =>
      x
        .reshape(order.map((k) => dims[k]))
        .permute(back)
        .reshape([D]),
  };
}

/** Applies a matrix to some sites of a state [D]. */
export function applyGate(dims: readonly number[], sites: readonly number[], gate: Tensor, state: Tensor): Tensor {
  const { open, close } = around(dims, sites);
  return close(matmul(gate, open(state)));
}

type Read = (slot: Slot) => Tensor;

function forwardStep(dims: readonly number[], slots: readonly Slot[], gateOf: Read, state: Tensor): Tensor {
  return slots.reduce((psi, slot) => {
    const { open, close } = around(dims, slot.sites);
    const gate = gateOf(slot);
    return close(slot.kind === "phases" ? open(psi).mul(gate.reshape([1, gate.shape[0], 1])) : matmul(gate, open(psi)));
  }, state);
}

const reader =
  (fixed: readonly Tensor[], x: StepGates): Read =>
  ({ kind, index }) =>
    kind === "fixed" ? fixed[index] : kind === "table" ? x.tables[index] : x.phases[index];

const stepGates = ({ tables, angles }: GateTensors): StepGates => ({ tables, phases: angles.map(phase) });

interface Back {
  psi: Tensor;
  lambda: Tensor;
  fixed: Tensor[];
}
interface StepGradients {
  tables: Tensor[];
  angles: Tensor[];
}

/** Nothing of an inverted step behind the end of a piece. */
const backUntil = (end: Tensor | undefined, k: Tensor, after: Back, before: Back): Back => ({
  psi: until(end, k, after.psi, before.psi),
  lambda: until(end, k, after.lambda, before.lambda),
  fixed: until(end, k, after.fixed, before.fixed),
});
const slopesUntil = (end: Tensor | undefined, k: Tensor, slopes: Tensor[]): Tensor[] =>
  end === undefined
    ? slopes
    : until(
        end,
        k,
        slopes,
        slopes.map((x) => zerosLike(x)),
      );

/** Inverts one step: the state before it, its cotangent, and the gradients of the gates. */
function backwardStep(dims: readonly number[], slots: readonly Slot[], gateOf: Read, carry: Back, x: StepGates) {
  let { psi, lambda } = carry;
  const fixed = [...carry.fixed];
  const tables: (Tensor | null)[] = x.tables.map(() => null);
  const angles: (Tensor | null)[] = x.phases.map(() => null);
  for (let k = slots.length - 1; k >= 0; k--) {
    const slot = slots[k];
    const { open, close } = around(dims, slot.sites);
    const gate = gateOf(slot);
    const [after, cotangent] = [open(psi), open(lambda)];
    if (slot.kind === "phases") {
      // y = exp(-i angle) x: dL/d angle = Im(conj(lambda) y)
      const slope = cotangent.conj().mul(after).imag().sum([0, 2]);
      angles[slot.index] = angles[slot.index]?.add(slope) ?? slope;
      const back = gate.conj().reshape([1, gate.shape[0], 1]);
      [psi, lambda] = [close(after.mul(back)), close(cotangent.mul(back))];
      continue;
    }
    const inverse = adjoint(gate);
    const before = matmul(inverse, after);
    const outer = matmul(cotangent, adjoint(before)).sum(0);
    if (slot.kind === "fixed") fixed[slot.index] = fixed[slot.index].add(outer);
    else tables[slot.index] = tables[slot.index]?.add(outer) ?? outer;
    [psi, lambda] = [close(before), close(matmul(inverse, cotangent))];
  }
  const next: Back = { psi, lambda, fixed };
  const each: StepGradients = {
    tables: tables.map((g, i) => g ?? zerosLike(x.tables[i])),
    angles: angles.map((g, i) => g ?? zerosLike(x.phases[i]).real()),
  };
  return { next, each };
}

/** The first step of a piece, and the one behind its last step if pieces differ in length. */
type Span = Tensor[];
const spanOf = ({ at, end }: GateProgram): Span => (end === undefined ? [at.index(0)] : [at.index(0), end]);

interface StepBack extends Back {
  params: Tensor[];
  k: Tensor;
}
/** `k` is the first step of the block that was inverted last. */
type BlockBack = StepBack;

/**
 * Runs all steps with angles computed in each. The reverse pass stores state, cotangent and gradient sums for any number of
 * steps.
 */
function runStepAngles(program: GateProgram, stepAngles: StepAngles, state: Tensor): Tensor {
  const { dims, slots, at, fixed: gates } = program;
  const [length] = at.shape;
  const gatesOf = (k: Tensor, params: readonly Tensor[]): StepGates => ({
    tables: [],
    phases: stepAngles.angles(k, params).map(phase),
  });
  const reversible = customVjp(
    (fixed: Tensor[], params: Tensor[], [from, to]: Span, psi: Tensor): Tensor =>
      scan(
        (c: { psi: Tensor; k: Tensor }) => {
          const after = forwardStep(dims, slots, reader(fixed, gatesOf(c.k, params)), c.psi);
          return [{ psi: until(to, c.k, after, c.psi), k: c.k.add(1) }, []];
        },
        { psi, k: from },
        [],
        { length },
      )[0].psi,
    ([fixed, params, [from, to]], result, cotangent) => {
      const start: StepBack = {
        psi: result,
        lambda: cotangent,
        fixed: fixed.map((g) => zerosLike(g)),
        params: params.map((p) => zerosLike(p)),
        k: from.add(length - 1),
      };
      const [end] = scan(
        (carry: StepBack): [StepBack, []] => {
          const x = gatesOf(carry.k, params);
          const { next, each } = backwardStep(dims, slots, reader(fixed, x), carry, x);
          const slopes = parameterSlopes(stepAngles, carry.k, params, each.angles);
          const sums = carry.params.map((sum, i) => sum.add(slopes[i]));
          const kept = until(to, carry.k, sums, carry.params);
          return [{ ...backUntil(to, carry.k, next, carry), params: kept, k: carry.k.sub(1) }, []];
        },
        start,
        [],
        { length },
      );
      return [end.fixed, end.params, null, end.lambda] as never;
    },
  );
  return reversible(gates, stepAngles.params, spanOf(program), state);
}

/**
 * Runs all steps with angles tabulated for one block of steps at a time. Memory does not depend on the number of steps, and
 * angles that lanes share are computed once instead of by every lane.
 */
function runBlocks(program: GateProgram, stepAngles: StepAngles, block: number, state: Tensor): Tensor {
  const { dims, slots, at, fixed: gates } = program;
  const [steps] = at.shape;
  const rest = steps % block;
  const blocks = (steps - rest) / block;
  // Step indices as a cumulative sum, which lane kernels do not support. This keeps the loop over blocks outside, so that the
  // loop inside becomes lanes over columns and pieces; otherwise a lane would carry all columns of a piece.
  const stepsFrom = (first: Tensor, count: number): Tensor =>
    count === 1 ? first.reshape([1]) : concat([first.reshape([1]), ones([count - 1], { dtype: "float64" })]).cumsum(0);
  const anglesOf = (first: Tensor, count: number, params: readonly Tensor[]): Tensor[] =>
    vmap((k: Tensor) => stepAngles.angles(k, params))(stepsFrom(first, count)) as Tensor[];
  const inputsOf = (first: Tensor, count: number, params: readonly Tensor[]): { phases: Tensor[]; k: Tensor } => ({
    phases: anglesOf(first, count, params).map(phase),
    k: stepsFrom(first, count),
  });
  const forward = (
    fixed: Tensor[],
    params: readonly Tensor[],
    first: Tensor,
    count: number,
    psi: Tensor,
    to?: Tensor,
  ): Tensor =>
    scan(
      (c: Tensor, { phases, k }: { phases: Tensor[]; k: Tensor }): [Tensor, []] => [
        until(to, k, forwardStep(dims, slots, reader(fixed, { tables: [], phases }), c), c),
        [],
      ],
      psi,
      inputsOf(first, count, params),
      { length: count },
    )[0];
  const backward = (
    fixed: Tensor[],
    params: readonly Tensor[],
    carry: BlockBack,
    count: number,
    to?: Tensor,
  ): BlockBack => {
    const first = carry.k.sub(count);
    const [{ psi, lambda, fixed: sums }, slopes] = scan(
      (c: Back, { phases, k }: { phases: Tensor[]; k: Tensor }): [Back, Tensor[]] => {
        const x = { tables: [], phases };
        const { next, each } = backwardStep(dims, slots, reader(fixed, x), c, x);
        return [backUntil(to, k, next, c), slopesUntil(to, k, each.angles)];
      },
      // The sums start at zero, so that equal sums stay equal and are carried once.
      { psi: carry.psi, lambda: carry.lambda, fixed: carry.fixed.map((g) => zerosLike(g)) },
      inputsOf(first, count, params),
      { reverse: true, length: count },
    );
    const own = grad((given: Tensor[]) =>
      anglesOf(first, count, given)
        .map((angle, i) => angle.mul(slopes[i]).sum())
        .reduce((a, b) => a.add(b)),
    )([...params]);
    return {
      psi,
      lambda,
      fixed: carry.fixed.map((sum, i) => sum.add(sums[i])),
      params: carry.params.map((sum, i) => sum.add(own[i])),
      k: first,
    };
  };
  const reversible = customVjp(
    (fixed: Tensor[], params: Tensor[], [from, to]: Span, psi: Tensor): Tensor => {
      const [{ psi: last, k }] = scan(
        (c: { psi: Tensor; k: Tensor }) => [
          { psi: forward(fixed, params, c.k, block, c.psi, to), k: c.k.add(block) },
          [],
        ],
        { psi, k: from },
        [],
        { length: blocks },
      );
      return rest === 0 ? last : forward(fixed, params, k, rest, last, to);
    },
    ([fixed, params, [from, to]], result, cotangent) => {
      let carry: BlockBack = {
        psi: result,
        lambda: cotangent,
        fixed: fixed.map((g) => zerosLike(g)),
        params: params.map((p) => zerosLike(p)),
        k: from.add(steps),
      };
      if (rest > 0) carry = backward(fixed, params, carry, rest, to);
      const [end] = scan((c: BlockBack) => [backward(fixed, params, c, block, to), []], carry, [], { length: blocks });
      return [end.fixed, end.params, null, end.lambda] as never;
    },
  );
  return reversible(gates, stepAngles.params, spanOf(program), state);
}

/** Applies all steps of a program to a state [D]. */
export function runGates(program: GateProgram, state: Tensor, gradient: GradientMethod): Tensor {
  const { stepAngles } = program;
  if (gradient.kind === "reversal" && stepAngles !== null) {
    const { block } = program;
    if (block === undefined) return runStepAngles(program, stepAngles, state);
    if (block < program.at.shape[0]) return runBlocks(program, stepAngles, block, state);
  }
  return runTables(program, state, gradient);
}

/** Runs all steps with tables of everything that differs between steps. */
function runTables(program: GateProgram, state: Tensor, gradient: GradientMethod): Tensor {
  const { dims, slots, at, end } = program;
  const [length] = at.shape;
  type Inputs = StepGates & { k: Tensor[] };
  // Indices of the steps, and the end: needed only where pieces differ in length.
  const marks = end === undefined ? [] : [at, end];
  const inputsOf = (gates: GateTensors, [k]: Tensor[]): Inputs => ({
    ...stepGates(gates),
    k: k === undefined ? [] : [k],
  });
  const run = (gates: GateTensors, marked: Tensor[], psi: Tensor, kind: GradientMethod): Tensor =>
    runSteps(
      (c: Tensor, x: Inputs) => until(marked[1], x.k[0], forwardStep(dims, slots, reader(gates.fixed, x), c), c),
      psi,
      inputsOf(gates, marked),
      kind,
      length,
    );
  const tensors: GateTensors = { fixed: program.fixed, tables: program.tables, angles: program.angles };
  if (gradient.kind !== "reversal") return run(tensors, marks, state, gradient);
  const reversible = customVjp(
    (gates: GateTensors, marked: Tensor[], psi: Tensor): Tensor => run(gates, marked, psi, { kind: "stored" }),
    ([gates, marked], result, cotangent) => {
      const [, to] = marked;
      const start: Back = { psi: result, lambda: cotangent, fixed: gates.fixed.map((g) => zerosLike(g)) };
      const [last, each] = scan(
        (carry: Back, x: Inputs): [Back, StepGradients] => {
          const { next, each: own } = backwardStep(dims, slots, reader(gates.fixed, x), carry, x);
          const slopes = { tables: slopesUntil(to, x.k[0], own.tables), angles: slopesUntil(to, x.k[0], own.angles) };
          return [backUntil(to, x.k[0], next, carry), slopes];
        },
        start,
        inputsOf(gates, marked),
        { reverse: true, length },
      );
      return [{ fixed: last.fixed, tables: each.tables, angles: each.angles }, null, last.lambda] as never;
    },
  );
  return reversible(tensors, marks, state);
}
