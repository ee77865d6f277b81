// Lane kernels as text. CUDA: a thread a lane, state in registers. C: blocks of lanes in which every scalar of the step is
// a loop-carried vector the compiler makes; state waits in small arrays between steps.
import { binaryFns, type DType } from "../graph/index.js";
import type { LaneKernel, LaneScalar } from "./lane.js";
import { binaryValue, castValue, computeType, type Emitter, literal, storageType, unaryValue } from "./scalar.js";

/** Buffers of a lane kernel: the scan's inputs, then its outputs (carries, ys). */
export interface LaneText {
  text: string;
  /** Lanes that one outer iteration takes (C) or one thread (CUDA). */
  lanesPerUnit: number;
}

const laneBlock = 16;

class Lines implements Emitter {
  readonly lines: string[] = [];
  constructor(
    readonly indent: string,
    readonly name: string,
  ) {}
  define(type: string, text: string): string {
    this.lines.push(`${this.indent}const ${type} ${this.name} = ${text};`);
    return this.name;
  }
  definePair(): [string, string] {
    throw new Error("lane scalars are real");
  }
}

const isBinary: ReadonlySet<string> = new Set(binaryFns);

/** One statement that defines a scalar. */
function statement(
  s: LaneScalar,
  name: (s: LaneScalar) => string,
  load: (s: LaneScalar) => string,
  indent: string,
): string {
  const out = new Lines(indent, name(s));
  const type = computeType[s.dtype];
  const [a, b, c] = s.args.map(name);
  if (s.op === "load") out.define(type, load(s));
  else if (s.op === "lane") out.define(type, `(${type})(${s.address!.print()})`);
  else if (s.op === "where") out.define(type, `${a} ? ${b} : ${c}`);
  else if (s.op === "cast") castValue(out, [a], s.args[0].dtype, s.dtype);
  else if (isBinary.has(s.op)) binaryValue(out, s.op as never, [a], [b], s.args[0].dtype, s.dtype);
  else unaryValue(out, s.op as never, [a], s.args[0].dtype, s.dtype);
  // A cast that changes nothing defines nothing; give it its name all the same.
  if (out.lines.length === 0) out.define(type, a);
  return out.lines.join("\n");
}

export interface LaneShape {
  /** Numbers (complex parts counted) of one element of each scan input and output. */
  parts: readonly number[];
  /** Elements of one step of each input that is stepped through. */
  stepElements: readonly number[];
  dtypes: readonly DType[];
}

/** The text of a load: constants by lane, stepped inputs by lane and time. */
function loadText(kernel: LaneKernel, shape: LaneShape, s: LaneScalar, time: string): string {
  const stepped = s.input >= kernel.consts + kernel.carries.length;
  const address = s.address!.print();
  const at = stepped ? `${time} * ${shape.stepElements[s.input]} + ${address}` : address;
  return shape.parts[s.input] === 2 ? `p${s.input}[2*(${at}) + ${s.part}]` : `p${s.input}[${at}]`;
}

const pointerLines = (kernel: LaneKernel, shape: LaneShape): string[] =>
  shape.dtypes.map((dtype, i) => {
    const isOutput = i >= shape.dtypes.length - kernel.carries.length - kernel.ys.length;
    const type = storageType[dtype];
    return `  ${isOutput ? "" : "const "}${type}* p${i} = (${isOutput ? "" : "const "}${type}*)p[${i}];`;
  });

/** Splits what is needed into the part before the loop and the part inside it. */
function phases(kernel: LaneKernel): { before: LaneScalar[]; inside: LaneScalar[] } {
  const real = kernel.order.filter((s) => s.op !== "const" && s.op !== "state");
  return { before: real.filter((s) => !s.varies), inside: real.filter((s) => s.varies) };
}

const stateName = (i: number): string => `s${i}`;
const scalarName = (s: LaneScalar): string =>
  s.op === "const" ? literal(s.value, s.dtype) : s.op === "state" ? stateName(s.value) : `e${s.id}`;

const countOf = (kernel: LaneKernel): number => kernel.carries.reduce((n, c) => n + c.count, 0);

function stateTypes(kernel: LaneKernel): string[] {
  return kernel.carries.flatMap((c) => new Array<string>(c.count).fill(computeType[c.dtype]));
}

/** Where number k of a carry lies for lane b: the lanes' numbers follow each other. */
const carryAt = (count: number, k: number): string => `(long long)b * ${count} + ${k}`;

export function emitLaneCuda(kernel: LaneKernel, shape: LaneShape): string {
  const { before, inside } = phases(kernel);
  const inputs = kernel.consts;
  const outputs = shape.dtypes.length - kernel.carries.length - kernel.ys.length;
  const types = stateTypes(kernel);
  const lines: string[] = [...pointerLines(kernel, shape)];
  lines.push("  const int b = blockIdx.x * blockDim.x + threadIdx.x;", `  if (b >= ${kernel.lanes}) return;`);
  kernel.carries.forEach((c, i) => {
    for (let k = 0; k < c.count; k++)
      lines.push(`  ${types[c.first + k]} ${stateName(c.first + k)} = p${inputs + i}[${carryAt(c.count, k)}];`);
  });
  const load = (s: LaneScalar): string => loadText(kernel, shape, s, "(long long)t");
  for (const s of before) lines.push(statement(s, scalarName, load, "  "));
  const t = kernel.reverse ? `${kernel.length - 1} - q` : "q";
  lines.push(`  for (int q = 0; q < ${kernel.length}; q++) { const int t = ${t};`);
  for (const s of inside) lines.push(statement(s, scalarName, load, "    "));
  kernel.ys.forEach((y, i) => {
    const count = y.values.length;
    const buffer = outputs + kernel.carries.length + i;
    y.values.forEach((v, k) => {
      lines.push(`    p${buffer}[((long long)t * ${kernel.lanes} + b) * ${count} + ${k}] = ${scalarName(v)};`);
    });
  });
  // All new values before any old one is overwritten.
  kernel.next.forEach((v, i) => {
    if (v.op === "state" && v.value !== i) lines.push(`    const ${types[i]} n${i} = ${scalarName(v)};`);
  });
  kernel.next.forEach((v, i) => {
    if (v.op === "state" && v.value === i) return;
    lines.push(`    ${stateName(i)} = ${v.op === "state" ? `n${i}` : scalarName(v)};`);
  });
  lines.push("  }");
  kernel.carries.forEach((c, i) => {
    for (let k = 0; k < c.count; k++)
      lines.push(`  p${outputs + i}[${carryAt(c.count, k)}] = ${stateName(c.first + k)};`);
  });
  return lines.join("\n");
}

/** The C form: units are blocks of lanes; the loop over the lanes of a block is what the compiler vectorises. */
export function emitLaneC(kernel: LaneKernel, shape: LaneShape): LaneText {
  const { before, inside } = phases(kernel);
  const outputs = shape.dtypes.length - kernel.carries.length - kernel.ys.length;
  const types = stateTypes(kernel);
  const block = Math.min(laneBlock, kernel.lanes);
  const load = (s: LaneScalar): string => loadText(kernel, shape, s, "t");
  const kept = before.filter(
    (s) =>
      inside.some((i) => i.args.includes(s)) || kernel.next.includes(s) || kernel.ys.some((y) => y.values.includes(s)),
  );
  const keptSet = new Set(kept);
  const total = countOf(kernel);
  const laneLoop = (body: string[], simd = true): string[] => [
    ...(simd ? ['    _Pragma("omp simd")'] : []),
    "    for (long l = 0; l < lanes; l++) { const long b = base + l;",
    ...body,
    "    }",
  ];
  const lines: string[] = [...pointerLines(kernel, shape)];
  lines.push(
    "  for (long u = lo; u < hi; u++) {",
    `    const long base = u * ${block}, lanes = base + ${block} <= ${kernel.lanes} ? ${block} : ${kernel.lanes} - base;`,
  );
  for (let i = 0; i < total; i++) lines.push(`    ${types[i]} a${i}[${block}] __attribute__((aligned(64)));`);
  for (const s of kept) lines.push(`    ${computeType[s.dtype]} c${s.id}[${block}] __attribute__((aligned(64)));`);
  const init: string[] = [];
  kernel.carries.forEach((c, i) => {
    for (let k = 0; k < c.count; k++)
      init.push(`      a${c.first + k}[l] = p${kernel.consts + i}[b * ${c.count} + ${k}];`);
  });
  for (const s of before) init.push(statement(s, scalarName, load, "      "));
  for (const s of kept) init.push(`      c${s.id}[l] = e${s.id};`);
  lines.push(...laneLoop(init));
  const inner = (s: LaneScalar): string =>
    s.op === "const"
      ? literal(s.value, s.dtype)
      : s.op === "state"
        ? `a${s.value}[l]`
        : keptSet.has(s)
          ? `c${s.id}[l]`
          : `e${s.id}`;
  const t = kernel.reverse ? `${kernel.length - 1} - q` : "q";
  lines.push(`    for (long q = 0; q < ${kernel.length}; q++) { const long t = ${t};`);
  const body: string[] = [];
  for (const s of inside)
    body.push(statement(s, inner, load, "      ").replace(/const (\S+) c\d+\[l\] =/, "const $1 _ ="));
  kernel.ys.forEach((y, i) => {
    const count = y.values.length;
    const buffer = outputs + kernel.carries.length + i;
    y.values.forEach((v, k) => {
      body.push(`      p${buffer}[(t * ${kernel.lanes} + b) * ${count} + ${k}] = ${inner(v)};`);
    });
  });
  kernel.next.forEach((v, i) => {
    body.push(`      const ${types[i]} n${i} = ${inner(v)};`);
  });
  kernel.next.forEach((_, i) => {
    body.push(`      a${i}[l] = n${i};`);
  });
  lines.push(...laneLoop(body), "    }");
  const finish: string[] = [];
  kernel.carries.forEach((c, i) => {
    for (let k = 0; k < c.count; k++) finish.push(`      p${outputs + i}[b * ${c.count} + ${k}] = a${c.first + k}[l];`);
  });
  lines.push(...laneLoop(finish), "  }");
  return { text: lines.join("\n"), lanesPerUnit: block };
}
