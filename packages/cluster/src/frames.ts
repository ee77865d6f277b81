// Frames of the data plane: a small JSON header and raw bytes, on a plain or TLS socket between a client and a worker.
import type { Socket } from "node:net";
import { WeftError } from "@weft/core/internal/graph";

export interface DataPlaneFrame {
  header: Record<string, unknown>;
  bytes: Buffer;
}

const maxHeader = 1 << 20;
/** Larger payloads are split into several frames. */
export const framePayload = 4 << 20;
const maxFrame = framePayload + maxHeader + 8;

export function writeFrame(socket: Socket, header: object, bytes: Uint8Array | null = null): boolean {
  const text = Buffer.from(JSON.stringify(header));
  const head = Buffer.allocUnsafe(8 + text.length);
  head.writeUInt32LE(8 + text.length + (bytes?.byteLength ?? 0), 0);
  head.writeUInt32LE(text.length, 4);
  text.copy(head, 8);
  if (bytes === null || bytes.byteLength === 0) return socket.write(head);
  socket.cork();
  socket.write(head);
  const more = socket.write(bytes);
  socket.uncork();
  return more;
}

/** Lists of records, each short enough for one header; a record that is too long for any is left out. */
export function* inHeaders(records: readonly object[]): Generator<object[]> {
  let list: object[] = [];
  let room = maxHeader / 2;
  for (const record of records) {
    const length = Buffer.byteLength(JSON.stringify(record));
    if (length > maxHeader / 2) continue;
    if (length > room) {
      yield list;
      list = [];
      room = maxHeader / 2;
    }
    list.push(record);
    room -= length + 1;
  }
  if (list.length > 0) yield list;
}

/** Resolves when more can be written, or the connection has closed. */
export const drained = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      socket.off("drain", done);
      socket.off("close", done);
      resolve();
    };
    socket.on("drain", done);
    socket.on("close", done);
    if (socket.destroyed) done();
  });

/**
 * Splits incoming bytes into frames. An invalid frame closes the connection. `limit` gives the maximum size of the next
 * frame while there is a lower one than usual; frames are held back while the socket is paused. The result ends the
 * reading, and gives the bytes that were not read.
 */
export function readFrames(
  socket: Socket,
  onFrame: (frame: DataPlaneFrame) => void,
  limit: () => number | null = () => null,
): () => Buffer {
  let pending: Buffer[] = [];
  let have = 0;
  const take = (): Buffer => {
    const all = pending.length === 1 ? pending[0] : Buffer.concat(pending, have);
    pending = [all];
    return all;
  };
  let need = 8;
  const read = (chunk: Buffer | null): void => {
    if (chunk !== null) {
      pending.push(chunk);
      have += chunk.length;
    }
    try {
      while (have >= need && !socket.isPaused()) {
        let all = take();
        const total = all.readUInt32LE(0);
        const headerBytes = all.readUInt32LE(4);
        if (total > (limit() ?? maxFrame) || headerBytes > maxHeader || headerBytes + 8 > total)
          throw new WeftError("this is not Weft's data protocol");
        need = total;
        if (have < total) return;
        const header = JSON.parse(all.toString("utf8", 8, 8 + headerBytes)) as DataPlaneFrame["header"];
        if (typeof header !== "object" || header === null) throw new WeftError("this is not Weft's data protocol");
        const bytes = all.subarray(8 + headerBytes, total);
        all = all.subarray(total);
        pending = all.length > 0 ? [all] : [];
        have = all.length;
        need = 8;
        onFrame({ header, bytes });
      }
    } catch {
      socket.destroy();
    }
  };
  const resumed = (): void => read(null);
  socket.on("data", read);
  socket.on("resume", resumed);
  return () => {
    socket.off("data", read);
    socket.off("resume", resumed);
    const rest = take();
    // What follows is not for this reader, which may be in the middle of a frame.
    have = 0;
    return rest;
  };
}
