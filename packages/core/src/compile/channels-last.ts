// Moves the channels of images to the last axis where a GPU's convolutions are faster that way. Convolutions and the ops between them
// (element-wise ops, pooling, normalization) form regions that are computed with channels last; axes are permuted at the edges
// of a region only.
import {
  functionOrder,
  type GraphFn,
  inScope,
  isOp,
  type Node,
  numel,
  type OpName,
  range,
  type Shape,
} from "../graph/index.js";
import { build, convRoles, make } from "../ops/index.js";
import { rebuild } from "../transform/index.js";

/**
 * How many axes after the first one (the channels: one, or groups and channels per group) come last. A node [batch, channels, ...]
 * with one such axis is computed as [batch, ..., channels].
 */
type Moved = number;

/** Fewer convolutions (gradients are counted, too) do not pay for the permutations at the edges. */
const minConvolutions = 8;
/** Time with channels last, as a share of that with channels first, of convolutions of groups of several channels, and of others. */
const shares = { grouped: 1.36, other: 0.82 };
/** Tensor cores multiply channels by eights; convolutions of fewer channels than this do not count. */
const minChannels = 16;

/** The axes of a tensor in the order with channels last. */
const lastOrder = (rank: number, moved: Moved): number[] => [
  0,
  ...range(rank).slice(moved + 1),
  ...range(moved + 1).slice(1),
];

const inverse = (axes: readonly number[]): number[] => axes.map((_, i) => axes.indexOf(i));

const pickAxes = <T>(list: readonly T[], axes: readonly number[]): T[] => axes.map((axis) => list[axis]);

/** Whether a permutation moves no element. */
function movesNothing(shape: Shape, axes: readonly number[]): boolean {
  const large = axes.filter((axis) => shape[axis] !== 1);
  return large.every((axis, i) => i === 0 || axis > large[i - 1]);
}

/** A permutation without the permutations and reshapes that it cancels. */
function permuted(x: Node, axes: readonly number[]): Node {
  if (isOp(x, "permute")) return permuted(x.inputs[0], pickAxes(x.attrs.axes, axes));
  if (!movesNothing(x.shape, axes)) return build.permute(x, axes);
  return build.reshape(isOp(x, "reshape") ? x.inputs[0] : x, pickAxes(x.shape, axes));
}

/** The axes of channels on the other side of a reshape that keeps the batch, all channels and all positions together; null if none does. */
function reshapedChannels(from: Shape, to: Shape, moved: Moved): Moved | null {
  if (from[0] !== to[0]) return null;
  const channels = numel(from.slice(1, moved + 1));
  for (let other = 1; other < to.length; other++) if (numel(to.slice(1, other + 1)) === channels) return other;
  return null;
}

const sameEverywhere: ReadonlySet<OpName> = new Set<OpName>([
  ...(["unary", "binary", "where", "cast", "pad", "concat", "slice", "flip", "expand"] as const),
  ...(["alias", "barrier", "pin"] as const),
]);

/** The axes of channels of the operands of a node whose result has `moved` of them; null where the op does not keep channels apart. */
function operandChannels(node: Node, moved: Moved): Moved | null {
  if (sameEverywhere.has(node.op)) return moved;
  const [x] = node.inputs;
  if (isOp(node, "reshape")) return reshapedChannels(node.shape, x.shape, moved);
  if (isOp(node, "permute")) return range(moved + 1).every((i) => node.attrs.axes[i] === i) ? moved : null;
  if (isOp(node, "reduce")) return node.attrs.axes.every((axis) => axis > moved) ? moved : null;
  return null;
}

/** The axes of channels of the result of a node whose operand has `moved` of them. */
function resultChannels(node: Node, moved: Moved): Moved | null {
  if (!isOp(node, "reshape")) return operandChannels(node, moved);
  return reshapedChannels(node.inputs[0].shape, node.shape, moved);
}

/** Whether a node can be computed with channels last, and differs from the node itself. */
function canMove(node: Node, moved: Moved): boolean {
  const isMoving = node.shape.length > moved + 1 && !movesNothing(node.shape, lastOrder(node.shape.length, moved));
  return isMoving && node.outputs === null && node.value === null;
}

/** A convolution with channels last, between operands with channels last. */
function lastConv(node: Node<"conv">, inputs: readonly Node[]): Node {
  return make("conv", inputs, { ...node.attrs, channelsLast: true });
}

/** The same convolution on placeholders, for the device to judge. */
const probe = (node: Node<"conv">): Node<"conv"> =>
  lastConv(
    node,
    node.inputs.map(({ shape, dtype }) => build.input(pickAxes(shape, lastOrder(shape.length, 1)), dtype)),
  ) as Node<"conv">;

/** Nodes that are computed with channels last, and convolutions among them. */
interface Regions {
  channels: Map<Node, Moved>;
  convolutions: Set<Node>;
}

/** The images among the operands and the result of a convolution: not its weight. */
function imagesOf(node: Node<"conv">): Node[] {
  const { x, y } = convRoles(node);
  return [x, y];
}

/** Whether convolutions are faster with channels last together, weighted by their arithmetic. */
function savesTime(convolutions: readonly Node<"conv">[]): boolean {
  let saved = 0;
  for (const node of convolutions) {
    const { x, w, y } = convRoles(node);
    const { groups } = node.attrs;
    const isGrouped = groups > 1 && w.shape[1] > 1;
    const multiplications = numel(y.shape) * numel(w.shape.slice(1));
    saved += multiplications * (1 - (isGrouped && groups < x.shape[1] ? shares.grouped : shares.other));
  }
  return saved > 0;
}

function findRegions(
  fn: GraphFn,
  order: readonly Node[],
  isBetter: (node: Node<"conv">) => boolean,
  least: number,
): Regions {
  const params = new Set(fn.params);
  const users = new Map<Node, Node[]>();
  for (const node of order)
    for (const input of new Set(node.inputs)) users.set(input, [...(users.get(input) ?? []), node]);
  const chosen = new Set<Node>(
    order.filter((node): node is Node<"conv"> => isOp(node, "conv") && !node.attrs.channelsLast && isBetter(node)),
  );
  const all: Regions = { channels: new Map(), convolutions: new Set() };
  const seen = new Set<Node>();
  for (const start of chosen) {
    if (seen.has(start)) continue;
    const channels = new Map<Node, Moved>();
    const convolutions: Node<"conv">[] = [];
    const queue: Node[] = [];
    const reach = (node: Node, moved: Moved | null): void => {
      if (moved === null || seen.has(node) || params.has(node)) return;
      const isConv = chosen.has(node);
      if (!isConv && (!canMove(node, moved) || operandChannels(node, moved) === null)) return;
      seen.add(node);
      if (isConv) convolutions.push(node as Node<"conv">);
      else channels.set(node, moved);
      queue.push(node);
    };
    reach(start, 1);
    for (let node = queue.pop(); node !== undefined; node = queue.pop()) {
      if (isOp(node, "conv")) for (const image of imagesOf(node)) reach(image, 1);
      else for (const input of node.inputs) reach(input, operandChannels(node, channels.get(node)!));
      // The gradient of a weight leaves the region.
      if (isOp(node, "conv") && node.attrs.kind === "weight") continue;
      const moved = channels.get(node) ?? 1;
      for (const user of users.get(node) ?? [])
        if (!isOp(user, "conv")) reach(user, resultChannels(user, moved));
        else if (moved === 1 && imagesOf(user).includes(node)) reach(user, 1);
    }
    const counted = convolutions.filter((node) => {
      const { x, y } = convRoles(node);
      return Math.min(x.shape[1], y.shape[1]) >= minChannels;
    });
    if (counted.length < least || !savesTime(counted)) continue;
    for (const [node, moved] of channels) all.channels.set(node, moved);
    for (const node of convolutions) all.convolutions.add(node);
  }
  return all;
}

/** Attributes of a node for operands and a result with channels last. */
function movedNode(node: Node, inputs: readonly Node[], axes: readonly number[]): Node {
  const at = inverse(axes);
  if (isOp(node, "reshape")) return build.reshape(inputs[0], pickAxes(node.shape, axes));
  if (isOp(node, "expand")) return build.expand(inputs[0], pickAxes(node.shape, axes));
  if (isOp(node, "concat")) return build.concat(inputs, at[node.attrs.axis]);
  if (isOp(node, "flip"))
    return build.flip(
      inputs[0],
      node.attrs.axes.map((axis) => at[axis]),
    );
  if (isOp(node, "pad")) return build.pad(inputs[0], pickAxes(node.attrs.low, axes), pickAxes(node.attrs.high, axes));
  if (isOp(node, "slice")) {
    const { start, stop, step } = node.attrs;
    return build.slice(inputs[0], pickAxes(start, axes), pickAxes(stop, axes), pickAxes(step, axes));
  }
  return build.withInputs(node, inputs);
}

/** Rebuilds a function whose regions are computed with channels last. */
class Mover {
  /** Computed nodes, and how many of their axes come last. */
  readonly #made = new Map<Node, { node: Node; moved: Moved }>();
  readonly #first = new Map<Node, Node>();
  readonly #last = new Map<string, Node>();

  constructor(readonly regions: Regions) {}

  add(node: Node, made: Node, moved: Moved): void {
    this.#made.set(node, { node: made, moved });
  }

  /** A node with its axes as in the original function. */
  first(node: Node): Node {
    const made = this.#made.get(node)!;
    if (made.moved === 0) return made.node;
    let found = this.#first.get(node);
    if (found === undefined) {
      found = permuted(made.node, inverse(lastOrder(node.shape.length, made.moved)));
      this.#first.set(node, found);
    }
    return found;
  }

  /** A node with channels last. */
  last(node: Node, moved: Moved): Node {
    const made = this.#made.get(node)!;
    if (made.moved === moved) return made.node;
    const key = `${node.id}:${moved}`;
    let found = this.#last.get(key);
    if (found === undefined) {
      const axes = lastOrder(node.shape.length, moved);
      if (made.moved === 0 && isOp(node, "expand") && this.#made.has(node.inputs[0]))
        found = build.expand(this.last(node.inputs[0], moved), pickAxes(node.shape, axes));
      else if (isOp(node, "iota"))
        found = make("iota", [], {
          ...node.attrs,
          shape: pickAxes(node.shape, axes),
          axis: axes.indexOf(node.attrs.axis),
        });
      else found = permuted(this.first(node), axes);
      this.#last.set(key, found);
    }
    return found;
  }

  visit(node: Node): void {
    const { channels, convolutions } = this.regions;
    const moved = channels.get(node);
    const [x] = node.inputs;
    if (isOp(node, "conv") && convolutions.has(node)) {
      const inputs = node.inputs.map((input) => this.last(input, 1));
      this.add(node, lastConv(node, inputs), 1);
    } else if (isOp(node, "permute") && moved !== undefined) {
      const own = lastOrder(node.shape.length, moved);
      // Axis i of the result with channels last is axis own[i] of the node, and axis axes[own[i]] of the operand.
      const at = inverse(own);
      const axes = own.map((axis) => at[node.attrs.axes[axis]]);
      this.add(node, permuted(this.last(x, moved), axes), moved);
    } else if (isOp(node, "reduce")) {
      const from = moved ?? this.#made.get(x)!.moved;
      const axes = from === 0 ? range(x.shape.length) : lastOrder(x.shape.length, from);
      const at = inverse(axes);
      const made = build.reduce(
        node.attrs.fn,
        from === 0 ? this.first(x) : this.last(x, from),
        node.attrs.axes.map((axis) => at[axis]),
      );
      if (moved !== undefined) this.add(node, made, moved);
      else {
        // The remaining axes in the order of the original.
        const rest = axes.filter((axis) => !node.attrs.axes.includes(axis));
        const sorted = [...rest].sort((a, b) => a - b);
        const order = sorted.map((axis) => rest.indexOf(axis));
        this.add(node, permuted(made, order), 0);
      }
    } else if (moved !== undefined) {
      const from = operandChannels(node, moved)!;
      const inputs = node.inputs.map((input) => this.last(input, from));
      this.add(node, movedNode(node, inputs, lastOrder(node.shape.length, moved)), moved);
    } else if (isOp(node, "permute") && this.#made.get(x)!.moved > 0)
      this.add(node, permuted(this.first(x), node.attrs.axes), 0);
    else
      this.add(
        node,
        rebuild(
          node,
          node.inputs.map((input) => this.first(input)),
        ),
        0,
      );
  }
}

/**
 * A function whose convolutions have their channels last where the device's are better so. `isBetter` judges a convolution by its
 * form with channels last; regions with fewer than `least` convolutions stay as they are.
 */
export function moveChannelsLast(
  fn: GraphFn,
  isBetter: (last: Node<"conv">) => boolean,
  least = minConvolutions,
): GraphFn {
  const order = functionOrder(fn);
  if (!order.some((node) => isOp(node, "conv") && !node.attrs.channelsLast)) return fn;
  const regions = findRegions(fn, order, (node) => node.shape.length <= 4 && isBetter(probe(node)), least);
  if (regions.convolutions.size === 0) return fn;
  const mover = new Mover(regions);
  for (const param of fn.params) mover.add(param, param, 0);
  const params = new Set(fn.params);
  for (const node of order) if (!params.has(node)) inScope(node.scope, () => mover.visit(node));
  const outputs = fn.outputs.map((output) => mover.first(output));
  const effects = fn.effects?.map((node) => mover.first(node));
  return effects === undefined ? { params: fn.params, outputs } : { params: fn.params, outputs, effects };
}
