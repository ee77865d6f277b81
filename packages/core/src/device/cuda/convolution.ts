// Convolutions by cuDNN: descriptors and an algorithm per geometry, chosen by the library's own estimate. Knows shapes and addresses.
import { createHash } from "node:crypto";
import { type ConvKind, type DType, isHalf, type Node, numel, type Precision, WeftError } from "../../graph/index.js";
import { convRoles } from "../../ops/index.js";
import type { CudaContext } from "./context.js";
import { cudnnHandle } from "./cudnn.js";
import { type Dnn, result64 } from "./driver.js";

/** Numbers of cudnnDataType_t. */
const types: Partial<Record<DType, number>> = { float32: 0, float64: 1, float16: 2, bfloat16: 9 };
/** Numbers of cudnnMathType_t: tensor cores with the type as it is, float32 rounded to tf32, neither. */
const math = { standard: 0, tensor: 1, exact: 3 };
const crossCorrelation = 1;
/** Workspaces beyond this are not worth their memory. */
const maxWorkspace = 1 << 30;
/** cudnnConvolutionFwdAlgoPerf_t and its siblings: algorithm, status, seconds, bytes, determinism, math type, reserved. */
const resultBytes = 48;
/** Algorithms that are asked for: the library takes its time for each of them, and the first one nearly always works. */
const asked = [1, 8] as const;
const maxPlans = 1024;

interface ConvPlan {
  x: number;
  w: number;
  y: number;
  conv: number;
  algorithm: number;
  bytes: number;
}

/** Names of the library's calls, and the order of the tensors in them. */
const calls: Record<ConvKind, { name: "Forward" | "BackwardData" | "BackwardFilter"; order: ("x" | "w" | "y")[] }> = {
  forward: { name: "Forward", order: ["x", "w", "y"] },
  input: { name: "BackwardData", order: ["w", "y", "x"] },
  weight: { name: "BackwardFilter", order: ["x", "y", "w"] },
};

/** Whether a convolution may run on tensor cores, whose kernels want channels last: the library transposes others before and after. */
export const usesTensorCores = ({ dtype, attrs }: Node<"conv">, precision: Precision): boolean =>
  isHalf(dtype) || (dtype === "float32" && (attrs.precision ?? precision) !== "float32");

export class Convolutions {
  readonly #plans = new Map<string, ConvPlan | null>();

  /** Null without the library: convolutions are matrix products then. */
  static make(context: CudaContext, precision: Precision): Convolutions | null {
    const { dnn } = context.libraries;
    return dnn === null ? null : new Convolutions(context, precision, dnn);
  }

  private constructor(
    readonly context: CudaContext,
    readonly precision: Precision,
    readonly dnn: Dnn,
  ) {}

  /** Whether the library has an algorithm for this convolution. */
  supports(node: Node<"conv">): boolean {
    return this.#plan(node) !== null;
  }

  workspaceBytes(node: Node<"conv">): number {
    return this.#plan(node)?.bytes ?? 0;
  }

  issue(node: Node<"conv">, addresses: { inputs: readonly number[]; output: number; workspace: number }): void {
    const plan = this.#plan(node)!;
    const { kind } = node.attrs;
    const { name, order } = calls[kind];
    const [first, second] = addresses.inputs;
    // The operands of "input" are (y, w); the library takes the weight first.
    const [a, b] = kind === "input" ? [second, first] : [first, second];
    const scalars = this.context.scalars();
    const [one, zero] = node.dtype === "float64" ? [scalars + 64, scalars + 80] : [scalars, scalars + 8];
    const code = this.dnn[`cudnnConvolution${name}`](
      ...[this.#open(), one, plan[order[0]], a, plan[order[1]], b, plan.conv, plan.algorithm],
      ...[addresses.workspace, plan.bytes, zero, plan[order[2]], addresses.output],
    );
    this.context.check(`cudnnConvolution${name}`, code);
  }

  #open(): number {
    const handle = cudnnHandle(this.context);
    if (handle === null)
      throw new WeftError("cuda: cuDNN was found but could not be started; WEFT_CUDA_WITHOUT=cudnn does without it");
    return handle.address;
  }

  #plan(node: Node<"conv">): ConvPlan | null {
    const { x, w, y } = convRoles(node);
    const key = createHash("sha256")
      .update(JSON.stringify([node.attrs, x.shape, w.shape, y.shape, node.dtype]))
      .digest("base64");
    let plan = this.#plans.get(key);
    if (plan === undefined) {
      if (this.#plans.size >= maxPlans) this.#forget();
      plan = this.#make(node);
      this.#plans.set(key, plan);
    }
    return plan;
  }

  #forget(): void {
    for (const plan of this.#plans.values()) if (plan !== null) this.#destroy(plan);
    this.#plans.clear();
  }

  #destroy({ x, w, y, conv }: ConvPlan): void {
    for (const desc of [x, y]) this.dnn.cudnnDestroyTensorDescriptor(desc);
    this.dnn.cudnnDestroyFilterDescriptor(w);
    this.dnn.cudnnDestroyConvolutionDescriptor(conv);
  }

  #make(node: Node<"conv">): ConvPlan | null {
    const { dtype, attrs } = node;
    const type = types[dtype];
    const { x, w, y } = convRoles(node);
    const largest = Math.max(...[x, w, y].map(({ shape }) => numel(shape)));
    if (type === undefined || largest >= 2 ** 31) return null;
    const { dnn } = this;
    const { channelsLast, groups } = attrs;
    // Two spatial axes at least, in the order batch, channels, ... in both layouts.
    const spatial = (list: readonly number[], rest: number): Int32Array =>
      Int32Array.from(list.length === 1 ? [rest, ...list] : list);
    const sizes = ({ shape }: Node): Int32Array => {
      const [lead, channels, rest] = channelsLast
        ? [shape[0], shape[shape.length - 1], shape.slice(1, -1)]
        : [shape[0], shape[1], shape.slice(2)];
      return Int32Array.from([lead, channels, ...spatial(rest, 1)]);
    };
    const format = channelsLast ? 1 : 0;
    const plan: ConvPlan = {
      x: result64("cudnnCreateTensorDescriptor", (out) => dnn.cudnnCreateTensorDescriptor(out)),
      w: result64("cudnnCreateFilterDescriptor", (out) => dnn.cudnnCreateFilterDescriptor(out)),
      y: result64("cudnnCreateTensorDescriptor", (out) => dnn.cudnnCreateTensorDescriptor(out)),
      conv: result64("cudnnCreateConvolutionDescriptor", (out) => dnn.cudnnCreateConvolutionDescriptor(out)),
      algorithm: 0,
      bytes: 0,
    };
    const rank = sizes(x).length;
    const codes = [
      dnn.cudnnSetTensorNdDescriptorEx(plan.x, format, type, rank, sizes(x)),
      dnn.cudnnSetTensorNdDescriptorEx(plan.y, format, type, rank, sizes(y)),
      dnn.cudnnSetFilterNdDescriptor(plan.w, type, format, rank, sizes(w)),
      dnn.cudnnSetConvolutionNdDescriptor(
        ...[plan.conv, rank - 2, spatial(attrs.low, 0), spatial(attrs.stride, 1), spatial(attrs.dilation, 1)],
        ...[crossCorrelation, dtype === "float64" ? 1 : 0],
      ),
      dnn.cudnnSetConvolutionGroupCount(plan.conv, groups),
      dnn.cudnnSetConvolutionMathType(plan.conv, this.#math(node)),
    ];
    const chosen = codes.every((code) => code === 0) ? this.#choose(node, plan) : null;
    if (chosen === null) this.#destroy(plan);
    return chosen;
  }

  #math({ dtype, attrs }: Node<"conv">): number {
    if (dtype === "float32") return (attrs.precision ?? this.precision) === "float32" ? math.exact : math.standard;
    return dtype === "float64" ? math.standard : math.tensor;
  }

  /** The first algorithm of the library's estimate that works with these tensors and in a bounded workspace. */
  #choose(node: Node<"conv">, plan: ConvPlan): ConvPlan | null {
    const { name, order } = calls[node.attrs.kind];
    const [a, b, out] = order.map((tensor) => plan[tensor]);
    for (const count of asked) {
      const results = new Uint8Array(resultBytes * count);
      const found = new Int32Array(1);
      const code = this.dnn[`cudnnGetConvolution${name}Algorithm_v7`](
        ...[this.#open(), a, b, plan.conv, out, count, found, results],
      );
      if (code !== 0) return null;
      const view = new DataView(results.buffer);
      for (let i = 0; i < found[0]; i++) {
        const at = i * resultBytes;
        const bytes = Number(view.getBigUint64(at + 16, true));
        if (view.getInt32(at + 4, true) !== 0 || bytes > maxWorkspace) continue;
        const mathType = view.getInt32(at + 28, true);
        // An exact product stays exact; otherwise the estimate says whether tensor cores pay.
        if (this.#math(node) !== math.exact) this.dnn.cudnnSetConvolutionMathType(plan.conv, mathType);
        return { ...plan, algorithm: view.getInt32(at, true), bytes };
      }
    }
    return null;
  }
}
