// How exactly products of float32 matrices are computed: globally, inside a scope, or for one call. The policy is
// written into the graph when a product is made, so that gradients inherit it and compiled programs keep it.
import { type Precision, precisions, WeftError } from "../graph/index.js";

/** The names of the dtypes, and the short ones that people use. */
export type PrecisionName = Precision | "bf16" | "fp16" | "fp32";
const shortNames: Record<string, Precision> = { bf16: "bfloat16", fp16: "float16", fp32: "float32" };

export interface ProductOptions {
  /** Overrides the policy for this product. */
  precision?: PrecisionName;
}

let current: Precision | undefined;

/** The precision that a name stands for. */
export function precisionOf(op: string, name: PrecisionName): Precision {
  const known = shortNames[name] ?? name;
  if (!precisions.includes(known))
    throw new WeftError(
      `${op}: there is no precision "${name}"; known: ${[...precisions, ...Object.keys(shortNames)].join(", ")}`,
    );
  return known;
}

/** The policy that products made now follow; undefined leaves it to the device, which is exact unless made otherwise. */
export const currentPrecision = (): Precision | undefined => current;

/** What holds for a product: its own option, or the policy. */
export const productPrecision = (op: string, options: ProductOptions): Precision | undefined =>
  options.precision === undefined ? current : precisionOf(op, options.precision);

/** The policy from now on. `null` goes back to the device's own (exact float32 unless it was made otherwise). */
export function setPrecision(name: PrecisionName | null): void {
  current = name === null ? undefined : precisionOf("setPrecision", name);
}

/** Runs a function under a policy; the one before holds again afterwards, whatever happens. */
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
