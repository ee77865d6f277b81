// Dense strategy for larger systems: in the eigenbasis of the drives a step is diagonal phases followed by a constant unitary, and
// all columns of all pieces of time share one matrix product. The reverse pass inverts the steps.
import { adjoint, customVjp, matmul, scan, type Tensor, vmap, zerosLike } from "@weft/core/internal/tensor";
import { identityOperator } from "../operators/index.js";
import { phase } from "./exponential.js";
import { applyGate, type GateProgram, type Slot } from "./gates.js";
import { runSteps } from "./loop.js";
import type { GradientMethod } from "./methods.js";
import { parameterSlopes, type StepAngles } from "./step-angles.js";

/** Each step applies, for each entry in order, exp(-i angle) on the diagonal and then the unitary. */
export interface DenseProgram {
  /** [D, D] each */
  unitaries: Tensor[];
  /** Real, [steps, D] each */
  angles: Tensor[];
  /** Gates before the first phases of a step; they are merged into the end of the previous step. */
  lead: Tensor;
  /** Angles [pieces, D] as a function of the step indices [pieces], or null. */
  stepwise: StepAngles | null;
}

/** Whether a gate program has only phases and constant gates, with at least one phase. */
export const isDense = ({ slots }: GateProgram): boolean =>
  slots.every((s) => s.kind !== "table") && slots.some((s) => s.kind === "phases");

/** Product of constant gates as one matrix. */
function unitaryOf(program: GateProgram, slots: readonly Slot[]): Tensor {
  const { dims, fixed } = program;
  const D = dims.reduce((a, b) => a * b, 1);
  const start = identityOperator(D).tensor(fixed[0]?.dtype ?? "complex128");
  const image = (psi: Tensor): Tensor =>
    slots.reduce((x, slot) => applyGate(dims, slot.sites, fixed[slot.index], x), psi);
  return vmap(image)(start).T;
}

/** Sum of the angles of several sites, [rows, m] each, on the whole space: [rows, D]. */
function sumAngles(dims: readonly number[], angles: readonly Tensor[], slots: readonly Slot[]): Tensor {
  const [steps] = angles[0].shape;
  const D = dims.reduce((a, b) => a * b, 1);
  const wide = slots.map(({ sites, index }) =>
    angles[index].reshape([steps, ...dims.map((d, k) => (k === sites[0] ? d : 1))]),
  );
  return wide
    .reduce((a, b) => a.add(b))
    .expand([steps, ...dims])
    .reshape([steps, D]);
}

export function denseProgram(program: GateProgram): DenseProgram {
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
    unitaries: parts.map(({ fixed }) => unitaryOf(program, fixed)),
    angles: wide(angles),
    lead: unitaryOf(program, slots.slice(0, first)),
    stepwise: stepAngles && {
      params: stepAngles.params,
      angles: (k, params) => wide(vmap((one: Tensor) => stepAngles.angles(one, params))(k) as Tensor[]),
    },
  };
}

interface DenseTensors {
  unitaries: Tensor[];
  /** [steps, pieces, D] each */
  angles: Tensor[];
}
interface Back {
  x: Tensor;
  lambda: Tensor;
  unitaries: Tensor[];
}
interface StepwiseBack extends Back {
  params: Tensor[];
  k: Tensor;
}

/** Steps on the columns of all pieces, [D, pieces * columns], with phases per piece. */
function sideBySide([D, width]: readonly number[], pieces: number) {
  const open = (x: Tensor): Tensor => x.reshape([D, pieces, width / pieces]);
  const close = (x: Tensor): Tensor => x.reshape([D, width]);
  // [pieces, D] -> [D, pieces, 1]
  const factor = (angle: Tensor): Tensor => phase(angle).T.unsqueeze(2);
  return {
    forward: (unitaries: readonly Tensor[], angles: readonly Tensor[], x: Tensor): Tensor =>
      angles.reduce((y, angle, k) => matmul(unitaries[k], close(open(y).mul(factor(angle)))), x),
    /** Inverts one step and returns the gradients of its angles: [pieces, D] each. */
    backward: (
      inverses: readonly Tensor[],
      angles: readonly Tensor[],
      carry: Back,
    ): { next: Back; slopes: Tensor[] } => {
      let { x, lambda } = carry;
      const unitaries = [...carry.unitaries];
      const slopes: Tensor[] = [];
      for (let k = angles.length - 1; k >= 0; k--) {
        const before = matmul(inverses[k], x);
        unitaries[k] = unitaries[k].add(matmul(lambda, adjoint(before)));
        const back = matmul(inverses[k], lambda);
        slopes[k] = open(back.conj().mul(before)).imag().sum(2).T;
        const away = factor(angles[k]).conj();
        [x, lambda] = [close(open(before).mul(away)), close(open(back).mul(away))];
      }
      return { next: { x, lambda, unitaries }, slopes };
    },
  };
}

/** Runs all steps of all pieces in parallel: x is [D, pieces * columns], angles are [steps, pieces, D]. */
export function runDense(tensors: DenseTensors, x0: Tensor, gradient: GradientMethod): Tensor {
  const { forward, backward } = sideBySide(x0.shape, tensors.angles[0].shape[1]);
  const run = (t: DenseTensors, start: Tensor, kind: GradientMethod): Tensor =>
    runSteps((x: Tensor, angles: Tensor[]) => forward(t.unitaries, angles, x), start, t.angles, kind);
  if (gradient.kind !== "reversal") return run(tensors, x0, gradient);
  const reversible = customVjp(
    (t: DenseTensors, start: Tensor): Tensor => run(t, start, { kind: "stored" }),
    ([t], result, cotangent) => {
      const inverses = t.unitaries.map((u) => adjoint(u));
      const start: Back = { x: result, lambda: cotangent, unitaries: t.unitaries.map((u) => zerosLike(u)) };
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
  unitaries: Tensor[],
  stepwise: StepAngles,
  from: Tensor,
  length: number,
  x0: Tensor,
): Tensor {
  const { forward, backward } = sideBySide(x0.shape, from.shape[0]);
  const reversible = customVjp(
    (us: Tensor[], params: Tensor[], first: Tensor, start: Tensor): Tensor =>
      scan(
        (c: { x: Tensor; k: Tensor }) => [{ x: forward(us, stepwise.angles(c.k, params), c.x), k: c.k.add(1) }, []],
        { x: start, k: first },
        [],
        { length },
      )[0].x,
    ([us, params, first], result, cotangent) => {
      const inverses = us.map((u) => adjoint(u));
      const start: StepwiseBack = {
        x: result,
        lambda: cotangent,
        unitaries: us.map((u) => zerosLike(u)),
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
  return reversible(unitaries, stepwise.params, from, x0);
}
