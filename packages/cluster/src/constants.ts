// Small arguments that are the same in every call of a program (operators, tables of coefficients): each worker is told its
// part of them when the program is defined, because its compiler may use the zeros and ones that it sees.
import { bytesOf, type GraphFn, numel, storageView, WeftError } from "@weft/core/internal/graph";
import type { Value } from "@weft/core/internal/ops";
import { type Placement, scatterValue } from "@weft/core/internal/shard";
import type { ConstantArguments } from "./protocol.js";

/** Values up to this size are kept by the client that uploads them. */
export const maxConstantBytes = 16 << 10;

/** What each rank of a program is told, in the order of the mesh. */
export function scatterConstants(known: ReadonlyMap<number, Value>, params: readonly Placement[]): ConstantArguments[] {
  const [first] = params;
  if (first === undefined || known.size === 0) return [];
  const told: ConstantArguments[] = first.mesh.ranks.map(() => []);
  for (const [param, value] of known)
    scatterValue(value, params[param]).forEach(({ data }, rank) => {
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      told[rank].push({ param, data: bytes.toString("base64") });
    });
  return told;
}

/** The same on a worker, checked against its function. */
export function decodeConstants(fn: GraphFn, told: ConstantArguments): Map<number, Value> {
  return new Map(
    told.map(({ param, data }) => {
      const aval = fn.params[param];
      const bytes = Buffer.from(data, "base64");
      if (aval === undefined || bytes.length !== numel(aval.shape) * bytesOf(aval.dtype))
        throw new WeftError(`define: the value of argument ${param} does not fit it`);
      // A copy of its own: small buffers share a pool whose offsets need not fit the element.
      const own = new Uint8Array(bytes);
      const { shape, dtype } = aval;
      return [param, { shape, dtype, data: storageView(dtype, own.buffer, 0, numel(shape)) }];
    }),
  );
}
