// Compilations of a worker. They run beside its other work, so that a program that takes long to compile delays its own client
// only, and end when nobody waits for them any more or their time is over.
import {
  type CachedExecutable,
  type Device,
  type Executable,
  type ExecutableHandle,
  ExecutableLru,
} from "@weft/core/internal/device";
import { type GraphFn, structuralKey, WeftError } from "@weft/core/internal/graph";
import { inlineCustom } from "@weft/core/internal/transform";
import { decodeConstants } from "./constants.js";
import type { ConstantArguments } from "./protocol.js";

type Handle = ExecutableHandle<CachedExecutable>;

/** What is compiled, and for whom. */
interface Compilation {
  client: number;
  fn: GraphFn;
  donated: readonly boolean[];
  constants: ConstantArguments;
  /** Seconds that it may take; no limit if undefined. */
  seconds: number | undefined;
}

interface Underway {
  clients: Set<number>;
  stop: AbortController;
  done: Promise<Executable>;
}

/** Compilers that run at once; more of them would use up cores and memory that programs need. */
const most = 2;

export class Compilations {
  readonly #cache: ExecutableLru<CachedExecutable>;
  readonly #underway = new Map<string, Underway>();
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  /** @param limit Compiled functions that stay loaded without a program that uses them. */
  constructor(
    readonly device: Device,
    limit: number,
  ) {
    this.#cache = new ExecutableLru(limit);
  }

  #key({ fn, donated, constants }: Compilation): string {
    const given = constants.map(({ param, data }) => `${param}:${data}`).join();
    return `${structuralKey(fn)}/${donated.map(Number).join("")}/${given}`;
  }

  #simple(fn: GraphFn): GraphFn {
    return inlineCustom(fn, (node) => this.device.supportsCustomKernel?.(node) ?? false);
  }

  /** A program that needs no compilation, or whose device compiles at once; a promise otherwise. */
  compile(asked: Compilation): Handle | Promise<Handle> {
    const { device } = this;
    const { fn, donated } = asked;
    const key = this.#key(asked);
    if (this.#cache.has(key) || device.compileAsync === undefined)
      return this.#cache.acquire(key, () => ({
        executable: device.compile(this.#simple(fn), { donated, constants: decodeConstants(fn, asked.constants) }),
      }));
    return this.#wait(key, asked);
  }

  async #wait(key: string, asked: Compilation): Promise<Handle> {
    let underway = this.#underway.get(key);
    if (underway === undefined || underway.stop.signal.aborted) {
      const stop = new AbortController();
      underway = { clients: new Set(), stop, done: this.#begin(asked, stop) };
      this.#underway.set(key, underway);
    }
    const { clients, done } = underway;
    clients.add(asked.client);
    try {
      const executable = await done;
      return this.#cache.acquire(key, () => ({ executable }));
    } finally {
      if (this.#underway.get(key) === underway) this.#underway.delete(key);
    }
  }

  async #begin({ fn, donated, constants, seconds }: Compilation, stop: AbortController): Promise<Executable> {
    if (this.#running >= most) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    else this.#running++;
    let late = false;
    const over = (): void => {
      late = true;
      stop.abort();
    };
    const timer = seconds === undefined ? undefined : setTimeout(over, Math.min(seconds * 1e3, 2 ** 31 - 1));
    timer?.unref();
    try {
      stop.signal.throwIfAborted();
      const options = { donated, constants: decodeConstants(fn, constants), signal: stop.signal };
      return await this.device.compileAsync!(this.#simple(fn), options);
    } catch (error) {
      throw late
        ? new WeftError(
            `compiling this function took longer than ${seconds} s (maxCompileSeconds of connect and of the dispatcher's quotas); divide it into several`,
          )
        : error;
    } finally {
      clearTimeout(timer);
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next();
    }
  }

  /** Ends what only this client waits for. */
  leave(client: number): void {
    for (const { clients, stop } of this.#underway.values())
      if (clients.delete(client) && clients.size === 0) stop.abort();
  }
}
