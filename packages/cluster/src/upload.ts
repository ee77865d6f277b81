// Uploads arrays to workers, through this process's shared memory or over a socket, and tracks which workers have read
// them. It knows placements and connections only.
import { arena, groupLibrary } from "@weft/core/internal/device";
import { bytesOf } from "@weft/core/internal/graph";
import { denseStrides, takePart } from "./boxes.js";
import type { ClusterBuffer, StagingBuffer } from "./buffer.js";
import type { Connection } from "./connection.js";
import { clusterSettings } from "./settings.js";

/** Copies bytes into a staging buffer that workers can read. */
export function stage(from: Uint8Array): StagingBuffer {
  const address = clusterSettings.data.get() === "socket" ? 0 : arena.allocate(from.byteLength);
  if (address !== 0 && from.byteLength > 0) groupLibrary().copyIn(address, from, from.byteLength);
  return { address, bytes: address === 0 ? from.slice() : null };
}

export function releaseStaging({ address }: StagingBuffer): void {
  if (address !== 0) arena.free(address);
}

export function readStaging({ address, bytes }: StagingBuffer, size: number): Uint8Array<ArrayBuffer> {
  const copy = new Uint8Array(size);
  if (bytes !== null) copy.set(bytes);
  else if (size > 0) groupLibrary().copyOut(copy, address, size);
  return copy;
}

export class Uploads {
  /** Uploads that workers have not confirmed: what sends a worker its shard over its socket, and what to do when all have confirmed. */
  readonly #waiting = new Map<number, { workers: Map<string, () => void>; done: () => void }>();

  constructor(readonly connection: Connection) {
    connection.onUploaded = (id, worker) => this.#arrived(id, worker);
    connection.onWorkerEnded = (worker) => {
      for (const id of [...this.#waiting.keys()]) this.#arrived(id, worker);
    };
    // A new connection carries what the broken one may have lost; the worker waits for it.
    connection.onLinkBroken = (worker) => {
      for (const { workers } of [...this.#waiting.values()]) workers.get(worker)?.();
    };
  }

  has(id: number): boolean {
    return this.#waiting.has(id);
  }

  /** Stops tracking an upload; its staging buffer is managed elsewhere from now on. */
  forget(id: number): void {
    this.#waiting.delete(id);
  }

  /** Sends every worker its shard of a tensor whose location was just set. */
  send(it: ClusterBuffer, staging: StagingBuffer, done: () => void): void {
    const { connection } = this;
    const { placement, members } = it.location!;
    const shape = it.shape!;
    const element = bytesOf(it.dtype!);
    const strides = denseStrides(shape, element);
    const base = Number(groupLibrary().arenaBase());
    const parts = placement.mesh.ranks.map((rank) => {
      const worker = members.get(rank)!;
      const { start, stop } = placement.box(rank, shape);
      const sizes = stop.map((to, i) => to - start[i]);
      const at = start.reduce((n, s, i) => n + s * strides[i], 0);
      const shared = staging.address !== 0 && connection.link(worker).shares;
      return { worker, offset: shared ? staging.address - base + at : null, sizes, strides, element, at };
    });
    const sendings = parts.map(({ worker, offset, sizes, at }): [string, () => void] => [
      worker,
      () => {
        if (offset !== null) return;
        const whole = staging.bytes ?? readStaging(staging, it.bytes);
        void connection
          .link(worker)
          .upload(it.id, takePart(whole, { offset: at, sizes, strides, element }))
          .catch(() => {});
      },
    ]);
    // Empty tensors are not confirmed by workers.
    if (it.bytes === 0) done();
    else this.#waiting.set(it.id, { workers: new Map(sendings), done });
    connection.send({ t: "upload", id: it.id, bytes: it.bytes, parts: parts.map(({ at: _, ...part }) => part) });
    for (const [, send] of sendings) send();
  }

  #arrived(id: number, worker: string): void {
    const entry = this.#waiting.get(id);
    if (entry === undefined || !entry.workers.delete(worker) || entry.workers.size > 0) return;
    this.#waiting.delete(id);
    entry.done();
  }
}
