// jit: traces a function once for each structure, shapes and dtypes of its arguments, and then runs compiled code.
import { functionOrder, type GraphFn, type Node, numel, type Precision, WeftError } from "../graph/index.js";
import { build, type Value } from "../ops/index.js";
import { type Compiled, dataNode, isTracing, session, type TensorValue } from "../runtime/index.js";
import { closeOver } from "../transform/index.js";
import { showEffect } from "./effects.js";
import { currentPrecision } from "./precision.js";
import { freshKeyWords } from "./random.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, inFrame, refusePromise } from "./trace.js";
import { flattenTree, hiddenTensors, type TreeDef, treeLeaves } from "./tree.js";

export interface JitOptions {
  /** Arguments that the caller gives away: their memory is reused for the results, and they cannot be used afterwards. */
  donate?: readonly number[];
}

interface Program {
  graph: GraphFn;
  compiled: Compiled;
  /** Tensors that the function closed over; passed along on every call. */
  captured: Node[];
  out: TreeDef;
  outputs: number;
  effects: string[];
  hasKey: boolean;
  donated: boolean[];
  session: ReturnType<typeof session>;
}

export interface Jitted<F extends AnyFunction> {
  (...args: Parameters<F>): ReturnType<F>;
  /** Programs compiled so far, one a combination of structure, shapes and dtypes. */
  readonly programs: number;
  /** Device memory for intermediate results that these programs ask for, in all. */
  readonly scratchBytes: number;
  /** Names of the kernels and library calls that a call with these arguments runs. */
  kernels(...args: Parameters<F>): string[];
}

/**
 * A compiled version of a function of tensors. The function runs once (with placeholders) for every new combination of
 * shapes, dtypes and other argument values; afterwards a call is one run of compiled code.
 */
export function jit<F extends AnyFunction>(fn: F, options: JitOptions = {}): Jitted<F> {
  const programs = new Map<string, Program>();
  const donate = new Set(options.donate ?? []);

  /** The last call: the same again, which is what loops do, needs no key. */
  let last: { def: TreeDef; signatures: string[]; precision: Precision | undefined; program: Program } | null = null;

  /** The tensors of arguments that are like those of the last call; null where they are not. */
  const likeLast = (args: readonly unknown[]): Tensor[] | null => {
    if (last === null || last.program.session !== session() || last.precision !== currentPrecision()) return null;
    const { signatures } = last;
    const leaves: Tensor[] = [];
    if (!last.def.matches(args, leaves)) return null;
    for (let i = 0; i < leaves.length; i++) if (leaves[i].signature !== signatures[i]) return null;
    return leaves;
  };

  const prepare = (args: readonly unknown[]): { program: Program; leaves: readonly Tensor[] } => {
    const known = likeLast(args);
    if (known !== null) return { program: last!.program, leaves: known };
    const { def, ...found } = lookUp(args);
    const signatures = found.leaves.map((leaf) => leaf.signature);
    last = { def, signatures, precision: currentPrecision(), program: found.program };
    return found;
  };

  const lookUp = (args: readonly unknown[]): { program: Program; leaves: Tensor[]; def: TreeDef } => {
    const { leaves, def } = flattenTree(args);
    let key = `${currentPrecision() ?? ""}/${def.key}`;
    for (const leaf of leaves) key += leaf.signature;
    const known = programs.get(key);
    if (known !== undefined && known.session === session()) return { program: known, leaves, def };
    const hidden = hiddenTensors(args);
    if (hidden !== null)
      throw new WeftError(
        `jit: an argument is a ${hidden} that holds tensors; they would stay as they are now in every later call. ` +
          "Pass plain objects and arrays of tensors",
      );
    const donatedLeaves = args.flatMap((arg, i) => treeLeaves(arg).map(() => donate.has(i)));
    const program = traceProgram(fn, leaves, def, donatedLeaves);
    programs.set(key, program);
    return { program, leaves, def };
  };

  const call = (...args: Parameters<F>): ReturnType<F> => {
    if (isTracing()) return fn(...args) as ReturnType<F>;
    const { program, leaves } = prepare(args);
    const pending: Node[] = [];
    for (const leaf of leaves) if (leaf.node.value === null) pending.push(leaf.node);
    if (pending.length > 0) session().realize(pending);
    const inputs: TensorValue[] = [];
    for (const node of program.captured) inputs.push(node.value as TensorValue);
    if (program.hasKey) inputs.push(freshKey());
    for (const leaf of leaves) inputs.push(leaf.node.value as TensorValue);
    for (const value of inputs) value.assertUsable();
    const values = mayDonate(program.donated, inputs)
      ? program.session.run(program.compiled, inputs, program.donated)
      : runKeeping(program, inputs);
    const results = values.map((value) => new Tensor(dataNode(value)));
    program.effects.forEach((label, i) => {
      showEffect(label, results[program.outputs + i]);
    });
    return program.out.rebuild(results) as ReturnType<F>;
  };
  const kernels = (...args: Parameters<F>): string[] =>
    prepare(args).program.compiled.executable.kernels.map((k) => k.name);
  // Not Object.assign: it would read the getter once and keep the number.
  return Object.defineProperties(call, {
    programs: { get: () => programs.size },
    scratchBytes: {
      get: () => [...programs.values()].reduce((sum, p) => sum + p.compiled.executable.scratchBytes, 0),
    },
    kernels: { value: kernels },
  }) as Jitted<F>;
}

/** Memory can be given away only if nobody else reads it: no pending work, no other argument of this very call. */
function mayDonate(donated: readonly boolean[], inputs: readonly TensorValue[]): boolean {
  if (!donated.includes(true)) return true;
  const twice = new Set<TensorValue>();
  if (new Set(inputs).size < inputs.length) {
    const seen = new Set<TensorValue>();
    for (const input of inputs) (seen.has(input) ? twice : seen).add(input);
  }
  return donated.every((isDonated, i) => !isDonated || (!inputs[i].hasReaders && !twice.has(inputs[i])));
}

/** Runs without reusing memory; the donated arguments are still over for the user. */
function runKeeping(program: Program, inputs: readonly TensorValue[]): TensorValue[] {
  const values = program.session.run(program.session.compile(program.graph), inputs);
  inputs.forEach((value, i) => {
    if (program.donated[i]) value.release("donated");
  });
  return values;
}

function freshKey(): TensorValue {
  const [low, high] = freshKeyWords();
  return session().upload({ shape: [2], dtype: "int32" }, Int32Array.from([low | 0, high | 0]));
}

/** Captured tensors up to this size may be built into a program with loops. */
const maxKnown = 1024;

/**
 * Small tensors that a function with loops closed over (operators, tables of coefficients) are the same in every call:
 * their zeros and ones are worth knowing when the loop is compiled.
 */
function knownValues(fn: GraphFn, captured: readonly Node[]): Map<number, Value> {
  const known = new Map<number, Value>();
  if (!functionOrder(fn).some((node) => node.op === "scan")) return known;
  captured.forEach((node, i) => {
    if (numel(node.shape) > maxKnown || numel(node.shape) === 0) return;
    const value = node.value as TensorValue;
    const data = session().peek(value);
    if (data !== null) known.set(i, { ...value.aval, data });
  });
  return known;
}

function traceProgram(fn: AnyFunction, leaves: readonly Tensor[], def: TreeDef, donatedLeaves: boolean[]): Program {
  const params = leaves.map((leaf, i) => build.input(leaf.shape, leaf.dtype, `argument ${i}`));
  const { result, frame } = inFrame("jit", () => fn(...(def.rebuild(params.map((p) => new Tensor(p))) as unknown[])));
  refusePromise("jit", result);
  const out = flattenTree(result);
  const outputs = [...out.leaves.map((l) => l.node), ...frame.effects.map((e) => e.node)];
  const own = frame.key === null ? params : [frame.key, ...params];
  const { fn: closed, captured } = closeOver(outputs, own);
  session().realize(captured);
  const donated = [...captured.map(() => false), ...(frame.key === null ? [] : [false]), ...donatedLeaves];
  return {
    graph: closed,
    compiled: session().compile(closed, donated, knownValues(closed, captured)),
    captured,
    out: out.def,
    outputs: out.leaves.length,
    effects: frame.effects.map((e) => e.label),
    hasKey: frame.key !== null,
    donated,
    session: session(),
  };
}
