// Lane programs as text. CUDA: a thread a lane, state in registers. C: blocks of lanes; every stretch of straight code is a
// loop over the lanes of a block, which the compiler vectorises, and what lives longer waits in small arrays.
import { binaryFns, type DType, isComplex } from "../graph/index.js";
import type { Ix } from "./index-expr.js";
import type { HistoryPolicy, LaneItem, LaneProgram, LaneStore } from "./lane.js";
import type { LaneLoop, LaneScalar } from "./lane-scalar.js";
import { binaryValue, castValue, computeType, type Emitter, literal, storageType, unaryValue } from "./scalar.js";

export interface LaneTextC {
  text: string;
  /** Lanes that one outer iteration takes. */
  lanesPerUnit: number;
}

export interface LaneTextCuda {
  text: string;
  threads: number;
  blocks: number;
}

const laneBlock = 16;
/** Loads of the next step that are issued while this one is computed: at most so many. */
const maxPrefetched = 24;

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
const leaves: ReadonlySet<string> = new Set(["const", "state", "final"]);

abstract class LanePrinter {
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
  /** Statements that every lane runs. */
  protected abstract each(body: string[], indent: string): void;
  protected beginLoop(_loop: LaneLoop, _item: Extract<LaneItem, { kind: "loop" }>, _indent: string): void {}
  protected beginStep(_loop: LaneLoop, _indent: string): void {}
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
    const turn = loop.reverse ? `${loop.length - 1} - (${time})` : time;
    const at = policy.kind === "checkpoint" ? `${turn} - w${loop.id}` : time;
    return this.element(`h${loop.id}_${slot}`, at);
  }

  protected pastText(s: LaneScalar, time: Ix = s.address!): string {
    return this.historyText(s.of!, s.of!.history[s.value], time.print());
  }

  protected statement(s: LaneScalar, indent: string, name = `e${s.id}`): string {
    const out = new Lines(indent, name);
    const type = computeType[s.dtype];
    const [a, b, c] = s.args.map((x) => this.use(x));
    if (s.op === "load") out.define(type, this.loadText(s));
    else if (s.op === "past") out.define(type, this.pastText(s));
    else if (s.op === "lane") out.define(type, `(${type})(${s.address!.print()})`);
    else if (s.op === "where") out.define(type, `${a} ? ${b} : ${c}`);
    else if (s.op.startsWith("random_")) {
      const kind = s.op.slice(7);
      const call = kind === "bits" ? "w_bits" : `w_${kind}_${s.dtype === "float64" ? "d" : "f"}`;
      out.define(type, `${call}((uint32_t)${a}, (uint32_t)${b}, (uint64_t)(${s.address!.print()}))`);
    } else if (s.op === "cast") castValue(out, [a], s.args[0].dtype, s.dtype);
    else if (isBinary.has(s.op)) binaryValue(out, s.op as never, [a], [b], s.args[0].dtype, s.dtype);
    else unaryValue(out, s.op as never, [a], s.args[0].dtype, s.dtype);
    // A cast that changes nothing defines nothing; give it its name all the same.
    if (out.lines.length === 0) out.define(type, a);
    return out.lines.join("\n");
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
      else this.loop(item, indent);
    }
  }

  #timeOf(loop: LaneLoop, q: string): string {
    return `const ix ${loop.variable} = ${loop.reverse ? `${loop.length - 1} - ${q}` : q};`;
  }

  /** One pass over some steps; `quiet` leaves out what was stored the first time. */
  #steps(item: Extract<LaneItem, { kind: "loop" }>, from: string, to: string, indent: string, quiet: boolean): void {
    const { loop } = item;
    const q = `q${loop.id}`;
    this.lines.push(`${indent}for (ix ${q} = ${from}; ${q} < ${to}; ${q}++) { ${this.#timeOf(loop, q)}`);
    if (!quiet) this.beginStep(loop, `${indent}  `);
    this.beforeStep(item);
    this.items(item.items, `${indent}  `, quiet);
    this.advance(loop, item.states, `${indent}  `);
    this.lines.push(`${indent}}`);
  }

  protected loop(item: Extract<LaneItem, { kind: "loop" }>, indent: string): void {
    const { loop, states } = item;
    const recorded = this.slots.get(loop) ?? [];
    const policy = this.policy(loop);
    this.declareStates(loop, states, indent);
    if (policy?.kind === "local")
      recorded.forEach((s, i) => {
        this.declareArray(`h${loop.id}_${i}`, computeType[s.dtype], loop.length, indent);
      });
    if (policy?.kind === "checkpoint") {
      this.#checkpointed(item, policy.every, indent);
      this.#kept.set(loop, item);
      return;
    }
    const replayed = [...this.#kept.values()].find((kept) => {
      const p = this.policy(kept.loop);
      return p?.kind === "checkpoint" && p.reader === loop;
    });
    if (replayed !== undefined) {
      this.#backwards(item, replayed, indent);
      return;
    }
    this.beginLoop(loop, item, indent);
    this.#steps(item, "0", String(loop.length), indent, false);
  }

  readonly #kept = new Map<LaneLoop, Extract<LaneItem, { kind: "loop" }>>();

  /** The forward pass: the state at the beginning of every stretch is kept. */
  #checkpointed(item: Extract<LaneItem, { kind: "loop" }>, every: number, indent: string): void {
    const { loop, states } = item;
    const stretches = Math.ceil(loop.length / every);
    for (const i of states) this.declareArray(`k${loop.id}_${i}`, computeType[loop.init[i].dtype], stretches, indent);
    (this.slots.get(loop) ?? []).forEach((s, i) => {
      this.declareArray(`h${loop.id}_${i}`, computeType[s.dtype], every, indent);
    });
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

  /** The reverse pass: stretch by stretch, each run again from its kept state before it is gone through backwards. */
  #backwards(
    item: Extract<LaneItem, { kind: "loop" }>,
    kept: Extract<LaneItem, { kind: "loop" }>,
    indent: string,
  ): void {
    const { every } = this.policy(kept.loop) as Extract<HistoryPolicy, { kind: "checkpoint" }>;
    const f = kept.loop.id;
    const { length } = kept.loop;
    const stretches = Math.ceil(length / every);
    this.lines.push(
      `${indent}for (ix g${f} = ${stretches - 1}; g${f} >= 0; g${f}--) {`,
      `${indent}  const ix w${f} = g${f} * ${every}, z${f} = w${f} + ${every} < ${length} ? w${f} + ${every} : ${length};`,
      `${indent}  {`,
    );
    this.restoreStates(kept.loop, kept.states, `${indent}    `);
    this.#steps(kept, `w${f}`, `z${f}`, `${indent}    `, true);
    this.lines.push(`${indent}  }`);
    // Step q of the reader undoes step length - 1 - q of the loop that it reads.
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

  /** The lane's index on each axis, from its number. */
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

class CudaPrinter extends LanePrinter {
  readonly #prefetched = new Map<LaneLoop, LaneScalar[]>();
  protected readonly restrict = "__restrict__";

  protected use(s: LaneScalar): string {
    if (s.op === "const") return literal(s.value, s.dtype);
    return s.op === "state" || s.op === "final" ? this.stateName(s.of!, s.value) : `e${s.id}`;
  }

  protected stateName(loop: LaneLoop, i: number): string {
    return `s${loop.id}_${i}`;
  }

  protected code(item: Extract<LaneItem, { kind: "code" }>, indent: string, quiet: boolean): void {
    for (const s of item.scalars) {
      const ahead = !quiet && s.loop !== null && this.#prefetched.get(s.loop)?.includes(s);
      if (!ahead) this.lines.push(this.statement(s, indent));
    }
    for (const s of item.recorded)
      if (s.loop !== this.unrecorded) this.lines.push(indent + this.recordText(s.loop!, s));
    if (!quiet) for (const s of item.stores) this.lines.push(indent + this.storeText(s));
  }

  /** Loads of a step depend on nothing but its time: those of the next step are issued one step ahead. */
  protected override beginLoop(loop: LaneLoop, item: Extract<LaneItem, { kind: "loop" }>, indent: string): void {
    const loads = item.items.flatMap((i) =>
      i.kind === "code"
        ? i.scalars.filter((s) => (s.op === "load" || s.op === "past") && s.address!.mentions(loop.variable))
        : [],
    );
    if (loop.length < 2 || loads.length === 0 || loads.length > maxPrefetched) return;
    this.#prefetched.set(loop, loads);
    const first = loop.reverse ? loop.length - 1 : 0;
    for (const s of loads)
      this.lines.push(
        `${indent}${computeType[s.dtype]} f${s.id}; { const ix ${loop.variable} = ${first}; f${s.id} = ${this.#read(s)}; }`,
      );
  }

  #read(s: LaneScalar): string {
    return s.op === "load" ? this.loadText(s) : this.pastText(s);
  }

  protected override beginStep(loop: LaneLoop, indent: string): void {
    const loads = this.#prefetched.get(loop);
    if (loads === undefined) return;
    for (const s of loads) this.lines.push(`${indent}const ${computeType[s.dtype]} e${s.id} = f${s.id};`);
    const t = loop.variable;
    const ahead = loop.reverse ? `${t} > 0 ? ${t} - 1 : 0` : `${t} < ${loop.length - 1} ? ${t} + 1 : ${t}`;
    this.lines.push(`${indent}{ const ix n_ = ${ahead}; { const ix ${t} = n_;`);
    for (const s of loads) this.lines.push(`${indent}  f${s.id} = ${this.#read(s)};`);
    this.lines.push(`${indent}} }`);
  }

  protected declareStates(loop: LaneLoop, states: readonly number[], indent: string): void {
    for (const i of states)
      this.lines.push(
        `${indent}${computeType[loop.init[i].dtype]} ${this.stateName(loop, i)} = ${this.use(loop.init[i])};`,
      );
  }

  protected restoreStates(loop: LaneLoop, states: readonly number[], indent: string): void {
    for (const i of states)
      this.lines.push(
        `${indent}${computeType[loop.init[i].dtype]} ${this.stateName(loop, i)} = ${this.element(`k${loop.id}_${i}`, `g${loop.id}`)};`,
      );
  }

  protected advance(loop: LaneLoop, states: readonly number[], indent: string): void {
    // All new values before any old one is overwritten.
    const moved = states.filter((i) => !(loop.next[i].op === "state" && loop.next[i].value === i));
    for (const i of moved)
      if (loop.next[i].op === "state")
        this.lines.push(`${indent}const ${computeType[loop.init[i].dtype]} n${i} = ${this.use(loop.next[i])};`);
    for (const i of moved)
      this.lines.push(
        `${indent}${this.stateName(loop, i)} = ${loop.next[i].op === "state" ? `n${i}` : this.use(loop.next[i])};`,
      );
  }

  protected declareArray(name: string, type: string, size: number, indent: string): void {
    this.lines.push(`${indent}${type} ${name}[${size}];`);
  }

  protected element(array: string, at: string): string {
    return `${array}[${at}]`;
  }

  protected each(body: string[], indent: string): void {
    for (const line of body) this.lines.push(indent + line);
  }

  print(threads: number): string {
    const { program } = this;
    const sizes = [...program.inputs, ...program.outputs].map((x) => x.shape.reduce((n, d) => n * d, 2));
    const wide = sizes.some((n) => n >= 2 ** 31);
    this.lines.push(
      `  typedef ${wide ? "long long" : "int"} ix;`,
      ...this.pointers(),
      `  const ix b = (ix)blockIdx.x * ${threads} + threadIdx.x;`,
      `  if (b >= ${program.lanes}) return;`,
      `  ${this.laneAxes("ix")}`,
    );
    this.items(program.items, "  ");
    return this.lines.join("\n");
  }
}

export function emitLaneCuda(program: LaneProgram): LaneTextCuda {
  // Few lanes are spread over many multiprocessors; many fill them with larger blocks.
  const threads = program.lanes >= 65536 ? 128 : program.lanes >= 16384 ? 64 : 32;
  return {
    text: new CudaPrinter(program).print(threads),
    threads,
    blocks: Math.ceil(program.lanes / threads),
  };
}

class CPrinter extends LanePrinter {
  readonly #block: number;
  protected readonly restrict = "restrict";
  /** Scalars that are used in another stretch of code than the one that computes them. */
  readonly #kept = new Set<LaneScalar>();
  #here = new Set<LaneScalar>();

  constructor(program: LaneProgram) {
    super(program);
    this.#block = Math.min(laneBlock, program.lanes);
    this.#findKept(program.items);
  }

  #findKept(items: readonly LaneItem[]): void {
    const home = new Map<LaneScalar, object>();
    const uses: [LaneScalar, object | null][] = [];
    const visit = (list: readonly LaneItem[]): void => {
      for (const item of list) {
        if (item.kind === "loop") {
          // Initial and new values are read by code of their own.
          for (const i of item.states) {
            uses.push([item.loop.init[i], null]);
            uses.push([item.loop.next[i], this.#lastCode(item)]);
          }
          visit(item.items);
        } else {
          for (const s of item.scalars) {
            home.set(s, item);
            for (const a of s.args) uses.push([a, item]);
          }
          for (const s of item.stores) uses.push([s.value, item]);
          for (const s of item.recorded) uses.push([s, item]);
        }
      }
    };
    visit(items);
    for (const [s, item] of uses) if (!leaves.has(s.op) && home.get(s) !== item) this.#kept.add(s);
  }

  #lastCode(item: Extract<LaneItem, { kind: "loop" }>): object | null {
    const last = item.items[item.items.length - 1];
    return last?.kind === "code" ? last : null;
  }

  protected use(s: LaneScalar): string {
    if (s.op === "const") return literal(s.value, s.dtype);
    if (s.op === "state" || s.op === "final") return this.stateName(s.of!, s.value);
    return this.#here.has(s) || !this.#kept.has(s) ? `e${s.id}` : `c${s.id}[l]`;
  }

  protected stateName(loop: LaneLoop, i: number): string {
    return `a${loop.id}_${i}[l]`;
  }

  readonly #pendingAdvance = new Map<object, { loop: LaneLoop; states: readonly number[] }>();

  protected code(item: Extract<LaneItem, { kind: "code" }>, indent: string, quiet: boolean): void {
    this.#here = new Set(item.scalars);
    const inner = `${indent}  `;
    // What lies far apart from lane to lane goes through small arrays: such accesses would keep the rest from being vectors.
    const gathered = item.scalars.filter((s) => s.op === "load" && this.#isScattered(s.input, s.address!));
    this.#laneLoop(
      gathered.map((s) => `${inner}g${s.id}[l] = ${this.loadText(s)};`),
      indent,
      gathered.map((s) => `${computeType[s.dtype]} g${s.id}[${this.#block}] __attribute__((aligned(64)));`),
    );
    const apart = new Set(gathered);
    const body: string[] = item.scalars.map((s) =>
      apart.has(s) ? `${inner}const ${computeType[s.dtype]} e${s.id} = g${s.id}[l];` : this.statement(s, inner),
    );
    for (const s of item.scalars) if (this.#kept.has(s)) body.push(`${inner}c${s.id}[l] = e${s.id};`);
    for (const s of item.recorded) if (s.loop !== this.unrecorded) body.push(inner + this.recordText(s.loop!, s));
    const stores = quiet ? [] : item.stores;
    const scattered = stores.filter(
      (s) => s.once || this.#isScattered(this.program.inputs.length + s.output, s.address),
    );
    const arrays = scattered.map(
      (s, i) => `${computeType[s.value.dtype]} y${i}[${this.#block}] __attribute__((aligned(64)));`,
    );
    for (const s of stores) {
      const at = scattered.indexOf(s);
      body.push(inner + (at < 0 ? this.storeText(s) : `y${at}[l] = ${this.use(s.value)};`));
    }
    const advance = this.#pendingAdvance.get(item);
    if (advance !== undefined) body.push(...this.#advanceLines(advance.loop, advance.states, inner));
    this.#pendingAdvance.delete(item);
    this.#here = new Set();
    for (const line of arrays) this.lines.push(indent + line);
    this.#laneLoop(body, indent, null);
    this.#laneLoop(
      scattered.map((s, i) => inner + this.storeText(s, `y${i}[l]`)),
      indent,
      [],
    );
  }

  /** Whether neighbouring lanes are not neighbours in memory. */
  #isScattered(buffer: number, address: Ix): boolean {
    const { prefix, inputs, outputs } = this.program;
    const { dtype } = buffer < inputs.length ? inputs[buffer] : outputs[buffer - inputs.length];
    const names = [...address.variables()].filter((name) => name.startsWith("l"));
    if (names.length === 0) return false;
    if (isComplex(dtype)) return true;
    let stride = 1;
    for (let i = prefix.length - 1; i >= 0; i--) {
      if (prefix[i] > 1 && address.stride(`l${i}`) !== stride) return true;
      stride *= prefix[i];
    }
    return false;
  }

  /** A loop over the lanes of a block; as vectors unless `plain` says which arrays it only fills or empties. */
  #laneLoop(body: string[], indent: string, plain: string[] | null = null): void {
    if (body.length === 0) return;
    if (plain === null) this.lines.push(`${indent}_Pragma("omp simd")`);
    else for (const line of plain) this.lines.push(indent + line);
    this.lines.push(
      `${indent}for (long l = 0; l < lanes; l++) { const long b = base + l; (void)b; ${this.laneAxes("long")}`,
      ...body,
      `${indent}}`,
    );
  }

  #advanceLines(loop: LaneLoop, states: readonly number[], indent: string): string[] {
    const moved = states.filter((i) => !(loop.next[i].op === "state" && loop.next[i].value === i));
    return [
      ...moved.map((i) => `${indent}const ${computeType[loop.init[i].dtype]} n${i} = ${this.use(loop.next[i])};`),
      ...moved.map((i) => `${indent}${this.stateName(loop, i)} = n${i};`),
    ];
  }

  protected advance(loop: LaneLoop, states: readonly number[], indent: string): void {
    if (this.#advanced.delete(loop)) return;
    this.#laneLoop(this.#advanceLines(loop, states, `${indent}  `), indent);
  }

  readonly #advanced = new Set<LaneLoop>();

  /** New states are written by the last stretch of a step, while its numbers are still in registers. */
  protected override beforeStep(item: Extract<LaneItem, { kind: "loop" }>): void {
    const last = this.#lastCode(item);
    if (last === null) return;
    this.#pendingAdvance.set(last, { loop: item.loop, states: item.states });
    this.#advanced.add(item.loop);
  }

  protected declareStates(loop: LaneLoop, states: readonly number[], indent: string): void {
    for (const i of states)
      this.lines.push(
        `${indent}${computeType[loop.init[i].dtype]} a${loop.id}_${i}[${this.#block}] __attribute__((aligned(64)));`,
      );
    this.#laneLoop(
      states.map((i) => `${indent}  ${this.stateName(loop, i)} = ${this.use(loop.init[i])};`),
      indent,
    );
  }

  protected restoreStates(loop: LaneLoop, states: readonly number[], indent: string): void {
    for (const i of states)
      this.lines.push(
        `${indent}${computeType[loop.init[i].dtype]} a${loop.id}_${i}[${this.#block}] __attribute__((aligned(64)));`,
      );
    this.#laneLoop(
      states.map((i) => `${indent}  ${this.stateName(loop, i)} = ${this.element(`k${loop.id}_${i}`, `g${loop.id}`)};`),
      indent,
    );
  }

  protected declareArray(name: string, type: string, size: number, indent: string): void {
    this.lines.push(`${indent}${type} ${name}[${size}][${this.#block}] __attribute__((aligned(64)));`);
  }

  protected element(array: string, at: string): string {
    return `${array}[${at}][l]`;
  }

  protected each(body: string[], indent: string): void {
    this.#laneLoop(
      body.map((line) => `${indent}  ${line}`),
      indent,
    );
  }

  print(): LaneTextC {
    const { lanes } = this.program;
    const block = this.#block;
    this.lines.push(
      "  typedef long ix;",
      ...this.pointers(),
      "  for (long u = lo; u < hi; u++) {",
      `    const long base = u * ${block}, lanes = base + ${block} <= ${lanes} ? ${block} : ${lanes} - base;`,
    );
    for (const s of this.#kept)
      this.lines.push(`    ${computeType[s.dtype]} c${s.id}[${block}] __attribute__((aligned(64)));`);
    this.items(this.program.items, "    ");
    this.lines.push("  }");
    return { text: this.lines.join("\n"), lanesPerUnit: block };
  }
}

export function emitLaneC(program: LaneProgram): LaneTextC {
  return new CPrinter(program).print();
}
