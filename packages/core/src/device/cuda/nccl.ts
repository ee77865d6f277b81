// Collectives between GPUs by NCCL, on device memory and in stream order. A host group exchanges the ids of NCCL's
// communicators, and runs barriers and the collectives that NCCL cannot do without packing (boxes with gaps in memory).
import {
  bareCollective,
  bytesOf,
  type DType,
  isComplex,
  numel,
  type ReduceFn,
  realOf,
  type Shape,
  stridesOf,
  type WeftError,
} from "../../graph/index.js";
import type { ProcessGroup } from "../contract.js";
import {
  bytesReceived,
  type CollectiveAttrs,
  countMoved,
  GroupError,
  membersOf,
  type TransferBox,
  transfers,
} from "../group/index.js";
import type { CudaContext } from "./context.js";
import { CudaError, type Nccl, ncclIdBytes } from "./driver.js";
import type { CudaDevice } from "./index.js";

const types: Partial<Record<DType, number>> = {
  int8: 0,
  uint8: 1,
  bool: 1,
  int32: 2,
  uint32: 3,
  int64: 4,
  uint64: 5,
  float16: 6,
  float32: 7,
  float64: 8,
  bfloat16: 9,
};
const ops: Partial<Record<ReduceFn, number>> = { sum: 0, prod: 1, max: 2, min: 3 };

const hints: Record<number, string> = {
  1: "a CUDA call inside NCCL failed; NCCL_DEBUG=WARN shows which",
  2: "a system call failed: another process is gone, or the network is",
  3: "an internal error; NCCL_DEBUG=WARN shows more",
  5: "NCCL was used wrongly: two ranks on one GPU, perhaps",
  6: "another process is gone, or the network is",
};

/** NCCL results that mean a lost peer: ncclSystemError and ncclRemoteError. */
const peerFailures: ReadonlySet<number> = new Set([2, 6]);

/** A box without gaps in a row-major tensor: where it begins and how long it is, in elements; null with gaps. */
export function contiguous(
  box: Pick<TransferBox, "start" | "size">,
  shape: Shape,
): { start: number; length: number } | null {
  const strides = stridesOf(shape);
  const length = numel(box.size);
  const start = box.start.reduce((n, s, i) => n + s * strides[i], 0);
  if (length === 0) return { start, length };
  // Outermost axis that is longer than one element: everything inside it must be whole.
  const first = box.size.findIndex((size) => size > 1);
  const whole = first < 0 || box.size.every((size, i) => i <= first || size === shape[i]);
  return whole ? { start, length } : null;
}

export class NcclGroup implements ProcessGroup {
  readonly kind = "nccl";
  readonly native = null;
  readonly rank: number;
  readonly size: number;
  readonly #communicators = new Map<string, number>();
  /** Collectives that went over NCCL, and those that went through the host. */
  direct = 0;
  staged = 0;

  constructor(
    readonly context: CudaContext,
    readonly host: ProcessGroup,
    readonly nccl: Nccl,
  ) {
    this.rank = host.rank;
    this.size = host.size;
  }

  #check(call: string, code: number): void {
    if (code === 0 || code === 7) return;
    const message = `nccl: ${call} failed with error ${code}${hints[code] === undefined ? "" : ` (${hints[code]})`}`;
    throw peerFailures.has(code) ? new GroupError(message, "peer-dead") : new CudaError(message, code);
  }

  /** The communicator of a list of ranks; all of them create it in the same collective. */
  #communicator(members: readonly number[]): number {
    const key = members.join(",");
    const cached = this.#communicators.get(key);
    if (cached !== undefined) return cached;
    const me = members.indexOf(this.rank);
    const id = new Uint8Array(ncclIdBytes);
    if (me === 0) this.#check("ncclGetUniqueId", this.nccl.ncclGetUniqueId(id));
    const all = new Uint8Array(ncclIdBytes * members.length);
    const shape = [ncclIdBytes * members.length];
    const sizes = members.map(() => ncclIdBytes);
    const own = { groups: [members], rank: this.rank, shape, sizes, dtype: "uint8" } as const;
    const gather: CollectiveAttrs = { ...bareCollective, kind: "allGather", ...own };
    if (members.length > 1) this.host.collective(gather, id, all, [ncclIdBytes]);
    else all.set(id);
    this.context.enter();
    const out = new BigUint64Array(1);
    const first = { bytes: all.slice(0, ncclIdBytes) };
    this.#check("ncclCommInitRank", this.nccl.ncclCommInitRank(out, members.length, first, me));
    const made = Number(out[0]);
    this.#communicators.set(key, made);
    return made;
  }

  /** A collective on device memory; false where only the host can do it. */
  onDevice(attrs: CollectiveAttrs, operand: Shape, from: number, to: number): boolean {
    const done = this.#onDevice(attrs, operand, from, to);
    if (done) {
      this.direct++;
      // The host group counts its own bytes.
      countMoved(bytesReceived(attrs, operand));
    } else this.staged++;
    return done;
  }

  #onDevice(attrs: CollectiveAttrs, operand: Shape, from: number, to: number): boolean {
    const { kind, fn, dtype, shape } = attrs;
    const complex = isComplex(dtype);
    const type = types[realOf(dtype)];
    const parts = complex ? 2 : 1;
    if (type === undefined) return false;
    const members = membersOf(attrs);
    const { nccl } = this;
    const { stream } = this.context;
    if (kind === "allReduce" || kind === "reduceScatter") {
      const op = ops[fn];
      if (op === undefined || (complex && fn !== "sum") || dtype === "bool") return false;
      if (kind === "allReduce") {
        const count = numel(shape) * parts;
        if (count === 0) return true;
        const code = nccl.ncclAllReduce(from, to, count, type, op, this.#communicator(members), stream);
        this.#check("ncclAllReduce", code);
        return true;
      }
      const even = attrs.sizes.every((size) => size === attrs.sizes[0]);
      if (!even || numel(operand.slice(0, attrs.axis)) !== 1) return false;
      const count = numel(shape) * parts;
      if (count === 0) return true;
      const code = nccl.ncclReduceScatter(from, to, count, type, op, this.#communicator(members), stream);
      this.#check("ncclReduceScatter", code);
      return true;
    }
    return this.#move(attrs, operand, { from, to }, type, parts);
  }

  /** Collectives that only move data: one group of sends and receives. */
  #move(
    attrs: CollectiveAttrs,
    operand: Shape,
    at: { from: number; to: number },
    type: number,
    parts: number,
  ): boolean {
    const { nccl } = this;
    const { stream, driver } = this.context;
    const members = membersOf(attrs);
    const { sends, receives } = transfers(attrs, operand);
    const out = sends.map((box) => contiguous(box, operand));
    const into = receives.map((box) => contiguous(box, attrs.shape));
    // Members must agree on the way: for a gather they all see the same boxes, for the others each sees its own.
    const agreed = attrs.kind === "allGather" || (attrs.kind === "allToAll" && attrs.axis === attrs.splitAxis);
    if (!agreed || out.includes(null) || into.includes(null)) return false;
    const element = bytesOf(attrs.dtype);
    const comm = this.#communicator(members);
    const me = members.indexOf(this.rank);
    const covered = into.reduce((n, box) => n + box!.length, 0);
    if (covered < numel(attrs.shape))
      this.context.check("cuMemsetD8", driver.cuMemsetD8Async(at.to, 0, numel(attrs.shape) * element, stream));
    this.#check("ncclGroupStart", nccl.ncclGroupStart());
    out.forEach((box, i) => {
      const { member } = sends[i];
      if (box!.length === 0 || member === me) return;
      const code = nccl.ncclSend(at.from + box!.start * element, box!.length * parts, type, member, comm, stream);
      this.#check("ncclSend", code);
    });
    into.forEach((box, i) => {
      const { member } = receives[i];
      if (box!.length === 0 || member === me) return;
      const code = nccl.ncclRecv(at.to + box!.start * element, box!.length * parts, type, member, comm, stream);
      this.#check("ncclRecv", code);
    });
    this.#check("ncclGroupEnd", nccl.ncclGroupEnd());
    this.#own(sends, receives, out, into, me, (to, from, length) =>
      this.context.check(
        "cuMemcpyDtoD",
        driver.cuMemcpyDtoDAsync_v2(at.to + to * element, at.from + from * element, length * element, stream),
      ),
    );
    return true;
  }

  /** Copies the part that a member sends to itself. */
  #own(
    sends: readonly TransferBox[],
    receives: readonly TransferBox[],
    out: readonly ({ start: number; length: number } | null)[],
    into: readonly ({ start: number; length: number } | null)[],
    me: number,
    copy: (to: number, from: number, length: number) => void,
  ): void {
    const mine = into.filter((_, i) => receives[i].member === me);
    out
      .filter((_, i) => sends[i].member === me)
      .forEach((box, i) => {
        if (box!.length > 0) copy(mine[i]!.start, box!.start, box!.length);
      });
  }

  failure(code: number): WeftError {
    return this.host.failure(code);
  }

  collective(attrs: CollectiveAttrs, input: Uint8Array, output: Uint8Array, operand: Shape): void {
    this.host.collective(attrs, input, output, operand);
  }

  barrier(): void {
    this.context.synchronize();
    this.host.barrier();
  }

  close(): void {
    for (const comm of this.#communicators.values()) {
      if (this.context.lost === null) this.nccl.ncclCommDestroy(comm);
      else this.nccl.ncclCommAbort(comm);
    }
    this.#communicators.clear();
    this.host.close();
  }
}

/** A group whose GPUs talk to each other directly; null without NCCL (the host group is used then). */
export function ncclGroup(device: CudaDevice, host: ProcessGroup): NcclGroup | null {
  const { nccl } = device.context.libraries;
  return nccl === null ? null : new NcclGroup(device.context, host, nccl);
}
