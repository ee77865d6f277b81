// Compression of a gradient that devices send as the rows that they touched (the gradient of an embedding): what a device has of these
// rows, with what it kept back before, is sent in a half type or as its largest elements. Rows that it did not touch keep what they have.
import { bareCollective, bytesOf, type DType, isOp, type Node, numel, type OpAttrs } from "../graph/index.js";
import { build, make } from "../ops/index.js";
import type { Compressed } from "./compress.js";

/** A sum of rows of all devices: a table, numbers of rows and their values, both gathered. */
type GatheredRows = Node<"scatterAdd">;

const isGathered = (node: Node): node is Node<"collective"> =>
  isOp(node, "collective") && node.attrs.kind === "allGather" && node.attrs.axis === 0;

/** Whether a node is a sum of rows that devices gathered. */
export function isGatheredRows(node: Node): node is GatheredRows {
  if (!isOp(node, "scatterAdd") || node.attrs.axis !== 0 || node.attrs.batch !== 0) return false;
  const [, ids, rows] = node.inputs;
  return isGathered(ids) && isGathered(rows) && String(ids.attrs.groups) === String(rows.attrs.groups);
}

/** The collective that gathers the rows; the one of their numbers stays as it is. */
export const collectiveOf = (sum: GatheredRows): Node => sum.inputs[2];

/** What a device has of the gradient, and the part of it that each of its rows sends. */
interface OwnRows {
  /** Everything that the device has: its rows, and what it kept back before. */
  table: Node;
  ids: Node;
  /** [rows, ...]: a row that occurs several times sends equal parts. */
  parts: Node;
  empty: Node;
}

function ownRows(sum: GatheredRows, kept: Node, input: (node: Node) => Node): OwnRows {
  const [base, gatheredIds, gatheredRows] = sum.inputs;
  const [ids, rows] = [gatheredIds, gatheredRows].map((node) => input(node.inputs[0]));
  const count = numel(ids.shape);
  const [flatIds, flatRows] = [build.reshape(ids, [count]), build.reshape(rows, [count, ...sum.shape.slice(1)])];
  const table = build.scatterAdd(kept, flatIds, flatRows, 0, 0);
  const none = build.full([sum.shape[0]], 0, sum.dtype);
  const times = build.scatterAdd(none, flatIds, build.full([count], 1, sum.dtype), 0, 0);
  const share = build.reshape(build.gather(times, flatIds, 0, 0), [count, ...sum.shape.slice(1).map(() => 1)]);
  const parts = build.div(build.gather(table, flatIds, 0, 0), build.expandTo(share, flatRows.shape));
  return { table, ids: flatIds, parts, empty: input(base) };
}

/** The rows in a half type. */
export function rowsInHalf(sum: GatheredRows, kept: Node, dtype: DType, input: (node: Node) => Node): Compressed {
  const { table, ids, parts, empty } = ownRows(sum, kept, input);
  const gathered = collectiveOf(sum) as Node<"collective">;
  const rounded = build.cast(parts, dtype);
  const node = make("collective", [build.reshape(rounded, gathered.inputs[0].shape)], { ...gathered.attrs, dtype });
  const zero = build.full(sum.shape, 0, sum.dtype);
  return {
    sum: build.scatterAdd(empty, input(sum.inputs[1]), build.cast(node, sum.dtype), 0, 0),
    kept: build.sub(table, build.scatterAdd(zero, ids, build.cast(rounded, sum.dtype), 0, 0)),
    sent: [{ node, kind: "allGather", bytes: (site) => (site.bytes * bytesOf(dtype)) / bytesOf(sum.dtype) }],
  };
}

/** The largest elements of the rows, with their places in the table. */
export function largestOfRows(sum: GatheredRows, kept: Node, share: number, input: (node: Node) => Node): Compressed {
  const { table, ids, parts, empty } = ownRows(sum, kept, input);
  const gathered = collectiveOf(sum) as Node<"collective">;
  const { groups, rank, sizes } = gathered.attrs as OpAttrs["collective"];
  const width = numel(sum.shape.slice(1));
  // A device with no row sends nothing.
  const each = numel(gathered.inputs[0].shape.slice(1));
  const counts = sizes.map((rows) => Math.ceil(rows * each * share));
  const chosen = Math.ceil(numel(parts.shape) * share);
  const flat = build.reshape(parts, [numel(parts.shape)]);
  const order = make("argsort", [build.unary("abs", flat)], { descending: true, count: chosen });
  const picked = build.gather(flat, order, 0, 0);
  // NaN and infinity may not be among them: they reach all devices with whatever is sent.
  const alarm = build.scale(build.sum(flat, [0]), 0);
  const values = build.add(picked, build.expandTo(build.reshape(alarm, []), [chosen]));
  const column = build.iota([numel(parts.shape) / width, width], 1, "int32");
  const rows = build.scale(build.reshape(build.cast(ids, "int32"), [numel(parts.shape) / width, 1]), width);
  const places = build.gather(
    build.reshape(build.add(build.expandTo(rows, column.shape), column), [numel(parts.shape)]),
    order,
    0,
    0,
  );
  const total = counts.reduce((n, count) => n + count, 0);
  const collected = (operand: Node): Node =>
    make("collective", [operand], {
      ...bareCollective,
      kind: "allGather",
      groups,
      rank,
      sizes: counts,
      shape: [total],
      dtype: operand.dtype,
    });
  const [allValues, allPlaces] = [collected(values), collected(places)];
  const spread = (onto: Node, at: Node, what: Node): Node =>
    build.reshape(build.scatterAdd(build.reshape(onto, [numel(sum.shape)]), at, what, 0, 0), sum.shape);
  const received = total - Math.min(...counts);
  return {
    sum: spread(empty, allPlaces, allValues),
    kept: build.sub(table, spread(build.full(sum.shape, 0, sum.dtype), places, picked)),
    sent: [
      { node: allValues, kind: "allGather", bytes: () => received * bytesOf(sum.dtype) },
      { node: allPlaces, kind: "allGather", bytes: () => received * bytesOf("int32") },
    ],
  };
}
