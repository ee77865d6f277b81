// Functions as plain data and back: how graphs travel between processes and into tapes. Data only: a function that
// arrives must still be verified (ops/verify) before it is trusted.
import { type DType, isDType } from "./dtype.js";
import { WeftError } from "./errors.js";
import { type Aval, functionOrder, type GraphFn, Node, outputAvals } from "./node.js";
import type { CustomRule, OpAttrs, OpName } from "./op.js";
import type { Shape } from "./shape.js";

type PlainAval = [DType, Shape];
type PlainNode = [op: string, inputs: number[], attrs: unknown, avals: PlainAval | PlainAval[]];

/** Parameters are numbered first, then the nodes in the order of the list. */
export interface PlainFunction {
  params: PlainAval[];
  nodes: PlainNode[];
  outputs: number[];
}

const special: Record<string, number> = { nan: Number.NaN, inf: Infinity, "-inf": -Infinity, "-0": -0 };
const nameOf = (x: number): string =>
  Number.isNaN(x) ? "nan" : x === Infinity ? "inf" : x === -Infinity ? "-inf" : "-0";

function plain(value: unknown): unknown {
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0) ? value : { $: nameOf(value) };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  if (isFunction(value)) return { $fn: toPlain(value) };
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      // A gradient rule is code, and gradients have been taken before a function travels: its name does.
      key === "rule" ? (item as { name: string }).name : plain(item),
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

function fail(what: string): never {
  throw new WeftError(`a function that came from another process is damaged: ${what}`);
}

const isIndex = (value: unknown, below: number): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < below;

function avalFrom(value: unknown): Aval {
  const [dtype, shape] = Array.isArray(value) ? value : [];
  if (!isDType(dtype) || !Array.isArray(shape)) fail("a value without dtype and shape");
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0)) fail(`the shape [${shape}]`);
  return { dtype, shape };
}

const noRule = (name: unknown): CustomRule => ({
  name: typeof name === "string" && /^\w{1,60}$/.test(name) ? name : "received",
  backward: () => fail("gradients are taken before a function travels"),
});

/** Nesting that no program reaches; deeper is an attack on the stack. */
const maxDepth = 64;

function attrsFrom(value: unknown, depth: number): unknown {
  if (depth > maxDepth) fail("too deep");
  if (Array.isArray(value)) return value.map((item) => attrsFrom(item, depth + 1));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value);
  if (entries.length === 1 && entries[0][0] === "$") {
    const name = String(entries[0][1]);
    return Object.hasOwn(special, name) ? special[name] : fail(`the number ${name}`);
  }
  if (entries.length === 1 && entries[0][0] === "$fn") return functionFrom(entries[0][1], depth + 1);
  return Object.fromEntries(entries.map(([key, item]) => [key, attrsFrom(item, depth + 1)]));
}

function functionFrom(value: unknown, depth: number): GraphFn {
  if (depth > maxDepth) fail("too deep");
  const { params, nodes, outputs } = (value ?? {}) as Partial<PlainFunction>;
  if (!Array.isArray(params) || !Array.isArray(nodes) || !Array.isArray(outputs))
    fail("parameters, nodes or outputs are missing");
  const all: Node[] = params.map((param) => {
    const aval = avalFrom(param);
    return new Node("input", [], { ...aval, name: "" }, aval) as Node;
  });
  for (const node of nodes) {
    const [op, inputs, attrs, avals] = Array.isArray(node) ? node : fail("a node that is no list");
    if (typeof op !== "string" || !Array.isArray(inputs)) fail("a node without op or operands");
    if (!inputs.every((input) => isIndex(input, all.length))) fail(`the operands of ${op}`);
    const many = Array.isArray(avals) && Array.isArray(avals[0]);
    const results = many ? (avals as unknown[]).map(avalFrom) : avalFrom(avals);
    const found = (attrsFrom(attrs ?? {}, depth + 1) ?? {}) as OpAttrs[OpName];
    const full = op === "custom" ? { ...found, rule: noRule((found as { rule?: unknown }).rule) } : found;
    all.push(
      new Node(
        op as OpName,
        inputs.map((input) => all[input]),
        full as OpAttrs[OpName],
        results,
      ),
    );
  }
  if (!outputs.every((output) => isIndex(output, all.length))) fail("its results");
  return { params: all.slice(0, params.length), outputs: outputs.map((output) => all[output]) };
}

/** The function of plain data; throws where the data cannot be one. Whether its ops are right is for verify to say. */
export const fromPlain = (value: unknown): GraphFn => functionFrom(value, 0);
