// The control plane: calls per second that a dispatcher forwards from many clients, the time in which many workers and clients
// join, and the round trip of a tiny operation. Calls and joins use stand-ins that speak the real protocol and compute nothing;
// every call is counted where it arrives.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Dispatcher } from "@weft/cluster";
import { StandInClient, StandInWorker } from "@weft/cluster/internal/stand-ins";
import { median } from "@weft/formats/stats";
import { roundTripRow } from "./collectives.js";
import type { Context, Suite } from "./context.js";
import { entryPoint } from "./main-path.js";
import { runningChildren } from "./process.js";

const tokens = { token: "token of the clients here", workerToken: "token of the workers here" };

interface CallsRow {
  clients: number;
  workers: number;
  /** Calls per message: 1 where every call is a message of its own. */
  batch: number;
  calls: number;
  /** Calls per second from the first arrival to the last one, per round. */
  rates: number[];
  perSecond: number;
  /** Microseconds of the dispatcher's processor time per call. */
  dispatcherMicroseconds: number;
}

interface JoinRow {
  workers: number;
  clients: number;
  /** Seconds until every client knows every worker, per round. */
  samples: number[];
  seconds: number;
}

/** What the processes of this suite are given; each uses a part of it. */
interface Given {
  port: number;
  clients: number;
  workers: number;
  /** Calls of each client, and of all of them. */
  each: number;
  calls: number;
  batch: number;
}

/** A process of this suite; its answers are lines of JSON. */
class Helper {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(role: string, given: Partial<Given> = {}) {
    const line = [entryPoint, "serve", "control", "--role", role, "--given", JSON.stringify(given)];
    this.#child = spawn(process.execPath, line, { stdio: ["pipe", "pipe", "inherit"] });
    runningChildren.add(this.#child);
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  async answer<T>(): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error("a process of the benchmark ended");
    return JSON.parse(value) as T;
  }

  /** Sends the signal to go on. */
  goOn(): void {
    this.#child.stdin!.write("\n");
  }

  async end(): Promise<void> {
    runningChildren.delete(this.#child);
    const over = once(this.#child, "exit");
    if (this.#child.kill("SIGKILL")) await over;
  }
}

const print = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
const signal = (): Promise<unknown> => once(process.stdin, "data");

const roles: Record<string, (given: Given) => Promise<void>> = {
  /** Says how much processor time it has used, whenever it is asked. */
  async dispatcher() {
    // Stand-ins send no heartbeats.
    const { port } = await Dispatcher.start({ port: 0, stopTimeout: 3600, ...tokens });
    print({ port });
    for (;;) {
      await signal();
      const { user, system } = process.cpuUsage();
      print({ microseconds: user + system });
    }
  },
  /** Says when all calls of a round have arrived, and how long that took. */
  async workers({ port, workers, calls }) {
    let [count, begin] = [0, 0];
    const take = ({ t }: { t: string }): void => {
      if (t !== "run") return;
      if (count++ === 0) begin = performance.now();
      if (count < calls) return;
      print({ seconds: (performance.now() - begin) / 1e3 });
      count = 0;
    };
    for (let i = 0; i < workers; i++) await StandInWorker.join(port, tokens, take);
    print({});
  },
  /** Calls a program on one of the workers from each client, as fast as the dispatcher reads. */
  async clients({ port, clients, workers, each, batch }) {
    const all: StandInClient[] = [];
    for (let i = 0; i < clients; i++) {
      const client = await StandInClient.connect(port, tokens);
      await client.knows(workers);
      client.define(1, [[...client.workers][i % workers]]);
      all.push(client);
    }
    print({});
    const round = async (client: StandInClient, next: number): Promise<void> => {
      for (let k = 0; k < each; k++) {
        const id = next + k;
        const free = id > 2 ? [id - 2] : undefined;
        client.send({ t: "run", program: 1, inputs: [id - 1], outputs: [id], step: k, site: null, free });
        if ((k + 1) % batch > 0) continue;
        client.flush();
        await client.drained();
      }
      client.flush();
    };
    for (let next = 1; ; next += each) {
      await signal();
      await Promise.all(all.map((client) => round(client, next)));
    }
  },
};

/** A dispatcher in a process of its own, and what is done with it. */
async function withDispatcher<T>(
  work: (port: number, dispatcher: Helper, start: (role: string, given: Partial<Given>) => Helper) => Promise<T>,
): Promise<T> {
  const helpers = [new Helper("dispatcher")];
  try {
    const { port } = await helpers[0].answer<{ port: number }>();
    return await work(port, helpers[0], (role, given) => {
      helpers.push(new Helper(role, { port, ...given }));
      return helpers[helpers.length - 1];
    });
  } finally {
    for (const helper of helpers) await helper.end();
  }
}

function callsRow(context: Context, batch: number): Promise<CallsRow> {
  const [clients, workers] = context.quick ? [2, 2] : [context.number("clients"), 4];
  const each = context.quick ? 300 : Math.round(context.number("calls") / clients);
  const calls = clients * each;
  return withDispatcher(async (_, dispatcher, start) => {
    const standIns = start("workers", { workers, calls });
    await standIns.answer();
    const callers = start("clients", { clients, workers, each, batch });
    await callers.answer();
    const used = async (): Promise<number> => {
      dispatcher.goOn();
      return (await dispatcher.answer<{ microseconds: number }>()).microseconds;
    };
    const round = async (): Promise<number> => {
      callers.goOn();
      return calls / (await standIns.answer<{ seconds: number }>()).seconds;
    };
    // The first round compiles the dispatcher's code.
    await round();
    const before = await used();
    const rates: number[] = [];
    for (let i = 0; i < context.number("rounds"); i++) rates.push(await round());
    const dispatcherMicroseconds = ((await used()) - before) / calls / rates.length;
    return { clients, workers, batch, calls, rates, perSecond: median(rates), dispatcherMicroseconds };
  });
}

async function joinRow(context: Context, workers: number): Promise<JoinRow> {
  const clients = context.quick ? 2 : context.number("joining-clients");
  const samples: number[] = [];
  for (let i = 0; i < context.number("rounds"); i++)
    samples.push(
      await withDispatcher(async (port) => {
        const begin = performance.now();
        const joined = Promise.all(Array.from({ length: workers }, () => StandInWorker.join(port, tokens)));
        const known = Array.from({ length: clients }, async () => {
          const client = await StandInClient.connect(port, tokens);
          await client.knows(workers);
          return client;
        });
        const all = [...(await Promise.all(known)), ...(await joined)];
        const seconds = (performance.now() - begin) / 1e3;
        for (const one of all) one.close();
        return seconds;
      }),
    );
  return { workers, clients, samples, seconds: median(samples) };
}

const suite: Suite = {
  defaults: { rounds: "3" },
  options: {
    clients: { value: "16", help: "clients that call" },
    calls: { value: "100000", help: "calls per round" },
    batches: { value: "1,16", help: "calls per message" },
    joining: { value: "64,128,256", help: "workers that join" },
    "joining-clients": { value: "64", help: "clients that join with them" },
    workers: { value: "1", help: "workers of the round trip" },
    requests: { value: "2000", help: "round trips per round" },
    role: { help: "serve: which process this is" },
    given: { help: "serve" },
  },
  async run(context) {
    const { record, save } = context.open("control", {
      calls: [] as CallsRow[],
      joins: [] as JoinRow[],
      roundtrip: [] as object[],
    });
    const rows = [
      {
        id: "round-trip",
        each: context.numbers("workers"),
        measure: async (n: number) => void record.roundtrip.push(await roundTripRow(context, n)),
      },
      {
        id: "calls",
        each: context.numbers("batches"),
        measure: async (n: number) => void record.calls.push(await callsRow(context, n)),
      },
      {
        id: "joins",
        each: context.quick ? [4] : context.numbers("joining"),
        measure: async (n: number) => void record.joins.push(await joinRow(context, n)),
      },
    ];
    for (const { id, each, measure } of context.choose(rows))
      for (const n of each) {
        context.log(`${id} ${n}`);
        await measure(n);
        save();
      }
    for (const { batch, perSecond, dispatcherMicroseconds } of record.calls)
      context.log(
        `${Math.round(perSecond)} calls/s, ${batch} per message; ${dispatcherMicroseconds.toFixed(1)} us of the dispatcher each`,
      );
    for (const { workers, clients, seconds } of record.joins)
      context.log(`${workers} workers and ${clients} clients joined in ${seconds.toFixed(2)} s`);
  },
  async serve(context) {
    const role = roles[context.text("role") ?? ""];
    if (role === undefined) throw new Error(`--role ${context.text("role")}: one of ${Object.keys(roles).join(", ")}`);
    await role(JSON.parse(context.text("given") ?? "{}") as Given);
    await new Promise(() => {});
  },
};

export default suite;
