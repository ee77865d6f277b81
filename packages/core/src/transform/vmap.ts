// vmap, graph to graph: every node that depends on a batched placeholder gets one more leading axis by its batch rule.
import {
  type CustomRule,
  type GraphFn,
  InternalError,
  isInexact,
  isOp,
  type Node,
  type OpName,
  topological,
} from "../graph/index.js";
import { type BatchContext, type Batched, batchRules, build, composed, make, withBatch } from "../ops/index.js";
import { joinScan, makeScan, type ScanParts, splitScan } from "./scan.js";
import { dependents } from "./walk.js";

const { moveAxis, picks, zerosLike } = build;

type AnyBatchRule = (context: BatchContext<OpName>) => Node;

/**
 * Batches a graph. `sources` maps placeholders to their batched replacements (batch axis first); the result tells for each
 * output whether it depends on the batch.
 */
export function batchNodes(outputs: readonly Node[], sources: ReadonlyMap<Node, Node>, size: number): Batched[] {
  const order = topological(outputs, (node) => sources.has(node));
  const active = dependents(order, sources.keys());
  const done = new Map<Node, Batched[]>();
  const lookup = (node: Node): Batched => done.get(node)?.[0] ?? { node, batched: false };
  for (const [placeholder, node] of sources) done.set(placeholder, [{ node, batched: true }]);
  for (const node of order) {
    if (!active.has(node) || sources.has(node)) continue;
    if (isOp(node, "pick")) {
      done.set(node, [done.get(node.inputs[0])![node.attrs.index]]);
      continue;
    }
    const inputs = node.inputs.map(lookup);
    if (isOp(node, "scan")) {
      done.set(node, batchScan(node, inputs, size));
    } else if (isOp(node, "custom")) {
      done.set(node, batchCustom(node, inputs, size));
    } else {
      const rule = batchRules[node.op as keyof typeof batchRules] as AnyBatchRule | undefined;
      if (rule === undefined) throw new InternalError(`no batch rule for ${node.op}`);
      const result = rule({ node, inputs, size });
      const results = result.outputs === null ? [result] : picks(result);
      done.set(
        node,
        results.map((r) => ({ node: r, batched: true })),
      );
    }
  }
  return outputs.map(lookup);
}

/**
 * Batches a function body with respect to the chosen parameters. With `rowsOf`, rows that do not run get no gradient from the body: zero
 * times the infinite slope of a branch that was not taken would be NaN. Scalars are batched for it, too.
 */
function batchBody(
  fn: GraphFn,
  mask: readonly boolean[],
  size: number,
  rowsOf?: (params: readonly Node[]) => Node,
): { params: Node[]; outputs: Batched[] } {
  const params = fn.params.map((p, i) => (mask[i] ? build.input([size, ...p.shape], p.dtype, "batched") : p));
  const runs = rowsOf?.(params);
  const guarded = (param: Node): Node =>
    runs === undefined || !isInexact(param.dtype)
      ? param
      : build.where(rowsAs(runs, param), param, composed.stopGradient(param));
  const sources = new Map<Node, Node>();
  fn.params.forEach((p, i) => {
    if (mask[i]) sources.set(p, guarded(params[i]));
    else if (runs !== undefined && p.shape.length === 0 && isInexact(p.dtype))
      sources.set(p, guarded(build.expandTo(p, [size])));
  });
  return { params, outputs: batchNodes(fn.outputs, sources, size) };
}

/** A condition per row in the shape of a batched node. */
const rowsAs = (rows: Node, like: Node): Node =>
  build.expandTo(build.reshape(rows, [rows.shape[0], ...like.shape.slice(1).map(() => 1)]), like.shape);

function batchScan(node: Node<"scan">, inputs: readonly Batched[], size: number): Batched[] {
  const { attrs } = node;
  const parts = splitScan(node, inputs);
  const carryMask = parts.carries.map((c) => c.batched);
  // A carry is batched if one step makes it batched; at most one iteration per carry.
  for (;;) {
    // Rows that stop at different steps have carries of their own.
    const isRagged = attrs.stop === "count" ? parts.consts[0].batched : attrs.stop === "while" && carryMask[0];
    if (isRagged) carryMask.fill(true);
    const mask = [...parts.consts.map((c) => c.batched), ...carryMask, ...parts.xs.map((x) => x.batched)];
    // With dimensions of its own, the predicate or count already belongs to rows, which the body leaves unchanged.
    const end = attrs.stop === "count" ? attrs.body.params[0] : attrs.body.params[attrs.consts];
    const isFrozen = isRagged && end.shape.length === 0;
    const step = build.input([], "int32", "step");
    const rowsOf = (params: readonly Node[]): Node =>
      attrs.stop === "count" ? build.lt(build.expandTo(step, params[0].shape), params[0]) : params[attrs.consts];
    const inner = batchBody(attrs.body, mask, size, isFrozen ? rowsOf : undefined);
    const grown = carryMask.findIndex((batched, i) => !batched && inner.outputs[i].batched);
    if (grown >= 0) {
      carryMask[grown] = true;
      continue;
    }
    const { carries } = attrs;
    const outputs = inner.outputs.map((o, i) =>
      isRagged || (i < carries && carryMask[i]) ? withBatch(o, size) : o.node,
    );
    const batched: BatchedLoop = {
      attrs,
      params: splitScan(node, inner.params),
      outputs,
      inputs: {
        consts: parts.consts.map((c) => c.node),
        carries: parts.carries.map((c, i) => (carryMask[i] ? withBatch(c, size) : c.node)),
        xs: parts.xs.map((x) => (x.batched ? moveAxis(x.node, 0, 1) : x.node)),
      },
    };
    if (isFrozen) freezeRows(batched, rowsOf(inner.params), step);
    const loop = makeScan({ params: joinScan(batched.params), outputs: batched.outputs }, batched.inputs, attrs);
    return picks(loop)
      .slice(0, outputs.length)
      .map((result, i) => {
        const isBatched = isRagged || (i < carries ? carryMask[i] : inner.outputs[i].batched);
        return { node: i >= carries && isBatched ? moveAxis(result, 1, 0) : result, batched: isBatched };
      });
  }
}

interface BatchedLoop {
  attrs: Node<"scan">["attrs"];
  params: ScanParts<Node>;
  outputs: Node[];
  inputs: ScanParts<Node>;
}

/** Leaves the carries of a row unchanged in the steps after its end, and gives zeros for the results of these steps. */
function freezeRows(loop: BatchedLoop, runs: Node, step: Node): void {
  const { attrs, params, inputs } = loop;
  if (attrs.stop === "count") {
    params.xs.push(step);
    inputs.xs.push(build.iota([attrs.length], 0, "int32"));
  }
  loop.outputs = loop.outputs.map((next, i) =>
    build.where(rowsAs(runs, next), next, i < attrs.carries ? params.carries[i] : zerosLike(next)),
  );
}

function batchCustom(node: Node<"custom">, inputs: readonly Batched[], size: number): Batched[] {
  const { body, rule, kernel } = node.attrs;
  if (kernel !== undefined) return batchKernel(node, inputs, size);
  const mask = inputs.map((x) => x.batched);
  const inner = batchBody(body, mask, size);
  const outputs = inner.outputs.map((o) => withBatch(o, size));
  const result = make(
    "custom",
    inputs.map((x) => x.node),
    {
      body: { params: inner.params, outputs },
      rule: { name: rule.name, backward: batchBackward(rule, body, mask, size) },
    },
  );
  return picks(result).map((r) => ({ node: r, batched: true }));
}

/** Kernels and their rules accept any number of leading axes, so the batch axis comes first in every operand. */
function batchKernel(node: Node<"custom">, inputs: readonly Batched[], size: number): Batched[] {
  const { body } = node.attrs;
  const inner = batchBody(
    body,
    inputs.map(() => true),
    size,
  );
  const outputs = inner.outputs.map((o) => withBatch(o, size));
  const operands = inputs.map((x) => withBatch(x, size));
  const result = make("custom", operands, { ...node.attrs, body: { params: inner.params, outputs } });
  return picks(result).map((r) => ({ node: r, batched: true }));
}

/** The user's backward function under vmap: traced for one example, then batched. Gradients of unbatched inputs are summed. */
function batchBackward(
  rule: CustomRule,
  body: GraphFn,
  mask: readonly boolean[],
  size: number,
): CustomRule["backward"] {
  return (inputs, outputs, cotangents) => {
    const like = (nodes: readonly Node[]): Node[] => nodes.map((n) => build.input(n.shape, n.dtype, "example"));
    const exampleInputs = body.params.map((p, i) => (mask[i] ? build.input(p.shape, p.dtype, "example") : inputs[i]));
    const exampleOutputs = like(body.outputs);
    const exampleCotangents = like(body.outputs);
    const grads = rule.backward(exampleInputs, exampleOutputs, exampleCotangents);
    const sources = new Map<Node, Node>();
    exampleInputs.forEach((example, i) => {
      if (mask[i]) sources.set(example, inputs[i]);
    });
    exampleOutputs.forEach((example, i) => {
      sources.set(example, outputs[i]);
      sources.set(exampleCotangents[i], cotangents[i]);
    });
    const filled = grads.map((g, i) => g ?? zerosLike(body.params[i]));
    return batchNodes(filled, sources, size).map((g, i) => {
      if (grads[i] === null) return null;
      const batched = withBatch(g, size);
      return mask[i] ? batched : build.sum(batched, [0]);
    });
  };
}
