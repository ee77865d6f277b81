// Products of tensors: matmul, einsum, tensordot, kron, outer. All use the batched matrix product.
import {
  broadcastShapes,
  checkOptions,
  type Node,
  numel,
  range,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import {
  align,
  broadcastAll,
  checkArguments,
  commonDType,
  nodeAs,
  resolveAxis,
  type TensorLike,
  wrap,
} from "./convert.js";
import { currentPrecision, type ProductOptions, productPrecision } from "./precision.js";
import type { Tensor } from "./tensor.js";

/**
 * Matrix product with the rules of NumPy: 1D operands are vectors, leading axes broadcast.
 *
 * @example
 * ```ts
 * import { matmul, tensor } from "@weft/core";
 *
 * const a = tensor([[1, 2], [3, 4]]);
 * console.log(await matmul(a, tensor([5, 6])).array()); // [17, 39]
 * console.log(await a.matmul(a.T).array()); // [[5, 11], [11, 25]]
 * ```
 */
export function matmul(a: TensorLike, b: TensorLike, options: ProductOptions = {}): Tensor {
  const precision = productPrecision("matmul", checkOptions("matmul", options, ["precision"]));
  const common = commonDType("matmul", [a, b]);
  const dtype = common === "bool" ? "int32" : common;
  let [x, y] = [nodeAs("matmul", a, dtype), nodeAs("matmul", b, dtype)];
  if (x.shape.length === 0 || y.shape.length === 0)
    throw new ShapeError(
      `matmul: ${showShape(x.shape)} by ${showShape(y.shape)}: scalars have no matrix product; use mul`,
    );
  const shapes = `${showShape(x.shape)} by ${showShape(y.shape)}`;
  const [rowVector, columnVector] = [x.shape.length === 1, y.shape.length === 1];
  if (rowVector) x = build.reshape(x, [1, x.shape[0]]);
  if (columnVector) y = build.reshape(y, [y.shape[0], 1]);
  const [m, k] = x.shape.slice(-2);
  const [k2, n] = y.shape.slice(-2);
  if (k !== k2)
    throw new ShapeError(
      `matmul: ${shapes}: the last axis of the first (${k}) and the second-last of the second (${k2}) must be equal; ` +
        "transpose() swaps the last two axes",
    );
  const batch = broadcastShapes(x.shape.slice(0, -2), y.shape.slice(0, -2));
  if (batch === null) throw new ShapeError(`matmul: ${shapes}: the leading axes do not broadcast`);
  const sharedRight = y.shape.length === 2 && batch.length > 0;
  const product = sharedRight
    ? build.reshape(
        build.matmul(build.reshape(x, [numel(x.shape) / Math.max(k, 1) || numel(batch) * m, k]), y, precision),
        [...batch, m, n],
      )
    : build.matmul(build.expandTo(x, [...batch, m, k]), build.expandTo(y, [...batch, k, n]), precision);
  const shape = [...batch, ...(rowVector ? [] : [m]), ...(columnVector ? [] : [n])];
  return wrap(build.reshape(product, shape));
}

interface Operand {
  node: Node;
  labels: string[];
}

function parse(equation: string, operands: readonly Node[]): { inputs: string[][]; output: string[] } {
  const [left, right, ...more] = equation.replaceAll(" ", "").split("->");
  const terms = left.split(",");
  if (
    more.length > 0 ||
    terms.length !== operands.length ||
    /[^a-zA-Z,]/.test(left) ||
    (right !== undefined && /[^a-zA-Z]/.test(right))
  )
    throw new WeftError(
      `einsum: "${equation}" does not describe ${operands.length} operands; write one letter per axis, as in "bij,jk->bik"`,
    );
  const inputs = terms.map((term) => [...term]);
  const counts = new Map<string, number>();
  for (const label of inputs.flat()) counts.set(label, (counts.get(label) ?? 0) + 1);
  const output = right !== undefined ? [...right] : [...counts.keys()].filter((l) => counts.get(l) === 1).sort();
  const unknown = output.find((l) => !counts.has(l));
  if (unknown !== undefined || new Set(output).size !== output.length)
    throw new WeftError(
      `einsum: the result "${output.join("")}" of "${equation}" names ${unknown ?? "a letter twice"}`,
    );
  return { inputs, output };
}

/** Takes the diagonal if a letter occurs twice in one operand. */
function withoutRepeats({ node, labels }: Operand): Operand {
  for (;;) {
    const second = labels.findIndex((l, i) => labels.indexOf(l) !== i);
    if (second < 0) return { node, labels };
    const first = labels.indexOf(labels[second]);
    const same = build.eq(build.iota(node.shape, first, "int32"), build.iota(node.shape, second, "int32"));
    node = build.sum(build.where(same, node, build.zerosLike(node)), [second]);
    labels = labels.filter((_, i) => i !== second);
  }
}

const sumOut = ({ node, labels }: Operand, keep: ReadonlySet<string>): Operand => {
  const summed = range(labels.length).filter((i) => !keep.has(labels[i]));
  return { node: build.sum(node, summed), labels: labels.filter((l) => keep.has(l)) };
};

const arrange = ({ node, labels }: Operand, order: readonly string[]): Node =>
  build.permute(
    node,
    order.map((l) => labels.indexOf(l)),
  );

/** Contracts two operands over the letters that only they share; `keep` are the letters that other operands or the result need. */
function contract(a: Operand, b: Operand, keep: ReadonlySet<string>): Operand {
  const inB = new Set(b.labels);
  const inA = new Set(a.labels);
  const left = sumOut(a, new Set([...keep, ...inB]));
  const right = sumOut(b, new Set([...keep, ...inA]));
  const batch = left.labels.filter((l) => inB.has(l) && keep.has(l));
  const shared = left.labels.filter((l) => inB.has(l) && !keep.has(l));
  const onlyA = left.labels.filter((l) => !inB.has(l));
  const onlyB = right.labels.filter((l) => !inA.has(l));
  const size = (operand: Operand, labels: readonly string[]): number[] =>
    labels.map((l) => operand.node.shape[operand.labels.indexOf(l)]);
  const batchShape = size(left, batch);
  const [m, k, n] = [numel(size(left, onlyA)), numel(size(left, shared)), numel(size(right, onlyB))];
  const x = build.reshape(arrange(left, [...batch, ...onlyA, ...shared]), [...batchShape, m, k]);
  const y = build.reshape(arrange(right, [...batch, ...shared, ...onlyB]), [...batchShape, k, n]);
  const product = build.matmul(x, y, currentPrecision());
  const shape = [...batchShape, ...size(left, onlyA), ...size(right, onlyB)];
  return { node: build.reshape(product, shape), labels: [...batch, ...onlyA, ...onlyB] };
}

/** Names the axes of "..." by letters that the equation does not use; sizes of 1 grow to those of the other operands. */
function withoutEllipsis(equation: string, nodes: readonly Node[]): { equation: string; nodes: Node[] } {
  const [left, right] = equation.replace(/\s/g, "").split("->");
  const terms = left.split(",");
  if (terms.length !== nodes.length)
    throw new WeftError(`einsum: "${equation}" has ${terms.length} operands, ${nodes.length} were given`);
  const wrong = [...terms, right ?? ""].find(
    (term) => (term.match(/\.\.\./g) ?? []).length > 1 || /\./.test(term.replace("...", "")),
  );
  if (wrong !== undefined) throw new WeftError(`einsum: "${wrong}" has more than one "...", or single dots`);
  const ranks = terms.map((term, i) => (term.includes("...") ? nodes[i].shape.length - (term.length - 3) : 0));
  const short = ranks.findIndex((n) => n < 0);
  if (short >= 0)
    throw new ShapeError(
      `einsum: "${terms[short]}" names more axes than a tensor of shape ${showShape(nodes[short].shape)} has`,
    );
  if (right !== undefined && !right.includes("...") && Math.max(...ranks) > 0)
    throw new WeftError(`einsum: the result of "${equation}" needs "..." too; sum over named axes instead`);
  const letters = [..."abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"].filter((l) => !equation.includes(l));
  const names = letters.slice(0, Math.max(...ranks));
  if (names.length < Math.max(...ranks))
    throw new WeftError(`einsum: "${equation}" and its "..." have more than 52 axes; reshape the operands to fewer`);
  const places = terms.map((term) => term.indexOf("..."));
  const shape = broadcastAll(
    "einsum",
    nodes.flatMap((node, i) => (places[i] < 0 ? [] : [node.shape.slice(places[i], places[i] + ranks[i])])),
  );
  const own = (i: number): string => names.slice(names.length - ranks[i]).join("");
  const once = [...new Set(terms.join("").replace(/\./g, ""))]
    .filter((l) => terms.join("").split(l).length === 2)
    .sort();
  const output = right === undefined ? [...names, ...once].join("") : right.replace("...", names.join(""));
  return {
    equation: `${terms.map((term, i) => term.replace("...", own(i))).join(",")}->${output}`,
    nodes: nodes.map((node, i) => {
      if (places[i] < 0) return node;
      const [before, after] = [node.shape.slice(0, places[i]), node.shape.slice(places[i] + ranks[i])];
      return build.expand(node, [...before, ...shape.slice(shape.length - ranks[i]), ...after]);
    }),
  };
}

/**
 * Einstein summation, such as "bij,jk->bik". "..." stands for axes that broadcast. Several operands are contracted pairwise, the
 * smallest result first.
 *
 * @example
 * ```ts
 * import { einsum, ones } from "@weft/core";
 *
 * const scores = einsum("bqd,bkd->bqk", ones([2, 3, 4]), ones([2, 5, 4]));
 * console.log(scores.shape); // [2, 3, 5]
 * ```
 */
export function einsum(equation: string, ...operands: TensorLike[]): Tensor {
  checkArguments("einsum", "string", { equation });
  if (operands.length === 0) throw new WeftError(`einsum: "${equation}" needs tensors`);
  const dtype = commonDType("einsum", operands);
  const given = operands.map((x) => nodeAs("einsum", x, dtype === "bool" ? "int32" : dtype));
  const open = equation.includes("...") ? withoutEllipsis(equation, given) : { equation, nodes: given };
  const parsed = parse(open.equation, open.nodes);
  const { output } = parsed;
  const sizes = new Map<string, number>();
  parsed.inputs.forEach((labels, i) => {
    const { shape } = open.nodes[i];
    if (labels.length !== shape.length)
      throw new ShapeError(
        `einsum: "${labels.join("")}" names ${labels.length} axes of a tensor of shape ${showShape(shape)}`,
      );
    labels.forEach((l, axis) => {
      const [size, known] = [shape[axis], sizes.get(l) ?? 1];
      if (known !== size && known !== 1 && size !== 1)
        throw new ShapeError(`einsum: "${l}" is ${known} in one operand of "${equation}" and ${size} in another`);
      sizes.set(l, known === 1 ? size : known);
    });
  });
  // An axis of size 1 broadcasts: the operand does not depend on it.
  let pending = parsed.inputs.map((labels, i) => {
    const { shape } = open.nodes[i];
    const kept = range(labels.length).filter((axis) => shape[axis] === sizes.get(labels[axis]));
    const node = build.reshape(
      open.nodes[i],
      kept.map((axis) => shape[axis]),
    );
    return withoutRepeats({ node, labels: kept.map((axis) => labels[axis]) });
  });
  while (pending.length > 1) {
    const needed = (i: number, j: number): Set<string> =>
      new Set([...output, ...pending.flatMap((p, k) => (k === i || k === j ? [] : p.labels))]);
    let best: { i: number; j: number; cost: number } | null = null;
    for (let i = 0; i < pending.length; i++) {
      for (let j = i + 1; j < pending.length; j++) {
        const keep = needed(i, j);
        const labels = new Set([...pending[i].labels, ...pending[j].labels].filter((l) => keep.has(l)));
        const cost = numel([...labels].map((l) => sizes.get(l)!));
        if (best === null || cost < best.cost) best = { i, j, cost };
      }
    }
    const { i, j } = best!;
    const joined = contract(pending[i], pending[j], needed(i, j));
    pending = [...pending.filter((_, k) => k !== i && k !== j), joined];
  }
  const last = sumOut(pending[0], new Set(output));
  return wrap(arrange(last, output));
}

/** Contracts the last `axes` axes of a with the first `axes` axes of b, or the given pairs of axes. */
export function tensordot(
  a: Tensor,
  b: Tensor,
  axes: number | readonly [readonly number[], readonly number[]] = 2,
): Tensor {
  checkArguments("tensordot", "tensor", { a, b });
  if (typeof axes !== "number" && !(Array.isArray(axes) && axes.length === 2 && axes.every(Array.isArray)))
    throw new ShapeError(`tensordot: axes are a number or two lists of axes, got ${showValue(axes)}`);
  const [ra, rb] = [a.shape.length, b.shape.length];
  const [left, right] =
    typeof axes === "number"
      ? [range(axes).map((i) => ra - axes + i), range(axes)]
      : axes.map((list, i) => list.map((axis) => resolveAxis("tensordot", axis, i === 0 ? ra : rb)));
  if (left.length !== right.length || left.some((axis, i) => a.shape[axis] !== b.shape[right[i]]))
    throw new ShapeError(
      `tensordot: axes [${left}] of ${showShape(a.shape)} do not pair with [${right}] of ${showShape(b.shape)}`,
    );
  const letters = [..."abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"];
  const la = letters.slice(0, ra);
  const lb = range(rb).map((axis) => (right.includes(axis) ? la[left[right.indexOf(axis)]] : letters[ra + axis]));
  const out = [...la.filter((_, i) => !left.includes(i)), ...lb.filter((_, i) => !right.includes(i))];
  return einsum(`${la.join("")},${lb.join("")}->${out.join("")}`, a, b);
}

/** Kronecker product. The operand of lower rank is padded with axes of size 1. */
export function kron(a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("kron", [a, b]);
  const [x, y] = [nodeAs("kron", a, dtype), nodeAs("kron", b, dtype)];
  const rank = Math.max(x.shape.length, y.shape.length);
  const fill = (shape: readonly number[]): number[] => [...new Array<number>(rank - shape.length).fill(1), ...shape];
  const [sx, sy] = [fill(x.shape), fill(y.shape)];
  const full = sx.flatMap((d, i) => [d, sy[i]]);
  const left = build.expand(
    build.reshape(
      x,
      sx.flatMap((d) => [d, 1]),
    ),
    full,
  );
  const right = build.expand(
    build.reshape(
      y,
      sy.flatMap((d) => [1, d]),
    ),
    full,
  );
  return wrap(
    build.reshape(
      build.mul(left, right),
      sx.map((d, i) => d * sy[i]),
    ),
  );
}

/** Outer product of two vectors: out[i, j] = a[i] b[j]. */
export function outer(a: Tensor, b: Tensor): Tensor {
  checkArguments("outer", "tensor", { a, b });
  return wrap(build.reshape(kron(a.reshape([-1, 1]), b.reshape([1, -1])).node, [numel(a.shape), numel(b.shape)]));
}

/** Dot products along an axis, with broadcasting: the sum of conj(a) b. */
export function vecdot(a: TensorLike, b: TensorLike, axis = -1): Tensor {
  const common = commonDType("vecdot", [a, b]);
  const [x, y] = align("vecdot", [a, b], common === "bool" ? "int32" : common);
  const at = resolveAxis("vecdot", axis, x.shape.length);
  return wrap(build.sum(build.mul(build.conj(x), y), [at]));
}

/**
 * Cross products of vectors of 3 elements along an axis, with broadcasting. Of vectors of 2 elements it is the third element alone,
 * and the axis is dropped.
 */
export function cross(a: TensorLike, b: TensorLike, axis = -1): Tensor {
  const [x, y] = align("cross", [a, b]);
  const at = resolveAxis("cross", axis, x.shape.length);
  if (x.shape[at] === 2) {
    const [x0, x1, y0, y1] = [x, y].flatMap((v) => [0, 1].map((i) => build.sliceAxis(v, at, i, i + 1)));
    const z = build.sub(build.mul(x0, y1), build.mul(x1, y0));
    return wrap(
      build.reshape(
        z,
        z.shape.filter((_, i) => i !== at),
      ),
    );
  }
  if (x.shape[at] !== 3)
    throw new ShapeError(
      `cross: vectors have 3 elements (or 2), axis ${axis} of ${showShape(x.shape)} has ${x.shape[at]}`,
    );
  const part = (v: Node, i: number): Node => build.sliceAxis(v, at, i % 3, (i % 3) + 1);
  const parts = [0, 1, 2].map((i) =>
    build.sub(build.mul(part(x, i + 1), part(y, i + 2)), build.mul(part(x, i + 2), part(y, i + 1))),
  );
  return wrap(build.concat(parts, at));
}
