// Precision of products of float32 matrices: globally, inside a function, or per call. The policy is stored in the graph when a
// product is built, so that gradients and compiled programs keep it.
import { type Precision, precisions, WeftError } from "../graph/index.js";

/** Precision of a matrix product, by the name of the dtype or its short form. */
export type PrecisionName = Precision | "bf16" | "fp16" | "fp32";
const shortNames: Record<string, Precision> = { bf16: "bfloat16", fp16: "float16", fp32: "float32" };

/** Options of matrix products. @inline */
export interface ProductOptions {
  /** Overrides the policy for this product. */
  precision?: PrecisionName;
}

let current: Precision | undefined;

/** Resolves the name of a precision. */
function precisionOf(op: string, name: PrecisionName): Precision {
  const known = shortNames[name] ?? name;
  if (!precisions.includes(known))
    throw new WeftError(
      `${op}: there is no precision "${name}"; known: ${[...precisions, ...Object.keys(shortNames)].join(", ")}`,
    );
  return known;
}

/**
 * The precision policy for new products; undefined leaves the choice to the device, which computes in float32 by default.
 */
export const currentPrecision = (): Precision | undefined => current;

/** Precision of a product: its own option, or the policy. */
export const productPrecision = (op: string, options: ProductOptions): Precision | undefined =>
  options.precision === undefined ? current : precisionOf(op, options.precision);

/** Sets the precision policy of float32 matrix products. `null` restores the choice of the device. */
export function setPrecision(name: PrecisionName | null): void {
  current = name === null ? undefined : precisionOf("setPrecision", name);
}

/** Runs a function under a precision policy, and restores the previous policy afterwards. */
export function withPrecision<T>(name: PrecisionName | null, body: () => T): T {
  const before = current;
  setPrecision(name);
  try {
    const result = body();
    if (result instanceof Promise)
      throw new WeftError(
        "withPrecision: the function is asynchronous, and the policy would end before it does; put withPrecision around the products inside it",
      );
    return result;
  } finally {
    current = before;
  }
}
