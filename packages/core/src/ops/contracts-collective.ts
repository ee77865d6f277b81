// Contract of collectives: groups, sizes of parts, and boxes of exchanges that fit the operand and the declared result.
import { type CollectiveKind, type Node, type OpAttrs, type Shape, showShape, type Transfer } from "../graph/index.js";
import {
  checkAxes,
  checkAxis,
  checkOperandDType,
  checkSameAval,
  demand,
  demandShape,
  isCount,
  isReal,
} from "./contracts-checks.js";

/** Position of a device in its group, and the group. */
function checkGroup({ groups, rank }: OpAttrs["collective"]): { me: number; members: number } {
  const all = groups.flat();
  demand(all.every(isCount) && new Set(all).size === all.length, `the groups [${groups.join(" | ")}] overlap`);
  const group = groups.find((members) => members.includes(rank));
  demand(group !== undefined, `rank ${rank} is in none of the groups [${groups.join(" | ")}]`);
  return { me: group.indexOf(rank), members: group.length };
}

function checkSizes(name: string, sizes: readonly number[], members: number): void {
  demand(sizes.length === members && sizes.every(isCount), `${name} [${sizes}] are not those of ${members} members`);
}

const withExtent = (shape: Shape, axis: number, extent: number): number[] =>
  shape.map((d, i) => (i === axis ? extent : d));

const total = (sizes: readonly number[]): number => sizes.reduce((n, d) => n + d, 0);

function checkBoxes(name: string, boxes: readonly Transfer[], shape: Shape, group: readonly number[]): void {
  for (const { rank, start, stop } of boxes) {
    demand(group.includes(rank), `${name} names rank ${rank}, which is not in the group [${group}]`);
    const fits =
      start.length === shape.length &&
      stop.length === shape.length &&
      shape.every((d, i) => isCount(start[i]) && start[i] <= stop[i] && stop[i] <= d);
    demand(fits, `${name} [${start}] to [${stop}] is not a box of ${showShape(shape)}`);
  }
}

const collectiveChecks: {
  [K in CollectiveKind]: (x: Node, attrs: OpAttrs["collective"], me: number, members: number) => Shape;
} = {
  allReduce: (x) => x.shape,
  allGather: (x, { axis, sizes }, me, members) => {
    checkAxis(axis, x.shape);
    checkSizes("sizes", sizes, members);
    demand(x.shape[axis] === sizes[me], `its part ${showShape(x.shape)} has not ${sizes[me]} along axis ${axis}`);
    return withExtent(x.shape, axis, total(sizes));
  },
  reduceScatter: (x, { axis, sizes }, me, members) => {
    checkAxis(axis, x.shape);
    checkSizes("sizes", sizes, members);
    demand(x.shape[axis] === total(sizes), `${showShape(x.shape)} is not cut into [${sizes}] along axis ${axis}`);
    return withExtent(x.shape, axis, sizes[me]);
  },
  allToAll: (x, { axis, splitAxis, sizes, splitSizes }, me, members) => {
    checkAxes([axis, splitAxis], x.shape);
    checkSizes("sizes", sizes, members);
    checkSizes("splitSizes", splitSizes, members);
    demand(
      x.shape[axis] === sizes[me] && x.shape[splitAxis] === total(splitSizes),
      `${showShape(x.shape)} is not part ${me} of [${sizes}] along ${axis}, cut into [${splitSizes}] along ${splitAxis}`,
    );
    return withExtent(withExtent(x.shape, axis, total(sizes)), splitAxis, splitSizes[me]);
  },
  exchange: (x, { sends, receives, shape, groups, rank }) => {
    const group = groups.find((members) => members.includes(rank)) as readonly number[];
    demand(shape.length === x.shape.length, `${showShape(x.shape)} is exchanged for ${showShape(shape)}`);
    checkBoxes("sends", sends, x.shape, group);
    checkBoxes("receives", receives, shape, group);
    return shape;
  },
};

export function checkCollective([x]: readonly Node[], attrs: OpAttrs["collective"]): void {
  const { me, members } = checkGroup(attrs);
  demand(isCount(attrs.sequence), `its sequence ${attrs.sequence} is not a whole number >= 0`);
  if (attrs.fn === "max" || attrs.fn === "min") checkOperandDType(attrs.fn, isReal, x.dtype);
  demandShape(attrs.shape);
  const expected = collectiveChecks[attrs.kind](x, attrs, me, members);
  checkSameAval("its result", attrs, { shape: expected, dtype: x.dtype });
}
