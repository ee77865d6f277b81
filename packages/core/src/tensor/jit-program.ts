// The programs of jitted functions: tracing for given shapes, what a program needs beside its arguments, and running it.
import {
  type Aval,
  avalOf,
  functionOrder,
  type GraphFn,
  type Node,
  numel,
  sameShape,
  scalarKey,
} from "../graph/index.js";
import { build, type Value } from "../ops/index.js";
import { type Compiled, dataNode, type Session, session, type TensorValue } from "../runtime/index.js";
import { closeOver, type PaddedFunction } from "../transform/index.js";
import { showEffect } from "./effects.js";
import { freshKeyWords } from "./random.js";
import { Tensor } from "./tensor.js";
import { type AnyFunction, inFrame, refusePromise } from "./trace.js";
import { flattenTree, type TreeDef } from "./tree.js";

/** A traced and compiled function for one combination of arguments, on one device. */
export interface JitProgram {
  graph: GraphFn;
  /** Null until the first call. */
  compiled: Compiled | null;
  /** Values of parameters that are the same in every call. */
  constants: ReadonlyMap<number, Value>;
  /** Tensors that the function closed over; every call passes them. */
  captured: Node[];
  /** Numbers of the function that are parameters of the program, so that other numbers need no other program. */
  numbers: TensorValue[];
  out: TreeDef;
  outputs: number;
  effects: string[];
  hasKey: boolean;
  donated: boolean[];
  session: Session;
  /** Shapes of parameters and results of a padded program; null where they are those of the call. */
  resized: { inputs: (Aval | null)[]; outputs: (Aval | null)[] } | null;
}

/** A function as traced for the shapes of one call. */
export interface Traced {
  fn: GraphFn;
  captured: Node[];
  out: TreeDef;
  outputs: number;
  effects: string[];
  hasKey: boolean;
}

/** Whether donated memory can be reused: no pending node and no other argument of this call reads it. */
function mayDonate(donated: readonly boolean[], inputs: readonly TensorValue[]): boolean {
  if (!donated.includes(true)) return true;
  const twice = new Set<TensorValue>();
  if (new Set(inputs).size < inputs.length) {
    const seen = new Set<TensorValue>();
    for (const input of inputs) (seen.has(input) ? twice : seen).add(input);
  }
  return donated.every((isDonated, i) => !isDonated || (!inputs[i].hasReaders && !twice.has(inputs[i])));
}

export const pendingOf = (leaves: readonly Tensor[]): Node[] =>
  leaves.filter((leaf) => leaf.node.value === null).map((leaf) => leaf.node);

export function compiledOf(program: JitProgram): Compiled {
  program.compiled ??= program.session.compile(program.graph, program.donated, program.constants);
  return program.compiled;
}

interface CallArguments {
  inputs: readonly TensorValue[];
  /** The results of the call, from those of the program. */
  finish(values: TensorValue[]): TensorValue[];
  /** Frees what the call needed. */
  end(): void;
}

/** The inputs of a program. For a padded one, arguments are copied into larger memory, and results into smaller. */
export function argumentsOf(program: JitProgram, leaves: readonly Tensor[]): CallArguments {
  const { session: own, donated, resized } = program;
  const inputs: TensorValue[] = [];
  for (const node of program.captured) inputs.push(node.value as TensorValue);
  if (program.hasKey) inputs.push(freshKey());
  for (const leaf of leaves) inputs.push(leaf.node.value as TensorValue);
  for (const value of inputs) value.assertUsable();
  // The program's own; a call holds them where the program may be evicted before it has ended.
  for (const number of program.numbers) inputs.push(number);
  if (resized === null) return { inputs, finish: (values) => values, end: () => {} };
  const copies: TensorValue[] = [];
  const end = (): void => {
    for (const copy of copies) copy.free();
  };
  const changed = (value: TensorValue, aval: Aval | null): TensorValue => {
    if (aval === null) return value;
    const copy = own.resized(value, aval);
    copies.push(copy);
    return copy;
  };
  let padded: TensorValue[];
  try {
    padded = inputs.map((value, i) => changed(value, resized.inputs[i] ?? null));
  } catch (error) {
    end();
    throw error;
  }
  const finish = (values: TensorValue[]): TensorValue[] => {
    inputs.forEach((value, i) => {
      if (donated[i] && padded[i] !== value) value.release("donated");
    });
    copies.push(...values.filter((_, i) => resized.outputs[i] !== null));
    return values.map((value, i) => (resized.outputs[i] === null ? value : own.resized(value, resized.outputs[i])));
  };
  return { inputs: padded, finish, end };
}

export function resultOf(program: JitProgram, values: readonly TensorValue[]): unknown {
  const results = values.map((value) => new Tensor(dataNode(value)));
  program.effects.forEach((label, i) => {
    showEffect(label, results[program.outputs + i]);
  });
  return program.out.rebuild(results);
}

export function runProgram(program: JitProgram, inputs: readonly TensorValue[]): TensorValue[] {
  const { session: own, donated, graph } = program;
  if (mayDonate(donated, inputs)) return own.run(compiledOf(program), inputs, donated, [], false, graph);
  // Without reusing memory. The donated arguments are still released, so that the caller sees the same behavior.
  const compiled = own.compile(graph);
  const values = own.run(compiled, inputs, [], [], false, graph);
  compiled.release();
  releaseDonated(donated, inputs);
  return values;
}

export async function runProgramAsync(program: JitProgram, inputs: readonly TensorValue[]): Promise<TensorValue[]> {
  const { session: own, graph, constants } = program;
  // The program may be evicted before the call has ended: the call holds the code by itself.
  const donated = mayDonate(program.donated, inputs) ? program.donated : [];
  const compiled = donated.length > 0 ? own.compile(graph, donated, constants) : await own.compileAsync(graph);
  const running = own.runAsync(compiled, inputs, donated, graph);
  if (donated.length === 0) releaseDonated(program.donated, inputs);
  return running.finally(() => compiled.release());
}

function releaseDonated(donated: readonly boolean[], inputs: readonly TensorValue[]): void {
  inputs.forEach((value, i) => {
    if (donated[i]) value.release("donated");
  });
}

function freshKey(): TensorValue {
  const [low, high] = freshKeyWords();
  return session().upload({ shape: [2], dtype: "int32" }, Int32Array.from([low | 0, high | 0]));
}

/** Maximum number of elements of a captured tensor that is compiled into a program with loops as a constant. */
const maxConstant = 1024;

/**
 * Values of the small captured tensors (operators, tables of coefficients) of a function with loops. They are the same in
 * every call, and the loop compiler uses their zeros and ones.
 */
function constantValues(fn: GraphFn, captured: readonly Node[]): Map<number, Value> {
  const constants = new Map<number, Value>();
  if (captured.length === 0 || !functionOrder(fn).some((node) => node.op === "scan")) return constants;
  captured.forEach((node, i) => {
    if (numel(node.shape) > maxConstant || numel(node.shape) === 0) return;
    const value = node.value as TensorValue;
    const data = session().peek(value);
    if (data !== null) constants.set(i, { ...value.aval, data });
  });
  return constants;
}

/** Traces the function for arguments of the given shapes. */
export function traceFunction(fn: AnyFunction, avals: readonly Aval[], def: TreeDef): Traced {
  const params = avals.map(({ shape, dtype }, i) => build.input(shape, dtype, `argument ${i}`));
  const { result, frame } = inFrame("jit", () => fn(...(def.rebuild(params.map((p) => new Tensor(p))) as unknown[])));
  refusePromise("jit", result);
  const out = flattenTree(result);
  const outputs = [...out.leaves.map((l) => l.node), ...frame.effects.map((e) => e.node)];
  const own = frame.key === null ? params : [frame.key, ...params];
  return {
    ...closeOver(outputs, own),
    out: out.def,
    outputs: out.leaves.length,
    effects: frame.effects.map((e) => e.label),
    hasKey: frame.key !== null,
  };
}

/** Shapes of a padded program that differ from those of the call. */
function resizedAvals(from: readonly Node[], to: readonly Node[]): (Aval | null)[] {
  return from.map((node, i) => (sameShape(node.shape, to[i].shape) ? null : avalOf(to[i])));
}

/** Constants as values; equal ones share memory. */
function uploadNumbers(constants: readonly Node<"const">[]): TensorValue[] {
  const made = new Map<string, TensorValue>();
  return constants.map((node) => {
    const key = `${node.dtype} ${scalarKey(node.attrs.value)}`;
    let value = made.get(key);
    if (value === undefined) made.set(key, (value = session().uploadConstant(node)));
    return value;
  });
}

export function makeProgram(
  { fn, captured, out, outputs, effects, hasKey }: Traced,
  donatedLeaves: boolean[],
  lift: (graph: GraphFn) => GraphFn,
  padded: PaddedFunction | null,
): JitProgram {
  const bare = padded?.fn ?? fn;
  const closed = lift(bare);
  const lifted = closed.params.slice(bare.params.length);
  session().realize(captured);
  const numbers = [
    ...(padded?.numbers ?? []).map(({ value, dtype }) => build.constant(value, dtype)),
    ...lifted,
  ] as Node<"const">[];
  const donated = [
    ...captured.map(() => false),
    ...(hasKey ? [false] : []),
    ...donatedLeaves,
    ...numbers.map(() => false),
  ];
  return {
    graph: closed,
    compiled: null,
    constants: padded === null ? constantValues(closed, captured) : new Map(),
    captured,
    numbers: uploadNumbers(numbers),
    out,
    outputs,
    effects,
    hasKey,
    donated,
    session: session(),
    resized:
      padded === null
        ? null
        : { inputs: resizedAvals(fn.params, bare.params), outputs: resizedAvals(bare.outputs, fn.outputs) },
  };
}
