// Compiled functions and who holds them.
import { collectNow, type Executable, type ExecutableHandle } from "../device/index.js";
import type { GraphFn } from "../graph/index.js";

export interface CompiledFunction {
  /** The program on its device. */
  readonly executable: Executable;
  /** The graph that it was made of. */
  readonly fn: GraphFn;
  /** Structure of the graph, by which it is found again. */
  readonly key: string;
  /** Memory of the results that a call allocates. */
  readonly bytes: number;
}

/**
 * A compiled function that its holder may run. It stays loaded until the holder calls `release`, or until the holder itself
 * is garbage collected.
 */
export class Compiled implements CompiledFunction {
  readonly executable: Executable;
  readonly fn: GraphFn;
  readonly key: string;
  readonly bytes: number;
  readonly #handle: ExecutableHandle<CompiledFunction>;

  constructor(handle: ExecutableHandle<CompiledFunction>) {
    ({ executable: this.executable, fn: this.fn, key: this.key, bytes: this.bytes } = handle.value);
    this.#handle = handle;
    holders.add(this, handle);
  }

  /** Ends this holder's use; the code is unloaded when the session's cache has dropped it too. */
  release(): void {
    holders.remove(this.#handle);
    this.#handle.release();
  }
}

/** Holders that have not released their function yet. */
class Holders {
  readonly #handles = new Map<ExecutableHandle<CompiledFunction>, WeakRef<Compiled>>();
  readonly #collected = new FinalizationRegistry<ExecutableHandle<CompiledFunction>>((handle) => this.#end(handle));
  /** Number of holders from which on those that were collected are looked for; grows with what survives. */
  #threshold = sweepFrom;

  add(holder: Compiled, handle: ExecutableHandle<CompiledFunction>): void {
    this.#handles.set(handle, new WeakRef(holder));
    this.#collected.register(holder, handle, handle);
    if (this.#handles.size > this.#threshold) this.#sweep();
  }

  remove(handle: ExecutableHandle<CompiledFunction>): void {
    this.#collected.unregister(handle);
    this.#handles.delete(handle);
  }

  #end(handle: ExecutableHandle<CompiledFunction>): void {
    this.remove(handle);
    handle.release();
  }

  /** Finalizers do not run inside a synchronous loop, which would load programs until the system has no room for more. */
  #sweep(): void {
    collectNow();
    for (const [handle, holder] of this.#handles) if (holder.deref() === undefined) this.#end(handle);
    this.#threshold = Math.max(sweepFrom, 2 * this.#handles.size);
  }
}
const sweepFrom = 2048;
const holders = new Holders();
