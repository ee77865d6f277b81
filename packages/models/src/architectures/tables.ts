// Parameter tables, and the trees that their dotted names describe.
import type { Tensor } from "@weft/core";
import type { ParameterSpec, ParameterTable, Params } from "./contract.js";

/** Weight [out, in] and bias of a fully connected layer. */
export const denseTable = (name: string, out: number, inputs: number, bias = true): ParameterTable => ({
  [`${name}.weight`]: { shape: [out, inputs], init: "normal" },
  ...(bias && { [`${name}.bias`]: { shape: [out], init: "zeros" } }),
});

/** Gain and shift of a layer norm; RMS norms have no shift. */
export const normTable = (name: string, width: number, bias = true): ParameterTable => ({
  [`${name}.weight`]: { shape: [width], init: "ones" },
  ...(bias && { [`${name}.bias`]: { shape: [width], init: "zeros" } }),
});

/** Rows of an embedding. */
export const embeddingTable = (name: string, rows: number, width: number): ParameterTable => ({
  [`${name}.weight`]: { shape: [rows, width], init: "normal" },
});

/** The tables of all layers: `part(prefix.0)`, `part(prefix.1)`, ... */
export const layerTables = (prefix: string, count: number, part: (name: string) => ParameterTable): ParameterTable =>
  Object.assign({}, ...Array.from({ length: count }, (_, i) => part(`${prefix}.${i}`)));

/** Nested objects of dotted names; a level whose names are all numbers is a list. */
export function treeOf(named: Iterable<readonly [string, Tensor]>): Params {
  const root: Params = Object.create(null) as Params;
  for (const [name, leaf] of named) {
    const path = name.split(".");
    let at = root;
    for (const part of path.slice(0, -1)) at = (at[part] ??= Object.create(null)) as Params;
    at[path[path.length - 1]] = leaf;
  }
  return finish(root) as Params;
}

function finish(at: unknown): unknown {
  if (Object.getPrototypeOf(at) !== null) return at;
  const entries = Object.entries(at as Params);
  const isList = entries.length > 0 && entries.every(([name]) => /^\d+$/.test(name));
  if (!isList) return Object.fromEntries(entries.map(([name, part]) => [name, finish(part)]));
  return entries.sort(([a], [b]) => Number(a) - Number(b)).map(([, part]) => finish(part));
}

/** Number of elements of a parameter. */
export const sizeOf = ({ shape }: ParameterSpec): number => shape.reduce((n, d) => n * d, 1);
