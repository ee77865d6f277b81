// The table of all ops, and the evaluator of functions.
import {
  functionOrder,
  type GraphFn,
  InternalError,
  type Node,
  numel,
  type OpName,
  outputAvals,
  ShapeError,
  showAval,
  showShape,
} from "../../graph/index.js";
import { callGroup } from "./collective.js";
import { type ControlOp, controlRules, type EvaluationSteps, leafRules } from "./control.js";
import { convRules } from "./conv.js";
import { elementwiseRules } from "./elementwise.js";
import { fftRules } from "./fft.js";
import { indexingRules } from "./indexing.js";
import { linalgRules } from "./linalg.js";
import { matmulRules } from "./matmul.js";
import { movementRules } from "./movement.js";
import { randomRules } from "./random.js";
import { reduceRules } from "./reduce.js";
import { type CollectiveGroup, hasAval, type ReferenceRule, type ReferenceRules, type Value } from "./value.js";

/** Ops that depend only on their operands. */
export const referenceRules: ReferenceRules<Exclude<OpName, ControlOp>> = {
  ...leafRules,
  ...elementwiseRules,
  ...movementRules,
  ...reduceRules,
  ...indexingRules,
  ...matmulRules,
  ...convRules,
  ...fftRules,
  ...linalgRules,
  ...randomRules,
};

const running = controlRules(evaluateSteps);
const isControl = (op: OpName): op is ControlOp => Object.hasOwn(running, op);

function checkResults(node: Node, results: readonly Value[]): void {
  const avals = outputAvals(node);
  const agree =
    results.length === avals.length && results.every((value, i) => hasAval(value, avals[i].shape, avals[i].dtype));
  if (!agree) {
    throw new InternalError(
      `${node.op} %${node.id} should be ${avals.map(showAval).join(", ")} and is ${results.map(showAval).join(", ")}`,
    );
  }
}

/** Elements of a value that is evaluated: the rules build lists, and V8 ends the process where a list grows past 2^27. */
const mostElements = 2 ** 26;

function checkExtents(node: Node): void {
  for (const { shape } of outputAvals(node))
    if (numel(shape) > mostElements)
      throw new ShapeError(
        `${node.op}: a tensor of shape ${showShape(shape)} has more elements than JavaScript computes here (${mostElements}); ` +
          "use the CPU device, which needs a C compiler, or smaller parts",
      );
}

/** Evaluates a function on host values; the device's group runs collectives. */
export function evaluate(fn: GraphFn, args: readonly Value[], group: CollectiveGroup | null = null): Value[] {
  const run = evaluateSteps(fn, args);
  let at = run.next();
  while (!at.done) at = run.next(callGroup(group, at.value.attrs, at.value.input));
  return at.value;
}

/**
 * Runs a function on host values up to each of its collectives. Intermediate values are dropped after their last use. A result may share its
 * memory with an argument; neither is ever written to.
 */
export function* evaluateSteps(fn: GraphFn, args: readonly Value[]): EvaluationSteps {
  if (args.length !== fn.params.length)
    throw new InternalError(`a function of ${fn.params.length} parameters was given ${args.length} values`);
  const params = new Set(fn.params);
  const order = functionOrder(fn);
  order.forEach(checkExtents);
  const uses = new Map<Node, number>();
  const use = (node: Node): void => void uses.set(node, (uses.get(node) ?? 0) + 1);
  for (const node of order) if (!params.has(node)) node.inputs.forEach(use);
  fn.outputs.forEach(use);

  const values = new Map<Node, Value[]>();
  fn.params.forEach((param, i) => {
    checkResults(param, [args[i]]);
    values.set(param, [args[i]]);
  });
  for (const node of order) {
    if (params.has(node)) continue;
    const inputs = node.inputs.flatMap((input) => values.get(input) as Value[]);
    const result = isControl(node.op)
      ? yield* (running[node.op] as (inputs: readonly Value[], node: Node) => EvaluationSteps)(inputs, node)
      : (referenceRules[node.op] as ReferenceRule<OpName>)(inputs, node);
    const results = Array.isArray(result) ? result : [result];
    checkResults(node, results);
    values.set(node, results);
    for (const input of node.inputs) {
      const left = (uses.get(input) as number) - 1;
      uses.set(input, left);
      if (left === 0) values.delete(input);
    }
  }
  return fn.outputs.map((output) => (values.get(output) as Value[])[0]);
}
