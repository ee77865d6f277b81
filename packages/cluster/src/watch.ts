// Watches a dispatcher's status twice a second, without being a client.
import { WeftError } from "@weft/core/internal/graph";
import { decode, encode, type FromClient, type ToClient, toClient } from "./protocol.js";
import { type Security, securityFrom } from "./security.js";
import { type Channel, hostId, openStream, parseAddress } from "./wire.js";

/** Status of a dispatcher, its clients and its workers. */
export type ClusterStatus = Extract<ToClient, { t: "status" }>;

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
  const end = (reason: string): void => {
    if (over) return;
    over = true;
    channel?.close();
    onEnd(reason);
  };
  const nobody = `no dispatcher is listening at ${address}; start a dispatcher: weft server -p ${port}`;
  const begin = async (): Promise<void> => {
    channel = await openStream(host, port, "watcher", securityFrom(options, host, ["token"]), false);
    if (over) {
      channel.close();
      return;
    }
    const { stream } = channel;
    stream.on("data", (bytes: Buffer) => {
      try {
        const message = decode(toClient, bytes);
        if (message.t === "status") onStatus(message);
        else if (message.t === "refused") end(`the dispatcher at ${address} refused: ${message.message}`);
      } catch (error) {
        end(`the dispatcher at ${address} sent an invalid message: ${(error as Error).message}`);
      }
    });
    stream.on("error", () => end(nobody));
    stream.on("end", () => end(`the dispatcher at ${address} closed the connection`));
    const hello: FromClient = {
      t: "hello",
      label: null,
      process: { host: hostId(), pid: process.pid },
      settings: {},
    };
    stream.write(encode(hello));
  };
  begin().catch((error: Error) =>
    end(error instanceof WeftError ? `the dispatcher at ${address} refused: ${error.message}` : nobody),
  );
  return () => {
    over = true;
    channel?.stream.cancel();
    channel?.close();
  };
}
