// Operation graphs of cuDNN through its backend API: descriptors as data, and execution plans chosen by cuDNN's heuristics.
// Knows tensors and operations, not what they compute together (see cudnn-attention.ts).
import { InternalError } from "../../graph/index.js";
import type { CudaContext } from "./context.js";
import { CudaError, cText, type Dnn, result64 } from "./driver.js";
import type { HostBlock } from "./host-memory.js";
import { withOwnSignals } from "./signals.js";

/** cudnnDataType_t. */
const cudnnTypes = { float: 0, half: 2, int32: 4, bfloat16: 9, bool: 11 } as const;
export type CudnnType = keyof typeof cudnnTypes;

/** cudnnPointwiseMode_t: the first operand is x, the second b, the third selects between them. */
const pointwiseModes = {
  add: 0,
  mul: 1,
  div: 6,
  sub: 9,
  exp: 13,
  log: 15,
  identity: 21,
  greater: 302,
  greaterEqual: 303,
  index: 501,
  select: 601,
} as const;
type PointwiseMode = keyof typeof pointwiseModes;
/** cudnnReduceTensorOp_t. */
const reductionModes = { add: 0, max: 3 } as const;

/** cudnnBackendDescriptorType_t. */
const kinds = {
  pointwise: 0,
  engineConfig: 3,
  heuristics: 4,
  plan: 5,
  pointwiseOp: 13,
  graph: 15,
  variantPack: 16,
  tensor: 17,
  matmul: 18,
  matmulOp: 19,
  reduction: 21,
  reductionOp: 22,
  reshapeOp: 31,
} as const;

/** cudnnBackendAttributeType_t, with the bytes of one value. */
const attributes = {
  handle: [0, 8],
  dataType: [1, 4],
  bool: [2, 1],
  int64: [3, 8],
  pointer: [6, 8],
  heuristicMode: [8, 4],
  pointwiseMode: [14, 4],
  descriptor: [15, 8],
  reductionMode: [18, 4],
} as const;
type AttributeType = keyof typeof attributes;

/** cudnnBackendAttributeName_t. */
const names = {
  pointwiseMode: 0,
  pointwisePrecision: 1,
  pointwiseAxis: 9,
  heuristicsMode: 200,
  heuristicsGraph: 201,
  heuristicsResults: 202,
  planHandle: 400,
  planConfig: 401,
  planWorkspace: 402,
  pointwiseOp: 750,
  pointwiseX: 751,
  pointwiseB: 752,
  pointwiseY: 753,
  pointwiseT: 758,
  graphHandle: 800,
  graphOps: 801,
  tensorAlignment: 900,
  tensorType: 901,
  tensorDimensions: 902,
  tensorStrides: 903,
  tensorId: 906,
  tensorVirtual: 907,
  tensorByValue: 908,
  packIds: 1000,
  packPointers: 1001,
  packWorkspace: 1003,
  matmulPrecision: 1500,
  matmulA: 1520,
  matmulB: 1521,
  matmulC: 1522,
  matmulOp: 1523,
  reductionOperator: 1600,
  reductionPrecision: 1601,
  reductionX: 1610,
  reductionY: 1611,
  reductionOp: 1612,
  reshapeX: 2200,
  reshapeY: 2201,
} as const;

/** CUDNN_HEUR_MODE_A, and how many engines are asked for. */
const heuristicsMode = 3;
const maxEngines = 8;

/** A refusal of cuDNN, which is no reason to fail where another kernel can do the work. */
export class CudnnError extends CudaError {
  override name = "CudnnError";
}

/** Descriptors of one library, destroyed together. */
class Descriptors {
  readonly #made: number[] = [];
  constructor(readonly cudnn: Dnn) {}

  check(call: string, code: number): void {
    if (code === 0) return;
    const text = new Uint8Array(512);
    this.cudnn.cudnnGetLastErrorString(text, text.length);
    throw new CudnnError(`cudnn: ${call} failed with error ${code}: ${cText(text).slice(0, 300)}`, code);
  }

  create(kind: keyof typeof kinds): number {
    const made = result64("cudnnBackendCreateDescriptor", (out) =>
      this.cudnn.cudnnBackendCreateDescriptor(kinds[kind], out),
    );
    this.#made.push(made);
    return made;
  }

  set(descriptor: number, name: keyof typeof names, type: AttributeType, values: readonly number[]): void {
    const [code, bytes] = attributes[type];
    const data = new DataView(new ArrayBuffer(Math.max(8, values.length * bytes)));
    values.forEach((value, i) => {
      if (bytes === 8) data.setBigInt64(8 * i, BigInt.asIntN(64, BigInt(value)), true);
      else if (bytes === 4) data.setInt32(4 * i, value, true);
      else data.setUint8(i, value);
    });
    const array = new Uint8Array(data.buffer);
    const status = this.cudnn.cudnnBackendSetAttribute(descriptor, names[name], code, values.length, array);
    this.check(`cudnnBackendSetAttribute(${name})`, status);
  }

  get(descriptor: number, name: keyof typeof names, type: AttributeType, into: BigInt64Array): number {
    const count = new BigInt64Array(1);
    const bytes = new Uint8Array(into.buffer);
    this.check(
      `cudnnBackendGetAttribute(${name})`,
      this.cudnn.cudnnBackendGetAttribute(descriptor, names[name], attributes[type][0], into.length, count, bytes),
    );
    return Number(count[0]);
  }

  /** Creates, fills and finalizes a descriptor. */
  make(
    kind: keyof typeof kinds,
    values: readonly (readonly [keyof typeof names, AttributeType, readonly number[]])[],
  ): number {
    const made = this.create(kind);
    for (const [name, type, list] of values) this.set(made, name, type, list);
    // Some engines are compiled by NVRTC.
    const status = withOwnSignals(() => this.cudnn.cudnnBackendFinalize(made));
    this.check(`cudnnBackendFinalize(${kind})`, status);
    return made;
  }

  /** Destroys all descriptors but the given ones. */
  destroy(except: readonly number[] = []): void {
    for (const made of this.#made) if (!except.includes(made)) this.cudnn.cudnnBackendDestroyDescriptor(made);
    this.#made.length = 0;
    this.#made.push(...except);
  }
}

/** A tensor of a graph. */
export interface CudnnTensor {
  readonly id: number;
  readonly descriptor: number;
  readonly dims: readonly number[];
  readonly strides: readonly number[];
  readonly type: CudnnType;
}

interface TensorOptions {
  dims: readonly number[];
  strides: readonly number[];
  type: CudnnType;
}

/** A number of a graph, passed by value when it runs. */
interface GraphScalar {
  id: number;
  value: number;
  type: "float" | "int32";
}

/** Builds one operation graph. */
export class CudnnGraph {
  readonly #own: Descriptors;
  readonly #operations: number[] = [];
  readonly #scalars: GraphScalar[] = [];
  #next = 1;

  constructor(
    readonly context: CudaContext,
    readonly handle: CudnnHandle,
  ) {
    this.#own = new Descriptors(handle.cudnn);
  }

  #tensor({ dims, strides, type }: TensorOptions, flag?: "tensorVirtual" | "tensorByValue"): CudnnTensor {
    const id = this.#next++;
    const descriptor = this.#own.make("tensor", [
      ["tensorType", "dataType", [cudnnTypes[type]]],
      ["tensorDimensions", "int64", dims],
      ["tensorStrides", "int64", strides],
      ["tensorId", "int64", [id]],
      ["tensorAlignment", "int64", [16]],
      ...(flag === undefined ? [] : [[flag, "bool", [1]] as const]),
    ]);
    return { id, descriptor, dims, strides, type };
  }

  /** A tensor in memory: an operand, a result, or scratch memory that the caller provides. */
  tensor(options: TensorOptions): CudnnTensor {
    return this.#tensor(options);
  }

  /** A tensor that exists only inside the kernel. */
  virtual(options: TensorOptions): CudnnTensor {
    return this.#tensor(options, "tensorVirtual");
  }

  scalar(value: number, type: "float" | "int32" = "float"): CudnnTensor {
    const ones = [1, 1, 1, 1];
    const made = this.#tensor({ dims: ones, strides: ones, type }, "tensorByValue");
    this.#scalars.push({ id: made.id, value, type });
    return made;
  }

  /** Applies a function to elements; the result is virtual and like the first operand unless it is given. */
  pointwise(
    mode: PointwiseMode,
    [x, b, t]: readonly CudnnTensor[],
    { out, type = "float", precision = "float", axis }: PointwiseOptions = {},
  ): CudnnTensor {
    const y = out ?? this.virtual({ dims: x.dims, strides: x.strides, type });
    const description = this.#own.make("pointwise", [
      ["pointwiseMode", "pointwiseMode", [pointwiseModes[mode]]],
      ["pointwisePrecision", "dataType", [cudnnTypes[precision]]],
      ...(axis === undefined ? [] : [["pointwiseAxis", "int64", [axis]] as const]),
    ]);
    this.#operations.push(
      this.#own.make("pointwiseOp", [
        ["pointwiseOp", "descriptor", [description]],
        ["pointwiseX", "descriptor", [x.descriptor]],
        ["pointwiseY", "descriptor", [y.descriptor]],
        ...(b === undefined ? [] : [["pointwiseB", "descriptor", [b.descriptor]] as const]),
        ...(t === undefined ? [] : [["pointwiseT", "descriptor", [t.descriptor]] as const]),
      ]),
    );
    return y;
  }

  /** Reduces the axes along which the result has size 1. */
  reduce(mode: keyof typeof reductionModes, x: CudnnTensor, y: CudnnTensor): CudnnTensor {
    const description = this.#own.make("reduction", [
      ["reductionOperator", "reductionMode", [reductionModes[mode]]],
      ["reductionPrecision", "dataType", [cudnnTypes.float]],
    ]);
    this.#operations.push(
      this.#own.make("reductionOp", [
        ["reductionX", "descriptor", [x.descriptor]],
        ["reductionY", "descriptor", [y.descriptor]],
        ["reductionOp", "descriptor", [description]],
      ]),
    );
    return y;
  }

  matmul(a: CudnnTensor, b: CudnnTensor, c: CudnnTensor): CudnnTensor {
    const description = this.#own.make("matmul", [["matmulPrecision", "dataType", [cudnnTypes.float]]]);
    this.#operations.push(
      this.#own.make("matmulOp", [
        ["matmulA", "descriptor", [a.descriptor]],
        ["matmulB", "descriptor", [b.descriptor]],
        ["matmulC", "descriptor", [c.descriptor]],
        ["matmulOp", "descriptor", [description]],
      ]),
    );
    return c;
  }

  /** The same elements with other dimensions and strides. */
  reshape(x: CudnnTensor, options: TensorOptions): CudnnTensor {
    const y = this.virtual(options);
    this.#operations.push(
      this.#own.make("reshapeOp", [
        ["reshapeX", "descriptor", [x.descriptor]],
        ["reshapeY", "descriptor", [y.descriptor]],
      ]),
    );
    return y;
  }

  /** The first engine of the heuristics that can run the graph. Throws CudnnError if there is none. */
  build(): CudnnPlan {
    const own = this.#own;
    const { cudnn, address } = this.handle;
    try {
      const graph = own.make("graph", [
        ["graphHandle", "handle", [address]],
        ["graphOps", "descriptor", this.#operations],
      ]);
      const heuristics = own.make("heuristics", [
        ["heuristicsGraph", "descriptor", [graph]],
        ["heuristicsMode", "heuristicMode", [heuristicsMode]],
      ]);
      const configs = BigInt64Array.from({ length: maxEngines }, () => BigInt(own.create("engineConfig")));
      const found = own.get(heuristics, "heuristicsResults", "descriptor", configs);
      let last: unknown = new CudnnError("cudnn: no engine supports the graph", -1);
      for (const config of configs.slice(0, Math.min(found, maxEngines))) {
        try {
          const plan = own.make("plan", [
            ["planHandle", "handle", [address]],
            ["planConfig", "descriptor", [Number(config)]],
          ]);
          const bytes = new BigInt64Array(1);
          own.get(plan, "planWorkspace", "int64", bytes);
          own.destroy([plan]);
          return new CudnnPlan(this.context, cudnn, address, plan, Number(bytes[0]), this.#scalars);
        } catch (error) {
          if (!(error instanceof CudnnError)) throw error;
          last = error;
        }
      }
      throw last;
    } catch (error) {
      own.destroy();
      throw error;
    }
  }
}

interface PointwiseOptions {
  out?: CudnnTensor;
  /** Type of a virtual result. */
  type?: CudnnType;
  precision?: CudnnType;
  /** Axis of `index`. */
  axis?: number;
}

/** An execution plan with the numbers that it reads from the host. */
class CudnnPlan {
  readonly #scalars: readonly [number, number][];

  constructor(
    readonly context: CudaContext,
    readonly cudnn: Dnn,
    readonly handle: number,
    readonly plan: number,
    readonly workspaceBytes: number,
    scalars: readonly GraphScalar[],
  ) {
    if (scalars.length > scalarSlots) throw new InternalError(`${scalars.length} scalars in a cuDNN graph`);
    const { address, view } = scalarBlock(context);
    this.#scalars = scalars.map(({ id, value, type }, i) => {
      const at = new DataView(view.buffer, view.byteOffset + 4 * i, 4);
      if (type === "float") at.setFloat32(0, value, true);
      else at.setInt32(0, value, true);
      return [id, address + 4 * i];
    });
  }

  /** Enqueues the plan; `places` are tensors of the graph with their addresses. */
  run(places: readonly (readonly [CudnnTensor, number])[], workspace: number): void {
    const own = new Descriptors(this.cudnn);
    const pack = own.create("variantPack");
    try {
      const all = [...places.map(([tensor, address]) => [tensor.id, address] as const), ...this.#scalars];
      own.set(
        pack,
        "packIds",
        "int64",
        all.map(([id]) => id),
      );
      own.set(
        pack,
        "packPointers",
        "pointer",
        all.map(([, address]) => address),
      );
      own.set(pack, "packWorkspace", "pointer", [workspace]);
      own.check("cudnnBackendFinalize(variantPack)", this.cudnn.cudnnBackendFinalize(pack));
      const status = this.cudnn.cudnnBackendExecute(this.handle, this.plan, pack);
      if (status !== 0) own.check("cudnnBackendExecute", status);
    } finally {
      own.destroy();
    }
  }
}

/** Numbers of a plan lie in host memory that is never freed; a graph has at most this many. */
const scalarSlots = 8;
const blocks = new WeakMap<CudaContext, { block: HostBlock; used: number }>();

function scalarBlock(context: CudaContext): HostBlock {
  const bytes = scalarSlots * 4;
  let known = blocks.get(context);
  if (known === undefined || known.used + bytes > known.block.view.byteLength) {
    known = { block: context.hostBlock(4096), used: 0 };
    blocks.set(context, known);
  }
  const { block, used } = known;
  known.used += bytes;
  return { ...block, address: block.address + used, view: block.view.subarray(used, used + bytes) };
}

/** A cuDNN handle on the stream of a context. */
interface CudnnHandle {
  cudnn: Dnn;
  address: number;
}

const handles = new WeakMap<CudaContext, CudnnHandle | null>();

/** The handle of a context, of which convolutions and attention share one; null without cuDNN. */
export function cudnnHandle(context: CudaContext): CudnnHandle | null {
  const cached = handles.get(context);
  if (cached !== undefined) return cached;
  const made = makeHandle(context);
  handles.set(context, made);
  return made;
}

function makeHandle(context: CudaContext): CudnnHandle | null {
  const { dnn } = context.libraries;
  if (dnn === null) return null;
  context.enter();
  const out = new BigUint64Array(1);
  if (dnn.cudnnCreate(out) !== 0) return null;
  const address = Number(out[0]);
  return dnn.cudnnSetStream(address, context.stream) === 0 ? { cudnn: dnn, address } : null;
}

/** The handle for operation graphs; null without cuDNN 9. */
export function cudnnOf(context: CudaContext): CudnnHandle | null {
  const isOld = (context.libraries.dnn?.cudnnGetVersion() ?? 0) < oldestVersion;
  return isOld ? null : cudnnHandle(context);
}
/** The backend of earlier versions has no attention for these graphs. */
const oldestVersion = 90000;
