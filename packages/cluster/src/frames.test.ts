// What follows a first frame on the same connection may arrive together with it, and is not a frame.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { readFrames, writeFrame } from "./frames.js";

test("bytes that arrive together with the last frame that is read are left to whoever reads on", {
  timeout: 20_000,
}, async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = connect((server.address() as { port: number }).port, "127.0.0.1");
  const [socket] = (await once(server, "connection")) as [Socket];
  const following = Buffer.from("these are pieces of a link and no frame at all");
  const got = new Promise<Buffer>((resolve, reject) => {
    const stop = readFrames(socket, () => {
      socket.pause();
      const rest = stop();
      // As links do when their group has been joined already.
      socket.resume();
      resolve(rest);
    });
    socket.on("close", () => reject(new Error("the connection was closed")));
  });
  client.cork();
  writeFrame(client, { group: "g" });
  client.write(following);
  client.uncork();
  assert.deepEqual(await got, following);
  client.write("more");
  assert.equal(String((await once(socket, "data"))[0]), "more");
  client.destroy();
  server.close();
});
