// The rendezvous of ranks on several hosts that no MPI job joins: rank 0 listens at an address that all know, the others
// tell it where they are, and everybody learns where everybody is. Both sides prove that they know the workers' token;
// beyond loopback they present certificates too.
import { createHmac } from "node:crypto";
import { connect, createServer, type Server, type Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { LinkGroup, type ProcessGroup, ShmGroup } from "@weft/core/internal/device";
import { limits, WeftError } from "@weft/core/internal/graph";
import { settings } from "@weft/core/internal/settings";
import { z } from "zod";
import { BackgroundThread } from "./background.js";
import type { RankEnvironment } from "./environment.js";
import { readFrames, writeFrame } from "./frames.js";
import { randomKey, sameSecret } from "./identity.js";
import { addressOf, certificates, checkTokens, isLoopback, type Security, securityFrom } from "./security.js";
import { boundSilence } from "./silence.js";
import { Strangers } from "./strangers.js";
import { hostId, parseAddress } from "./wire.js";

interface RendezvousOptions {
  /** host:port of rank 0. */
  at: string;
  /** Seconds to wait for all ranks. */
  joinTimeout: number;
  security?: Security;
}

const maxHello = 4096;
const retryMs = 200;

const text = z.string().max(limits.name);
const port = z.number().int().min(1).max(65535);
const member = z.object({ host: text, data: z.object({ host: text, port, tls: z.boolean() }) });
type Member = z.infer<typeof member>;
const hello = z.object({
  rank: z.number().int().min(0),
  size: z.number().int().min(1).max(256),
  name: text,
  nonce: text,
  member,
  proof: text,
});
const table = z.object({ members: z.array(member).max(256), key: text, proof: text });

type Place = Pick<RankEnvironment, "rank" | "size" | "name">;

const prove = (token: string | undefined, facts: unknown): string =>
  createHmac("sha256", token ?? "")
    .update(JSON.stringify(["rendezvous", facts]))
    .digest("hex");

/** Joins the ranks of a job through the rendezvous at rank 0: shared memory on one host, links between several. */
export async function joinRendezvous(place: Place, options: RendezvousOptions): Promise<ProcessGroup> {
  const { host, port: at } = parseAddress(options.at);
  const security = securityFrom(options.security ?? {}, host, ["worker-token"]);
  if (security.workerToken === undefined && !security.insecure)
    throw new WeftError(`the rendezvous ${options.at} needs a token: set WEFT_WORKER_TOKEN on all ranks`);
  checkTokens(security);
  const background = new BackgroundThread();
  try {
    const deadline = performance.now() + options.joinTimeout * 1e3;
    const meeting = { ...place, host, port: at, security, deadline, background };
    const { members, key } = place.rank === 0 ? await receive(meeting) : await announce(meeting);
    return join(place, members, key, { background, joinTimeout: Math.max(1, (deadline - performance.now()) / 1e3) });
  } catch (error) {
    background.end();
    throw error;
  }
}

interface Meeting extends Place {
  host: string;
  port: number;
  security: Security;
  deadline: number;
  background: BackgroundThread;
  /** Of this rank; an attempt that failed is repeated with it. */
  linkPort?: Promise<number>;
}

async function listenAt(address: string, meeting: Meeting): Promise<Member> {
  const { security, background } = meeting;
  meeting.linkPort ??= background.listen({ host: address, security });
  const linkPort = await meeting.linkPort;
  return { host: hostId(), data: { host: address, port: linkPort, tls: !isLoopback(address) } };
}

interface Gathered {
  members: Member[];
  key: string;
}

/** Rank 0: waits for the others and sends the table to all of them. */
async function receive(meeting: Meeting): Promise<Gathered> {
  const { host, port: at, size, security, deadline } = meeting;
  const found = new Map<number, { member: Member; socket: Socket | null; nonce: string }>();
  found.set(0, { member: await listenAt(host, meeting), socket: null, nonce: "" });
  let complete: () => void = () => {};
  const all = new Promise<void>((resolve) => {
    complete = resolve;
  });
  const open = (socket: Socket): void => {
    socket.on("error", () => {});
    boundSilence(socket);
    const nonce = randomKey();
    readFrames(
      socket,
      ({ header }) => {
        try {
          const given = hello.parse(header);
          const problem = refusal(given, nonce, meeting, found);
          if (problem !== null) {
            writeFrame(socket, { refused: problem });
            socket.end();
            return;
          }
          strangers.delete(socket);
          found.set(given.rank, { member: given.member, socket, nonce: given.nonce });
          socket.on("close", () => found.get(given.rank)?.socket === socket && found.delete(given.rank));
          if (found.size === size) complete();
        } catch {
          socket.destroy();
        }
      },
      () => maxHello,
    );
    writeFrame(socket, { nonce });
  };
  const server = await serve(host, at, security, open);
  const strangers = new Strangers(server);
  const timer = setTimeout(complete, deadline - performance.now());
  await all;
  clearTimeout(timer);
  const missing = Array.from({ length: size }, (_, rank) => rank).filter((rank) => !found.has(rank));
  if (missing.length > 0) {
    server.close();
    for (const { socket } of found.values()) socket?.destroy();
    throw new WeftError(
      `rank ${missing.slice(0, 8).join(", ")} of ${size} did not come to ${host}:${at} in time; is it running, and does it know the same WEFT_RENDEZVOUS, token and certificates?`,
    );
  }
  const members = Array.from({ length: size }, (_, rank) => found.get(rank)!.member);
  const key = randomKey();
  for (const { socket, nonce } of found.values()) {
    if (socket === null) continue;
    writeFrame(socket, { members, key, proof: prove(security.workerToken, ["table", nonce, members, key]) });
    socket.end();
  }
  server.close();
  return { members, key };
}

/** Why a rank is not admitted; null if it is. */
function refusal(
  given: z.infer<typeof hello>,
  nonce: string,
  { size, name, security }: Meeting,
  found: ReadonlyMap<number, unknown>,
): string | null {
  const { proof, ...facts } = given;
  if (!sameSecret(proof, prove(security.workerToken, ["hello", nonce, facts]))) return "the token is wrong";
  if (given.name !== name) return `this is job ${name}, not ${given.name}`;
  if (given.size !== size || given.rank >= size) return `there are ${size} ranks, not ${given.size}`;
  return found.has(given.rank) ? `rank ${given.rank} is here already` : null;
}

function serve(host: string, at: number, security: Security, open: (socket: Socket) => void): Promise<Server> {
  const tls = !isLoopback(host);
  const server = tls
    ? createTlsServer(
        {
          ...certificates(security, `listening on ${host} lets other machines in`),
          requestCert: true,
          rejectUnauthorized: true,
        },
        open,
      )
    : createServer(open);
  return new Promise((resolve, reject) => {
    server.once("error", (error) => reject(new WeftError(`rank 0 cannot listen on ${host}:${at}: ${error.message}`)));
    server.listen(at, addressOf(host), () => resolve(server));
  });
}

/** Another rank: reports to rank 0 where it is and waits for the table. Tries again until rank 0 listens. */
async function announce(meeting: Meeting): Promise<Gathered> {
  let last = "nobody listens there";
  while (performance.now() < meeting.deadline) {
    const answer = await ask(meeting);
    if (typeof answer !== "string") return answer;
    last = answer;
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
  throw new WeftError(
    `rank ${meeting.rank} did not meet the others at ${meeting.host}:${meeting.port} (WEFT_RENDEZVOUS): ${last}`,
  );
}

/** One attempt; a text says why it failed and may be tried again. */
function ask(meeting: Meeting): Promise<Gathered | string> {
  const { host, port: at, security, rank, size, name } = meeting;
  const address = addressOf(host);
  return new Promise((resolve, reject) => {
    const socket: Socket = isLoopback(host)
      ? connect(at, address)
      : connectTls({ host: address, port: at, ...certificates(security, `${host} is another machine`) });
    boundSilence(socket);
    const own = randomKey();
    const limit = setTimeout(() => socket.destroy(), Math.max(1, meeting.deadline - performance.now()));
    socket.on("error", (error) => resolve(error.message));
    socket.on("close", () => {
      clearTimeout(limit);
      resolve("the connection was closed");
    });
    readFrames(socket, ({ header }) => {
      const fail = (message: string): void => {
        socket.destroy();
        reject(new WeftError(`the rendezvous at ${host}:${at} ${message}`));
      };
      if (typeof header.nonce === "string") {
        const { nonce } = header;
        listenAt(socket.localAddress?.replace(/^::ffff:/, "") ?? host, meeting).then(
          (here) => {
            const facts = { rank, size, name, nonce: own, member: here };
            writeFrame(socket, { ...facts, proof: prove(security.workerToken, ["hello", nonce, facts]) });
          },
          (error: Error) => fail(`was met, but this rank cannot listen: ${error.message}`),
        );
      } else if (typeof header.refused === "string") fail(`refused this rank: ${header.refused.slice(0, 200)}`);
      else {
        const got = table.safeParse(header);
        const { members, key, proof } = got.data ?? { members: [], key: "", proof: "" };
        if (!got.success || !sameSecret(proof, prove(security.workerToken, ["table", own, members, key])))
          fail("does not know the token");
        else if (members.length !== size) fail(`knows ${members.length} ranks, not ${size}`);
        else resolve({ members, key });
        socket.end();
      }
    });
  });
}

function join(
  { rank, size }: Place,
  members: readonly Member[],
  key: string,
  { background, joinTimeout }: { background: BackgroundThread; joinTimeout: number },
): ProcessGroup {
  const hosts = members.map(({ host }) => host);
  const name = `job-${key.slice(0, 16)}`;
  const own = { joinTimeout, timeout: settings.groupTimeout.get(), threads: settings.threads.get() ?? 1 };
  if (new Set(hosts).size === 1) {
    background.end();
    return ShmGroup.join(name, rank, size, own);
  }
  const sockets = background.join({ name, key, rank, members: members.map(({ data }) => data) });
  return LinkGroup.join({ name, rank, hosts, sockets, ...own, drain: true });
}
