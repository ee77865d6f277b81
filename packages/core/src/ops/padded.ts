// Padding rules: how every op computes on padded tensors, so that its valid elements are those of the op on tensors of the
// actual sizes. Elements outside the valid positions may be anything; an op that would mix them in masks them first.
import { isFloat, type Node, type OpAttrs, type OpName, outputAvals, range, type Scalar } from "../graph/index.js";
import * as b from "./build.js";
import { convRoles } from "./conv.js";
import {
  aligned,
  common,
  compact,
  compacted,
  type DimLayout,
  isVarying,
  isWhole,
  masked,
  type Padded,
  reshaped,
  type Sizes,
  type Slots,
  sizesOf,
  strided,
  UnpaddableError,
  uniformLayout,
} from "./padded-layout.js";

export interface PadContext<K extends OpName> {
  /** The node in every trace; the first is that of the bucket. */
  nodes: readonly Node<K>[];
  inputs: readonly Padded[];
  slots: Slots;
}

type PadRule<K extends OpName> = (context: PadContext<K>) => Padded;

/** Ops that the transform handles: parameters, results of several, and functions. */
type StructuralOp = "input" | "data" | "pick" | "scan" | "custom";

/** Sizes of the dimensions of a result in all traces. */
export const sizesOfNodes = (nodes: readonly Node[], index = 0): Sizes[] =>
  outputAvals(nodes[0])[index].shape.map((_, axis) => nodes.map((node) => outputAvals(node)[index].shape[axis]));

/** A number of the attributes in all traces. */
const across = <K extends OpName>(nodes: readonly Node<K>[], read: (attrs: OpAttrs[K]) => number): Sizes =>
  nodes.map((node) => read(node.attrs));

const layoutOf = ({ layouts }: Padded): readonly DimLayout[] => layouts[0];
const result = (node: Node, layout: readonly DimLayout[]): Padded => ({ node, layouts: [layout] });

function refuse(op: string, why: string): never {
  throw new UnpaddableError(`${op}: ${why}`);
}

const rebuilt = <K extends OpName>(node: Node<K>, inputs: readonly Node[], attrs: OpAttrs[K] = node.attrs): Node =>
  b.make(node.op, inputs, attrs);

/** The same op on operands whose dimensions correspond. */
function elementwise({ nodes: [node], inputs, slots }: PadContext<OpName>): Padded {
  const layout = node.shape.map((_, axis) => common(inputs.map((x) => layoutOf(x)[axis])));
  return result(
    rebuilt(
      node,
      inputs.map((x) => aligned(x, layout, slots)),
    ),
    layout,
  );
}

/** Fills that a reduction ignores. */
const ignored: Record<OpAttrs["reduce"]["fn"], Scalar> = {
  sum: 0,
  prod: 1,
  max: Number.NEGATIVE_INFINITY,
  min: Number.POSITIVE_INFINITY,
};

/** Selects a slice whose bounds depend on the size by computed positions. */
function sliced({ nodes, inputs: [x], slots }: PadContext<"slice">): Padded {
  const sizes = sizesOfNodes(nodes);
  const given = sizesOfNodes(nodes.map((node) => node.inputs[0]));
  const bounds = range(sizes.length).map((axis) => ({
    start: across(nodes, (attrs) => attrs.start[axis]),
    stop: across(nodes, (attrs) => attrs.stop[axis]),
    step: across(nodes, (attrs) => attrs.step[axis]),
  }));
  const isAll = bounds.map(
    ({ start, step, stop }, axis) =>
      start.every((at) => at === 0) && step.every((by) => by === 1) && stop.every((at, i) => at === given[axis][i]),
  );
  const source = compacted(
    x,
    slots,
    range(sizes.length).filter((axis) => !isAll[axis]),
  );
  const isFixed = bounds.map(({ start, step }) => !isVarying(start) && !isVarying(step));
  const at = nodes[0].attrs;
  const { shape } = source.node;
  let node = b.slice(
    source.node,
    at.start.map((start, axis) => (isFixed[axis] ? start : 0)),
    at.stop.map((stop, axis) => (isFixed[axis] ? stop : shape[axis])),
    at.step.map((step, axis) => (isFixed[axis] ? step : 1)),
  );
  bounds.forEach(({ start, step }, axis) => {
    if (!isFixed[axis]) node = strided(node, axis, sizes[axis], start, step, slots);
  });
  return result(
    node,
    sizes.map((size, axis) =>
      isAll[axis] ? layoutOf(source)[axis] : layoutOf(source)[axis].uniform ? uniformLayout(size) : compact(size),
    ),
  );
}

function padded({ nodes, inputs: [x], slots }: PadContext<"pad">): Padded {
  const sizes = sizesOfNodes(nodes);
  const lows = range(sizes.length).map((axis) => across(nodes, (attrs) => attrs.low[axis]));
  const highs = range(sizes.length).map((axis) => across(nodes, (attrs) => attrs.high[axis]));
  const isTouched = lows.map((low, axis) => low.some(Boolean) || highs[axis].some(Boolean));
  const touched = range(sizes.length).filter((axis) => isTouched[axis]);
  const source = compacted(x, slots, touched);
  const clean = masked(source.node, layoutOf(source), touched, 0, slots);
  const isMoved = lows.map(isVarying);
  const { low, high } = nodes[0].attrs;
  let node = b.pad(
    clean,
    low.map((n, axis) => (isMoved[axis] ? 0 : n)),
    high.map((n, axis) => (isMoved[axis] ? 0 : n)),
  );
  isMoved.forEach((moved, axis) => {
    if (!moved) return;
    const extent = sizesOf(layoutOf(source)[axis]);
    const size = sizes[axis];
    // Positions before the start are clamped by gather, and masked.
    const found = strided(
      node,
      axis,
      size,
      lows[axis].map((n) => -n),
      size.map(() => 1),
      slots,
    );
    const at = b.iota(found.shape, axis, "int32");
    const bound = (values: Sizes): Node => b.expandTo(slots.of(values, "int32"), found.shape);
    const end = lows[axis].map((n, i) => n + extent[i]);
    const isInside = b.binary("and", b.le(bound(lows[axis]), at), b.lt(at, bound(end)));
    node = b.where(isInside, found, b.fullLike(found, 0));
  });
  return result(
    node,
    sizes.map((size, axis) => (isTouched[axis] ? compact(size) : layoutOf(source)[axis])),
  );
}

/** Parts that are padded leave gaps, which computed positions close. */
function joined({ nodes, inputs, slots }: PadContext<"concat">): Padded {
  const { axis } = nodes[0].attrs;
  const sizes = sizesOfNodes(nodes);
  const parts = inputs.map((x) => compacted(x, slots, [axis]));
  const layout = sizes.map((size, i) => (i === axis ? compact(size) : common(parts.map((x) => layoutOf(x)[i]))));
  const whole = b.concat(
    parts.map((x) => aligned(x, layout.with(axis, layoutOf(x)[axis]), slots)),
    axis,
  );
  const extents = parts.map((x) => sizesOf(layoutOf(x)[axis]));
  if (!extents.slice(0, -1).some(isVarying)) return result(whole, layout);
  // Position of an element: its number plus the gaps of the parts before its own.
  const at = b.iota([whole.shape[axis]], 0, "int32");
  const number = (values: Sizes): Node => b.expandTo(slots.of(values, "int32"), at.shape);
  let position = at;
  let end: Sizes = sizes[axis].map(() => 0);
  for (const extent of extents.slice(0, -1)) {
    end = end.map((n, i) => n + extent[i]);
    if (!isVarying(extent)) continue;
    const gap = extent.map((n) => extent[0] - n);
    const isBehind = b.le(number(end), at);
    position = b.add(position, b.where(isBehind, number(gap), b.fullLike(at, 0)));
  }
  return result(b.gather(whole, position, axis, 0), layout);
}

function flipped({ nodes, inputs: [x], slots }: PadContext<"flip">): Padded {
  const { axes } = nodes[0].attrs;
  const source = compacted(x, slots, axes);
  const layout = layoutOf(source);
  const [whole, varying] = [true, false].map((is) => axes.filter((axis) => isWhole(layout[axis]) === is));
  let node = b.flip(source.node, whole);
  for (const axis of varying) {
    const size = sizesOf(layout[axis]);
    node = strided(
      node,
      axis,
      size,
      size.map((n) => n - 1),
      size.map(() => -1),
      slots,
    );
  }
  return result(node, layout);
}

function reduced({ nodes: [node], inputs: [x], slots }: PadContext<"reduce">): Padded {
  const { fn, axes } = node.attrs;
  const clean = masked(x.node, layoutOf(x), axes, ignored[fn], slots);
  return result(
    rebuilt(node, [clean]),
    layoutOf(x).filter((_, axis) => !axes.includes(axis)),
  );
}

/** The first of equal elements wins, so that fills behind the valid ones lose. */
function argreduced({ nodes: [node], inputs: [x], slots }: PadContext<"argreduce">): Padded {
  const { fn, axis } = node.attrs;
  const source = compacted(x, slots, [axis]);
  const clean = masked(source.node, layoutOf(source), [axis], ignored[fn === "argmax" ? "max" : "min"], slots);
  return result(rebuilt(node, [clean]), layoutOf(source).toSpliced(axis, 1));
}

function multiplied({ nodes: [node], inputs: [a, c], slots }: PadContext<"matmul">): Padded {
  const lead = node.shape.length - 2;
  const batch = range(lead).map((axis) => common([layoutOf(a)[axis], layoutOf(c)[axis]]));
  const k = common([layoutOf(a)[lead + 1], layoutOf(c)[lead]]);
  const left = [...batch, layoutOf(a)[lead], k];
  const right = [...batch, k, layoutOf(c)[lead + 1]];
  const inputs = [
    masked(aligned(a, left, slots), left, [lead + 1], 0, slots),
    masked(aligned(c, right, slots), right, [lead], 0, slots),
  ];
  return result(rebuilt(node, inputs), [...batch, left[lead], right[lead + 1]]);
}

/** Batch and spatial dimensions may vary; a padded tensor is zero outside, as a convolution assumes. */
function convolved({ nodes, inputs, slots }: PadContext<"conv">): Padded {
  const [node] = nodes;
  const { channelsLast } = node.attrs;
  if (range(node.attrs.low.length).some((axis) => isVarying(across(nodes, (attrs) => attrs.low[axis]))))
    refuse("conv", "its padding depends on the size");
  const roles = nodes.map((each) => convRoles(each));
  for (const role of ["x", "w", "y"] as const) {
    const sizes = sizesOfNodes(roles.map((each) => each[role]));
    const channels = role === "w" ? [0, channelsLast ? sizes.length - 1 : 1] : [channelsLast ? sizes.length - 1 : 1];
    if (channels.some((axis) => isVarying(sizes[axis]))) refuse("conv", "its number of channels depends on the size");
  }
  const clean = inputs.map((x) => {
    const source = compacted(x, slots);
    return masked(source.node, layoutOf(source), range(source.node.shape.length), 0, slots);
  });
  return result(rebuilt(node, clean), sizesOfNodes(nodes).map(compact));
}

/** Indices beyond the last valid row would find padding instead of it. */
function gathered({ nodes: [node], inputs: [x, indices], slots }: PadContext<"gather">): Padded {
  const { axis, batch } = node.attrs;
  const table = compacted(x, slots, [axis]);
  const lead = range(batch).map((i) => common([layoutOf(table)[i], layoutOf(indices)[i]]));
  const tableLayout = [...lead, ...layoutOf(table).slice(batch)];
  const indexLayout = [...lead, ...layoutOf(indices).slice(batch)];
  const rows = tableLayout[axis];
  let at = aligned(indices, indexLayout, slots);
  if (!isWhole(rows)) {
    const last = slots.of(
      sizesOf(rows).map((n) => n - 1),
      "int32",
    );
    at = b.binary("min", at, b.expandTo(last, at.shape));
  }
  return result(rebuilt(node, [aligned(table, tableLayout, slots), at]), [
    ...tableLayout.slice(0, axis),
    ...indexLayout.slice(batch),
    ...tableLayout.slice(axis + 1),
  ]);
}

/** Padded updates get an index out of range, which drops them. */
function scattered({
  nodes: [node],
  inputs: [x, indices, updates],
  slots,
}: PadContext<"scatterAdd" | "scatterReduce">): Padded {
  const { axis, batch } = node.attrs;
  const base = compacted(x, slots, [axis]);
  const chosen = layoutOf(indices).length - batch;
  const lead = range(axis).map((i) =>
    common([layoutOf(base)[i], layoutOf(updates)[i], ...(i < batch ? [layoutOf(indices)[i]] : [])]),
  );
  const tail = layoutOf(base)
    .slice(axis + 1)
    .map((dim, i) => common([dim, layoutOf(updates)[axis + chosen + i]]));
  const found = range(chosen).map((i) => common([layoutOf(indices)[batch + i], layoutOf(updates)[axis + i]]));
  const indexLayout = [...lead.slice(0, batch), ...found];
  const baseLayout = [...lead, layoutOf(base)[axis], ...tail].map((dim) => ({ ...dim, uniform: false }));
  const at = masked(aligned(indices, indexLayout, slots), indexLayout, range(indexLayout.length), -1, slots);
  return result(
    rebuilt(node, [aligned(base, baseLayout, slots), at, aligned(updates, [...lead, ...found, ...tail], slots)]),
    baseLayout,
  );
}

function updated({ nodes: [node], inputs: [x, start, update], slots }: PadContext<"updateSlice">): Padded {
  const { axis, batch } = node.attrs;
  const base = compacted(x, slots, [axis]);
  const news = compacted(update, slots, [axis]);
  const layout = layoutOf(base).map((dim, i) => {
    if (i === axis) return compact(sizesOf(dim));
    return common([dim, layoutOf(news)[i], ...(i < batch ? [layoutOf(start)[i]] : [])]);
  });
  const extent = sizesOf(layoutOf(news)[axis]);
  const at = aligned(start, layout.slice(0, batch), slots);
  const last = slots.of(
    sizesOf(layout[axis]).map((n, i) => n - extent[i]),
    "int32",
  );
  const first = b.binary("max", b.binary("min", at, b.expandTo(last, at.shape)), b.fullLike(at, 0));
  const old = aligned(base, layout, slots);
  const rows = aligned(news, layout.with(axis, layoutOf(news)[axis]), slots);
  if (!isVarying(extent)) return result(rebuilt(node, [old, first, rows]), layout);
  const shape = [...at.shape, old.shape[axis]];
  const place = b.sub(b.iota(shape, batch, "int32"), b.expand(b.reshape(first, [...at.shape, 1]), shape));
  const isInside = b.binary(
    "and",
    b.le(b.fullLike(place, 0), place),
    b.lt(place, b.expandTo(slots.of(extent, "int32"), shape)),
  );
  const wide = old.shape.map((size, i) => (i < batch || i === axis ? size : 1));
  const isNew = b.expand(b.reshape(isInside, wide), old.shape);
  return result(b.where(isNew, b.gather(rows, place, axis, batch), old), layout);
}

/** Numbers depend on the position in the draw: where that depends on the size, they are drawn in one row and selected. */
function drawn({ nodes, inputs: [key], slots }: PadContext<"random">): Padded {
  const [node] = nodes;
  const { attrs } = node;
  const lead = key.node.shape.length - 1;
  const sizes = sizesOfNodes(nodes);
  const draw = sizes.slice(lead);
  const layout = [...layoutOf(key).slice(0, lead), ...draw.map(compact)];
  if (attrs.within !== undefined) refuse("random", "it is part of a larger draw");
  if (!draw.slice(1).some(isVarying)) return result(rebuilt(node, [key.node]), layout);
  const rows = draw.map((size, i) =>
    attrs.kind === "dropoutMask" && i === draw.length - 1 ? size.map((n) => Math.ceil(n / 4) * 4) : size,
  );
  const row = b.make("random", [key.node], { ...attrs, shape: [rows.reduce((n, size) => n * size[0], 1)] });
  let stride: Sizes = nodes.map(() => 1);
  let at: Node | null = null;
  for (let axis = draw.length - 1; axis >= 0; axis--) {
    const index = b.iota(attrs.shape, axis, "int32");
    const term = b.mul(index, b.expandTo(slots.of(stride, "int32"), attrs.shape));
    at = at === null ? term : b.add(term, at);
    const size = rows[axis];
    stride = stride.map((n, i) => n * size[i]);
  }
  return result(b.gather(row, at!, lead, 0), layout);
}

/** Fills sort behind the valid elements: the order is stable, and NaN is the greatest number. */
function sorted({ nodes, inputs: [x], slots }: PadContext<"argsort">): Padded {
  const [node] = nodes;
  const axis = node.shape.length - 1;
  const source = compacted(x, slots, [axis]);
  const last = isFloat(x.node.dtype) ? Number.NaN : Number.POSITIVE_INFINITY;
  const fill = node.attrs.descending ? Number.NEGATIVE_INFINITY : last;
  const order = rebuilt(node, [masked(source.node, layoutOf(source), [axis], fill, slots)]);
  // The result may have fewer positions than the operand.
  return result(order, layoutOf(source).with(axis, compact(sizesOfNodes(nodes)[axis])));
}

function summed({ nodes: [node], inputs: [x], slots }: PadContext<"cumsum">): Padded {
  const { axis, reverse } = node.attrs;
  const source = compacted(x, slots, [axis]);
  const layout = layoutOf(source).with(axis, compact(sizesOf(layoutOf(source)[axis])));
  const clean = reverse ? masked(source.node, layout, [axis], 0, slots) : source.node;
  return result(rebuilt(node, [clean]), layout);
}

function transformed({ nodes, inputs: [x] }: PadContext<"fft">): Padded {
  const lead = nodes[0].shape.length - nodes[0].attrs.axes;
  const sizes = sizesOfNodes(nodes);
  if (sizes.slice(lead).some(isVarying) || !layoutOf(x).slice(lead).every(isWhole))
    refuse("fft", "a transformed axis depends on the size");
  return result(
    rebuilt(nodes[0], [x.node]),
    sizes.map((size, axis) => (axis < lead ? layoutOf(x)[axis] : compact(size))),
  );
}

/** Ones on the diagonal, whether square or not. */
function diagonal(like: Node): Node {
  const rank = like.shape.length;
  const [rows, columns] = [rank - 2, rank - 1].map((axis) => b.iota(like.shape, axis, "int32"));
  return b.cast(b.eq(rows, columns), like.dtype);
}

/**
 * Ops on matrices. Matrices outside the batch are replaced by the identity, since libraries may not end on arbitrary numbers. With
 * `embeds`, matrices may vary in size too: a matrix beside the identity on the diagonal has the results of both.
 */
const matrices =
  (embeds: boolean) =>
  ({ nodes, inputs, slots }: PadContext<OpName>): Padded => {
    const [node] = nodes;
    const lead = node.inputs[0].shape.length - 2;
    const isMatrixVarying = nodes[0].inputs.some((_, i) =>
      sizesOfNodes(nodes.map((each) => each.inputs[i]))
        .slice(lead)
        .some(isVarying),
    );
    if (isMatrixVarying && !embeds) refuse(node.op, "the size of its matrices varies");
    const batch = range(lead).map((axis) => ({ ...common(inputs.map((x) => layoutOf(x)[axis])), uniform: false }));
    const given = inputs.map((x) => {
      const layout = [...batch, ...layoutOf(x).slice(lead)];
      return { node: aligned(x, layout, slots), layouts: [layout] };
    });
    const square = compacted(given[0], slots, [lead, lead + 1]);
    const axes = range(lead + 2);
    const operands = [masked(square.node, layoutOf(square), axes, diagonal(square.node), slots)];
    if (given.length > 1) {
      const side = compacted(given[1], slots, [lead]);
      operands.push(masked(side.node, layoutOf(side), range(lead + 1), 0, slots));
    }
    const layouts = outputAvals(node).map((_, i) => [...batch, ...sizesOfNodes(nodes, i).slice(lead).map(compact)]);
    if (given.length > 1 && layouts[0].length === lead + 2) layouts[0][lead + 1] = layoutOf(given[1])[lead + 1];
    return { node: rebuilt(node, operands), layouts };
  };

function constant({ nodes, slots }: PadContext<"const">): Padded {
  return result(
    slots.of(
      nodes.map((node) => node.attrs.value),
      nodes[0].dtype,
    ),
    [],
  );
}

export const padRules: { [K in Exclude<OpName, StructuralOp>]: PadRule<K> } = {
  const: constant,
  iota: ({ nodes }) =>
    result(
      nodes[0],
      sizesOfNodes(nodes).map((size, axis) => (axis === nodes[0].attrs.axis ? compact(size) : uniformLayout(size))),
    ),
  random: drawn,
  alias: elementwise,
  barrier: elementwise,
  pin: elementwise,
  unary: elementwise,
  binary: elementwise,
  where: elementwise,
  cast: elementwise,
  reshape: ({ nodes, inputs: [x], slots }) => reshaped(x, sizesOfNodes(nodes), slots),
  permute: ({ nodes: [node], inputs: [x] }) =>
    result(
      rebuilt(node, [x.node]),
      node.attrs.axes.map((axis) => layoutOf(x)[axis]),
    ),
  expand: ({ nodes, inputs: [x] }) => {
    const sizes = sizesOfNodes(nodes);
    const layout = layoutOf(x).map((dim, axis) => {
      const from = sizesOf(dim);
      if (from.every((size, i) => size === sizes[axis][i])) return dim;
      return from.every((size) => size === 1)
        ? uniformLayout(sizes[axis])
        : refuse("expand", "a dimension is 1 in some calls only");
    });
    return result(rebuilt(nodes[0], [x.node]), layout);
  },
  slice: sliced,
  pad: padded,
  flip: flipped,
  concat: joined,
  reduce: reduced,
  argreduce: argreduced,
  cumsum: summed,
  matmul: multiplied,
  conv: convolved,
  gather: gathered,
  scatterAdd: scattered,
  scatterReduce: scattered,
  updateSlice: updated,
  fft: transformed,
  argsort: sorted,
  cholesky: matrices(true),
  triangularSolve: matrices(true),
  solve: matrices(true),
  det: matrices(true),
  eigh: matrices(false),
  qr: matrices(false),
  lu: matrices(false),
  eig: matrices(false),
  svd: matrices(false),
  collective: () => refuse("collective", "programs with collectives are not padded"),
};
