// Fourier transforms by cuFFT: one plan per geometry, which owns its work area. Some transforms of several axes failed with the work area
// in the scratch memory of a program; whether that was the cause is not known yet.
import { isComplex, type Node, numel, realOf, WeftError } from "../../graph/index.js";
import type { CudaContext } from "./context.js";
import { type Fft, result32 } from "./driver.js";

/** Numbers of cufftType, by precision. */
const types = { float32: { c2c: 0x29, r2c: 0x2a, c2r: 0x2c }, float64: { c2c: 0x69, r2c: 0x6a, c2r: 0x6c } } as const;
const executions = {
  float32: { c2c: "cufftExecC2C", r2c: "cufftExecR2C", c2r: "cufftExecC2R" },
  float64: { c2c: "cufftExecZ2Z", r2c: "cufftExecD2Z", c2r: "cufftExecZ2D" },
} as const;

interface FftPlan {
  plan: number;
  bytes: number;
  /** Executables that use it: recorded graphs read the tables that a plan holds on the device. */
  users: number;
}

/** Plans that stay for the next executable with the same geometry. */
const maxPlans = 64;
/** Bytes of a work area from which a plan that nothing uses is destroyed at once. */
const largePlan = 1 << 20;

export class FourierTransforms {
  /** The least recently used first. */
  readonly #plans = new Map<string, FftPlan>();
  #collected: Set<FftPlan> | null = null;

  /** Number of plans. */
  get size(): number {
    return this.#plans.size;
  }

  /** Keeps the plans that `make` asks for until `release` is called. */
  hold<T>(make: () => T): { made: T; release(): void } {
    const [outer, own] = [this.#collected, new Set<FftPlan>()];
    this.#collected = own;
    try {
      const made = make();
      for (const plan of own) plan.users++;
      const release = (): void => {
        for (const plan of own) plan.users--;
        own.clear();
        this.#trim();
      };
      return { made, release };
    } finally {
      this.#collected = outer;
    }
  }

  #trim(): void {
    for (const [key, { plan, users, bytes }] of this.#plans) {
      if (users > 0 || (this.#plans.size <= maxPlans && bytes < largePlan)) continue;
      this.#library().cufftDestroy(plan);
      this.#plans.delete(key);
    }
  }

  constructor(readonly context: CudaContext) {}

  #library(): Fft {
    const { fft } = this.context.libraries;
    if (fft === null)
      throw new WeftError(
        "cuda: cuFFT (libcufft.so.12, .11 or .10) was not found, and Fourier transforms need it; install the CUDA toolkit or `pip install nvidia-cufft`",
      );
    return fft;
  }

  /** Makes the plan of a transform, so that the first run finds it. */
  prepare(node: Node<"fft">): void {
    this.#plan(node);
  }

  issue(node: Node<"fft">, input: number, output: number): void {
    const fft = this.#library();
    const { plan } = this.#plan(node);
    const { kind, inverse } = node.attrs;
    const execute = executions[precisionOf(node)][kind];
    const direction = kind === "c2c" ? [inverse ? 1 : -1] : [];
    this.context.check(execute, fft[execute](plan, input, output, ...direction));
  }

  #plan(node: Node<"fft">): FftPlan {
    const { kind, axes, size } = node.attrs;
    const { shape } = node.inputs[0];
    const sizes = [...shape.slice(-axes, -1), size];
    const batch = numel(shape.slice(0, -axes));
    const type = types[precisionOf(node)][kind];
    const key = [type, batch, ...sizes].join(",");
    const found = this.#plans.get(key) ?? this.#make(type, sizes, batch);
    this.#plans.delete(key);
    this.#plans.set(key, found);
    this.#collected?.add(found);
    return found;
  }

  #make(type: number, sizes: readonly number[], batch: number): FftPlan {
    const fft = this.#library();
    this.context.enter();
    const plan = result32("cufftCreate", (out) => fft.cufftCreate(out));
    const bytes = new BigUint64Array(1);
    this.context.check(
      "cufftMakePlanMany64",
      // Without embedding, lines follow each other as the op has them.
      fft.cufftMakePlanMany64(
        plan,
        sizes.length,
        BigInt64Array.from(sizes, BigInt),
        0,
        1,
        0,
        0,
        1,
        0,
        type,
        batch,
        bytes,
      ),
    );
    this.context.check("cufftSetStream", fft.cufftSetStream(plan, this.context.stream));
    return { plan, bytes: Number(bytes[0]), users: 0 };
  }
}

const precisionOf = (node: Node<"fft">): "float32" | "float64" => {
  const { dtype } = node.inputs[0];
  return (isComplex(dtype) ? realOf(dtype) : dtype) as "float32" | "float64";
};
