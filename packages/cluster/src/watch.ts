// Watches a dispatcher's status twice a second, without being a client.
import { type ClientSettings, decode, encode, protocolVersion, type ToClient, toClient } from "./protocol.js";
import { hostId, openStream, parseAddress, type Security, securityFrom } from "./wire.js";

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
  const security = securityFrom(options);
  const channel = openStream(host, port, "Client", security, false);
  const { stream } = channel;
  let over = false;
  const end = (reason: string): void => {
    if (over) return;
    over = true;
    channel.close();
    onEnd(reason);
  };
  stream.on("data", (bytes: Buffer) => {
    const message = decode(toClient, bytes);
    if (message.t === "status") onStatus(message);
    else if (message.t === "refused") end(`the dispatcher at ${address} refused: ${message.message}`);
  });
  stream.on("error", () => end(`no dispatcher is listening at ${address}; start a dispatcher: weft server -p ${port}`));
  stream.on("end", () => end(`the dispatcher at ${address} closed the connection`));
  const settings: ClientSettings = {};
  const process_ = { host: hostId(), pid: process.pid, memory: null };
  stream.write(
    encode({
      t: "hello",
      version: protocolVersion,
      token: security.token ?? null,
      role: "watcher",
      label: null,
      process: process_,
      settings,
    }),
  );
  return () => {
    over = true;
    stream.cancel();
    channel.close();
  };
}
