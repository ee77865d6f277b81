// A collective as the numbers that native groups read: who takes part, and which boxes of memory go where. The layout is
// the D_ and TRANSFER constants of native/shm.h. Knows attributes, not processes.
import {
  bytesOf,
  codeOf,
  InternalError,
  numel,
  type OpAttrs,
  reduceFns,
  type Shape,
  stridesOf,
  WeftError,
} from "../../graph/index.js";

export type CollectiveAttrs = OpAttrs["collective"];

const maxDims = 12;
const transferLength = 3 + 2 * maxDims;
const headerLength = 20;
const nativeKinds = { allReduce: 0, reduceScatter: 1, allGather: 2, allToAll: 2, exchange: 2 } as const;

export interface TransferBox {
  /** Position of the other side in the list of members. */
  member: number;
  /** First index along every axis. */
  start: readonly number[];
  /** Number of elements along every axis. */
  size: readonly number[];
}

const sum = (sizes: readonly number[]): number => sizes.reduce((n, s) => n + s, 0);
const startOf = (sizes: readonly number[], member: number): number => sum(sizes.slice(0, member));

/** The ranks that take part together with this one; only this rank where no list has it. */
export function membersOf({ groups, rank }: Pick<CollectiveAttrs, "groups" | "rank">): readonly number[] {
  return groups.find((members) => members.includes(rank)) ?? [rank];
}

/** The shape of the operand, which the attributes do not name. */
function operandShape(attrs: CollectiveAttrs): Shape {
  const { kind, shape, axis, splitAxis, sizes, splitSizes } = attrs;
  const me = membersOf(attrs).indexOf(attrs.rank);
  const along = (at: number, size: number, of: Shape): Shape => of.map((d, i) => (i === at ? size : d));
  if (kind === "allGather") return along(axis, sizes[me], shape);
  if (kind === "reduceScatter") return along(axis, sum(sizes), shape);
  if (kind === "allToAll") return along(splitAxis, sum(splitSizes), along(axis, sizes[me], shape));
  return shape;
}

const whole = (shape: Shape): Pick<TransferBox, "start" | "size"> => ({ start: shape.map(() => 0), size: shape });

function part(
  shape: Shape,
  axis: number,
  sizes: readonly number[],
  member: number,
): Pick<TransferBox, "start" | "size"> {
  return {
    start: shape.map((_, i) => (i === axis ? startOf(sizes, member) : 0)),
    size: shape.map((d, i) => (i === axis ? sizes[member] : d)),
  };
}

/** Boxes of the operand that leave, and boxes of the result that are filled. */
export function transfers(attrs: CollectiveAttrs, operand: Shape): { sends: TransferBox[]; receives: TransferBox[] } {
  const members = membersOf(attrs);
  const { kind, shape, axis, splitAxis, sizes, splitSizes } = attrs;
  const each = (box: (member: number) => Pick<TransferBox, "start" | "size">): TransferBox[] =>
    members.map((_, member) => ({ member, ...box(member) }));
  if (kind === "allGather")
    return { sends: each(() => whole(operand)), receives: each((m) => part(shape, axis, sizes, m)) };
  if (kind === "allToAll")
    return {
      sends: each((m) => part(operand, splitAxis, splitSizes, m)),
      receives: each((m) => part(shape, axis, sizes, m)),
    };
  const boxes = (list: CollectiveAttrs["sends"]): TransferBox[] =>
    list.map(({ rank, start, stop }) => {
      const member = members.indexOf(rank);
      if (member < 0) throw new InternalError(`exchange with rank ${rank}, which is not in the group [${members}]`);
      return { member, start, size: stop.map((s, i) => s - start[i]) };
    });
  return { sends: boxes(attrs.sends), receives: boxes(attrs.receives) };
}

function writeTransfers(into: number[], boxes: readonly TransferBox[], shape: Shape, element: number): void {
  const strides = stridesOf(shape).map((s) => s * element);
  const padded = (values: readonly number[]): number[] => [
    ...values,
    ...new Array<number>(maxDims - values.length).fill(0),
  ];
  for (const { member, start, size } of boxes) {
    const offset = start.reduce((n, s, i) => n + s * strides[i], 0);
    into.push(member, shape.length, offset, ...padded(size), ...padded(strides));
  }
}

/** A number that members compare: whoever posts something else is running another program. */
function tagOf({ kind, fn, dtype, groups, axis, splitAxis, sizes, splitSizes, sequence }: CollectiveAttrs): number {
  const text = JSON.stringify([kind, fn, dtype, groups, axis, splitAxis, sizes, splitSizes, sequence]);
  let hash = 17;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) >>> 0;
  return hash;
}

const known = new WeakMap<CollectiveAttrs, BigInt64Array<ArrayBuffer>>();

/** The descriptor of a collective for this rank. `operand` is needed only for exchange, where shapes may differ. */
export function describe(attrs: CollectiveAttrs, operand: Shape = operandShape(attrs)): BigInt64Array<ArrayBuffer> {
  const cached = known.get(attrs);
  if (cached !== undefined) return cached;
  const members = membersOf(attrs);
  const { kind, fn, dtype, shape, axis, sizes } = attrs;
  const me = members.indexOf(attrs.rank);
  if (shape.length > maxDims || operand.length > maxDims)
    throw new WeftError(
      `${kind}: tensors with more than ${maxDims} axes cannot be moved between devices; reshape first`,
    );
  const element = bytesOf(dtype);
  const scatter = kind === "reduceScatter";
  const inner = scatter ? numel(operand.slice(axis + 1)) : 0;
  const { sends, receives } = nativeKinds[kind] === 2 ? transfers(attrs, operand) : { sends: [], receives: [] };
  const covered = receives.reduce((n, box) => n + numel(box.size), 0);
  const sendsAt = headerLength + members.length;
  const receivesAt = sendsAt + sends.length * transferLength;
  const partsAt = receivesAt + receives.length * transferLength;
  const numbers = [
    nativeKinds[kind],
    reduceFns.indexOf(fn),
    codeOf(dtype),
    element,
    members.length,
    me,
    tagOf(attrs),
    numel(operand) * element,
    numel(shape) * element,
    numel(shape),
    scatter ? numel(operand.slice(0, axis)) : Number(kind === "allGather"),
    scatter ? operand[axis] * inner : 0,
    scatter ? startOf(sizes, me) * inner : 0,
    scatter ? sizes[me] * inner : 0,
    Number(nativeKinds[kind] === 2 && covered < numel(shape)),
    sends.length,
    receives.length,
    sendsAt,
    receivesAt,
    partsAt,
    ...members,
  ];
  writeTransfers(numbers, sends, operand, element);
  writeTransfers(numbers, receives, shape, element);
  // Where every member's part begins and how long it is, in elements of a row (reduceScatter over messages).
  if (scatter) numbers.push(...members.flatMap((_, m) => [startOf(sizes, m) * inner, sizes[m] * inner]));
  const descriptor = BigInt64Array.from(numbers, BigInt);
  known.set(attrs, descriptor);
  return descriptor;
}

/** The descriptor for operands in host memory, whose sizes must fit it. */
export function describeFor(
  attrs: CollectiveAttrs,
  input: Uint8Array,
  output: Uint8Array,
  operand: Shape,
): BigInt64Array<ArrayBuffer> {
  const descriptor = describe(attrs, operand);
  if (input.byteLength !== Number(descriptor[7]) || output.byteLength !== Number(descriptor[8]))
    throw new InternalError(`${attrs.kind}: ${input.byteLength} and ${output.byteLength} bytes do not fit the shapes`);
  return descriptor;
}

/** Bytes that arrive from other ranks in one collective, for tapes and counters. */
export function bytesReceived(attrs: CollectiveAttrs, operand: Shape = operandShape(attrs)): number {
  const members = membersOf(attrs);
  const element = bytesOf(attrs.dtype);
  const n = members.length;
  if (attrs.kind === "allReduce") return n < 2 ? 0 : (2 * (n - 1) * numel(attrs.shape) * element) / n;
  if (attrs.kind === "reduceScatter") return (n - 1) * numel(attrs.shape) * element;
  const me = members.indexOf(attrs.rank);
  const { receives } = transfers(attrs, operand);
  return receives.filter((r) => r.member !== me).reduce((sum, r) => sum + numel(r.size) * element, 0);
}
