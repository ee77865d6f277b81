// The local launcher: starts a dispatcher and workers as child processes, waits until they are ready, and stops them.
// They also end when this process ends.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { coreOrder } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import { randomKey } from "./identity.js";
import { clusterSettings } from "./settings.js";
import type { WorkerOptions } from "./worker.js";

/** Options for starting a local cluster. @inline */
export interface LaunchOptions {
  /** Number of workers. */
  devices: number;
  /** cpu (default), cuda (one GPU per worker), cuda:0 (all workers on one GPU), or reference. */
  device?: string;
  /** Cores per CPU worker; by default the machine's cores are divided evenly. */
  cores?: number;
  /** Pin each worker to its own cores. */
  pin?: boolean;
  /** Port of the dispatcher; a free one by default. */
  port?: number;
  /** Seconds for all processes to become ready. */
  timeout?: number;
  /** Variables of the processes, in addition to those of this one. */
  env?: Record<string, string>;
  /** Measure the workers for the planner: again (true), never (false), or once per machine (default). */
  calibrate?: boolean;
}

const entry = fileURLToPath(new URL("./main.js", import.meta.url));
const maxLines = 40;

/** A child process: its output is drained and its last lines are kept for error messages. */
class ChildServer {
  readonly child: ChildProcess;
  readonly lines: string[] = [];
  readonly ready: Promise<Record<string, unknown>>;

  constructor(
    readonly what: string,
    args: readonly string[],
    env: Record<string, string>,
    timeout: number,
  ) {
    this.child = spawn(process.execPath, [entry, ...args], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    const { stdin, stdout, stderr } = this.child;
    stdin?.on("error", () => {});
    // Neither the child nor its pipes keep this program alive.
    this.child.unref();
    for (const pipe of [stdin, stdout, stderr]) (pipe as { unref?(): void }).unref?.();
    stderr?.setEncoding("utf8").on("data", (text: string) => {
      if (Object.values(clusterSettings.debug).some((setting) => setting.get())) process.stderr.write(text);
      this.lines.push(...text.split("\n").filter((line) => line !== ""));
      if (this.lines.length > maxLines) this.lines.splice(0, this.lines.length - maxLines);
    });
    this.ready = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(this.#problem(`was not ready within ${timeout} s`)), timeout * 1e3);
      let out = "";
      stdout?.setEncoding("utf8").on("data", (text: string) => {
        out = (out + text).slice(-65536);
        const line = out.split("\n").find((l) => l.startsWith("{") && l.includes('"ready"'));
        if (line === undefined || !out.includes(`${line}\n`)) return;
        clearTimeout(late);
        resolve(JSON.parse(line) as Record<string, unknown>);
      });
      this.child.on("error", (error) => reject(this.#problem(error.message)));
      this.child.on("exit", (code, signal) => {
        clearTimeout(late);
        reject(this.#problem(`ended (${code ?? signal})`));
      });
    });
    this.ready.catch(() => {});
  }

  #problem(why: string): WeftError {
    const output = this.lines.length > 0 ? `; its last output:\n  ${this.lines.slice(-8).join("\n  ")}` : "";
    return new WeftError(`${this.what} ${why}${output}`);
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.ref();
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGTERM");
    const hard = setTimeout(() => this.child.kill("SIGKILL"), 2000);
    await ended;
    clearTimeout(hard);
  }
}

/** A dispatcher in a child process. */
export type DispatcherProcess = Pick<ChildServer, "ready" | "end">;

export const startDispatcher = (options: object, env: Record<string, string>, timeout: number): DispatcherProcess =>
  new ChildServer("the dispatcher", ["server", JSON.stringify(options)], env, timeout);

/** A dispatcher and workers in child processes of this process. */
export class LocalCluster {
  private constructor(
    /** Address of the dispatcher, HOST:PORT. */
    readonly address: string,
    /** Token of clients. */
    readonly token: string,
    /** Token of workers. */
    readonly workerToken: string,
    /** The process of the dispatcher. */
    readonly dispatcher: ChildServer,
    /** The processes of the workers. */
    readonly workers: ChildServer[],
  ) {}

  /** Starts a dispatcher and workers. */
  static async start(options: LaunchOptions): Promise<LocalCluster> {
    const { devices, device = "cpu", timeout = 60, env = {} } = options;
    if (!Number.isInteger(devices) || devices < 1)
      throw new WeftError(`connect: devices must be a count of 1 or more, not ${devices}`);
    // Random tokens: only this process's workers and client may use the port.
    const [token, workerToken] = [randomKey(), randomKey()];
    const secret = { ...env, WEFT_WORKER_TOKEN: workerToken };
    const started: ChildServer[] = [];
    try {
      const dispatcher = new ChildServer(
        "the dispatcher",
        ["server", JSON.stringify({ port: options.port ?? 0 })],
        { ...secret, WEFT_TOKEN: token },
        timeout,
      );
      started.push(dispatcher);
      const group = `calibrate-${randomKey().slice(0, 16)}`;
      const { port } = (await dispatcher.ready) as { port: number };
      const workers = Array.from({ length: devices }, (_, i) => {
        const place = workerPlacement(i, devices, device, options);
        const neighbors = { rank: i, count: devices, name: group };
        const worker: WorkerOptions = { host: "localhost", port, calibrate: options.calibrate, neighbors, ...place };
        return new ChildServer(`worker ${i}`, ["worker", JSON.stringify(worker)], secret, timeout);
      });
      started.push(...workers);
      await Promise.all(workers.map((worker) => worker.ready));
      return new LocalCluster(`localhost:${port}`, token, workerToken, dispatcher, workers);
    } catch (error) {
      await Promise.all(started.map((one) => one.end()));
      throw error;
    }
  }

  /** Ends all processes. */
  async stop(): Promise<void> {
    await Promise.all([...this.workers, this.dispatcher].map((one) => one.end()));
  }
}

function workerPlacement(
  i: number,
  devices: number,
  device: string,
  { cores, pin = false }: LaunchOptions,
): WorkerOptions {
  if (device === "cuda") return { device: `cuda:${i}` };
  if (device !== "cpu") return { device };
  const all = coreOrder();
  const each = cores ?? Math.max(1, Math.floor(all.length / devices));
  if (!pin || each * devices > all.length) return { device, cores: each };
  return { device, cores: all.slice(i * each, (i + 1) * each) };
}
