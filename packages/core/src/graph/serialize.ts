// Serializes functions to plain data, for messages between processes and for tapes. ops/decode.ts is the inverse and validates.
import { asIdentifier, asName, specialName } from "./attr-rules.js";
import type { DType } from "./dtype.js";
import { type Aval, functionOrder, type GraphFn, type Node, outputAvals } from "./node.js";
import type { Shape } from "./shape.js";

type PlainAval = [DType, Shape];
type PlainNode = [op: string, inputs: number[], attrs: unknown, avals: PlainAval | PlainAval[]];

/** Parameters are numbered first, then the nodes in the order of the list. */
export interface PlainFunction {
  params: PlainAval[];
  nodes: PlainNode[];
  outputs: number[];
}

function plain(value: unknown): unknown {
  if (typeof value === "number")
    return Number.isFinite(value) && !Object.is(value, -0) ? value : { $: specialName(value) };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  if (isFunction(value)) return { $fn: toPlain(value) };
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      // A gradient rule is code and cannot be serialized. Gradients are already taken, so its name suffices.
      key === "rule"
        ? asIdentifier((item as { name: string }).name)
        : key === "name"
          ? asName(item as string)
          : plain(item),
    ]),
  );
}

const isFunction = (value: object): value is GraphFn => "params" in value && "outputs" in value;

const plainAval = ({ dtype, shape }: Aval): PlainAval => [dtype, shape];

export function toPlain(fn: GraphFn): PlainFunction {
  const numbers = new Map<Node, number>();
  for (const param of fn.params) numbers.set(param, numbers.size);
  const nodes: PlainNode[] = [];
  for (const node of functionOrder(fn)) {
    if (numbers.has(node)) continue;
    numbers.set(node, numbers.size);
    const inputs = node.inputs.map((input) => numbers.get(input)!);
    const avals = outputAvals(node).map(plainAval);
    nodes.push([node.op, inputs, plain(node.attrs), node.outputs === null ? avals[0] : avals]);
  }
  return { params: fn.params.map(plainAval), nodes, outputs: fn.outputs.map((output) => numbers.get(output)!) };
}
