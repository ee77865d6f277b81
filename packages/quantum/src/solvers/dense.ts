// Dense strategy for larger systems: in the eigenbasis of the drives a step is diagonal phases followed by a constant unitary, and
// all columns of all pieces of time share its matrix products: one with the whole matrix, or one per gate if that is less work. The
// reverse pass inverts the steps.
import { adjoint, customVjp, matmul, scan, type Tensor, vmap, zerosLike } from "@weft/core/internal/tensor";
import { identityOperator } from "../operators/index.js";
import { phase } from "./exponential.js";
import { applyGate, type GateProgram, type Slot } from "./gates.js";
import { runSteps } from "./loop.js";
import type { GradientMethod } from "./methods.js";
import { parameterSlopes, type StepAngles } from "./step-angles.js";

/** Matrices [m, m] whose product is a unitary; the first acts first. */
type Gates = Tensor[];

/** A unitary as a product of matrices on neighboring sites. */
interface Unitary {
  gates: Gates;
  /** Number of states of the sites before those of each matrix. */
  before: number[];
}

/** Each step applies, for each entry in order, exp(-i angle) on the diagonal and then the unitary. */
export interface DenseProgram {
  unitaries: Unitary[];
  /** Real, [steps, D] each */
  angles: Tensor[];
  /** Gates before the first phases of a step; they are merged into the end of the previous step. */
  lead: Unitary;
  /** Angles [pieces, D] as a function of the step indices [pieces], or null. */
  stepwise: StepAngles | null;
}

/** Whether a gate program has only phases and constant gates, with at least one phase. */
export const isDense = ({ slots }: GateProgram): boolean =>
  slots.every((s) => s.kind !== "table") && slots.some((s) => s.kind === "phases");

/** A product with a small matrix takes this many times longer per multiplication than one with a whole matrix. */
const smallProductCost = 4.5;

const sizeOf = (dims: readonly number[]): number => dims.reduce((a, b) => a * b, 1);

/** Product of constant gates: the gates themselves if they act on neighboring sites and take less time (CPU), else one matrix. */
function unitaryOf({ dims, fixed }: GateProgram, slots: readonly Slot[], areGatesFast: boolean): Unitary {
  const D = sizeOf(dims);
  const isNear = ({ sites }: Slot): boolean => sites.every((s, k) => k === 0 || s === sites[k - 1] + 1);
  const work = slots.reduce((sum, { index }) => sum + fixed[index].shape[0], 0);
  if (areGatesFast && slots.every(isNear) && work * smallProductCost <= D)
    return {
      gates: slots.map(({ index }) => fixed[index]),
      before: slots.map(({ sites }) => sizeOf(dims.slice(0, sites[0]))),
    };
  const start = identityOperator(D).tensor(fixed[0]?.dtype ?? "complex128");
  const image = (psi: Tensor): Tensor =>
    slots.reduce((x, slot) => applyGate(dims, slot.sites, fixed[slot.index], x), psi);
  return { gates: [vmap(image)(start).T], before: [1] };
}

/** Columns [D, n] as [before, m, rest] around the sites of a matrix [m, m]. */
const around = (x: Tensor, before: number, { shape: [m] }: Tensor): Tensor =>
  x.reshape([before, m, x.size / before / m]);

/** The unitary times columns [D, n]. */
export const applyUnitary = ({ gates, before }: Unitary, x: Tensor): Tensor =>
  gates.reduce((y, gate, k) => matmul(gate, around(y, before[k], gate)).reshape(x.shape), x);

/** The inverse of the unitary times columns [D, n]. */
export const applyInverse = ({ gates, before }: Unitary, x: Tensor): Tensor =>
  gates.reduceRight((y, gate, k) => matmul(adjoint(gate), around(y, before[k], gate)).reshape(x.shape), x);

/** Sum of the angles of several sites, [rows, m] each, on the whole space: [rows, D]. */
function sumAngles(dims: readonly number[], angles: readonly Tensor[], slots: readonly Slot[]): Tensor {
  const [steps] = angles[0].shape;
  const D = sizeOf(dims);
  const wide = slots.map(({ sites, index }) =>
    angles[index].reshape([steps, ...dims.map((d, k) => (k === sites[0] ? d : 1))]),
  );
  return wide
    .reduce((a, b) => a.add(b))
    .expand([steps, ...dims])
    .reshape([steps, D]);
}

/** `areGatesFast`: whether a product with a small matrix takes less time than a larger one, which is not so on a GPU. */
export function denseProgram(program: GateProgram, areGatesFast: boolean): DenseProgram {
  const { slots } = program;
  const first = slots.findIndex((s) => s.kind === "phases");
  const turned = [...slots.slice(first), ...slots.slice(0, first)];
  const parts: { phases: Slot[]; fixed: Slot[] }[] = [];
  for (const slot of turned) {
    const last = parts.at(-1);
    if (slot.kind === "phases") {
      if (last === undefined || last.fixed.length > 0) parts.push({ phases: [slot], fixed: [] });
      else last.phases.push(slot);
    } else last!.fixed.push(slot);
  }
  const { dims, angles, stepAngles } = program;
  const wide = (each: readonly Tensor[]): Tensor[] => parts.map(({ phases }) => sumAngles(dims, each, phases));
  return {
    unitaries: parts.map(({ fixed }) => unitaryOf(program, fixed, areGatesFast)),
    angles: wide(angles),
    lead: unitaryOf(program, slots.slice(0, first), areGatesFast),
    stepwise: stepAngles && {
      params: stepAngles.params,
      angles: (k, params) => wide(vmap((one: Tensor) => stepAngles.angles(one, params))(k) as Tensor[]),
    },
  };
}

interface DenseTensors {
  unitaries: Gates[];
  /** [steps, pieces, D] each */
  angles: Tensor[];
}
interface Back {
  x: Tensor;
  lambda: Tensor;
  unitaries: Gates[];
}
interface StepwiseBack extends Back {
  params: Tensor[];
  k: Tensor;
}

/** Steps on the columns of all pieces, [D, pieces * columns], with phases per piece. */
function sideBySide([D, width]: readonly number[], pieces: number, unitaries: readonly Unitary[]) {
  const open = (x: Tensor): Tensor => x.reshape([D, pieces, width / pieces]);
  const close = (x: Tensor): Tensor => x.reshape([D, width]);
  // [pieces, D] -> [D, pieces, 1]
  const factor = (angle: Tensor): Tensor => phase(angle).T.unsqueeze(2);
  return {
    forward: (gates: readonly Gates[], angles: readonly Tensor[], x: Tensor): Tensor =>
      angles.reduce(
        (y, angle, k) =>
          applyUnitary({ gates: gates[k], before: unitaries[k].before }, close(open(y).mul(factor(angle)))),
        x,
      ),
    /** Inverts one step and returns the gradients of its angles: [pieces, D] each. */
    backward: (
      inverses: readonly Gates[],
      angles: readonly Tensor[],
      carry: Back,
    ): { next: Back; slopes: Tensor[] } => {
      let { x, lambda } = carry;
      const sums = carry.unitaries.map((gates) => [...gates]);
      const slopes: Tensor[] = [];
      for (let k = angles.length - 1; k >= 0; k--) {
        const { before: places } = unitaries[k];
        for (let g = places.length - 1; g >= 0; g--) {
          const inverse = inverses[k][g];
          const [after, cotangent] = [x, lambda].map((y) => around(y, places[g], inverse));
          const before = matmul(inverse, after);
          sums[k][g] = sums[k][g].add(matmul(cotangent, adjoint(before)).sum(0));
          [x, lambda] = [close(before), close(matmul(inverse, cotangent))];
        }
        slopes[k] = open(lambda.conj().mul(x)).imag().sum(2).T;
        const away = factor(angles[k]).conj();
        [x, lambda] = [close(open(x).mul(away)), close(open(lambda).mul(away))];
      }
      return { next: { x, lambda, unitaries: sums }, slopes };
    },
  };
}

const adjoints = (unitaries: readonly Gates[]): Gates[] => unitaries.map((gates) => gates.map((g) => adjoint(g)));
const zeros = (unitaries: readonly Gates[]): Gates[] => unitaries.map((gates) => gates.map((g) => zerosLike(g)));
const gatesOf = (unitaries: readonly Unitary[]): Gates[] => unitaries.map(({ gates }) => gates);

/** Runs all steps of all pieces in parallel: x is [D, pieces * columns], angles are [steps, pieces, D]. */
export function runDense(
  { unitaries, angles: table }: Pick<DenseProgram, "unitaries" | "angles">,
  x0: Tensor,
  gradient: GradientMethod,
): Tensor {
  const tensors: DenseTensors = { unitaries: gatesOf(unitaries), angles: table };
  const { forward, backward } = sideBySide(x0.shape, table[0].shape[1], unitaries);
  const run = (t: DenseTensors, start: Tensor, kind: GradientMethod): Tensor =>
    runSteps((x: Tensor, angles: Tensor[]) => forward(t.unitaries, angles, x), start, t.angles, kind);
  if (gradient.kind !== "reversal") return run(tensors, x0, gradient);
  const reversible = customVjp(
    (t: DenseTensors, start: Tensor): Tensor => run(t, start, { kind: "stored" }),
    ([t], result, cotangent) => {
      const inverses = adjoints(t.unitaries);
      const start: Back = { x: result, lambda: cotangent, unitaries: zeros(t.unitaries) };
      const [end, slopes] = scan(
        (carry: Back, angles: Tensor[]): [Back, Tensor[]] => {
          const { next, slopes: own } = backward(inverses, angles, carry);
          return [next, own];
        },
        start,
        t.angles,
        { reverse: true },
      );
      return [{ unitaries: end.unitaries, angles: slopes }, end.lambda] as [DenseTensors, Tensor];
    },
  );
  return reversible(tensors, x0);
}

/** `runDense` with angles computed in every step; pieces start at the steps `from` [pieces]. Stores no tables. */
export function runStepwise(
  unitaries: readonly Unitary[],
  stepwise: StepAngles,
  from: Tensor,
  length: number,
  x0: Tensor,
): Tensor {
  const { forward, backward } = sideBySide(x0.shape, from.shape[0], unitaries);
  const reversible = customVjp(
    (us: Gates[], params: Tensor[], first: Tensor, start: Tensor): Tensor =>
      scan(
        (c: { x: Tensor; k: Tensor }) => [{ x: forward(us, stepwise.angles(c.k, params), c.x), k: c.k.add(1) }, []],
        { x: start, k: first },
        [],
        { length },
      )[0].x,
    ([us, params, first], result, cotangent) => {
      const inverses = adjoints(us);
      const start: StepwiseBack = {
        x: result,
        lambda: cotangent,
        unitaries: zeros(us),
        params: params.map((p) => zerosLike(p)),
        k: first.add(length - 1),
      };
      const [end] = scan(
        (carry: StepwiseBack): [StepwiseBack, []] => {
          const { next, slopes } = backward(inverses, stepwise.angles(carry.k, params), carry);
          const own = parameterSlopes(stepwise, carry.k, params, slopes);
          return [{ ...next, params: carry.params.map((sum, i) => sum.add(own[i])), k: carry.k.sub(1) }, []];
        },
        start,
        [],
        { length },
      );
      return [end.unitaries, end.params, null, end.lambda] as never;
    },
  );
  return reversible(gatesOf(unitaries), stepwise.params, from, x0);
}
