// jit: traces a function once per combination of argument structure, shapes and dtypes, and then runs compiled code.
import {
  checkOptions,
  type DType,
  type GraphFn,
  type Precision,
  type Shape,
  showValue,
  structuralKey,
  structureOf,
  WeftError,
} from "../graph/index.js";
import { ConstantLifter, isSearching, isTracing, type Session, session } from "../runtime/index.js";
import type { PaddedFunction } from "../transform/index.js";
import { checkDType } from "./checks.js";
import { checkArguments } from "./convert.js";
import { tensor } from "./create.js";
import {
  argumentsOf,
  compiledOf,
  type JitProgram,
  makeProgram,
  pendingOf,
  resultOf,
  runProgram,
  runProgramAsync,
  type Traced,
  traceFunction,
} from "./jit-program.js";
import { currentPrecision } from "./precision.js";
import { Tensor } from "./tensor.js";
import type { AnyFunction } from "./trace.js";
import { flattenTree, mapNumbers, mutableIn, type TreeDef, treeLeaves } from "./tree.js";
import { Bucket, type Buckets, type VaryingAxes, VaryingSizes } from "./vary.js";

/** Options of {@link jit}. */
export interface JitOptions {
  /** Positions of arguments whose memory the results may reuse. The caller cannot use these arguments afterwards. */
  donate?: readonly number[];
  /**
   * Maximum number of programs that are cached per device (default 512). The least recently used program is released
   * first; a later call with its arguments traces again.
   */
  maxPrograms?: number;
  /**
   * Axes whose size changes from call to call, such as a last batch or a growing sequence. Calls with sizes of one bucket share
   * one compiled program; the function is traced once per size. See docs/varying.md.
   */
  vary?: VaryingAxes;
  /** Sizes that programs with varying axes are compiled for: powers of two by default. */
  buckets?: Buckets;
  /**
   * The dtype in which numbers among the arguments become tensors without axes: such a number may change at every call without
   * another trace. The function gets a tensor in its place, which cannot decide about a branch or a size.
   */
  numbers?: DType;
}

/** Arguments in which a number may stand for a tensor. */
type WithNumbers<T> = T extends Tensor
  ? T | number
  : T extends AnyFunction
    ? T
    : T extends object
      ? { [K in keyof T]: WithNumbers<T[K]> }
      : T;

/** The programs of one function on one device, least recently used first. */
interface ProgramCache {
  programs: Map<string, JitProgram>;
  /** The last call. A call with the same signature, as in a loop, skips computing the key. */
  last: { def: TreeDef; signatures: string[]; precision: Precision | undefined; program: JitProgram } | null;
  /** Which numbers of the traced graphs are parameters. */
  lifter: ConstantLifter;
  /** Programs for sizes that vary. */
  buckets: Map<string, Bucket>;
  /** The graphs of these programs by their key: those that differ in numbers share one. */
  graphs: Map<string, GraphFn>;
}

const defaultMaxPrograms = 512;
const none: Tensor[] = [];

/** A compiled function, as {@link jit} returns it. */
export interface Jitted<F extends AnyFunction> {
  (...args: Parameters<F>): ReturnType<F>;
  /**
   * The same call without blocking the event loop, neither while a compiler runs nor during a long computation. Donated arguments
   * are consumed when the computation is issued.
   */
  runAsync(...args: Parameters<F>): Promise<ReturnType<F>>;
  /** Number of compiled programs for the current device; calls that differ only in numbers share one. */
  readonly programs: number;
  /** Device memory for intermediate results that these programs need, in total. */
  readonly scratchBytes: number;
  /** Names of the kernels and library calls that a call with these arguments runs. */
  kernels(...args: Parameters<F>): string[];
  /**
   * Bytes that a call with these arguments needs besides them: for intermediate results, and for results that do not take the memory
   * of a donated argument. CPU devices say it without compiling.
   */
  memory(...args: Parameters<F>): { scratchBytes: number; resultBytes: number };
}

/**
 * Compiles a function of tensors. The function runs once, with placeholders, for every new combination of shapes, dtypes
 * and other argument values; later calls run the compiled program. Numbers are plain numbers inside the function, which may
 * branch on them or use them as sizes. A call with another number traces again, and needs no other program if only values in
 * the graph differ: a learning rate compiles once. Numbers that change at every call become tensors with
 * {@link JitOptions.numbers}, which do not trace again. Programs are cached per device, see {@link JitOptions.maxPrograms}.
 *
 * @example
 * ```ts
 * import { jit, type Tensor, tensor } from "@weft/core";
 *
 * const step = jit((x: Tensor) => x.mul(2).sin().sum());
 * console.log(await step(tensor([1, 2, 3])).item());
 * console.log(await step(tensor([4, 5, 6])).item()); // same shape: no second trace
 * console.log(step.programs); // 1
 * ```
 */
export function jit<F extends AnyFunction>(
  fn: F,
  options: JitOptions & { numbers: DType },
): Jitted<(...args: WithNumbers<Parameters<F>>) => ReturnType<F>>;
export function jit<F extends AnyFunction>(fn: F, options?: JitOptions): Jitted<F>;
export function jit<F extends AnyFunction>(fn: F, options: JitOptions = {}): Jitted<F> {
  checkArguments("jit", "function", { fn });
  return jitLowered(fn, options, null);
}

/** How a function over whole tensors becomes the program of one rank. */
export interface RankLowering {
  /** Whole shape of the argument with this index, of which the caller passes a shard. */
  wholeShape(argument: number, local: Shape): Shape;
  /** The program of this rank; the arguments are the parameters from `first` on. */
  lower(graph: GraphFn, first: number): GraphFn;
}

/**
 * `jit` for a function over whole tensors that one rank of several runs: it is traced with whole shapes, and called with
 * the shards of this rank. For the trainer.
 */
export function jitLowered<F extends AnyFunction>(
  fn: F,
  options: JitOptions,
  lowering: RankLowering | null,
): Jitted<F> {
  checkOptions("jit", options, ["donate", "maxPrograms", "vary", "buckets", "numbers"]);
  const { maxPrograms = defaultMaxPrograms, numbers: numberType } = options;
  if (numberType !== undefined) checkDType("jit", numberType);
  if (!Number.isInteger(maxPrograms) || maxPrograms < 1)
    throw new WeftError(`jit: maxPrograms is ${maxPrograms}; it must be a whole number of at least 1`);
  if (options.buckets !== undefined && options.vary === undefined)
    throw new WeftError("jit: buckets need vary, which says which sizes change");
  const { donate: donated = [] } = options;
  if (!Array.isArray(donated) || !donated.every((i) => Number.isInteger(i) && i >= 0))
    throw new WeftError(`jit: donate is a list of positions of arguments, got ${showValue(donated)}`);
  const varying = options.vary === undefined ? null : new VaryingSizes(options.vary, options.buckets);
  let hasWarned = false;
  const caches = new WeakMap<Session, ProgramCache>();
  const donate = new Set<number>(donated);

  const cacheNow = (): ProgramCache => {
    const now = session();
    let cache = caches.get(now);
    if (cache === undefined)
      caches.set(
        now,
        (cache = {
          programs: new Map(),
          last: null,
          lifter: new ConstantLifter(),
          buckets: new Map(),
          graphs: new Map(),
        }),
      );
    return cache;
  };

  /** The tensors of arguments with the signature of the last call; null if the signature differs. */
  const matchLast = ({ last }: ProgramCache, args: readonly unknown[]): Tensor[] | null => {
    if (last === null || last.precision !== currentPrecision()) return null;
    const { signatures } = last;
    const leaves: Tensor[] = [];
    if (!last.def.matches(args, leaves)) return null;
    for (let i = 0; i < leaves.length; i++) if (leaves[i].signature !== signatures[i]) return null;
    return leaves;
  };

  const prepare = (args: readonly unknown[]): { program: JitProgram; leaves: readonly Tensor[] } => {
    const cache = cacheNow();
    const matched = matchLast(cache, args);
    if (matched !== null) return { program: cache.last!.program, leaves: matched };
    const { leaves, def } = flattenTree(args);
    const precision = currentPrecision();
    const signatures = leaves.map((leaf) => leaf.signature);
    const key = `${precision ?? ""}/${def.key}${signatures.join("")}`;
    const { programs } = cache;
    const program = programs.get(key) ?? trace(args, leaves, def, cache);
    programs.delete(key);
    programs.set(key, program);
    if (programs.size > maxPrograms) {
      const [oldest, evicted] = programs.entries().next().value!;
      programs.delete(oldest);
      evicted.compiled?.release();
      for (const number of new Set(evicted.numbers)) number.release();
    }
    cache.last = { def, signatures, precision, program };
    return { program, leaves };
  };

  const trace = (
    args: readonly unknown[],
    leaves: readonly Tensor[],
    def: TreeDef,
    { lifter, buckets, graphs }: ProgramCache,
  ): JitProgram => {
    const mutable = mutableIn(args);
    if (mutable !== null)
      throw new WeftError(
        `jit: an argument is a ${mutable}, whose elements would stay as they are now in every later call; ` +
          "pass a tensor, an array or a plain object",
      );
    const donatedLeaves = args.flatMap((arg, i) => treeLeaves(arg).map(() => donate.has(i)));
    const numbers = numbersIn(args);
    const lift =
      numbers.length === 0
        ? (graph: GraphFn) => graph
        : (graph: GraphFn) => lifter.lift(structureOf(graph), numbers.filter(isValue));
    const whole =
      lowering === null
        ? leaves
        : leaves.map(({ shape, dtype }, i) => ({ shape: lowering.wholeShape(i, shape), dtype }));
    const traced = lowered(traceFunction(fn, whole, def), lowering);
    const padded = padTrace(args, leaves, def, traced, buckets);
    const program = makeProgram(traced, donatedLeaves, lift, padded);
    // Programs that differ only in numbers share one graph.
    const key = structuralKey(program.graph);
    program.graph = graphs.get(key) ?? program.graph;
    graphs.set(key, program.graph);
    if (graphs.size > maxPrograms) graphs.delete(graphs.keys().next().value!);
    return program;
  };

  /** The function for all sizes of a bucket; null if the call has a program of its own. */
  const padTrace = (
    args: readonly unknown[],
    leaves: readonly Tensor[],
    def: TreeDef,
    traced: Traced,
    buckets: Map<string, Bucket>,
  ): PaddedFunction | null => {
    // Looking for NaN would find those of the padding.
    const shapes = varying === null || isSearching() ? null : varying.shapes(args);
    if (shapes === null) return null;
    const key = `${currentPrecision() ?? ""}/${def.key}${leaves.map((leaf, i) => `;${leaf.dtype}${shapes.bucket[i].join("x")}`).join("")}`;
    let bucket = buckets.get(key);
    let reason: string | null = null;
    if (bucket === undefined) {
      const at = (sizes: readonly Shape[]): GraphFn =>
        traceFunction(
          fn,
          leaves.map(({ dtype }, i) => ({ shape: sizes[i], dtype })),
          def,
        ).fn;
      try {
        bucket = new Bucket(at(shapes.bucket), at(shapes.probe));
      } catch (error) {
        if (!(error instanceof WeftError)) throw error;
        bucket = new Bucket(traced.fn, traced.fn);
        bucket.exact = reason = `it cannot be traced at the sizes of the bucket (${error.message})`;
      }
      buckets.set(key, bucket);
      if (buckets.size > maxPrograms) buckets.delete(buckets.keys().next().value!);
    }
    const padded = bucket.pad(traced.fn);
    reason ??= bucket.exact;
    if (reason !== null && !hasWarned) {
      hasWarned = true;
      process.emitWarning(`jit: ${reason}; such calls compile a program for their exact shapes`, "WeftWarning");
    }
    return padded;
  };

  /** The arguments with tensors in place of numbers, and these tensors. */
  const withTensors = (args: Parameters<F>): { args: Parameters<F>; made: Tensor[] } => {
    if (numberType === undefined) return { args, made: none };
    const made: Tensor[] = [];
    const replaced = mapNumbers(args, (value) => {
      made.push(tensor(value, { dtype: numberType }));
      return made[made.length - 1];
    });
    return { args: replaced as Parameters<F>, made };
  };

  const call = (...given: Parameters<F>): ReturnType<F> => {
    const { args, made } = withTensors(given);
    if (isTracing()) return fn(...args) as ReturnType<F>;
    const { program, leaves } = prepare(args);
    const pending = pendingOf(leaves);
    if (pending.length > 0) program.session.realize(pending);
    const { inputs, finish, end } = argumentsOf(program, leaves);
    try {
      return resultOf(program, finish(runProgram(program, inputs))) as ReturnType<F>;
    } finally {
      end();
      for (const number of made) number.dispose();
    }
  };
  const runAsync = async (...given: Parameters<F>): Promise<ReturnType<F>> => {
    const { args, made } = withTensors(given);
    if (isTracing()) return fn(...args) as ReturnType<F>;
    const { program, leaves } = prepare(args);
    const { session: own, graph, donated, constants, numbers } = program;
    // Calls that begin meanwhile may evict this program.
    for (const number of numbers) number.hold();
    try {
      const compiled = program.compiled === null ? await own.compileAsync(graph, donated, constants) : null;
      if (program.compiled === null) program.compiled = compiled;
      else compiled?.release();
      const pending = pendingOf(leaves);
      if (pending.length > 0) await own.realizeAsync(pending);
      const { inputs, finish, end } = argumentsOf(program, leaves);
      try {
        return resultOf(program, finish(await runProgramAsync(program, inputs))) as ReturnType<F>;
      } finally {
        end();
      }
    } finally {
      for (const number of numbers) number.readerDone();
      for (const number of made) number.dispose();
    }
  };
  const kernels = (...args: Parameters<F>): string[] =>
    compiledOf(prepare(withTensors(args).args).program).executable.kernels.map((k) => k.name);
  const memory = (...args: Parameters<F>): { scratchBytes: number; resultBytes: number } => {
    const { session: own, graph, donated, constants } = prepare(withTensors(args).args).program;
    return own.memoryOf(graph, donated, constants);
  };
  // Not Object.assign: it would read the getters once and store the numbers.
  return Object.defineProperties(call, {
    programs: { get: () => new Set([...cacheNow().programs.values()].flatMap((p) => p.compiled?.key ?? [])).size },
    scratchBytes: {
      get: () =>
        [...cacheNow().programs.values()].reduce((sum, p) => sum + (p.compiled?.executable.scratchBytes ?? 0), 0),
    },
    runAsync: { value: runAsync },
    kernels: { value: kernels },
    memory: { value: memory },
  }) as Jitted<F>;
}

/** The program of this rank. */
function lowered(traced: Traced, lowering: RankLowering | null): Traced {
  if (lowering === null) return traced;
  if (traced.hasKey)
    throw new WeftError(
      "a random function was called without a key: ranks would use different numbers. Pass the key that the function got",
    );
  return { ...traced, fn: lowering.lower(traced.fn, traced.captured.length) };
}

/** Small whole numbers are sizes, axes and exponents more often than values; they become parameters when they change. */
const isValue = (x: number): boolean => !Number.isInteger(x) || Math.abs(x) > 8;

/** The numbers in a tree of arguments. */
function numbersIn(tree: unknown): number[] {
  if (typeof tree === "number") return [tree];
  if (Array.isArray(tree)) return tree.flatMap(numbersIn);
  if (typeof tree !== "object" || tree === null || tree instanceof Tensor || ArrayBuffer.isView(tree)) return [];
  const proto = Object.getPrototypeOf(tree);
  return proto === Object.prototype || proto === null ? Object.values(tree).flatMap(numbersIn) : [];
}
