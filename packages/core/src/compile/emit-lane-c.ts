// Emits lane programs as C: a unit is a block of lanes; every stretch of straight-line code is a loop over the lanes of a
// block, which the compiler vectorizes, and values that live longer are in small arrays. Uniform values are computed once.
import { isComplex } from "../graph/index.js";
import { LanePrinter } from "./emit-lane.js";
import type { Ix } from "./index-expr.js";
import type { LaneItem, LaneProgram } from "./lane.js";
import type { LaneLoop, LaneScalar } from "./lane-scalar.js";
import { computeType, literal } from "./scalar.js";

interface LaneTextC {
  text: string;
  /** Lanes per outer iteration. */
  lanesPerUnit: number;
}

const laneBlock = 16;

/** Lanes of a block: as many as there are if they are few, else a number that divides them if there is one. */
const blockOf = (lanes: number): number =>
  lanes <= laneBlock ? lanes : lanes % laneBlock === 0 || lanes % (laneBlock / 2) !== 0 ? laneBlock : laneBlock / 2;

/** Steps, with those of loops inside, from which a loop can be stopped from outside. */
const longLoop = 1 << 16;
const tripsOf = ({ loop, items }: Extract<LaneItem, { kind: "loop" }>): number =>
  loop.length * items.reduce((most, item) => (item.kind === "loop" ? Math.max(most, tripsOf(item)) : most), 1);

const leaves: ReadonlySet<string> = new Set(["const", "state", "final"]);

class CPrinter extends LanePrinter {
  readonly #block: number;
  protected readonly restrict = "restrict";
  /** Scalars that are used in another stretch of code than the one that computes them. */
  readonly #spilled = new Set<LaneScalar>();
  #here = new Set<LaneScalar>();

  /** Scalars that are uniform over lanes. */
  readonly #uniform = new Set<LaneScalar>();

  constructor(program: LaneProgram) {
    super(program);
    this.#block = blockOf(program.lanes);
    this.#findKept(program.items);
    this.#findUniform();
  }

  /** A state is uniform if its initial value and every step are: assumed for all, and retracted until nothing changes. */
  #findUniform(): void {
    const code: LaneScalar[] = [];
    const loops: LaneLoop[] = [];
    const visit = (list: readonly LaneItem[]): void => {
      for (const item of list) {
        if (item.kind === "code") code.push(...item.scalars);
        else {
          loops.push(item.loop);
          visit(item.items);
        }
      }
    };
    visit(this.program.items);
    const differs = new Set<string>();
    const known = new Map<LaneScalar, boolean>();
    const isAlike = (s: LaneScalar): boolean => {
      if (s.op === "const") return true;
      if (s.op === "state" || s.op === "final") return !differs.has(`${s.of!.id}.${s.value}`);
      if (s.op === "load") return ![...s.address!.variables()].some((name) => name.startsWith("l"));
      if (s.op === "lane" || s.op === "past" || s.op === "shared" || s.op.startsWith("random_")) return false;
      return s.args.every((a) => known.get(a) ?? isAlike(a));
    };
    for (let changed = true; changed; ) {
      changed = false;
      known.clear();
      for (const s of code) known.set(s, isAlike(s));
      for (const loop of loops)
        loop.init.forEach((init, i) => {
          const key = `${loop.id}.${i}`;
          if (differs.has(key)) return;
          const alike = (s: LaneScalar): boolean => known.get(s) ?? isAlike(s);
          if (alike(init) && loop.next[i] !== undefined && alike(loop.next[i])) return;
          differs.add(key);
          changed = true;
        });
    }
    for (const [s, alike] of known) if (alike) this.#uniform.add(s);
  }

  #findKept(items: readonly LaneItem[]): void {
    const home = new Map<LaneScalar, object>();
    const uses: [LaneScalar, object | null][] = [];
    const visit = (list: readonly LaneItem[]): void => {
      for (const item of list) {
        if (item.kind === "loop") {
          // Initial and new values are read by separate code.
          for (const i of item.states) {
            uses.push([item.loop.init[i], null]);
            uses.push([item.loop.next[i], this.#lastCode(item)]);
          }
          for (const s of item.loop.stop?.values ?? []) uses.push([s, null]);
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
    for (const [s, item] of uses) if (!leaves.has(s.op) && home.get(s) !== item) this.#spilled.add(s);
  }

  #lastCode(item: Extract<LaneItem, { kind: "loop" }>): object | null {
    const last = item.items[item.items.length - 1];
    return last?.kind === "code" ? last : null;
  }

  protected use(s: LaneScalar): string {
    if (s.op === "const") return literal(s.value, s.dtype);
    if (s.op === "state" || s.op === "final") return this.stateName(s.of!, s.value);
    return this.#here.has(s) || !this.#spilled.has(s) ? `e${s.id}` : `c${s.id}[l]`;
  }

  protected stateName(loop: LaneLoop, i: number): string {
    return `a${loop.id}_${i}[l]`;
  }

  readonly #pendingAdvance = new Map<object, { loop: LaneLoop; states: readonly number[] }>();

  /** Small arrays for scattered stores, numbered over the whole text. */
  #scattered = 0;

  protected code(item: Extract<LaneItem, { kind: "code" }>, indent: string, quiet: boolean): void {
    this.#here = new Set(item.scalars);
    const inner = `${indent}  `;
    // Accesses with a large stride between lanes go through small arrays: they would keep the rest from being vectorized.
    const gathered = item.scalars.filter((s) => s.op === "load" && this.#isScattered(s.input, s.address!));
    this.#laneLoop(
      gathered.map((s) => `${inner}g${s.id}[l] = ${this.loadText(s)};`),
      indent,
      gathered.map((s) => `${computeType[s.dtype]} g${s.id}[${this.#block}] __attribute__((aligned(64)));`),
    );
    const viaArray = new Set(gathered);
    // Before the loop over lanes, from the first lane's values: they are uniform.
    const alike = item.scalars.filter((s) => this.#uniform.has(s));
    const once = alike.map((s) => this.statement(s, indent).replaceAll("[l]", "[0]"));
    const body: string[] = item.scalars
      .filter((s) => !this.#uniform.has(s))
      .map((s) =>
        viaArray.has(s) ? `${inner}const ${computeType[s.dtype]} e${s.id} = g${s.id}[l];` : this.statement(s, inner),
      );
    for (const s of item.scalars) if (this.#spilled.has(s)) body.push(`${inner}c${s.id}[l] = e${s.id};`);
    for (const s of item.recorded) if (s.loop !== this.unrecorded) body.push(inner + this.recordText(s.loop!, s));
    const stores = quiet ? [] : item.stores;
    const scattered = stores.filter(
      (s) => s.once || this.#isScattered(this.program.inputs.length + s.output, s.address),
    );
    // Two pieces of code of one block must not share names.
    const first = this.#scattered;
    this.#scattered += scattered.length;
    const arrays = scattered.map(
      (s, i) => `${computeType[s.value.dtype]} y${first + i}[${this.#block}] __attribute__((aligned(64)));`,
    );
    for (const s of stores) {
      const at = scattered.indexOf(s);
      body.push(inner + (at < 0 ? this.storeText(s) : `y${first + at}[l] = ${this.use(s.value)};`));
    }
    const advance = this.#pendingAdvance.get(item);
    if (advance !== undefined) body.push(...this.#advanceLines(advance.loop, advance.states, inner));
    this.#pendingAdvance.delete(item);
    this.#here = new Set();
    for (const line of arrays) this.lines.push(indent + line);
    if (once.length > 0) this.lines.push(`${indent}{`, ...once);
    this.#laneLoop(body, indent, null);
    if (once.length > 0) this.lines.push(`${indent}}`);
    this.#laneLoop(
      scattered.map((s, i) => inner + this.storeText(s, `y${first + i}[l]`)),
      indent,
      [],
    );
  }

  /** Whether adjacent lanes are not adjacent in memory. */
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

  /** A loop over the lanes of a block; vectorized unless `plain` names the arrays that it only fills or empties. */
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

  /** New states are written by the last stretch of a step, while its values are still in registers. */
  protected override beforeStep(item: Extract<LaneItem, { kind: "loop" }>): void {
    // The test takes time in short loops, and these end soon.
    if (tripsOf(item) >= longLoop) this.lines.push("    if (W_STOPPED) return;");
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

  protected declareLargest(name: string, values: readonly LaneScalar[], indent: string): void {
    this.lines.push(
      `${indent}ix ${name} = 0;`,
      `${indent}for (long l = 0; l < lanes; l++) {`,
      ...values.map((s) => `${indent}  if (${this.use(s)} > ${name}) ${name} = ${this.use(s)};`),
      `${indent}}`,
    );
  }

  /** The lanes of a block run until the last of them stops; the step leaves the others unchanged. */
  protected breakUnless(values: readonly LaneScalar[], indent: string): void {
    const any = values.map((s) => `${this.use(s)} != 0`).join(" || ");
    this.lines.push(`${indent}{ int runs = 0; for (long l = 0; l < lanes; l++) runs |= ${any}; if (!runs) break; }`);
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
      // A constant number of lanes needs no code for a remainder.
      lanes % block === 0
        ? `    const long base = u * ${block}, lanes = ${block};`
        : `    const long base = u * ${block}, lanes = base + ${block} <= ${lanes} ? ${block} : ${lanes} - base;`,
    );
    for (const s of this.#spilled)
      this.lines.push(`    ${computeType[s.dtype]} c${s.id}[${block}] __attribute__((aligned(64)));`);
    this.items(this.program.items, "    ");
    this.lines.push("  }");
    return { text: this.lines.join("\n"), lanesPerUnit: block };
  }
}

export function emitLaneC(program: LaneProgram): LaneTextC {
  return new CPrinter(program).print();
}
