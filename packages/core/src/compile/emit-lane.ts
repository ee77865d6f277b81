// Emits lane programs: the part that both dialects share. Loops, storage of states, statements, addresses; how a lane's
// values are held between statements is up to the dialect (emit-lane-c.ts, emit-lane-cuda.ts).
import { binaryFns, type DType, isComplex } from "../graph/index.js";
import type { Ix } from "./index-expr.js";
import type { HistoryPolicy, LaneItem, LaneProgram, LaneStore } from "./lane.js";
import type { LaneLoop, LaneScalar, LaneStop } from "./lane-scalar.js";
import {
  binaryValue,
  castValue,
  computeType,
  type Emitter,
  randomText,
  selectText,
  storageType,
  unaryValue,
} from "./scalar.js";

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

/** One statement that defines a scalar; `read` is the text of a memory access. */
export function scalarStatement(
  s: LaneScalar,
  use: (s: LaneScalar) => string,
  read: (s: LaneScalar) => string,
  indent: string,
  name: string,
): string {
  const out = new Lines(indent, name);
  const type = computeType[s.dtype];
  const [a, b, c, d] = s.args.map(use);
  if (s.op === "load" || s.op === "past" || s.op === "shared") out.define(type, read(s));
  else if (s.op === "lane") out.define(type, `(${type})(${s.address!.print()})`);
  else if (s.op === "where") out.define(type, selectText(type, a, b, c));
  else if (s.op.startsWith("random_")) {
    const [, kind, threshold] = s.op.split("_");
    out.define(type, randomText(kind as never, s.dtype, a, b, s.address!.print(), Number(threshold)));
  } else if (s.op === "cast") castValue(out, [a], s.args[0].dtype, s.dtype);
  else if (s.op === "hypot") out.define(type, `w_hypot_${type === "double" ? "d" : "f"}(${a}, ${b})`);
  else if (s.op === "quotient_re" || s.op === "quotient_im") {
    const other = `${name}_`;
    const parts = s.op === "quotient_re" ? `&${name}, &${other}` : `&${other}, &${name}`;
    const call = `w_cdiv_${type === "double" ? "d" : "f"}(${[a, b, c, d].join(", ")}, ${parts});`;
    return `${indent}${type} ${name}, ${other}; ${call}`;
  } else if (isBinary.has(s.op)) binaryValue(out, s.op as never, [a], [b], s.args[0].dtype, s.dtype);
  else unaryValue(out, s.op as never, [a], s.args[0].dtype, s.dtype);
  // A cast that changes nothing defines nothing, but still gets a name.
  if (out.lines.length === 0) out.define(type, a);
  return out.lines.join("\n");
}

export abstract class LanePrinter {
  readonly lines: string[] = [];
  protected readonly slots = new Map<LaneLoop, LaneScalar[]>();

  constructor(readonly program: LaneProgram) {
    const visit = (items: readonly LaneItem[], loop: LaneLoop | null): void => {
      for (const item of items) {
        if (item.kind === "loop") visit(item.items, item.loop);
        else if (loop !== null && item.recorded.length > 0)
          this.slots.set(loop, [...(this.slots.get(loop) ?? []), ...item.recorded]);
      }
    };
    visit(program.items, null);
  }

  /** The text of a value where it is used. */
  protected abstract use(s: LaneScalar): string;
  protected abstract stateName(loop: LaneLoop, i: number): string;
  protected abstract code(item: Extract<LaneItem, { kind: "code" }>, indent: string, quiet: boolean): void;
  protected abstract declareStates(loop: LaneLoop, states: readonly number[], indent: string): void;
  protected abstract advance(loop: LaneLoop, states: readonly number[], indent: string): void;
  protected abstract declareArray(name: string, type: string, size: number, indent: string): void;
  protected abstract element(array: string, at: string): string;
  /** Statements that every lane executes. */
  protected abstract each(body: string[], indent: string): void;
  /** Declares `name`, the largest of some whole numbers and zero. */
  protected abstract declareLargest(name: string, values: readonly LaneScalar[], indent: string): void;
  /** Leaves the loop unless one of the predicates is true. */
  protected abstract breakUnless(values: readonly LaneScalar[], indent: string): void;
  protected beginLoop(_loop: LaneLoop, _item: Extract<LaneItem, { kind: "loop" }>, _indent: string): void {}
  protected beginStep(_loop: LaneLoop, _indent: string): void {}
  protected endStep(_loop: LaneLoop, _indent: string): void {}
  /** Called before the code of a step is printed. */
  protected beforeStep(_item: Extract<LaneItem, { kind: "loop" }>): void {}
  protected abstract readonly restrict: string;

  protected policy(loop: LaneLoop): HistoryPolicy | undefined {
    return this.program.policies.get(loop);
  }

  protected pointer(input: number): string {
    return `p${input}`;
  }

  protected outputPointer(output: number): string {
    return `p${this.program.inputs.length + output}`;
  }

  protected loadText(s: LaneScalar, address: Ix = s.address!): string {
    const at = address.print();
    return isComplex(this.program.inputs[s.input].dtype)
      ? `${this.pointer(s.input)}[2*(${at})${s.part === 1 ? " + 1" : ""}]`
      : `${this.pointer(s.input)}[${at}]`;
  }

  #slot(loop: LaneLoop, s: LaneScalar): number {
    return this.slots.get(loop)!.indexOf(s);
  }

  protected historyText(loop: LaneLoop, recorded: LaneScalar, time: string): string {
    const slot = this.#slot(loop, recorded);
    const policy = this.policy(loop)!;
    if (policy.kind === "memory")
      return `${this.outputPointer(policy.output)}[(${slot * loop.length} + ${time}) * (ix)${this.program.lanes} + b]`;
    const step = loop.reverse ? `${loop.length - 1} - (${time})` : time;
    const at = policy.kind === "checkpoint" ? `${step} - w${loop.id}` : time;
    return this.historyElement(loop, slot, at);
  }

  /** Declares the lane's local storage for the values of `steps` steps. */
  protected declareHistory(loop: LaneLoop, recorded: readonly LaneScalar[], steps: number, indent: string): void {
    recorded.forEach((s, i) => {
      this.declareArray(`h${loop.id}_${i}`, computeType[s.dtype], steps, indent);
    });
  }

  protected historyElement(loop: LaneLoop, slot: number, at: string): string {
    return this.element(`h${loop.id}_${slot}`, at);
  }

  protected pastText(s: LaneScalar, time: Ix = s.address!): string {
    return this.historyText(s.of!, s.of!.history[s.value], time.print());
  }

  protected statement(s: LaneScalar, indent: string, name = `e${s.id}`): string {
    const read = (x: LaneScalar): string => (x.op === "past" ? this.pastText(x) : this.loadText(x));
    return scalarStatement(s, (x) => this.use(x), read, indent, name);
  }

  protected storeText(s: LaneStore, value = this.use(s.value)): string {
    const { dtype } = this.program.outputs[s.output];
    const at = s.address.print();
    const place = isComplex(dtype)
      ? `${this.outputPointer(s.output)}[2*(${at})${s.part === 1 ? " + 1" : ""}]`
      : `${this.outputPointer(s.output)}[${at}]`;
    return `${s.once ? "if (b == 0) " : ""}${place} = ${value};`;
  }

  protected recordText(loop: LaneLoop, s: LaneScalar): string {
    return `${this.historyText(loop, s, loop.length === 1 ? "0" : loop.variable)} = ${this.use(s)};`;
  }

  items(items: readonly LaneItem[], indent: string, quiet = false): void {
    for (const item of items) {
      if (item.kind === "code") this.code(item, indent, quiet);
      else this.loop(item, indent, quiet);
    }
  }

  #timeOf(loop: LaneLoop, q: string): string {
    return `const ix ${loop.variable} = ${loop.reverse ? `${loop.length - 1} - ${q}` : q};`;
  }

  /** One pass over some steps; `quiet` omits what was stored the first time. */
  #steps(item: Extract<LaneItem, { kind: "loop" }>, from: string, to: string, indent: string, quiet: boolean): void {
    const { loop } = item;
    const q = `q${loop.id}`;
    this.lines.push(`${indent}for (ix ${q} = ${from}; ${q} < ${to}; ${q}++) { ${this.#timeOf(loop, q)}`);
    if (!quiet) this.beginStep(loop, `${indent}  `);
    this.beforeStep(item);
    this.items(item.items, `${indent}  `, quiet);
    if (!quiet) this.endStep(loop, `${indent}  `);
    this.advance(loop, item.states, `${indent}  `);
    this.lines.push(`${indent}}`);
  }

  protected loop(item: Extract<LaneItem, { kind: "loop" }>, indent: string, quiet: boolean): void {
    const { loop, states } = item;
    const recorded = this.slots.get(loop) ?? [];
    const policy = this.policy(loop);
    this.declareStates(loop, states, indent);
    if (policy?.kind === "local") this.declareHistory(loop, recorded, loop.length, indent);
    if (policy?.kind === "checkpoint") {
      this.#checkpointed(item, policy.every, indent);
      this.#recorded.set(loop, item);
      return;
    }
    const replayed = [...this.#recorded.values()].find((forward) => {
      const p = this.policy(forward.loop);
      return p?.kind === "checkpoint" && p.reader === loop;
    });
    if (replayed !== undefined) {
      this.#backwards(item, replayed, indent);
      return;
    }
    this.beginLoop(loop, item, indent);
    if (loop.stop === null) this.#steps(item, "0", String(loop.length), indent, false);
    else this.#stopping(item, loop.stop, indent, quiet);
  }

  /** A loop that may stop early. Rows of its results that belong to steps that did not run are set to zero. */
  #stopping(item: Extract<LaneItem, { kind: "loop" }>, stop: LaneStop, indent: string, quiet: boolean): void {
    const { loop } = item;
    const [q, end, inner] = [`q${loop.id}`, `end${loop.id}`, `${indent}    `];
    this.lines.push(`${indent}{`);
    if (stop.kind === "count") this.declareLargest(`most${loop.id}`, stop.values, `${indent}  `);
    const steps =
      stop.kind === "count" ? `most${loop.id} < ${loop.length} ? most${loop.id} : ${loop.length}` : loop.length;
    const time = loop.length === 1 ? "0" : loop.reverse ? `${end} - 1 - ${q}` : q;
    this.lines.push(
      `${indent}  const ix ${end} = ${steps}; ix ${q} = 0;`,
      `${indent}  for (; ${q} < ${end}; ${q}++) { const ix ${loop.variable} = ${time}; (void)${loop.variable};`,
    );
    if (stop.kind === "while") this.breakUnless(stop.values, inner);
    this.beforeStep(item);
    this.items(item.items, inner, quiet);
    this.advance(loop, item.states, inner);
    this.lines.push(`${indent}  }`);
    const stores = item.items.flatMap((part) => (part.kind === "code" && !quiet ? part.stores : []));
    if (stores.length > 0) {
      this.lines.push(
        `${indent}  for (; ${q} < ${loop.length}; ${q}++) { const ix ${loop.variable} = ${q}; (void)${loop.variable};`,
      );
      this.each(
        stores.map((s) => this.storeText(s, "0")),
        inner,
      );
      this.lines.push(`${indent}  }`);
    }
    this.lines.push(`${indent}}`);
  }

  readonly #recorded = new Map<LaneLoop, Extract<LaneItem, { kind: "loop" }>>();

  /** The forward pass: the state at the beginning of every segment is checkpointed. */
  #checkpointed(item: Extract<LaneItem, { kind: "loop" }>, every: number, indent: string): void {
    const { loop, states } = item;
    const stretches = Math.ceil(loop.length / every);
    for (const i of states) this.declareArray(`k${loop.id}_${i}`, computeType[loop.init[i].dtype], stretches, indent);
    this.declareHistory(loop, this.slots.get(loop) ?? [], every, indent);
    const q = `q${loop.id}`;
    this.lines.push(`${indent}for (ix g${loop.id} = 0; g${loop.id} < ${stretches}; g${loop.id}++) {`);
    this.each(
      states.map((i) => `${this.element(`k${loop.id}_${i}`, `g${loop.id}`)} = ${this.stateName(loop, i)};`),
      `${indent}  `,
    );
    this.lines.push(
      `${indent}  const ix w${loop.id} = g${loop.id} * ${every}, z${loop.id} = w${loop.id} + ${every} < ${loop.length} ? w${loop.id} + ${every} : ${loop.length}; (void)z${loop.id};`,
      `${indent}  for (ix ${q} = w${loop.id}; ${q} < z${loop.id}; ${q}++) { ${this.#timeOf(loop, q)}`,
    );
    this.unrecorded = loop;
    this.beforeStep(item);
    this.items(item.items, `${indent}    `);
    this.unrecorded = null;
    this.advance(loop, states, `${indent}    `);
    this.lines.push(`${indent}  }`, `${indent}}`);
  }

  /** A loop whose steps are not recorded in this pass. */
  protected unrecorded: LaneLoop | null = null;

  /** The reverse pass: each segment is rematerialized from its checkpoint before it is traversed backwards. */
  #backwards(
    item: Extract<LaneItem, { kind: "loop" }>,
    forward: Extract<LaneItem, { kind: "loop" }>,
    indent: string,
  ): void {
    const { every } = this.policy(forward.loop) as Extract<HistoryPolicy, { kind: "checkpoint" }>;
    const f = forward.loop.id;
    const { length } = forward.loop;
    const stretches = Math.ceil(length / every);
    this.lines.push(
      `${indent}for (ix g${f} = ${stretches - 1}; g${f} >= 0; g${f}--) {`,
      `${indent}  const ix w${f} = g${f} * ${every}, z${f} = w${f} + ${every} < ${length} ? w${f} + ${every} : ${length};`,
      `${indent}  {`,
    );
    this.restoreStates(forward.loop, forward.states, `${indent}    `);
    this.#steps(forward, `w${f}`, `z${f}`, `${indent}    `, true);
    this.lines.push(`${indent}  }`);
    // Step q of the reader reverses step length - 1 - q of the loop that it reads.
    this.#steps(item, `${length} - z${f}`, `${length} - w${f}`, `${indent}  `, false);
    this.lines.push(`${indent}}`);
  }

  protected abstract restoreStates(loop: LaneLoop, states: readonly number[], indent: string): void;

  protected pointers(): string[] {
    const { inputs, outputs } = this.program;
    const line = (dtype: DType, i: number, isOutput: boolean): string => {
      const type = `${isOutput ? "" : "const "}${storageType[dtype]}*`;
      return `  ${type} ${this.restrict} p${i} = (${type})p[${i}];`;
    };
    return [
      ...inputs.map((x, i) => line(x.dtype, i, false)),
      ...outputs.map((o, i) => line(o.dtype, inputs.length + i, true)),
    ];
  }

  /** The lane's index on each axis, from its linear index. */
  protected laneAxes(type: string): string {
    const { prefix } = this.program;
    let stride = 1;
    const lines: string[] = [];
    for (let i = prefix.length - 1; i >= 0; i--) {
      const outermost = prefix.slice(0, i).every((d) => d === 1);
      const quotient = stride === 1 ? "b" : `b / ${stride}`;
      lines.push(`const ${type} l${i} = ${outermost ? quotient : `(${quotient}) % ${prefix[i]}`}; (void)l${i};`);
      stride *= prefix[i];
    }
    return lines.join(" ");
  }
}
