// Compiled functions and who holds them.
import type { Executable, ExecutableHandle } from "../device/index.js";
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
    collected.register(this, handle, this);
  }

  /** Ends this holder's use; the code is unloaded when the session's cache has dropped it too. */
  release(): void {
    collected.unregister(this);
    this.#handle.release();
  }
}

const collected = new FinalizationRegistry<ExecutableHandle<CompiledFunction>>((handle) => handle.release());
