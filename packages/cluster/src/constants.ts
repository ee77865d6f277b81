// Constant arguments: small arguments that are the same in every call of a program (operators, coefficient tables).
// Each worker receives its shard of them with the program, so that its compiler can use zeros and ones in them.
import { bytesOf, type GraphFn, numel, storageView, WeftError } from "@weft/core/internal/graph";
import type { Value } from "@weft/core/internal/ops";
import { type Placement, scatterValue } from "@weft/core/internal/shard";
import type { ConstantArguments } from "./protocol.js";

/** Maximum size of a value that the uploading client keeps as a possible constant. */
export const maxConstantBytes = 16 << 10;

/** The constant arguments of each rank, in mesh order. */
export function scatterConstants(
  constants: ReadonlyMap<number, Value>,
  params: readonly Placement[],
): ConstantArguments[] {
  const [first] = params;
  if (first === undefined || constants.size === 0) return [];
  const ranks: ConstantArguments[] = first.mesh.ranks.map(() => []);
  for (const [param, value] of constants)
    scatterValue(value, params[param]).forEach(({ data }, rank) => {
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      ranks[rank].push({ param, data: bytes.toString("base64") });
    });
  return ranks;
}

/** Decodes constant arguments on a worker and checks them against the function. */
export function decodeConstants(fn: GraphFn, encoded: ConstantArguments): Map<number, Value> {
  return new Map(
    encoded.map(({ param, data }) => {
      const aval = fn.params[param];
      const bytes = Buffer.from(data, "base64");
      if (aval === undefined || bytes.length !== numel(aval.shape) * bytesOf(aval.dtype))
        throw new WeftError(`define: the value of argument ${param} has the wrong size`);
      // Copy: small Buffers share a pool whose offsets may not be aligned to the element.
      const own = new Uint8Array(bytes);
      const { shape, dtype } = aval;
      return [param, { shape, dtype, data: storageView(dtype, own.buffer, 0, numel(shape)) }];
    }),
  );
}
