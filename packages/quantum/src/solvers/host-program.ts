// Compiles a scalar function of time (a pulse envelope, for example) to a register program on the host. A register holds one element of
// the graph at many times, so that an instruction is one loop over times. Reshapes, slices and other views copy no registers.
import { type BinaryFn, functionOrder, type GraphFn, type Node, numel } from "@weft/core/internal/graph";
import { realFunction, realFunction2, referenceRules, type Value } from "@weft/core/internal/ops";

/** Values at some times: one array per element of the result. */
export type HostProgram = (times: Float64Array) => Float64Array[];

type Instruction = (registers: readonly Float64Array[], out: Float64Array) => void;
/** A register: a constant, the time, or what an instruction computes. */
type Register = { constant: number } | { time: true } | { run: Instruction };

/** Larger graphs are evaluated by the reference rules instead. */
const mostRegisters = 2048;
const moves = ["reshape", "permute", "expand", "slice", "pad", "flip", "concat"] as const;
const isMove = (op: string): op is (typeof moves)[number] => (moves as readonly string[]).includes(op);
const isReal = ({ dtype }: Node): boolean => dtype === "float64" || dtype === "bool";

const binary = (fn: BinaryFn, a: number, b: number): Instruction | null => {
  const f = realFunction2(fn);
  if (f === undefined) return null;
  // Written out, because V8 does not inline f below: it differs from instruction to instruction.
  if (fn === "add")
    return (from, out) => {
      const [x, y] = [from[a], from[b]];
      for (let i = 0; i < out.length; i++) out[i] = x[i] + y[i];
    };
  if (fn === "sub")
    return (from, out) => {
      const [x, y] = [from[a], from[b]];
      for (let i = 0; i < out.length; i++) out[i] = x[i] - y[i];
    };
  if (fn === "mul")
    return (from, out) => {
      const [x, y] = [from[a], from[b]];
      for (let i = 0; i < out.length; i++) out[i] = x[i] * y[i];
    };
  return (from, out) => {
    const [x, y] = [from[a], from[b]];
    for (let i = 0; i < out.length; i++) out[i] = f(x[i], y[i]);
  };
};

/** Registers and the instructions that fill them. */
class Registers {
  /** The first register is zero, which padding fills in. */
  readonly list: Register[] = [{ constant: 0 }];
  readonly #constants = new Map<number, number>([[0, 0]]);

  add(register: Register): number {
    return this.list.push(register) - 1;
  }

  constant(value: number): number {
    // Minus zero is another number, and NaN is equal to nothing.
    const isShared = !Object.is(value, -0);
    const cached = isShared ? this.#constants.get(value) : undefined;
    if (cached !== undefined) return cached;
    const made = this.add({ constant: value });
    if (isShared) this.#constants.set(value, made);
    return made;
  }

  /** The registers of a node's elements, or null if the op is not supported. */
  of(node: Node, inputs: readonly Value[]): Float64Array | null {
    const size = numel(node.shape);
    if (!isReal(node) || this.list.length + size > mostRegisters) return null;
    const [x, y, z] = inputs.map(({ data }) => data as Float64Array);
    const each = (make: (k: number) => Instruction | null): Float64Array | null => {
      const out = new Float64Array(size);
      for (let k = 0; k < size; k++) {
        const run = make(k);
        if (run === null) return null;
        out[k] = this.add({ run });
      }
      return out;
    };
    const { op, attrs } = node;
    if (op === "const") {
      const { value } = attrs as { value: unknown };
      return typeof value === "number" ? new Float64Array(size).fill(this.constant(value)) : null;
    }
    if (isMove(op)) {
      const rule = referenceRules[op] as (inputs: readonly Value[], node: Node) => Value;
      return rule(inputs, node).data as Float64Array;
    }
    // Truth values are the numbers 0 and 1.
    if (op === "alias" || op === "cast") return op === "alias" || node.dtype === "float64" ? x : null;
    if (!node.inputs.every(isReal)) return null;
    if (op === "where")
      return each((k) => {
        const [a, b, c] = [x[k], y[k], z[k]];
        return (from, out) => {
          for (let i = 0; i < out.length; i++) out[i] = from[a][i] !== 0 ? from[b][i] : from[c][i];
        };
      });
    if (node.inputs.some(({ dtype }) => dtype === "bool")) return null;
    if (op === "unary") {
      const f = realFunction((attrs as { fn: Parameters<typeof realFunction>[0] }).fn);
      if (f === undefined) return null;
      return each((k) => (from, out) => {
        const a = from[x[k]];
        for (let i = 0; i < out.length; i++) out[i] = f(a[i]);
      });
    }
    if (op === "binary") return each((k) => binary((attrs as { fn: BinaryFn }).fn, x[k], y[k]));
    return null;
  }
}

/**
 * Compiles a graph whose only parameter besides `constants` is one time. The program evaluates it at any number of times. Returns null if
 * the graph contains an op that is not supported.
 */
export function hostProgram(fn: GraphFn, constants: readonly Value[]): HostProgram | null {
  const registers = new Registers();
  const places = new Map<Node, Value>();
  const asPlaces = (node: Node, data: Float64Array): void =>
    void places.set(node, { shape: node.shape, dtype: "float64", data });
  for (const [k, param] of fn.params.entries()) {
    const given = constants[k];
    if (given === undefined) asPlaces(param, Float64Array.of(registers.add({ time: true })));
    else if (param.dtype !== "float64" || given.data.length > mostRegisters) return null;
    else
      asPlaces(
        param,
        Float64Array.from(given.data as Float64Array, (x) => registers.constant(x)),
      );
  }
  for (const node of functionOrder(fn)) {
    if (places.has(node)) continue;
    const inputs = node.inputs.map((input) => places.get(input));
    const made = node.outputs === null && !inputs.includes(undefined) ? registers.of(node, inputs as Value[]) : null;
    if (made === null) return null;
    asPlaces(node, made);
  }
  const result = Array.from(places.get(fn.outputs[0])!.data as Float64Array);
  const { list } = registers;
  let arrays: Float64Array[] = [];
  return (times) => {
    if (arrays[0]?.length !== times.length)
      arrays = list.map((r) => new Float64Array(times.length).fill("constant" in r ? r.constant : 0));
    list.forEach((r, k) => {
      if ("run" in r) r.run(arrays, arrays[k]);
      else if ("time" in r) arrays[k].set(times);
    });
    return result.map((k) => arrays[k]);
  };
}
