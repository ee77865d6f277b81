// Reading a tensor of a cluster: every part from a worker that has it, straight into its place in one array; and the error
// that says why a part did not come. Knows connections and placements, not how tensors are made.
import { OutOfMemoryError } from "@weft/core/internal/device";
import { bytesOf, numel, WeftError } from "@weft/core/internal/graph";
import { denseStrides } from "./boxes.js";
import { type ClusterBuffer, withCallSite } from "./buffer.js";
import type { Connection } from "./connection.js";
import { type Destination, FetchError } from "./data-link.js";
import { readStaging } from "./upload.js";

/** What was lost with a worker, and may be made again. */
export class LostTensorError extends WeftError {
  constructor(
    message: string,
    /** Whether the dispatcher had said by then which worker is gone. */
    readonly reported: boolean,
  ) {
    super(message);
  }
}

export const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function newArray(bytes: number): Uint8Array {
  try {
    return new Uint8Array(bytes);
  } catch {
    throw new OutOfMemoryError(
      `this program has no memory for the ${bytes} bytes of a result; fetch parts of it`,
      bytes,
    );
  }
}

/** The bytes of a tensor in new memory, or `into` the caller's. */
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
  // Of several that have a part, one that is still there.
  const isLost = (rank: number): number => Number(connection.deadWorkers.has(members.get(rank)!));
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
  try {
    const known = connection.failures.get(id);
    if (known !== undefined) throw new FetchError(known.message, known.cause);
    await connection.link(worker).fetch(id, to);
  } catch (error) {
    // Who gave up, or just went away, does not say why: the dispatcher does, a delay later.
    const vague = !(error instanceof FetchError) || error.cause_ === "aborted" || error.cause_ === "lost";
    await delay(vague ? 300 : 50);
    const known = connection.failures.get(id);
    const reason =
      connection.lost ??
      (known !== undefined && known.cause !== "aborted" ? known.message : null) ??
      connection.deadWorkers.get(worker) ??
      (error as Error).message;
    const gone = connection.deadWorkers.has(worker);
    const left = connection.workers.length;
    const advice = gone
      ? `; its parts of tensors are gone: make them again (${left} worker${left === 1 ? " is" : "s are"} left)`
      : "";
    const text = withCallSite(`${reason}${advice}`, it.site);
    const ownFault = known?.cause === "error" || known?.cause === "memory";
    throw gone || (!ownFault && (vague || known !== undefined)) ? new LostTensorError(text, gone) : new WeftError(text);
  }
}
