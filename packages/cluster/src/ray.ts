// Processes of Weft on a Ray cluster: Ray places, starts and restarts them as actors of a placement group; Weft computes.
// A Python program of this package talks to Ray (assets/weft_ray.py).
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { WeftError } from "@weft/core/internal/graph";
import { z } from "zod";
import { randomKey } from "./identity.js";
import { type DispatcherProcess, startDispatcher } from "./launch.js";
import { printable } from "./printable.js";
import { isLoopback } from "./security.js";
import { clusterSettings } from "./settings.js";

/** What Ray reserves for each process. @inline */
export interface RayOptions {
  /** "auto" for the cluster of this machine, or its address. */
  ray: string;
  /** Number of processes. */
  devices: number;
  /** Cores and GPUs of each process. */
  cores?: number;
  /** GPUs of each worker. */
  gpus?: number;
  /** How Ray distributes them over nodes: PACK by default. */
  strategy?: "PACK" | "SPREAD" | "STRICT_PACK" | "STRICT_SPREAD";
  /** Seconds for Ray to find room. */
  timeout?: number;
}

interface Job {
  command: readonly string[];
  env: Record<string, string>;
  /** Further variables of each process. */
  each: readonly Record<string, string>[];
  /** Whether Ray starts processes again that have ended. */
  restart: boolean;
}

const index = z.number().int().min(0);
const event = z.discriminatedUnion("t", [
  z.object({ t: z.literal("placed"), addresses: z.array(z.string()), own: z.string() }),
  z.object({ t: z.literal("started"), process: index, address: z.string(), pid: z.number() }),
  z.object({ t: z.literal("output"), process: index, text: z.string() }),
  z.object({ t: z.literal("ended"), process: index, code: z.number() }),
  z.object({ t: z.literal("lost"), process: index, message: z.string() }),
  z.object({ t: z.literal("failed"), message: z.string() }),
]);
/** What happened to the processes of a job on Ray. */
type RayEvent = z.infer<typeof event>;

const driver = fileURLToPath(new URL("../assets/weft_ray.py", import.meta.url));
const entry = fileURLToPath(new URL("./main.js", import.meta.url));
/** Files whose contents travel with the actors. */
const secrets = ["WEFT_TLS_CERT", "WEFT_TLS_KEY", "WEFT_TLS_CA"] as const;

/** The processes of one job on a Ray cluster. */
export class RayJob {
  readonly #child: ChildProcess;
  readonly #events: AsyncIterator<RayEvent>;
  /** The last lines that processes and Ray printed. */
  readonly lines: string[] = [];
  /** The node of each process. */
  addresses: string[] = [];
  /** Address of this host as the nodes see it. */
  own = "localhost";

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#events = this.#read();
    child.stdin?.on("error", () => {});
    child.stderr?.setEncoding("utf8").on("data", (text: string) => this.#keep(text));
  }

  /** Connects with the cluster and reserves room. */
  static async connect(options: RayOptions, restart: boolean): Promise<RayJob> {
    const { ray, devices, cores = 1, gpus = 0, strategy = "PACK", timeout = 60 } = options;
    if (!Number.isInteger(devices) || devices < 1)
      throw new WeftError(`ray: devices must be a count of 1 or more, not ${devices}`);
    const python = clusterSettings.python.get() ?? "python3";
    const child = spawn(python, [driver], { stdio: ["pipe", "pipe", "pipe"] });
    const job = new RayJob(child);
    const failed = new Promise<never>((_, reject) =>
      child.once("error", (error) =>
        reject(
          new WeftError(`${python} cannot be started: ${error.message}; set WEFT_RAY_PYTHON to a Python with ray`),
        ),
      ),
    );
    job.#send({ address: ray, processes: devices, cpus: cores, gpus, strategy, timeout, restart });
    const first = await Promise.race([job.next(), failed]);
    if (first?.t !== "placed") throw job.problem(first);
    [job.addresses, job.own] = [first.addresses, first.own];
    return job;
  }

  /** Whether all processes are on this machine: nothing needs to be encrypted then. */
  get isLocal(): boolean {
    return this.addresses.every((address) => address === this.own || isLoopback(address));
  }

  /** Starts the processes. */
  start({ command, env, each }: Omit<Job, "restart">): void {
    const files = this.isLocal ? {} : certificatesToCarry();
    this.#send({ command, env, each, files, folder: process.cwd() });
  }

  /** The next event; undefined when the job is over. */
  async next(): Promise<RayEvent | undefined> {
    const { value, done } = await this.#events.next();
    return done ? undefined : value;
  }

  #send(message: object): void {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  #keep(text: string): void {
    this.lines.push(...text.split("\n").filter((line) => line !== ""));
    if (this.lines.length > 40) this.lines.splice(0, this.lines.length - 40);
  }

  async *#read(): AsyncGenerator<RayEvent> {
    for await (const line of createInterface(this.#child.stdout!)) {
      const parsed = event.safeParse(tryJson(line));
      if (!parsed.success) continue;
      if (parsed.data.t === "output") this.#keep(printable(parsed.data.text));
      yield parsed.data;
    }
  }

  /** The error for an event that ended the job too early. */
  problem(last: RayEvent | undefined): WeftError {
    const why = last?.t === "failed" ? last.message : "Ray did not answer";
    const output = this.lines.length > 0 ? `; last output:\n  ${this.lines.slice(-5).join("\n  ")}` : "";
    return new WeftError(printable(`${why}${output}`));
  }

  /** Waits until a process said that it is ready, `count` times; other events are passed over. */
  async ready(count: number): Promise<void> {
    const seen = new Set<number>();
    while (seen.size < count) {
      const next = await this.next();
      if (next === undefined || next.t === "failed") throw this.problem(next);
      if (next.t === "output" && next.text.includes('"ready"')) seen.add(next.process);
    }
  }

  /** Reads events without using them, so that the driver can go on. */
  drain(): void {
    void (async () => {
      while ((await this.next()) !== undefined);
    })();
    // Neither the driver nor its pipes keep this program alive.
    this.#child.unref();
    for (const pipe of this.#child.stdio) (pipe as { unref?(): void } | null)?.unref?.();
  }

  /** Ends all processes and gives their room back to Ray. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.stdin?.end();
    const hard = setTimeout(() => this.#child.kill("SIGKILL"), 15_000);
    await ended;
    clearTimeout(hard);
  }
}

function tryJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

function certificatesToCarry(): Record<string, string> {
  const paths = { WEFT_TLS_CERT: "tlsCert", WEFT_TLS_KEY: "tlsKey", WEFT_TLS_CA: "tlsCa" } as const;
  return Object.fromEntries(
    secrets.map((name) => {
      const path = clusterSettings[paths[name]].get();
      if (path === undefined || !existsSync(path))
        throw new WeftError(
          `the Ray cluster has several hosts: set ${secrets.join(", ")} to certificates for their addresses`,
        );
      return [name, readFileSync(path, "utf8")];
    }),
  );
}

/** A dispatcher here, and workers as actors of a Ray cluster. Ray replaces workers that end. */
export class RayCluster {
  private constructor(
    readonly address: string,
    readonly token: string,
    readonly job: RayJob,
    readonly dispatcher: DispatcherProcess,
  ) {}

  static async start(options: RayOptions & { device?: string }): Promise<RayCluster> {
    const { devices, cores = 1, device = "cpu", timeout = 60 } = options;
    const job = await RayJob.connect(options, true);
    const [token, workerToken] = [randomKey(), randomKey()];
    const host = job.isLocal ? "localhost" : job.own;
    let dispatcher: DispatcherProcess | null = null;
    try {
      const secret = { WEFT_WORKER_TOKEN: workerToken };
      dispatcher = startDispatcher({ host, port: 0 }, { ...secret, WEFT_TOKEN: token }, timeout);
      const { port } = (await dispatcher.ready) as { port: number };
      const worker = { host, port, device, cores, ...(!job.isLocal && { dataHost: "{node}" }) };
      job.start({
        command: [process.execPath, entry, "worker", JSON.stringify(worker)],
        env: secret,
        each: Array.from({ length: devices }, () => ({})),
      });
      await job.ready(devices);
      job.drain();
      return new RayCluster(`${host}:${port}`, token, job, dispatcher);
    } catch (error) {
      await job.stop();
      await dispatcher?.end();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.job.stop();
    await this.dispatcher.end();
  }
}
