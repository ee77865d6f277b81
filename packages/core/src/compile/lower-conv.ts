// Convolutions for devices and dtypes without a library for them, as slices and one matrix product; and the geometry that libraries
// with symmetric padding accept.
import {
  functionOrder,
  type GraphFn,
  isHalf,
  kindOf,
  type Node,
  numel,
  type OpAttrs,
  type OpName,
  type Shape,
} from "../graph/index.js";
import { build, convRoles } from "../ops/index.js";
import { rebuild } from "../transform/index.js";
import { moveChannelsLast } from "./channels-last.js";

/** What the convolution library of a device supports. */
export interface ConvSupport {
  /** Whether the library runs this node; others are lowered to matrix products. */
  supports(node: Node<"conv">): boolean;
  /** Whether the library needs the operands of this convolution of halves as float32. */
  widensHalf(node: Node<"conv">): boolean;
  /** The library takes the same number of zeros at both sides and no other rows. */
  symmetric: boolean;
  /** Depthwise convolutions with channels last are faster as fused loops than in the library. */
  loopsDepthwise: boolean;
  /** The device has kernels of its own for this depthwise convolution. */
  hasDepthwise?(node: Node<"conv">): boolean;
  /** Whether a convolution, which has its channels last, is faster than with channels first. Default: none is. */
  prefersLast?(node: Node<"conv">): boolean;
}

const toFirst = (x: Node): Node => build.moveAxis(x, x.shape.length - 1, 1);
const toLast = (x: Node): Node => build.moveAxis(x, 1, x.shape.length - 1);

/** Zeros before and after the spatial axes; negative amounts cut rows off. */
function padSpatial(x: Node, first: number, low: readonly number[], high: readonly number[]): Node {
  const spatial = (values: readonly number[], rest: (axis: number) => number): number[] =>
    x.shape.map((_, axis) => (axis < first || axis >= first + values.length ? rest(axis) : values[axis - first]));
  const cut = build.slice(
    x,
    spatial(
      low.map((n) => Math.max(0, -n)),
      () => 0,
    ),
    spatial(
      high.map((n, i) => x.shape[first + i] - Math.max(0, -n)),
      (axis) => x.shape[axis],
    ),
  );
  return build.pad(
    cut,
    spatial(
      low.map((n) => Math.max(0, n)),
      () => 0,
    ),
    spatial(
      high.map((n) => Math.max(0, n)),
      () => 0,
    ),
  );
}

/** All positions of a kernel, in row-major order. */
function* positions(kernel: Shape): Generator<number[]> {
  for (let i = 0; i < numel(kernel); i++) {
    const at = new Array<number>(kernel.length);
    let rest = i;
    for (let d = kernel.length - 1; d >= 0; d--) {
      at[d] = rest % kernel[d];
      rest = Math.floor(rest / kernel[d]);
    }
    yield at;
  }
}

type Geometry = Pick<OpAttrs["conv"], "stride" | "dilation" | "low" | "groups">;

/** The windows of x [batch, channels, ...] as [batch, groups, channels per group * taps, positions]. */
function windows(x: Node, kernel: Shape, out: Shape, { stride, dilation, low, groups }: Geometry): Node {
  const [batch, channels, ...size] = x.shape;
  const high = out.map((n, i) => (n - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - size[i] - low[i]);
  const padded = padSpatial(x, 2, low, high);
  const parts: Node[] = [];
  for (const at of positions(kernel)) {
    const start = at.map((a, i) => a * dilation[i]);
    const stop = start.map((s, i) => s + (out[i] - 1) * stride[i] + 1);
    const cut = build.slice(padded, [0, 0, ...start], [batch, channels, ...stop], [1, 1, ...stride]);
    parts.push(build.reshape(cut, [batch, groups, channels / groups, 1, numel(out)]));
  }
  return build.reshape(build.concat(parts, 3), [batch, groups, (channels / groups) * numel(kernel), numel(out)]);
}

function forward(x: Node, w: Node, out: Shape, geometry: Geometry, attrs: OpAttrs["conv"]): Node {
  const [outputs, perGroup, ...kernel] = w.shape;
  const { groups } = geometry;
  const columns = windows(x, kernel, out, geometry);
  const filters = build.reshape(w, [1, groups, outputs / groups, perGroup * numel(kernel)]);
  const product = build.matmul(
    build.expand(filters, [x.shape[0], ...filters.shape.slice(1)]),
    columns,
    attrs.precision,
  );
  return build.reshape(product, [x.shape[0], outputs, ...out]);
}

/** Rows with stride - 1 zeros between them; `first` is the first spatial axis. */
function dilate(y: Node, stride: readonly number[], first = 2): Node {
  let result = y;
  stride.forEach((s, i) => {
    if (s === 1) return;
    const axis = i + first;
    const { shape } = result;
    const split = build.reshape(result, [...shape.slice(0, axis + 1), 1, ...shape.slice(axis + 1)]);
    const none = split.shape.map(() => 0);
    const joined = build.reshape(build.pad(split, none, none.with(axis + 1, s - 1)), [
      ...shape.slice(0, axis),
      shape[axis] * s,
      ...shape.slice(axis + 1),
    ]);
    result = build.sliceAxis(joined, axis, 0, (shape[axis] - 1) * s + 1);
  });
  return result;
}

/** x from y: a convolution of the dilated y with the flipped weight, whose channels change places. */
function input(y: Node, w: Node, attrs: OpAttrs["conv"]): Node {
  const { groups, stride, dilation, low, size } = attrs;
  const [outputs, perGroup, ...kernel] = w.shape;
  const grouped = build.reshape(w, [groups, outputs / groups, perGroup, ...kernel]);
  const swapped = build.reshape(build.moveAxis(grouped, 2, 1), [groups * perGroup, outputs / groups, ...kernel]);
  const flipped = build.flip(
    swapped,
    kernel.map((_, i) => i + 2),
  );
  const geometry = {
    groups,
    stride: stride.map(() => 1),
    dilation,
    low: kernel.map((k, i) => dilation[i] * (k - 1) - low[i]),
  };
  return forward(dilate(y, stride), flipped, size, geometry, attrs);
}

function weight(x: Node, y: Node, attrs: OpAttrs["conv"]): Node {
  const { groups, size } = attrs;
  const [batch, outputs, ...out] = y.shape;
  const columns = windows(x, size, out, attrs);
  const [, , rows, count] = columns.shape;
  const flat = (node: Node, lines: number): Node =>
    build.reshape(build.permute(node, [1, 2, 0, 3]), [groups, lines, batch * count]);
  const left = flat(build.reshape(y, [batch, groups, outputs / groups, count]), outputs / groups);
  const product = build.matmul(left, build.transpose(flat(columns, rows)), attrs.precision);
  return build.reshape(product, [outputs, x.shape[1] / groups, ...size]);
}

/** Kernels up to this size are written out tap by tap. */
const maxTaps = 49;

/** One channel per group, channels last: a fused loop over the taps reads and writes neighboring channels together. */
const isDepthwiseLoop = (node: Node<"conv">): boolean => {
  const { x, w } = convRoles(node);
  const { groups, channelsLast } = node.attrs;
  const isDepthwise = groups > 1 && x.shape[x.shape.length - 1] === groups && w.shape[0] === groups;
  return channelsLast && isDepthwise && numel(w.shape.slice(1)) <= maxTaps;
};

/** Sum over the taps of the kernel of tap times window. Taps [channels, ...kernel, 1]. */
function depthwiseSum(x: Node, w: Node, out: Shape, { stride, dilation, low }: Omit<Geometry, "groups">): Node {
  const [batch, ...rest] = x.shape;
  const channels = rest[rest.length - 1];
  const kernel = w.shape.slice(1, -1);
  const high = out.map((n, i) => (n - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - rest[i] - low[i]);
  const padded = padSpatial(x, 1, low, high);
  const shape = [batch, ...out, channels];
  let total: Node | null = null;
  for (const at of positions(kernel)) {
    const start = at.map((a, i) => a * dilation[i]);
    const stop = start.map((s, i) => s + (out[i] - 1) * stride[i] + 1);
    const cut = build.slice(padded, [0, ...start, 0], [batch, ...stop, channels], [1, ...stride, 1]);
    const tap = build.slice(w, [0, ...at, 0], [channels, ...at.map((a) => a + 1), 1]);
    const row = build.reshape(tap, [...shape.slice(0, -1).map(() => 1), channels]);
    const term = build.mul(cut, build.expand(row, shape));
    total = total === null ? term : build.add(total, term);
  }
  return total!;
}

function depthwiseWeight(x: Node, y: Node, { size, stride, dilation, low }: OpAttrs["conv"]): Node {
  const [batch, ...rest] = x.shape;
  const channels = rest[rest.length - 1];
  const out = y.shape.slice(1, -1);
  const high = out.map((n, i) => (n - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1 - rest[i] - low[i]);
  const padded = padSpatial(x, 1, low, high);
  const sums = [...positions(size)].map((at) => {
    const start = at.map((a, i) => a * dilation[i]);
    const stop = start.map((s, i) => s + (out[i] - 1) * stride[i] + 1);
    const cut = build.slice(padded, [0, ...start, 0], [batch, ...stop, channels], [1, ...stride, 1]);
    const axes = y.shape.map((_, i) => i).slice(0, -1);
    return build.reshape(build.sum(build.mul(cut, y), axes), [channels, 1]);
  });
  return build.reshape(build.concat(sums, 1), [channels, ...size, 1]);
}

/** A depthwise convolution as a fused loop; sums of halves are in float32. */
function depthwise(node: Node<"conv">): Node {
  const { attrs } = node;
  const [a, b] = node.inputs.map((x) => (isHalf(x.dtype) ? build.cast(x, "float32") : x));
  if (attrs.kind === "weight") return build.cast(depthwiseWeight(a, b, attrs), node.dtype);
  if (attrs.kind === "forward") return build.cast(depthwiseSum(a, b, attrs.size, attrs), node.dtype);
  const kernel = b.shape.slice(1, -1);
  const flipped = build.flip(
    b,
    kernel.map((_, i) => i + 1),
  );
  const low = kernel.map((k, i) => attrs.dilation[i] * (k - 1) - attrs.low[i]);
  const geometry = { stride: attrs.stride.map(() => 1), dilation: attrs.dilation, low };
  return build.cast(depthwiseSum(dilate(a, attrs.stride, 1), flipped, attrs.size, geometry), node.dtype);
}

/** A convolution as slices and a matrix product. */
function lowerConv(node: Node<"conv">): Node {
  if (isDepthwiseLoop(node)) return depthwise(node);
  const { attrs } = node;
  const [a, b] = attrs.channelsLast ? node.inputs.map(toFirst) : node.inputs;
  const result =
    attrs.kind === "forward"
      ? forward(a, b, attrs.size, attrs, attrs)
      : attrs.kind === "input"
        ? input(a, b, attrs)
        : weight(a, b, attrs);
  return attrs.channelsLast ? toLast(result) : result;
}

/** A convolution with symmetric padding, and what gives the result of the other from its result. */
interface Symmetric {
  conv: Node<"conv">;
  finish: (result: Node) => Node;
}

/** The same convolution with explicit zeros around x, where a library's symmetric padding does not give the size of y. */
function symmetric(node: Node<"conv">): Symmetric {
  const { attrs } = node;
  const { kind, stride, dilation, low, channelsLast } = attrs;
  const { x, w, y } = convRoles(node);
  const first = channelsLast ? 1 : 2;
  const spatial = ({ shape }: Node): Shape => (channelsLast ? shape.slice(1, -1) : shape.slice(2));
  const [sx, sw, sy] = [x, w, y].map(spatial);
  const span = sw.map((k, i) => dilation[i] * (k - 1) + 1);
  const fits = sy.every((n, i) => Math.floor((sx[i] + 2 * low[i] - span[i]) / stride[i]) + 1 === n);
  const same = (result: Node): Node => result;
  if (fits) return { conv: node, finish: same };
  const needed = sy.map((n, i) => (n - 1) * stride[i] + span[i]);
  const high = needed.map((n, i) => n - sx[i] - low[i]);
  const none = low.map(() => 0);
  const [a, b] = node.inputs;
  if (kind !== "input") {
    const conv = build.make("conv", [padSpatial(x, first, low, high), b], { ...attrs, low: none });
    return { conv, finish: same };
  }
  const conv = build.make("conv", [a, b], { ...attrs, size: needed, low: none });
  const [before, after] = [low, high].map((list) => list.map((n) => -n));
  return { conv, finish: (result) => padSpatial(result, first, before, after) };
}

/** The form of a convolution that the device runs. */
function prepareConv(node: Node<"conv">, support: ConvSupport | undefined): Node {
  // A constant in its place would take the collectives of its operands out of the program; prepare knows them.
  if (node.inputs.some(({ shape }) => numel(shape) === 0)) return node;
  if (support === undefined || kindOf(node.dtype) === "int") return lowerConv(node);
  if (isHalf(node.dtype) && support.widensHalf(node)) {
    const [a, b] = node.inputs.map((x) => build.cast(x, "float32"));
    return build.cast(prepareConv(build.make("conv", [a, b], node.attrs), support), node.dtype);
  }
  if (support.hasDepthwise?.(node)) return node;
  if (support.loopsDepthwise && isDepthwiseLoop(node)) return depthwise(node);
  const { conv, finish } = support.symmetric ? symmetric(node) : { conv: node, finish: (result: Node) => result };
  return support.supports(conv) ? finish(conv) : lowerConv(node);
}

/** Whether a device runs a convolution without a matrix product of windows. */
function isSupported(node: Node<"conv">, support: ConvSupport): boolean {
  if (support.hasDepthwise?.(node) || (support.loopsDepthwise && isDepthwiseLoop(node))) return true;
  return support.supports(support.symmetric ? symmetric(node).conv : node);
}

/** A function whose convolutions are in the form that the device runs. */
export function prepareConvs(fn: GraphFn, support: ConvSupport | undefined): GraphFn {
  const isBetter = (node: Node<"conv">): boolean =>
    support!.prefersLast!(node) && node.inputs.every(({ shape }) => numel(shape) > 0) && isSupported(node, support!);
  const moved = support?.prefersLast === undefined ? fn : moveChannelsLast(fn, isBetter);
  return rewriteOps(moved, "conv", (node) => prepareConv(node as Node<"conv">, support));
}

/** Replaces every node of an op. */
export function rewriteOps(fn: GraphFn, op: OpName, replace: (node: Node) => Node): GraphFn {
  const order = functionOrder(fn);
  if (!order.some((node) => node.op === op)) return fn;
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  for (const node of order) {
    if (map.has(node)) continue;
    const next = rebuild(
      node,
      node.inputs.map((input) => map.get(input)!),
    );
    map.set(node, next.op === op ? replace(next) : next);
  }
  const effects = fn.effects?.map((node) => map.get(node)!);
  const outputs = fn.outputs.map((output) => map.get(output)!);
  return effects === undefined ? { params: fn.params, outputs } : { params: fn.params, outputs, effects };
}
