// How one mesh axis divides the values of a step, if every op follows its operands as the partitioner does: which dimension of
// which value is split, where sums are pending, and what the collectives between them move. It builds nothing, so that thousands of
// nodes take milliseconds.
import { type CollectiveKind, isOp, type Node, numel, outputAvals } from "../graph/index.js";
import { factorsOf, isLinear } from "../ops/index.js";
import { markOf } from "./marks.js";

/** One result of a node: the dimension that the axis splits, or -1, and whether it is a pending sum over the axis. */
interface FlowValue {
  dim: number;
  pending: boolean;
}

/** An op with what a flow looks up. */
interface FlowOp {
  node: Node;
  rule: ReturnType<typeof factorsOf>;
  mark: ReturnType<typeof markOf>;
  /** Operands, the largest first. */
  bySize: number[];
}

interface AxisFlowOptions {
  /** Ops in order, without the parameters. */
  ops: readonly FlowOp[];
  /** Dimensions of the function's parameters that the axis splits. */
  seeds: ReadonlyMap<Node, number>;
  /** The dimension of a complete gradient that the axis splits, by the number of its parameter. */
  gradients: readonly number[];
  /** Called for every collective with the bytes of the value before the axis splits it. */
  onCollective(kind: CollectiveKind, node: Node, index: number): void;
}

const whole: FlowValue = { dim: -1, pending: false };

/** Looks up once what every flow over these nodes needs. */
export const flowOps = (nodes: readonly Node[]): FlowOp[] =>
  nodes.map((node) => {
    const sizes = node.inputs.map((input) => numel(input.shape));
    const bySize = node.inputs.map((_, i) => i).sort((a, b) => sizes[b] - sizes[a]);
    return { node, rule: factorsOf(node), mark: markOf(node), bySize };
  });

export class AxisFlow {
  readonly #values = new Map<Node, FlowValue[]>();
  readonly #factors = new Map<Node, number>();
  readonly #converted = new Set<string>();

  constructor(private readonly options: AxisFlowOptions) {
    for (const op of options.ops) this.#visit(op);
  }

  /** The dimension of a result that is split, or -1. */
  dim(node: Node, index = 0): number {
    return this.#value(node, index).dim;
  }

  /** The factor of a node that is split, or -1. */
  factor(node: Node): number {
    return this.#factors.get(node) ?? -1;
  }

  #value(node: Node, index = 0): FlowValue {
    if (isOp(node, "pick")) return this.#value(node.inputs[0], node.attrs.index);
    const seed = this.options.seeds.get(node);
    if (seed !== undefined) return { dim: seed, pending: false };
    return this.#values.get(node)?.[index] ?? whole;
  }

  #visit({ node, rule, mark, bySize }: FlowOp): void {
    const current = node.inputs.map((input) => this.#value(input));
    if (mark?.kind === "gradient" || mark?.kind === "sums") {
      const dim = mark.kind === "sums" ? -1 : (this.options.gradients[mark.index] ?? -1);
      this.#convert(node.inputs[0], current[0], { dim, pending: false });
      this.#values.set(node, [{ dim, pending: false }]);
      return;
    }
    // Most ops of a step see nothing that is divided.
    if (current.every(({ dim, pending }) => dim < 0 && !pending)) return;
    let factor = -1;
    for (const i of bySize) {
      const { dim } = current[i];
      const map = dim < 0 ? null : rule.inputs[i][dim];
      if (map !== null && rule.factors[map.factor].size > 1) {
        factor = map.factor;
        break;
      }
    }
    const parts = current.map(({ pending }) => pending);
    const carries = factor < 0 && parts.some(Boolean) && isLinear(node, parts, "sum");
    node.inputs.forEach((input, i) => {
      const dim = factor < 0 ? -1 : rule.inputs[i].findIndex((map) => map?.factor === factor);
      this.#convert(input, current[i], { dim, pending: carries && parts[i] });
    });
    if (factor < 0 && !carries) return;
    this.#factors.set(node, factor);
    this.#values.set(
      node,
      outputAvals(node).map((_, k) => {
        const dim = factor < 0 ? -1 : rule.outputs[k].findIndex((map) => map?.factor === factor);
        const { reduce = null, partial = [] } = rule.factors[factor] ?? {};
        return { dim, pending: carries || (dim < 0 && reduce !== null && partial[k] === true) };
      }),
    );
  }

  /** The collective that an operand needs; a value that several ops need in one form is moved once. */
  #convert(node: Node, from: FlowValue, to: FlowValue): void {
    if ((from.dim === to.dim || from.dim < 0) && from.pending === to.pending) return;
    const index = isOp(node, "pick") ? node.attrs.index : 0;
    const source = isOp(node, "pick") ? node.inputs[0] : node;
    const key = `${source.id}.${index}>${to.dim}${to.pending}`;
    if (this.#converted.has(key)) return;
    this.#converted.add(key);
    const kind = from.pending
      ? to.dim >= 0
        ? "reduceScatter"
        : "allReduce"
      : to.dim < 0
        ? "allGather"
        : ("allToAll" as const);
    this.options.onCollective(kind, source, index);
  }
}
