// Steps of larger systems as products with whole matrices: in the drives' eigenbasis a step is a constant unitary after a
// diagonal of phases, and all columns of all pieces of time go through it in one matrix product. The reverse pass runs back.
import { adjoint, customVjp, matmul, scan, type Tensor, vmap, zerosLike } from "../../tensor/index.js";
import { identity } from "../operators/index.js";
import { phase } from "./exponential.js";
import { applyGate, type GateProgram, type Slot } from "./gates.js";
import { runSteps } from "./loop.js";
import type { Gradient } from "./methods.js";

/** Per step: for each part first exp(-i angle) on the diagonal, then the unitary. */
export interface DenseProgram {
  /** [D, D] each */
  unitaries: Tensor[];
  /** Real, [steps, D] each */
  angles: Tensor[];
  /** Gates that come before the first phases of a step; they were moved behind the last of the step before. */
  lead: Tensor;
}

/** Whether a gate program is phases and constant gates only, with at least one phase. */
export const isDense = ({ slots }: GateProgram): boolean =>
  slots.every((s) => s.kind !== "table") && slots.some((s) => s.kind === "phases");

/** The product of constant gates as one matrix. */
function unitaryOf(program: GateProgram, slots: readonly Slot[]): Tensor {
  const { dims, fixed } = program;
  const D = dims.reduce((a, b) => a * b, 1);
  const start = identity(D).tensor(fixed[0]?.dtype ?? "complex128");
  const image = (psi: Tensor): Tensor =>
    slots.reduce((x, slot) => applyGate(dims, slot.sites, fixed[slot.index], x), psi);
  return vmap(image)(start).T;
}

/** Angles of several sites on the whole space: [steps, D]. */
function sumAngles(program: GateProgram, slots: readonly Slot[]): Tensor {
  const { dims, angles } = program;
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
  return {
    unitaries: parts.map(({ fixed }) => unitaryOf(program, fixed)),
    angles: parts.map(({ phases }) => sumAngles(program, phases)),
    lead: unitaryOf(program, slots.slice(0, first)),
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

/**
 * All steps for all pieces side by side: x is [D, pieces * columns], angles [steps, pieces, D]. Memory beside the two states
 * grows with the tables of angles only.
 */
export function runDense(tensors: DenseTensors, x0: Tensor, gradient: Gradient): Tensor {
  const [D, width] = x0.shape;
  const [, pieces] = tensors.angles[0].shape;
  const open = (x: Tensor): Tensor => x.reshape([D, pieces, width / pieces]);
  const close = (x: Tensor): Tensor => x.reshape([D, width]);
  // [pieces, D] -> [D, pieces, 1]
  const factor = (angle: Tensor): Tensor => phase(angle).T.unsqueeze(2);
  const run = (t: DenseTensors, start: Tensor, kind: Gradient): Tensor =>
    runSteps(
      (x: Tensor, angles: Tensor[]) =>
        angles.reduce((y, angle, k) => matmul(t.unitaries[k], close(open(y).mul(factor(angle)))), x),
      start,
      t.angles,
      kind,
    );
  if (gradient.kind !== "reversal") return run(tensors, x0, gradient);
  const reversible = customVjp(
    (t: DenseTensors, start: Tensor): Tensor => run(t, start, { kind: "stored" }),
    ([t], result, cotangent) => {
      const inverses = t.unitaries.map((u) => adjoint(u));
      const start: Back = { x: result, lambda: cotangent, unitaries: t.unitaries.map((u) => zerosLike(u)) };
      const [end, slopes] = scan(
        (carry: Back, angles: Tensor[]): [Back, Tensor[]] => {
          let { x, lambda } = carry;
          const unitaries = [...carry.unitaries];
          const own: Tensor[] = [];
          for (let k = angles.length - 1; k >= 0; k--) {
            const before = matmul(inverses[k], x);
            unitaries[k] = unitaries[k].add(matmul(lambda, adjoint(before)));
            const back = matmul(inverses[k], lambda);
            own[k] = open(back.conj().mul(before)).imag().sum(2).T;
            const away = factor(angles[k]).conj();
            [x, lambda] = [close(open(before).mul(away)), close(open(back).mul(away))];
          }
          return [{ x, lambda, unitaries }, own];
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
