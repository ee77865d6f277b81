// Running functions other than sums, as compositions of element-wise ops; and how devices with a kernel for them find them again.
import { type ExtremeFn, isOp, type Node, type ScanFn, sameShape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { simplify } from "./simplify.js";

/**
 * Elements that one loop joins after each other. Gradients of products and extrema read each element about as often as a run is long, and
 * C compilers take minutes for runs of 16; devices have kernels of their own for the functions themselves.
 */
const serial = { usual: 16, short: 8 };

type Join = (a: Node, b: Node) => Node;

/**
 * What an associative function makes of all elements up to each: of runs of elements in one loop, which starts at the result of the runs
 * before. `start`: what the first run starts with, a slice of one element.
 */
function of(x: Node, axis: number, join: Join, start: Node, most = serial.usual): Node {
  const n = x.shape[axis];
  if (n <= 1) return x;
  const runs = Math.ceil(n / most);
  const length = Math.min(n, most);
  const sized = (...sizes: number[]): number[] => x.shape.toSpliced(axis, 1, ...sizes);
  // Only fills the last run.
  const rest = build.full(sized(runs * length - n), 1, x.dtype);
  const parts = build.reshape(runs * length === n ? x : build.concat([x, rest], axis), sized(runs, length));
  const elements = Array.from({ length }, (_, i) => build.sliceAxis(parts, axis + 1, i, i + 1));
  const joins = (first: Node | null): Node[] => {
    const made: Node[] = [];
    for (const element of elements) {
      const before = made.at(-1) ?? first;
      made.push(before === null ? element : join(before, element));
    }
    return made;
  };
  let starts: Node | null = null;
  if (runs > 1) {
    const through = of(build.reshape(joins(null).at(-1)!, sized(runs)), axis, join, start, most);
    starts = build.reshape(build.concat([start, build.sliceAxis(through, axis, 0, runs - 1)], axis), sized(runs, 1));
  }
  const joined = build.reshape(build.concat(joins(starts), axis + 1), sized(runs * length));
  return runs * length === n ? joined : build.sliceAxis(joined, axis, 0, n);
}

/** The neutral element in the shape of one slice. */
const neutral = (x: Node, axis: number, value: number): Node =>
  build.full(
    x.shape.map((d, i) => (i === axis ? 1 : d)),
    value,
    x.dtype,
  );

const product = (x: Node, axis: number): Node => of(x, axis, build.mul, neutral(x, axis, 1), serial.short);

/** The first element changes nothing in its own run. */
const extremum = (x: Node, axis: number, fn: ExtremeFn): Node =>
  of(x, axis, (a, b) => build.binary(fn, a, b), build.sliceAxis(x, axis, 0, 1), serial.short);

export const running = { of, neutral, product, extremum };

/** Whether two graphs are built in the same way from nodes that are the same or were found to be. */
function isSame(a: Node, b: Node, compared: Map<Node, Node>): boolean {
  if (a === b || compared.get(a) === b) return true;
  if (a.op !== b.op || a.dtype !== b.dtype || !sameShape(a.shape, b.shape) || a.inputs.length !== b.inputs.length)
    return false;
  if (JSON.stringify(a.attrs) !== JSON.stringify(b.attrs)) return false;
  if (a.inputs.length === 0 && a.op !== "const") return false;
  if (!a.inputs.every((input, i) => isSame(input, b.inputs[i], compared))) return false;
  compared.set(a, b);
  return true;
}

interface RunningFunction {
  x: Node;
  axis: number;
  fn: ScanFn;
}

/** The running product or extremum that a node is the result of, if it is longer than one run; null for other nodes. */
export function runningOf(node: Node): RunningFunction | null {
  const joined = isOp(node, "slice") ? node.inputs[0] : node;
  if (!isOp(joined, "reshape") || !isOp(joined.inputs[0], "concat")) return null;
  const { inputs: joins, attrs } = joined.inputs[0];
  const last = joins[joins.length - 1];
  if (joins.length !== serial.short || !isOp(last, "binary")) return null;
  const fn = last.attrs.fn === "mul" ? "prod" : last.attrs.fn;
  if (fn !== "prod" && fn !== "max" && fn !== "min") return null;
  const element = last.inputs[1];
  if (!isOp(element, "slice") || !isOp(element.inputs[0], "reshape")) return null;
  const axis = attrs.axis - 1;
  const [whole] = element.inputs[0].inputs;
  const x = isOp(node, "slice") ? whole.inputs[0] : whole;
  // What it is must be what would be built for it.
  if (x === undefined || axis < 0 || !sameShape(x.shape, node.shape) || x.shape[axis] <= serial.short) return null;
  const input = build.input(x.shape, x.dtype);
  const built = fn === "prod" ? product(input, axis) : extremum(input, axis, fn);
  const [simplified] = simplify({ params: [input], outputs: [built] }).outputs;
  return isSame(simplified, node, new Map([[input, x]])) ? { x, axis, fn } : null;
}
