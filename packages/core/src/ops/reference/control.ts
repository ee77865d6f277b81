// Leaves, identities, and ops that contain a function.
import { type GraphFn, InternalError, type Node, numel, type OpAttrs } from "../../graph/index.js";
import {
  copyBlock,
  forEachIndex,
  fromComplexes,
  fromIntegers,
  fromReals,
  joinBlocks,
  type ReferenceRules,
  reals,
  type Value,
} from "./value.js";

/** A collective that evaluation waits at, with this device's operand; evaluation resumes with the result. */
export interface PendingCollective {
  attrs: OpAttrs["collective"];
  input: Value;
}

/** Incremental evaluation, which stops at every collective. */
export type EvaluationSteps = Generator<PendingCollective, Value[], Value>;
type Evaluate = (fn: GraphFn, args: readonly Value[]) => EvaluationSteps;

function iota({ shape, axis, dtype }: OpAttrs["iota"]): Value {
  const numbers: bigint[] = [];
  forEachIndex(shape, (index) => {
    numbers.push(BigInt(index[axis]));
  });
  return fromIntegers(dtype, shape, numbers);
}

function* scan(inputs: readonly Value[], node: Node<"scan">, evaluate: Evaluate): EvaluationSteps {
  const { body, consts: constCount, carries: carryCount, length, reverse, stop } = node.attrs;
  const consts = inputs.slice(0, constCount);
  let carries = inputs.slice(constCount, constCount + carryCount);
  const xs = inputs.slice(constCount + carryCount);
  const ys = body.outputs.slice(carryCount).map((): Value[] => []);
  const bound = stop === "count" ? Math.min(length, largest(consts[0])) : length;
  let ran = 0;
  for (; ran < bound; ran++) {
    if (stop === "while" && largest(carries[0]) === 0) break;
    const at = reverse ? bound - 1 - ran : ran;
    const slices = xs.map((x) => {
      const shape = x.shape.slice(1);
      return copyBlock(x, at * shape.reduce((n, d) => n * d, 1), shape);
    });
    const results = yield* evaluate(body, [...consts, ...carries, ...slices]);
    carries = results.slice(0, carryCount);
    results.slice(carryCount).forEach((y, i) => {
      ys[i][at] = y;
    });
  }
  const stacked = body.outputs.slice(carryCount).map((y, i) => {
    for (let at = ran; at < length; at++) ys[i][at] = zeroValue(y);
    return joinBlocks(y.dtype, [length, ...y.shape], ys[i]);
  });
  return [...carries, ...stacked];
}

/** The largest element of a predicate or a number of steps; at least 0. */
const largest = (value: Value): number => reals(value).reduce((most, x) => Math.max(most, x), 0);

const zeroValue = ({ shape, dtype }: Node): Value =>
  fromReals(
    dtype,
    shape,
    Array.from({ length: numel(shape) }, () => 0),
  );

const supplied = (node: Node): never => {
  throw new InternalError(`the value of ${node.op} %${node.id} is supplied from outside, and was not`);
};

type LeafOp = "input" | "data" | "const" | "iota" | "alias" | "barrier" | "pin" | "pick";
/** Ops that run functions or wait for other devices. */
export type ControlOp = "scan" | "custom" | "collective";
type ControlRule<K extends ControlOp> = (inputs: readonly Value[], node: Node<K>) => EvaluationSteps;

/** `evaluate` is a parameter because it depends on this table. */
export const controlRules = (evaluate: Evaluate): { [K in ControlOp]: ControlRule<K> } => ({
  scan: (inputs, node) => scan(inputs, node, evaluate),
  custom: (inputs, { attrs }) => evaluate(attrs.body, inputs),
  collective: function* ([input], { attrs }) {
    return [yield { attrs, input }];
  },
});

export const leafRules: ReferenceRules<LeafOp> = {
  input: (_, node) => supplied(node),
  data: (_, node) => supplied(node),
  const: (_, { attrs: { value, dtype } }) =>
    typeof value === "number" ? fromReals(dtype, [], [value]) : fromComplexes(dtype, [], [value]),
  iota: (_, { attrs }) => iota(attrs),
  alias: ([x]) => x,
  barrier: ([x]) => x,
  pin: ([x]) => x,
  pick: (results, { attrs }) => results[attrs.index],
};
