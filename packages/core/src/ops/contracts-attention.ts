// Contract of custom functions that are marked as attention. Kernels rely on it, and the function may come from another process.
import {
  type AttentionKernel,
  type Aval,
  attentionMasks,
  isFloat,
  precisions,
  type Shape,
  sameShape,
  showAval,
} from "../graph/index.js";
import { attentionRoles } from "./factors-attention.js";

/** Description of the violation; null if there is none. */
export function attentionProblem(
  kernel: AttentionKernel,
  inputs: readonly Aval[],
  outputs: readonly Aval[],
): string | null {
  const { kind, packed, mask, scale, dropout, precision } = kernel;
  if (kind !== "attention" || !attentionMasks.includes(mask)) return `there is no kernel "${kind}", "${mask}"`;
  if (!Number.isFinite(scale) || !(dropout >= 0 && dropout < 1)) return `its scale is ${scale}, its dropout ${dropout}`;
  if (precision !== undefined && !precisions.includes(precision)) return `there is no precision "${precision}"`;
  const roles = attentionRoles(kernel);
  if (inputs.length !== roles.inputs.length || outputs.length !== roles.outputs.length)
    return `it has ${inputs.length} operands and ${outputs.length} results, not ${roles.inputs.length} and ${roles.outputs.length}`;
  const [q, k] = inputs;
  const own = packed ? 4 : 3;
  if (!isFloat(q.dtype) || q.shape.length < own || (packed && q.shape[q.shape.length - 3] !== 3))
    return `${showAval(q)} are no queries`;
  const lead = q.shape.slice(0, -own);
  const [heads, size] = q.shape.slice(-2);
  const length = q.shape[q.shape.length - own];
  const keys = packed ? length : (k.shape[k.shape.length - 3] ?? 0);
  const shared = packed ? heads : (k.shape[k.shape.length - 2] ?? 0);
  if (heads > 0 && (shared === 0 || heads % shared !== 0))
    return `${shared} heads of keys do not divide ${heads} of queries`;
  const scores = [...lead, heads, length, keys];
  const tokens = [...lead, length, heads, size];
  const check = (found: Aval, shape: Shape, fits: boolean): string | null =>
    fits && sameShape(found.shape, shape) ? null : `${showAval(found)} should have the shape [${shape}]`;
  const problems = [...inputs, ...outputs].map((found, i): string | null => {
    const isResult = i >= inputs.length;
    const role = isResult ? roles.outputs[i - inputs.length] : roles.inputs[i];
    const { dtype, shape } = found;
    if (role === "packed") return check(found, q.shape, dtype === q.dtype);
    if (role === "rows") return check(found, scores.slice(0, -1), isFloat(dtype));
    if (role === "tokens") {
      // Keys and values, and their gradients.
      const isKeys =
        !packed && ((!isResult && (i === 1 || i === 2)) || (isResult && kernel.gradient && i > inputs.length));
      return check(found, isKeys ? [...lead, keys, shared, size] : tokens, dtype === q.dtype);
    }
    if (role === "key") {
      const examples = shape.slice(0, -1);
      const fits = examples.length <= lead.length && shape[shape.length - 1] === 2 && dtype === "int32";
      return check(found, [...lead.slice(0, examples.length), 2], fits);
    }
    if (role === "ids") return check(found, [...lead, length + keys], dtype === "int32");
    const isMask = mask !== "none" && (i === (packed ? 1 : 3) || (isResult && kernel.gradient));
    if (isMask) return check(found, scores, mask === "bool" ? dtype === "bool" : isFloat(dtype));
    return check(found, [...scores.slice(0, -1), Math.ceil(keys / 32)], dtype === "int32");
  });
  return problems.find((problem) => problem !== null) ?? null;
}
