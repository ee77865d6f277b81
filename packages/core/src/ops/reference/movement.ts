// Ops that only move elements: each says where an element of the result comes from.
import { numel } from "../../graph/index.js";
import { copyBlock, copyElements, joinBlocks, linearIndex, type ReferenceRules, type Value } from "./value.js";

function concat(inputs: readonly Value[], axis: number): Value {
  const first = inputs[0];
  const shape = first.shape.map((d, i) => (i === axis ? inputs.reduce((sum, x) => sum + x.shape[axis], 0) : d));
  // In memory the result alternates between the operands, once for every position of the axes before `axis`.
  const rows = numel(first.shape.slice(0, axis));
  const blocks: Value[] = [];
  for (let row = 0; row < rows; row++) {
    for (const x of inputs) {
      const part = x.shape.slice(axis);
      blocks.push(copyBlock(x, row * numel(part), part));
    }
  }
  return joinBlocks(first.dtype, shape, blocks);
}

export const movementRules: ReferenceRules<"reshape" | "permute" | "expand" | "slice" | "pad" | "flip" | "concat"> = {
  reshape: ([x], { attrs }) => ({ shape: attrs.shape, dtype: x.dtype, data: x.data }),
  permute: ([x], { attrs }) => {
    const shape = attrs.axes.map((axis) => x.shape[axis]);
    const from = new Array<number>(shape.length);
    return copyElements(x, shape, (index) => {
      attrs.axes.forEach((axis, i) => {
        from[axis] = index[i];
      });
      return linearIndex(x.shape, from);
    });
  },
  expand: ([x], { attrs }) =>
    copyElements(x, attrs.shape, (index) =>
      linearIndex(
        x.shape,
        index.map((i, axis) => (x.shape[axis] === 1 ? 0 : i)),
      ),
    ),
  slice: ([x], { attrs: { start, stop, step } }) => {
    const shape = start.map((from, axis) => Math.max(0, Math.ceil((stop[axis] - from) / step[axis])));
    return copyElements(x, shape, (index) =>
      linearIndex(
        x.shape,
        index.map((i, axis) => start[axis] + i * step[axis]),
      ),
    );
  },
  pad: ([x], { attrs: { low, high } }) => {
    const shape = x.shape.map((d, axis) => low[axis] + d + high[axis]);
    return copyElements(x, shape, (index) => {
      const from = index.map((i, axis) => i - low[axis]);
      return from.every((i, axis) => i >= 0 && i < x.shape[axis]) ? linearIndex(x.shape, from) : null;
    });
  },
  flip: ([x], { attrs: { axes } }) =>
    copyElements(x, x.shape, (index) =>
      linearIndex(
        x.shape,
        index.map((i, axis) => (axes.includes(axis) ? x.shape[axis] - 1 - i : i)),
      ),
    ),
  concat: (inputs, { attrs }) => concat(inputs, attrs.axis),
};
