// Decodes functions from plain data: the only entry for functions from other processes, tapes and files. Checks attributes against
// their rules (graph/attr-rules.ts), that operands refer to earlier nodes, and the contract of every op. Shapes and dtypes are
// computed here and must agree with the data.
import {
  type Aval,
  damaged,
  decodeAttrs,
  dtypeRule,
  type GraphFn,
  isOpName,
  limits,
  Node,
  type OpAttrs,
  type OpName,
  type Place,
  type PlainFunction,
  sameShape,
  shapeRule,
  showAval,
  shown,
  WeftError,
} from "../graph/index.js";
import { checkContract } from "./contracts.js";
import { Violation } from "./contracts-checks.js";
import { shapeRules } from "./shape.js";

type AnyShapeRule = (inputs: readonly Node[], attrs: OpAttrs[OpName]) => Aval | readonly Aval[];

const isIndex = (value: unknown, below: number): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < below;

class Decoder {
  #nodes = 0;
  #depth = 0;
  readonly #place: Place = { op: "", attribute: "", nested: (value) => this.#nested(value) };

  #nested(value: unknown): GraphFn {
    const { op, attribute } = this.#place;
    const fn = this.function(value);
    Object.assign(this.#place, { op, attribute });
    return fn;
  }

  #aval(value: unknown, what: string): Aval {
    if (!Array.isArray(value) || value.length !== 2) return damaged(`${what} has no dtype and shape`);
    this.#place.op = what;
    this.#place.attribute = "the dtype";
    const dtype = dtypeRule(value[0], this.#place);
    this.#place.attribute = "the shape";
    return { dtype, shape: shapeRule(value[1], this.#place) };
  }

  #checkResults(op: OpName, given: Aval | readonly Aval[], claimed: unknown): void {
    const many = Array.isArray(given);
    const expected = (many ? given : [given]) as readonly Aval[];
    const listed = many ? claimed : [claimed];
    const agree =
      Array.isArray(listed) &&
      listed.length === expected.length &&
      expected.every((aval, i) => {
        const { dtype, shape } = this.#aval(listed[i], `a result of ${op}`);
        return dtype === aval.dtype && sameShape(shape, aval.shape);
      });
    if (!agree) damaged(`${op} gives ${expected.slice(0, 8).map(showAval).join(", ")}, not what is said of it`);
  }

  #node(value: unknown, before: readonly Node[]): Node {
    if (!Array.isArray(value) || value.length !== 4) return damaged("a node that is no list of four");
    const [op, operands, attrs, avals] = value as unknown[];
    if (!isOpName(op)) return damaged(`there is no op ${shown(op)}`);
    if (op === "input" || op === "data") return damaged(`${op} is no operation on others`);
    if (!Array.isArray(operands) || operands.length > limits.operands) return damaged(`the operands of ${op}`);
    const inputs = operands.map((at) => (isIndex(at, before.length) ? before[at] : damaged(`the operands of ${op}`)));
    const checked = decodeAttrs(op, attrs, this.#place);
    checkContract({ op, inputs, attrs: checked });
    const given = (shapeRules[op] as AnyShapeRule)(inputs, checked);
    const node = new Node(op, inputs, checked, given);
    this.#checkResults(op, given, avals);
    return node;
  }

  function(value: unknown): GraphFn {
    if (++this.#depth > limits.nesting) damaged(`functions in functions, more than ${limits.nesting} deep`);
    if (typeof value !== "object" || value === null) return damaged("parameters, nodes or outputs are missing");
    for (const key of Object.keys(value))
      if (key !== "params" && key !== "nodes" && key !== "outputs") damaged(`it has a part ${shown(key)}`);
    const { params, nodes, outputs } = value as Partial<PlainFunction>;
    if (!Array.isArray(params) || !Array.isArray(nodes) || !Array.isArray(outputs))
      return damaged("parameters, nodes or outputs are missing");
    this.#nodes += params.length + nodes.length;
    if (this.#nodes > limits.nodes || outputs.length > limits.operands || params.length > limits.operands)
      return damaged(`it has more than ${limits.nodes} nodes, or ${limits.operands} parameters or results`);
    const all: Node[] = params.map((param) => {
      const aval = this.#aval(param, "a parameter");
      return new Node("input", [], { ...aval, name: "" }, aval);
    });
    for (const node of nodes) all.push(this.#node(node, all));
    const results = outputs.map((at) => {
      if (!isIndex(at, all.length)) return damaged("its results");
      return all[at].outputs === null ? all[at] : damaged("a result that is several");
    });
    this.#depth--;
    return { params: all.slice(0, params.length), outputs: results };
  }
}

/** Decodes a function from plain data (see toPlain). Throws a WeftError if the data is invalid. Takes ownership of the data. */
export function decodeFunction(value: unknown): GraphFn {
  try {
    return new Decoder().function(value);
  } catch (error) {
    if (error instanceof Violation) return damaged(error.message);
    if (error instanceof WeftError || !(error instanceof RangeError)) throw error;
    return damaged("it is too large");
  }
}
