// The reference device: plain TypeScript on typed arrays, slow and obviously right. The oracle for every other device,
// and what runs where there is no compiler.
import { freemem, totalmem } from "node:os";
import { opCost } from "../../cost/index.js";
import { functionOrder, type GraphFn, isOp, type Node, numel, storageView } from "../../graph/index.js";
import { evaluate, type Value } from "../../ops/index.js";
import {
  type Device,
  type DeviceBuffer,
  type DeviceMemory,
  type DeviceTraits,
  type Executable,
  hostTraits,
  OutOfMemoryError,
  type ProcessGroup,
} from "../contract.js";
import { Lifetime } from "../executable-lru.js";

class HostBuffer implements DeviceBuffer {
  constructor(readonly data: ArrayBuffer) {}
  get bytes(): number {
    return this.data.byteLength;
  }
}

const valueOf = (buffer: DeviceBuffer, node: Node): Value => ({
  shape: node.shape,
  dtype: node.dtype,
  data: storageView(node.dtype, (buffer as HostBuffer).data, 0, numel(node.shape)),
});

/** A device that interprets graphs in JavaScript: slow, and the oracle of the other devices. */
export class ReferenceDevice implements Device {
  readonly name: string = "reference";
  readonly traits: DeviceTraits = { ...hostTraits, hostMemory: false };
  group: ProcessGroup | null = null;
  #used = 0;
  #peak = 0;

  #track(buffer: HostBuffer): HostBuffer {
    this.#used += buffer.bytes;
    this.#peak = Math.max(this.#peak, this.#used);
    return buffer;
  }

  allocate(bytes: number): DeviceBuffer {
    try {
      return this.#track(new HostBuffer(new ArrayBuffer(bytes)));
    } catch {
      throw new OutOfMemoryError(`the reference device could not get ${bytes} bytes`, bytes);
    }
  }

  free(buffer: DeviceBuffer): void {
    this.#used -= buffer.bytes;
  }

  upload(buffer: DeviceBuffer, from: Uint8Array): void {
    new Uint8Array((buffer as HostBuffer).data).set(from);
  }

  download(buffer: DeviceBuffer, into: Uint8Array): void {
    into.set(new Uint8Array((buffer as HostBuffer).data, 0, into.byteLength));
  }

  resize(buffer: DeviceBuffer, bytes: number): DeviceBuffer {
    const resized = this.allocate(bytes) as HostBuffer;
    new Uint8Array(resized.data).set(new Uint8Array((buffer as HostBuffer).data, 0, Math.min(bytes, buffer.bytes)));
    return resized;
  }

  compile(fn: GraphFn): Executable {
    const kernels = functionOrder(fn)
      .filter((node) => !fn.params.includes(node) && !isOp(node, "const") && !isOp(node, "pick"))
      .map((node) => ({ name: node.op, kind: "kernel" as const, ...opCost(node) }));
    const lifetime = new Lifetime();
    const run = (inputs: readonly DeviceBuffer[]): DeviceBuffer[] => {
      lifetime.check();
      const args = inputs.map((buffer, i) => valueOf(buffer, fn.params[i]));
      return evaluate(fn, args, this.group).map(({ data }) => {
        // A result may be a view of an argument; the caller must get memory of its own.
        const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
        return this.#track(new HostBuffer(bytes.buffer));
      });
    };
    return { kernels, scratchBytes: 0, aliases: new Map(), run, release: () => lifetime.release() };
  }

  synchronize(): void {}

  memory(): DeviceMemory {
    return {
      usedBytes: this.#used,
      pooledBytes: 0,
      peakBytes: this.#peak,
      totalBytes: Math.min(totalmem(), freemem() + this.#used),
    };
  }

  trim(): void {}
}
