// The verifier: checks that a graph satisfies the definitions of op.ts. Tests run it after every transform, so that a broken rewrite
// is found at its source.
import {
  type Aval,
  functionOrder,
  type GraphFn,
  InternalError,
  isOp,
  type Node,
  type OpName,
  outputAvals,
  sameShape,
  showAval,
} from "../graph/index.js";
import { checkContract } from "./contracts.js";
import { demandShape, Violation } from "./contracts-checks.js";
import { shapeRules } from "./shape.js";

const show = (node: Node): string => {
  const inputs = node.inputs.map((input) => `%${input.id}`).join(", ");
  return `%${node.id} = ${node.op}(${inputs}) : ${outputAvals(node).map(showAval).join(", ")}`;
};

/** Ops that may be leaves of a closed function without being parameters. */
const leaves: readonly OpName[] = ["const", "iota"];

function checkClosed(node: Node): void {
  if (node.op === "input" || node.op === "data")
    throw new Violation("it is not a parameter of the function that uses it");
  if (node.inputs.length === 0 && !leaves.includes(node.op) && node.op !== "scan" && node.op !== "custom")
    throw new Violation("it has no operands");
}

/** The recorded results of a node must agree with its shape rule. */
function checkResults(node: Node): void {
  const claimed = outputAvals(node);
  for (const { shape } of claimed) demandShape(shape);
  const rule = shapeRules[node.op] as (inputs: readonly Node[], attrs: unknown) => Aval | readonly Aval[];
  const given = rule(node.inputs, node.attrs);
  const expected = (Array.isArray(given) ? given : [given]) as readonly Aval[];
  const agree =
    expected.length === claimed.length &&
    expected.every((aval, i) => aval.dtype === claimed[i].dtype && sameShape(aval.shape, claimed[i].shape));
  if (!agree) throw new Violation(`its op gives ${expected.map(showAval).join(", ")}`);
}

function checkFunction(fn: GraphFn, fail: (node: Node, problem: string) => never): Node[] {
  const params = new Set<Node>();
  for (const param of fn.params) {
    if (params.has(param)) fail(param, "it is a parameter twice");
    if (param.outputs !== null) fail(param, "a parameter has one result");
    params.add(param);
  }
  const order = functionOrder(fn);
  const seen = new Set<Node>(params);
  for (const node of order) {
    if (params.has(node)) continue;
    try {
      // The walk lists operands first; a later one depends on this node, which is a cycle.
      const later = node.inputs.find((input) => !seen.has(input));
      if (later !== undefined) throw new Violation(`it depends on itself, through %${later.id} (${later.op})`);
      checkClosed(node);
      checkContract(node);
      checkResults(node);
    } catch (error) {
      if (error instanceof Violation) fail(node, error.message);
      throw error;
    }
    seen.add(node);
  }
  for (const output of fn.outputs)
    if (output.outputs !== null) fail(output, "it has several results and is an output; pick one");
  return order;
}

/**
 * Throws an InternalError that names the first bad node, if there is one: operands and attributes against each op's
 * contract, results against the shape rules, no cycles, no leaf but parameters and constants; bodies of loops too.
 */
export function verify(fn: GraphFn): void {
  const places: { fn: GraphFn; where: string }[] = [{ fn, where: "" }];
  const known = new Set<GraphFn>([fn]);
  for (const place of places) {
    const order = checkFunction(place.fn, (node, problem) => {
      throw new InternalError(`verify: ${show(node)}${place.where}: ${problem}`);
    });
    for (const node of order) {
      if (!isOp(node, "scan") && !isOp(node, "custom")) continue;
      const { body } = node.attrs as { body: GraphFn };
      if (known.has(body)) continue;
      known.add(body);
      places.push({ fn: body, where: `, in the body of ${node.op} %${node.id}${place.where}` });
    }
  }
}
