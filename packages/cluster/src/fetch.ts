// Fetches a tensor of a cluster: each shard from a worker that has it, directly into one array. Composes the error if a
// shard is missing.
import { OutOfMemoryError } from "@weft/core/internal/device";
import { bytesOf, numel, WeftError } from "@weft/core/internal/graph";
import { denseStrides } from "./boxes.js";
import { type ClusterBuffer, withCallSite } from "./buffer.js";
import type { Connection } from "./connection.js";
import type { DataLink, Destination } from "./data-link.js";
import { ClusterError, LostTensorError } from "./errors.js";
import { readStaging } from "./upload.js";

export const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function newArray(bytes: number): Uint8Array {
  try {
    return new Uint8Array(bytes);
  } catch {
    throw new OutOfMemoryError(
      `this program has no memory for one array of the ${bytes} bytes of a result (before Node 22 it has at most 4 GiB); fetch parts of it (slice)`,
      bytes,
    );
  }
}

/** Fetches the bytes of a tensor into new memory, or into `wanted`. */
export async function fetchTensor(
  connection: Connection,
  it: ClusterBuffer,
  wanted?: Uint8Array,
): Promise<ArrayBuffer> {
  if (it.staging !== null && it.location === null) {
    const bytes = readStaging(it.staging, it.bytes);
    wanted?.set(bytes);
    return (wanted ?? bytes).buffer as ArrayBuffer;
  }
  if (it.failure !== null || it.location === null)
    throw new WeftError(withCallSite(it.failure ?? connection.lost ?? "this tensor was never computed", it.site));
  const { placement, members } = it.location;
  const into = wanted ?? newArray(it.bytes);
  const shape = it.shape!;
  const element = bytesOf(it.dtype!);
  const strides = denseStrides(shape, element);
  const seen = new Set<string>();
  const parts: Promise<void>[] = [];
  // Prefer live workers among the replicas of a shard.
  const isLost = (rank: number): number => Number(connection.isDead(members.get(rank)!));
  for (const rank of [...placement.mesh.ranks].sort((a, b) => isLost(a) - isLost(b))) {
    const { start, stop } = placement.box(rank, shape);
    const key = start.join();
    const sizes = stop.map((to, i) => to - start[i]);
    if (seen.has(key) || (numel(sizes) === 0 && numel(shape) > 0)) continue;
    seen.add(key);
    const offset = start.reduce((n, s, i) => n + s * strides[i], 0);
    parts.push(fetchPart(connection, it, members.get(rank)!, { into, offset, sizes, strides, element }));
  }
  await Promise.all(parts);
  return into.buffer as ArrayBuffer;
}

async function fetchPart(connection: Connection, it: ClusterBuffer, worker: string, to: Destination): Promise<void> {
  const { id } = it;
  let link: DataLink | null = null;
  try {
    const failure = connection.failures.get(id);
    if (failure !== undefined) throw new ClusterError(failure.message, failure.code);
    link = connection.link(worker);
    await link.fetch(id, to);
  } catch (error) {
    // A worker that aborted or disconnected does not know why: the dispatcher reports the cause shortly after.
    const vague = !(error instanceof ClusterError) || error.code === "aborted" || error.code === "lost";
    await delay(vague ? 300 : 50);
    const failure = connection.failures.get(id);
    const reason =
      connection.lost ??
      (failure !== undefined && failure.code !== "aborted" ? failure.message : null) ??
      connection.deathOf(worker) ??
      (error as Error).message;
    const isDead = connection.isDead(worker);
    const left = connection.workers.length;
    const advice = isDead
      ? `; its shards are lost: recompute them (${left} worker${left === 1 ? " is" : "s are"} left)`
      : "";
    const broken = isDead ? null : connection.brokenLink(worker);
    // The worker is there, and so is its shard: only the connection broke. Another one is opened where the broken one held for a while.
    const onlyBroke =
      link?.broken != null && !link.silent && failure === undefined && !isDead && connection.lost === null;
    if (onlyBroke && connection.link(worker).broken === null) return fetchPart(connection, it, worker, to);
    const because = broken === null || broken.reason === reason ? "" : ` (${broken.reason})`;
    const text = `${reason}${because}${advice}`;
    const ownFault = failure?.code === "error" || failure?.code === "memory";
    throw isDead || (!ownFault && (vague || failure !== undefined))
      ? new LostTensorError(text, isDead, broken?.silent ?? false)
      : new ClusterError(withCallSite(text, it.site), failure?.code ?? "error");
  }
}
