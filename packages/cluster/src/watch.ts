// Watches a dispatcher's status twice a second, without being a client.
import { WeftError } from "@weft/core/internal/graph";
import { decode, encode, type FromClient, type ToClient, toClient } from "./protocol.js";
import { type Security, securityFrom } from "./security.js";
import { type Channel, hostId, isSilence, openStream, parseAddress, unreachable } from "./wire.js";

/** Status of a dispatcher, its clients and its workers. */
export type ClusterStatus = Extract<ToClient, { t: "status" }>;

/** Seconds without a status after which a dispatcher is given up; it sends one twice a second. */
const maxSilence = 10;

/** Calls back with every status. Returns a function that stops watching. */
export function watch(
  address: string,
  options: Security,
  onStatus: (status: ClusterStatus) => void,
  onEnd: (reason: string) => void,
): () => void {
  const { host, port } = parseAddress(address);
  let over = false;
  let channel: Channel | null = null;
  const silence = `no answer from ${address} for ${maxSilence} s; is that a weft dispatcher?`;
  const silent = setTimeout(() => end(silence), maxSilence * 1e3);
  let seen = false;
  const end = (reason: string): void => {
    clearTimeout(silent);
    if (over) return;
    over = true;
    channel?.close();
    onEnd(reason);
  };
  const begin = async (): Promise<void> => {
    channel = await openStream(host, port, "watcher", securityFrom(options, host, ["token"]), false, maxSilence);
    if (over) {
      channel.close();
      return;
    }
    const { stream } = channel;
    stream.on("data", (bytes: Buffer) => {
      try {
        const message = decode(toClient, bytes);
        if (over) return;
        silent.refresh();
        if (message.t === "status") {
          seen = true;
          onStatus(message);
        }
        if (message.t === "refused") end(`the dispatcher at ${address} refused: ${message.message}`);
      } catch (error) {
        end(`the dispatcher at ${address} sent an invalid message: ${(error as Error).message}`);
      }
    });
    stream.on("error", (error) =>
      end(seen ? `the connection to the dispatcher at ${address} was lost` : unreachable(host, port, error)),
    );
    stream.on("end", () => end(`the dispatcher at ${address} closed the connection`));
    const hello: FromClient = { t: "hello", label: null, process: { host: hostId(), pid: process.pid }, settings: {} };
    stream.write(encode(hello));
  };
  begin().catch((error: Error) =>
    end(
      error instanceof WeftError
        ? `the dispatcher at ${address} refused: ${error.message}`
        : isSilence(error)
          ? silence
          : unreachable(host, port, error),
    ),
  );
  return () => {
    over = true;
    clearTimeout(silent);
    channel?.stream.cancel();
    channel?.close();
  };
}
