// The table of all ops, and the evaluator of functions.
import {
  type Aval,
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

function checkResults(node: Node, avals: readonly Aval[], results: readonly Value[]): void {
  let agree = results.length === avals.length;
  for (let i = 0; agree && i < avals.length; i++) agree = hasAval(results[i], avals[i].shape, avals[i].dtype);
  if (!agree)
    throw new InternalError(
      `${node.op} %${node.id} should be ${avals.map(showAval).join(", ")} and is ${results.map(showAval).join(", ")}`,
    );
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

interface EvaluationStep {
  node: Node;
  avals: readonly Aval[];
  place: number;
  inputs: readonly number[];
  /** Places of values that nobody reads after this step. */
  lastUses: readonly number[];
}

/** The order of evaluation, with places of values in a list instead of nodes: bodies of loops run thousands of times. */
interface EvaluationPlan {
  /** Places of parameters: those that no node reads have one too. */
  params: readonly number[];
  steps: readonly EvaluationStep[];
  outputs: readonly number[];
}

const plans = new WeakMap<GraphFn, EvaluationPlan>();

function planOf(fn: GraphFn): EvaluationPlan {
  const cached = plans.get(fn);
  if (cached !== undefined) return cached;
  const order = functionOrder(fn);
  order.forEach(checkExtents);
  const places = new Map<Node, number>();
  const placeOf = (node: Node): number => {
    const place = places.get(node) ?? places.size;
    places.set(node, place);
    return place;
  };
  const params = fn.params.map(placeOf);
  const isParam = new Set(fn.params);
  const computed = order.filter((node) => !isParam.has(node));
  const last = new Map<Node, number>();
  for (const [i, node] of computed.entries()) for (const input of node.inputs) last.set(input, i);
  for (const node of fn.outputs) last.delete(node);
  const steps = computed.map((node, i) => ({
    node,
    avals: outputAvals(node),
    place: placeOf(node),
    inputs: node.inputs.map(placeOf),
    lastUses: [...new Set(node.inputs)].filter((input) => last.get(input) === i).map(placeOf),
  }));
  const plan = { params, steps, outputs: fn.outputs.map(placeOf) };
  plans.set(fn, plan);
  return plan;
}

/**
 * Runs a function on host values up to each of its collectives. Intermediate values are dropped after their last use. A result may share its
 * memory with an argument; neither is ever written to.
 */
export function* evaluateSteps(fn: GraphFn, args: readonly Value[]): EvaluationSteps {
  if (args.length !== fn.params.length)
    throw new InternalError(`a function of ${fn.params.length} parameters was given ${args.length} values`);
  const { params, steps, outputs } = planOf(fn);
  const values: (Value[] | undefined)[] = [];
  for (const [i, param] of fn.params.entries()) {
    checkResults(param, outputAvals(param), [args[i]]);
    values[params[i]] = [args[i]];
  }
  for (const { node, avals, place, inputs: places, lastUses } of steps) {
    const inputs: Value[] = [];
    for (const input of places) for (const value of values[input] as Value[]) inputs.push(value);
    const result = isControl(node.op)
      ? yield* (running[node.op] as (inputs: readonly Value[], node: Node) => EvaluationSteps)(inputs, node)
      : (referenceRules[node.op] as ReferenceRule<OpName>)(inputs, node);
    const results = Array.isArray(result) ? result : [result];
    checkResults(node, avals, results);
    values[place] = results;
    for (const input of lastUses) values[input] = undefined;
  }
  return outputs.map((output) => (values[output] as Value[])[0]);
}
