// Emits lane programs as CUDA: one thread per lane, state in registers. Loads of the next step are prefetched during the
// current one, and contiguous numbers are read and written together.
import { type DType, isComplex } from "../graph/index.js";
import { LanePrinter } from "./emit-lane.js";
import type { Ix } from "./index-expr.js";
import type { LaneItem, LaneProgram, LaneStore } from "./lane.js";
import type { LaneLoop, LaneScalar } from "./lane-scalar.js";
import { sameTile, type Tile, tileOf } from "./lane-tiles.js";
import { computeType, literal, storageType } from "./scalar.js";

export interface LaneTextCuda {
  text: string;
  threads: number;
  blocks: number;
}

/** Maximum number of prefetched loads of the next step. */
const maxPrefetched = 24;

const parts = ["x", "y", "z", "w"] as const;
const wideType = (count: number): string => (count === 4 ? "w_quad" : "w_pair");

/** An element's offset in numbers: complex elements count twice. */
const numberAddress = (address: Ix, dtype: DType, part: 0 | 1): Ix =>
  isComplex(dtype) ? address.times(2).plus(part) : address;

interface Place {
  buffer: number;
  dtype: DType;
  address: Ix;
}

/** Groups accesses to contiguous numbers at offsets that are multiples of two or four; the others stay single. */
function wideGroups<T>(items: readonly T[], aligned: boolean, placeOf: (item: T) => Place): T[][] {
  const groups: T[][] = [];
  const byBase = new Map<string, Map<number, { item: T; place: Place }>>();
  for (const item of items) {
    const place = placeOf(item);
    const key = `${place.buffer}|${place.address.plus(-place.address.constant).key}`;
    const found = byBase.get(key) ?? new Map<number, { item: T; place: Place }>();
    // The same address twice: written in order.
    if (found.has(place.address.constant)) groups.push([item]);
    else found.set(place.address.constant, { item, place });
    byBase.set(key, found);
  }
  for (const found of byBase.values()) {
    const done = new Set<number>();
    const offsets = [...found.keys()].sort((a, b) => a - b);
    for (const at of offsets) {
      if (done.has(at)) continue;
      const { place } = found.get(at)!;
      const type = storageType[place.dtype];
      const factors = [...place.address.terms.values()].map((t) => t.factor);
      const fits = (width: number): boolean =>
        aligned &&
        at % width === 0 &&
        factors.every((f) => f % width === 0) &&
        Array.from({ length: width }, (_, i) => at + i).every((o) => found.has(o) && !done.has(o));
      const width = type === "float" && fits(4) ? 4 : (type === "float" || type === "double") && fits(2) ? 2 : 1;
      const members = Array.from({ length: width }, (_, i) => at + i);
      for (const o of members) done.add(o);
      groups.push(members.map((o) => found.get(o)!.item));
    }
  }
  return groups;
}

class CudaPrinter extends LanePrinter {
  readonly #prefetched = new Map<LaneLoop, LaneScalar[]>();
  /** Tiles that are read and written in each loop, and which accesses go through them. */
  readonly #tiles = new Map<LaneLoop, { read: Tile[]; written: Tile[] }>();
  readonly #tileOfLoad = new Map<LaneScalar, Tile>();
  readonly #tileOfStore = new Map<LaneStore, Tile>();
  #tileCount = 0;
  protected readonly restrict = "__restrict__";

  constructor(
    program: LaneProgram,
    readonly aligned: boolean,
    readonly threads: number,
  ) {
    super(program);
  }

  protected use(s: LaneScalar): string {
    if (s.op === "const") return literal(s.value, s.dtype);
    return s.op === "state" || s.op === "final" ? this.stateName(s.of!, s.value) : `e${s.id}`;
  }

  protected stateName(loop: LaneLoop, i: number): string {
    return `s${loop.id}_${i}`;
  }

  protected code(item: Extract<LaneItem, { kind: "code" }>, indent: string, quiet: boolean): void {
    const ahead = (s: LaneScalar): boolean =>
      !quiet && s.loop !== null && this.#prefetched.get(s.loop)?.includes(s) === true;
    // Loads depend on nothing else in the stretch: they come first, contiguous ones together.
    const tiled = quiet ? [] : item.scalars.filter((s) => this.#tileOfLoad.has(s));
    for (const s of tiled)
      this.lines.push(
        `${indent}const ${computeType[s.dtype]} e${s.id} = ${this.#inTile(this.#tileOfLoad.get(s)!, s.loop!, s.address!)};`,
      );
    const loads = item.scalars.filter((s) => s.op === "load" && !ahead(s) && !tiled.includes(s));
    for (const group of this.#groups(loads))
      this.lines.push(...this.#readWide(group, indent, (s) => `const ${computeType[s.dtype]} e${s.id}`));
    for (const s of item.scalars) if (s.op !== "load" && !ahead(s)) this.lines.push(this.statement(s, indent));
    for (const s of item.recorded)
      if (s.loop !== this.unrecorded) this.lines.push(indent + this.recordText(s.loop!, s));
    if (quiet) return;
    this.#store(
      item.stores.filter((s) => !this.#tileOfStore.has(s)),
      indent,
    );
    for (const s of item.stores) {
      const tile = this.#tileOfStore.get(s);
      if (tile !== undefined)
        this.lines.push(`${indent}${this.#inTile(tile, s.loop!, s.address)} = ${this.use(s.value)};`);
    }
  }

  /** A number of this lane and step in shared memory. */
  #inTile(tile: Tile, loop: LaneLoop, address: Ix): string {
    const { id, steps, stepNumbers, row, first } = tile;
    return `y${id}[tl * ${row} + ${loop.variable} % ${steps} * ${stepNumbers} + ${address.constant - first}]`;
  }

  /** Moves a tile between global and shared memory, all lanes of the warp together. */
  #move(tile: Tile, loop: LaneLoop, isStore: boolean, indent: string): string[] {
    const { id, numbers, row, width, laneStride, stepNumbers, first, steps, buffer, dtype } = tile;
    const per = numbers / width;
    const base = `p${buffer} + (tw + ln) * (ix)${laneStride} + tb * ${stepNumbers} + j + ${first}`;
    const type = storageType[dtype];
    const vector = `w_quad<${type}>`;
    const at = (k: number): string => `y${id}[ln * ${row} + j + ${k}]`;
    const inside = `tb * ${stepNumbers} + j < ${loop.length * stepNumbers}`;
    const quad = isStore
      ? `*(${vector}*)(${base}) = ${vector}{${[0, 1, 2, 3].map(at).join(", ")}};`
      : `const ${vector} v = *(const ${vector}*)(${base}); ${[0, 1, 2, 3].map((k) => `${at(k)} = v.${parts[k]};`).join(" ")}`;
    const single = isStore ? `*(${base}) = ${at(0)};` : `${at(0)} = *(${base});`;
    return [
      `${indent}{ const ix tb = ${loop.variable} / ${steps} * ${steps}; __syncwarp();`,
      "#pragma unroll",
      `${indent}  for (int i = tl; i < ${32 * per}; i += 32) { const int ln = i / ${per}, j = i % ${per} * ${width};`,
      `${indent}    if (${inside}) { ${width === 4 ? quad : single} }`,
      `${indent}  } __syncwarp(); }`,
    ];
  }

  /** Finds the accesses of a loop that go through tiles. */
  #findTiles(loop: LaneLoop, item: Extract<LaneItem, { kind: "loop" }>): void {
    const found = { read: [] as Tile[], written: [] as Tile[] };
    const join = (list: Tile[], tile: Omit<Tile, "id"> | null): Tile | null => {
      if (tile === null || !this.aligned) return null;
      let known = list.find((other) => sameTile(other, tile));
      if (known === undefined) {
        known = { ...tile, id: this.#tileCount++ };
        list.push(known);
      }
      return known;
    };
    for (const part of item.items) {
      if (part.kind !== "code") continue;
      for (const s of part.scalars) {
        if (s.op !== "load" || s.loop !== loop) continue;
        const tile = join(
          found.read,
          tileOf(this.program, loop, s.input, this.program.inputs[s.input].dtype, s.address!),
        );
        if (tile !== null) this.#tileOfLoad.set(s, tile);
      }
      for (const s of part.stores) {
        const { dtype } = this.program.outputs[s.output];
        const buffer = this.program.inputs.length + s.output;
        const tile = s.once ? null : join(found.written, tileOf(this.program, loop, buffer, dtype, s.address));
        if (tile !== null) this.#tileOfStore.set(s, tile);
      }
    }
    this.#tiles.set(loop, found);
  }

  protected override endStep(loop: LaneLoop, indent: string): void {
    const written = this.#tiles.get(loop)?.written ?? [];
    if (written.length === 0) return;
    const t = loop.variable;
    for (const tile of written) {
      const edge = loop.reverse
        ? `${t} % ${tile.steps} == 0`
        : `${t} % ${tile.steps} == ${tile.steps - 1} || ${t} == ${loop.length - 1}`;
      this.lines.push(`${indent}if (${edge})`, ...this.#move(tile, loop, true, indent));
    }
  }

  /** Contiguous numbers at an aligned address, two or four together. */
  #groups(loads: readonly LaneScalar[]): LaneScalar[][] {
    return wideGroups(loads, this.aligned, (s) => {
      const { dtype } = this.program.inputs[s.input];
      return { buffer: s.input, dtype, address: numberAddress(s.address!, dtype, s.part) };
    });
  }

  #readWide(group: readonly LaneScalar[], indent: string, target: (s: LaneScalar) => string): string[] {
    const [first] = group;
    if (group.length === 1) return [`${indent}${target(first)} = ${this.#read(first)};`];
    const { dtype } = this.program.inputs[first.input];
    const vector = `${wideType(group.length)}<${storageType[dtype]}>`;
    const at = numberAddress(first.address!, dtype, first.part).print();
    const name = `v${first.id}`;
    return [
      `${indent}const ${vector} ${name} = *(const ${vector}*)(${this.pointer(first.input)} + ${at});`,
      ...group.map((s, k) => `${indent}${target(s)} = ${name}.${parts[k]};`),
    ];
  }

  #store(stores: readonly LaneStore[], indent: string): void {
    const groups = wideGroups(
      stores.filter((s) => !s.once),
      this.aligned,
      (s) => {
        const { dtype } = this.program.outputs[s.output];
        return { buffer: s.output, dtype, address: numberAddress(s.address, dtype, s.part) };
      },
    );
    for (const s of stores) if (s.once) this.lines.push(indent + this.storeText(s));
    for (const group of groups) {
      const [first] = group;
      if (group.length === 1) {
        this.lines.push(indent + this.storeText(first));
        continue;
      }
      const { dtype } = this.program.outputs[first.output];
      const vector = `${wideType(group.length)}<${storageType[dtype]}>`;
      const at = numberAddress(first.address, dtype, first.part).print();
      const values = group.map((s) => this.use(s.value)).join(", ");
      this.lines.push(`${indent}*(${vector}*)(${this.outputPointer(first.output)} + ${at}) = ${vector}{${values}};`);
    }
  }

  /** Loads of a step depend on nothing but its time: those of the next step are issued one step ahead. */
  protected override beginLoop(loop: LaneLoop, item: Extract<LaneItem, { kind: "loop" }>, indent: string): void {
    // The threads of a warp share tiles, so they must run the same steps.
    for (let at: LaneLoop | null = loop; at !== null; at = at.parent) if (at.stop !== null) return;
    this.#findTiles(loop, item);
    const { read, written } = this.#tiles.get(loop)!;
    for (const { id, dtype, row } of [...read, ...written])
      this.lines.push(
        `${indent}__shared__ ${storageType[dtype]} w${id}[${(this.threads / 32) * 32 * row}]; ${storageType[dtype]}* const y${id} = w${id} + threadIdx.x / 32 * ${32 * row};`,
      );
    const loads = item.items.flatMap((i) =>
      i.kind === "code"
        ? i.scalars.filter(
            (s) =>
              (s.op === "load" || s.op === "past") && !this.#tileOfLoad.has(s) && s.address!.mentions(loop.variable),
          )
        : [],
    );
    if (loop.length < 2 || loads.length === 0 || loads.length > maxPrefetched) return;
    this.#prefetched.set(loop, loads);
    const first = loop.reverse ? loop.length - 1 : 0;
    for (const s of loads) this.lines.push(`${indent}${computeType[s.dtype]} f${s.id};`);
    this.lines.push(`${indent}{ const ix ${loop.variable} = ${first};`);
    this.#readAhead(loads, `${indent}  `);
    this.lines.push(`${indent}}`);
  }

  #readAhead(loads: readonly LaneScalar[], indent: string): void {
    const memory = loads.filter((s) => s.op === "load");
    for (const group of this.#groups(memory)) this.lines.push(...this.#readWide(group, indent, (s) => `f${s.id}`));
    for (const s of loads) if (s.op !== "load") this.lines.push(`${indent}f${s.id} = ${this.#read(s)};`);
  }

  #read(s: LaneScalar): string {
    return s.op === "load" ? this.loadText(s) : this.pastText(s);
  }

  protected override beginStep(loop: LaneLoop, indent: string): void {
    const v = loop.variable;
    for (const tile of this.#tiles.get(loop)?.read ?? []) {
      const edge = loop.reverse ? tile.steps - 1 : 0;
      this.lines.push(
        `${indent}if (q${loop.id} == 0 || ${v} % ${tile.steps} == ${edge})`,
        ...this.#move(tile, loop, false, indent),
      );
    }
    const loads = this.#prefetched.get(loop);
    if (loads === undefined) return;
    for (const s of loads) this.lines.push(`${indent}const ${computeType[s.dtype]} e${s.id} = f${s.id};`);
    const t = loop.variable;
    const ahead = loop.reverse ? `${t} > 0 ? ${t} - 1 : 0` : `${t} < ${loop.length - 1} ? ${t} + 1 : ${t}`;
    this.lines.push(`${indent}{ const ix n_ = ${ahead}; { const ix ${t} = n_;`);
    this.#readAhead(loads, `${indent}  `);
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

  /** The numbers of a step are contiguous: one address per step. */
  #isJoined(loop: LaneLoop): boolean {
    return new Set((this.slots.get(loop) ?? []).map((s) => s.dtype)).size === 1;
  }

  protected override declareHistory(
    loop: LaneLoop,
    recorded: readonly LaneScalar[],
    steps: number,
    indent: string,
  ): void {
    if (!this.#isJoined(loop)) super.declareHistory(loop, recorded, steps, indent);
    else this.declareArray(`h${loop.id}`, computeType[recorded[0].dtype], steps * recorded.length, indent);
  }

  protected override historyElement(loop: LaneLoop, slot: number, at: string): string {
    if (!this.#isJoined(loop)) return super.historyElement(loop, slot, at);
    return `h${loop.id}[(${at}) * ${this.slots.get(loop)!.length} + ${slot}]`;
  }

  protected element(array: string, at: string): string {
    return `${array}[${at}]`;
  }

  protected declareLargest(name: string, values: readonly LaneScalar[], indent: string): void {
    this.lines.push(`${indent}ix ${name} = 0;`);
    for (const s of values) this.lines.push(`${indent}if (${this.use(s)} > ${name}) ${name} = ${this.use(s)};`);
  }

  protected breakUnless(values: readonly LaneScalar[], indent: string): void {
    this.lines.push(`${indent}if (!(${values.map((s) => this.use(s)).join(" || ")})) break;`);
  }

  protected each(body: string[], indent: string): void {
    for (const line of body) this.lines.push(indent + line);
  }

  print(): string {
    const { program, threads } = this;
    const sizes = [...program.inputs, ...program.outputs].map((x) => x.shape.reduce((n, d) => n * d, 2));
    const wide = sizes.some((n) => n >= 2 ** 31);
    this.lines.push(
      `  typedef ${wide ? "long long" : "int"} ix;`,
      ...this.pointers(),
      `  const ix b = (ix)blockIdx.x * ${threads} + threadIdx.x;`,
      `  if (b >= ${program.lanes}) return;`,
      "  const int tl = threadIdx.x % 32; const ix tw = b - tl; (void)tl; (void)tw;",
      `  ${this.laneAxes("ix")}`,
    );
    this.items(program.items, "  ");
    return this.lines.join("\n");
  }
}

/** `aligned`: buffers are aligned for any vector. */
export function emitLaneCuda(program: LaneProgram, aligned = true): LaneTextCuda {
  // Few lanes are spread over many multiprocessors; many lanes use larger blocks.
  const threads = program.lanes >= 65536 ? 128 : program.lanes >= 16384 ? 64 : 32;
  return {
    text: new CudaPrinter(program, aligned, threads).print(),
    threads,
    blocks: Math.ceil(program.lanes / threads),
  };
}
