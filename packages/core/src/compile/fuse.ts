// Fusion: which nodes are computed together in one loop, and which values are written to memory. A fusion group is a set of
// element-wise nodes and reductions over one common domain; everything else is inlined, loaded, or a library call.
import { isExpensive } from "../cost/index.js";
import { functionOrder, type GraphFn, isOp, type Node, numel, stridesOf } from "../graph/index.js";
import { elementwiseOps, leafOps } from "../ops/index.js";
import {
  isCounted,
  isReduction,
  isShift,
  isZeroBase,
  joinsMany,
  matrixOperand,
  reductionOperand,
  reductionParts,
} from "./fuse-rules.js";
import { chooseStored } from "./fuse-store.js";
import { compatible, type FuseOptions, type Fusion, type FusionGroup, type Level, liveOrder } from "./fusion-group.js";
import { isGatheredThrough } from "./gather-through.js";
import { operands } from "./operands.js";
import { Reach } from "./reach.js";
import { Rematerializer } from "./rematerialize.js";
import { asStrided, axisVariables, isView, type Relation, relationOf, resolveCopied, resolveViews } from "./views.js";

/** Nodes per group. The right-hand sides of large systems of equations have several hundred; beyond, compilers spill. */
const maxMembers = 800;
/**
 * Expensive functions per group, beyond which a trip to memory costs nothing in comparison. Long chains become equal kernels, which
 * are compiled once.
 */
const maxExpensive = 64;
/** Views and shifts of views and shifts that are read in one expression: it is built by recursion. */
const maxNested = 500;

/** Longest chain of nodes of constants that is computed wherever it is read; longer chains are computed once. */
const maxFreeDepth = 64;
/**
 * Values of expensive functions of indices (angles of positions) are stored if each is read at least `tableReads` times, by at least
 * `minTable` elements in all.
 */
const tableReads = 16;
const minTable = 1 << 16;

/** An operand of a loop, and how its elements relate to those of the loop. */
interface Base {
  base: Node;
  relation: Relation;
}

class Fuser {
  readonly order: Node[];
  readonly params: ReadonlySet<Node>;
  readonly stored = new Set<Node>();
  readonly forced = new Set<Node>();
  readonly library: Node[] = [];
  readonly #groupOf = new Map<Node, FusionGroup>();
  readonly #reach: Reach;
  #lastCollective: number | null = null;
  /** Units of work by number: groups and library calls. */
  readonly #unitOf = new Map<Node, number>();
  readonly #unitOfGroup = new Map<FusionGroup, number>();
  #groups: FusionGroup[] = [];
  readonly #results: Node[] = [];
  readonly #layouts = new Map<Node, number[]>();
  readonly free = new Set<Node>();
  /** Shifts that are read where they are used, like views; see isShift. */
  readonly #shifts = new Set<Node>();
  readonly #position: ReadonlyMap<Node, number>;
  /** Values that are computed where gathers read them. */
  readonly through = new Set<Node>();
  /** Cached: what a loop node reads, and what must be computed before a node. */
  readonly #basesOf = new Map<Node, Base[]>();
  readonly #sourcesOf = new Map<Node, Node[]>();
  readonly #rematerializer: Rematerializer;

  constructor(
    readonly fn: GraphFn,
    readonly options: FuseOptions,
  ) {
    this.order = this.#onePass ? liveOrder(fn) : functionOrder(fn);
    this.params = new Set(fn.params);
    this.#position = new Map(this.order.map((node, i) => [node, i]));
    this.#reach = new Reach(this.order.length);
    this.#rematerializer = new Rematerializer({
      params: this.params,
      stored: this.stored,
      free: this.free,
      groups: this.#groupOf,
      isLoopNode: (node) => this.isLoopNode(node),
      stop: this.#stop,
    });
  }

  get #onePass(): boolean {
    return this.options.onePassMoments === true;
  }

  isLoopNode(node: Node): boolean {
    return !this.params.has(node) && (elementwiseOps.has(node.op) || isReduction(node) || this.forced.has(node));
  }

  /** Where views end: at memory, at computed nodes, and at views that are copied. */
  readonly #stop = (node: Node): boolean => this.params.has(node) || this.forced.has(node);

  run(): Fusion {
    this.#markFree();
    this.#divideChains();
    this.#chooseLayouts();
    this.#markMemory();
    for (const node of this.order)
      if (isShift(node) && !this.params.has(node) && !this.stored.has(node)) this.#shifts.add(node);
    for (const node of this.order) this.#place(node);
    chooseStored({
      order: this.order,
      groups: this.#groups,
      groupOf: this.#groupOf,
      params: this.params,
      stored: this.stored,
      through: this.through,
      rematerializer: this.#rematerializer,
      bases: (node) => this.#bases(node),
    });
    return {
      groups: this.#groups.filter((group) => group.members.length > 0),
      groupOf: this.#groupOf,
      stored: this.stored,
      library: this.library,
      order: this.order,
      results: this.#results,
      onePass: this.#onePass,
      layouts: this.#layouts,
    };
  }

  /** Nodes that depend only on constants and indices: cheaper to rematerialize than to load, apart from tables of expensive functions. */
  #markFree(): void {
    const depths = new Map<Node, number>();
    const widest = this.#widestReaders();
    for (const node of this.order) {
      if (this.params.has(node)) continue;
      const simple = leafOps.has(node.op) || isView(node) || (elementwiseOps.has(node.op) && node.op !== "random");
      if (!simple || joinsMany(node) || !node.inputs.every((input) => this.free.has(input))) continue;
      const depth = node.inputs.reduce((n, input) => Math.max(n, depths.get(input)! + 1), 0);
      if (depth > maxFreeDepth) continue;
      const calls = (isOp(node, "unary") || isOp(node, "binary")) && isExpensive(node.attrs.fn);
      if (calls && (widest.get(node) ?? 0) >= Math.max(minTable, tableReads * numel(node.shape))) continue;
      depths.set(node, depth);
      this.free.add(node);
    }
  }

  /** The size of the largest node that reads each node, also through views and element-wise nodes. */
  #widestReaders(): Map<Node, number> {
    const widest = new Map<Node, number>();
    for (const node of this.order.toReversed()) {
      const own = isView(node) || elementwiseOps.has(node.op) ? (widest.get(node) ?? 0) : 0;
      const size = Math.max(own, numel(node.shape));
      for (const input of node.inputs) widest.set(input, Math.max(widest.get(input) ?? 0, size));
    }
    return widest;
  }

  /** Values that are computed where they are read nest: chains of views and shifts are stored in memory after this number. */
  #divideChains(): void {
    const depths = new Map<Node, number>();
    for (const node of this.order) {
      if (this.params.has(node)) continue;
      const isRead = isView(node) || isShift(node);
      if (!isRead && (!elementwiseOps.has(node.op) || isReduction(node))) continue;
      let depth = isRead ? 1 : 0;
      for (const input of node.inputs) depth = Math.max(depth, (depths.get(input) ?? 0) + (isRead ? 1 : 0));
      if (depth > maxNested) {
        if (isShift(node)) this.stored.add(node);
        else this.#copy(node);
        depth = 0;
      }
      depths.set(node, depth);
    }
  }

  /** A product that is only read through one permutation writes its result in that order (attention heads). */
  #chooseLayouts(): void {
    const users = this.#users();
    for (const node of this.order) {
      const readers = users.get(node) ?? [];
      if (node.op !== "matmul" || this.params.has(node) || readers.length !== 1 || this.fn.outputs.includes(node))
        continue;
      const [reader] = readers;
      if (!isOp(reader, "permute") || reader.attrs.axes[node.shape.length - 1] !== node.shape.length - 1) continue;
      const outer = stridesOf(reader.shape);
      const strides = new Array<number>(node.shape.length);
      reader.attrs.axes.forEach((axis, i) => {
        strides[axis] = outer[i];
      });
      this.#layouts.set(node, strides);
    }
  }

  /** What gathers read is in memory, or computed for every element that they take. */
  #markGathered(): void {
    const reads = new Map<Node, number>();
    for (const node of this.order) {
      if (!isOp(node, "gather") || this.params.has(node)) continue;
      const { node: source } = resolveViews(node.inputs[0], axisVariables(node.inputs[0].shape), this.#stop);
      if (!this.free.has(source) && !this.params.has(source))
        reads.set(source, (reads.get(source) ?? 0) + numel(node.shape));
    }
    const users = this.options.gathersThrough === true ? this.#users() : null;
    for (const [source, count] of reads) {
      const isLoop = this.isLoopNode(source) && !this.fn.outputs.includes(source);
      if (users !== null && isLoop && isGatheredThrough(source, count, users.get(source)!, this))
        this.through.add(source);
      else this.stored.add(source);
    }
  }

  #users(): Map<Node, Node[]> {
    const users = new Map<Node, Node[]>();
    for (const node of this.order)
      for (const input of node.inputs) users.set(input, [...(users.get(input) ?? []), node]);
    return users;
  }

  /** The node whose memory a contiguous operand occupies; a view that moves elements is copied. */
  requireContiguous(node: Node): void {
    const place = resolveViews(node, axisVariables(node.shape), this.#stop);
    const same = relationOf(node, place, this.#layouts).kind === "same";
    if (same && !this.free.has(place.node)) this.stored.add(place.node);
    else this.#copy(node);
  }

  #copy(node: Node): void {
    if (!this.params.has(node)) {
      this.forced.add(node);
      this.stored.add(node);
    }
  }

  /** Operands of libraries and results of the function must be in memory. */
  #markMemory(): void {
    for (const node of this.order) {
      if (this.params.has(node) || this.isLoopNode(node) || isView(node) || leafOps.has(node.op) || node.op === "pick")
        continue;
      this.library.push(node);
      this.#markOperands(node);
    }
    this.#markGathered();
    const claimed = new Set<Node>();
    for (const output of this.fn.outputs) {
      const place = resolveViews(output, axisVariables(output.shape), this.#stop);
      const whole =
        relationOf(output, place, this.#layouts).kind === "same" &&
        !this.params.has(place.node) &&
        !this.free.has(place.node);
      if (whole && !claimed.has(place.node)) {
        claimed.add(place.node);
        this.stored.add(place.node);
        this.#results.push(place.node);
      } else {
        if (!claimed.has(output)) this.#copy(output);
        claimed.add(output);
        this.#results.push(output);
      }
    }
    // Chains of views end at copies, and a later copy may lie inside the chain of an operand: flip(flip(x)) is x as long as flip(x) is not
    // in memory itself.
    for (let copies = -1; copies < this.forced.size; ) {
      copies = this.forced.size;
      for (const node of this.library) this.#markOperands(node);
    }
  }

  #markOperands(node: Node): void {
    for (const input of node.inputs) {
      if (node.op === "matmul") this.#requireMatrix(input);
      else if (isOp(node, "custom")) this.#requireStrided(node, input);
      else if (!isZeroBase(node, input) && !isCounted(node, input, this.options.countsOnes))
        this.requireContiguous(input);
    }
  }

  #requireMatrix(node: Node): void {
    const operand = matrixOperand(node, this.#stop, this.#layouts);
    if (operand === null || this.free.has(operand.node)) this.#copy(node);
    else this.stored.add(operand.node);
  }

  /** An operand that a fused kernel can read with its strides. */
  #requireStrided(node: Node<"custom">, input: Node): void {
    const strided = asStrided(input, this.#stop, this.#layouts);
    const isFree = strided !== null && this.free.has(strided.node);
    if (
      strided === null ||
      (isFree && leafOps.has(strided.node.op)) ||
      !(this.options.customFits?.(node, input, strided) ?? false)
    )
      this.#copy(input);
    // A value that is computed where it is read (a causal mask) is stored at its own size, before it is broadcast.
    else if (isFree) this.#copy(strided.node);
    else this.stored.add(strided.node);
  }

  #unitAt(node: Node): number | undefined {
    const group = this.#groupOf.get(node);
    return group === undefined ? this.#unitOf.get(node) : this.#unitOfGroup.get(group);
  }

  /** The nodes of other units that a node needs, found through views and picks; earlier nodes are already assigned. */
  #sources(node: Node): Node[] {
    const cached = this.#sourcesOf.get(node);
    if (cached !== undefined) return cached;
    const found = new Set<Node>();
    const seen = new Set<Node>();
    const stack = isReduction(node) ? [reductionOperand(node, this.#onePass).operand] : [...node.inputs];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (seen.has(at)) continue;
      seen.add(at);
      if (this.#unitAt(at) !== undefined) found.add(at);
      else if (!this.params.has(at)) stack.push(...at.inputs);
    }
    const sources = [...found];
    this.#sourcesOf.set(node, sources);
    return sources;
  }

  /** The units that a node needs; merged groups have one number. */
  #needs(node: Node): Set<number> {
    const found = new Set<number>();
    for (const source of this.#sources(node)) found.add(this.#unitAt(source)!);
    return found;
  }

  #place(node: Node): void {
    if (this.params.has(node) || (isView(node) && !this.forced.has(node)) || node.op === "pick") return;
    if ((leafOps.has(node.op) && !this.forced.has(node)) || this.#shifts.has(node)) return;
    if (!this.isLoopNode(node)) {
      const unit = this.#reach.addUnit();
      this.#unitOf.set(node, unit);
      this.#reach.add(unit, this.#needs(node));
      // All devices issue their collectives in one order: each depends on the previous one, whatever its operands are.
      if (isOp(node, "collective")) {
        if (this.#lastCollective !== null) this.#reach.add(unit, [this.#lastCollective]);
        this.#lastCollective = unit;
      }
      return;
    }
    if (this.free.has(node) && !this.stored.has(node)) return;
    const needs = this.#needs(node);
    const group = this.#chooseGroup(node, needs);
    this.#groupOf.set(node, group);
    group.members.push(node);
    if ((isOp(node, "unary") || isOp(node, "binary")) && isExpensive(node.attrs.fn)) group.expensive++;
    // Merging may have renumbered the dependencies.
    this.#reach.add(this.#unitOfGroup.get(group)!, this.#needs(node));
  }

  #newGroup(size: number, inner: number | null, columns: FusionGroup["columns"] = null): FusionGroup {
    const group: FusionGroup = {
      id: this.#groups.length,
      kind: columns === null ? "rows" : "columns",
      size,
      inner,
      columns,
      members: [],
      expensive: 0,
      level: new Map(),
    };
    this.#groups.push(group);
    this.#unitOfGroup.set(group, this.#reach.addUnit());
    return group;
  }

  #isSeparate(node: Node): boolean {
    if (joinsMany(node)) return true;
    return this.options.separateDraws === true && isOp(node, "random") && node.attrs.kind === "dropoutMask";
  }

  #chooseGroup(node: Node, needs: ReadonlySet<number>): FusionGroup {
    if (this.#isSeparate(node)) {
      const group = this.#newGroup(numel(node.shape), null);
      group.level.set(node, "full");
      this.stored.add(node);
      return group;
    }
    if (isReduction(node)) {
      const parts = reductionParts(node);
      if (parts[2] !== 1) return this.#columnGroup(node, parts, needs);
    }
    const inner = isReduction(node) ? reductionParts(node)[1] : null;
    const size = isReduction(node) ? numel(node.inputs[0].shape) : numel(node.shape);
    let chosen: { group: FusionGroup; level: Level } | null = null;
    let merge: FusionGroup[] = [];
    for (const { base, relation } of this.#bases(node)) {
      const group = this.#groupOf.get(base);
      if (group === undefined || group.members.some((member) => this.#isSeparate(member))) continue;
      const level = this.#levelIn(group, base, relation, size, inner);
      if (level === null || !this.#mayJoin(node, group, needs)) continue;
      if (chosen === null) chosen = { group, level };
      else if (
        chosen.group !== group &&
        chosen.group.kind === "rows" &&
        group.kind === "rows" &&
        chosen.level === level &&
        group.size === chosen.group.size &&
        compatible(group, chosen.group, inner)
      )
        merge.push(group);
    }
    if (chosen === null) {
      const group = this.#newGroup(size, inner);
      group.level.set(node, inner === null ? "full" : "row");
      return group;
    }
    const { group, level } = chosen;
    merge = merge.filter((other) => !this.#connectedOutside(group, other, node));
    for (const other of merge)
      if (compatible(group, other, inner) && !this.#connectedOutside(group, other, node)) this.#join(group, other);
    if (inner !== null) group.inner = inner;
    group.level.set(node, inner === null ? level : "row");
    return group;
  }

  /** The level at which a node would be in the group of one of its operands, or null. */
  #levelIn(group: FusionGroup, base: Node, relation: Relation, size: number, inner: number | null): Level | null {
    if (group.kind === "columns") {
      const [before, , after] = group.columns!;
      const fits = inner === null && relation.kind === "same" && size === before * after;
      return this.options.columnEpilogues === true && fits ? "row" : null;
    }
    const at = group.level.get(base)!;
    if (at === "columns") return null;
    if (inner !== null) {
      const fits =
        at === "full" &&
        relation.kind === "same" &&
        size === group.size &&
        (group.inner === null || group.inner === inner);
      return fits ? "full" : null;
    }
    if (at === "full") return relation.kind === "same" && size === group.size ? "full" : null;
    if (relation.kind === "same") return "row";
    return relation.kind === "row" && relation.inner === group.inner && size === group.size ? "full" : null;
  }

  #bases(node: Node): Base[] {
    const cached = this.#basesOf.get(node);
    if (cached !== undefined) return cached;
    const bases = this.#findBases(node);
    this.#basesOf.set(node, bases);
    return bases;
  }

  #findBases(node: Node): Base[] {
    return operands(node, this.forced.has(node) && isView(node), this.#onePass).map(
      ({ node: operand, domain, index }) => {
        const copied = operand === node;
        const start = index ?? axisVariables(operand.shape);
        const place = copied ? resolveCopied(node, start, this.#stop) : resolveViews(operand, start, this.#stop);
        if (this.#shifts.has(place.node))
          return { base: this.#shifted(place.node), relation: { kind: "other" as const } };
        return {
          base: place.node,
          relation: index === null ? { kind: "other" as const } : relationOf(domain, place, this.#layouts),
        };
      },
    );
  }

  /** What a shift, or a shift of a shift, reads. */
  #shifted(node: Node): Node {
    let at = node;
    while (this.#shifts.has(at)) at = resolveViews(at.inputs[0], axisVariables(at.inputs[0].shape), this.#stop).node;
    return at;
  }

  /** A node may join if none of its other dependencies depends on the group, and it reads members element by element. */
  #mayJoin(node: Node, group: FusionGroup, needs: ReadonlySet<number>): boolean {
    const own = this.#unitOfGroup.get(group)!;
    for (const unit of needs) if (unit !== own && this.#reach.depends(unit, own)) return false;
    const size = isReduction(node) ? numel(node.inputs[0].shape) : numel(node.shape);
    const inner = isReduction(node) ? reductionParts(node)[1] : null;
    for (const { base, relation } of this.#bases(node)) {
      if (this.#groupOf.get(base) === group && this.#levelIn(group, base, relation, size, inner) === null) return false;
    }
    return group.members.length < maxMembers && group.expensive < maxExpensive;
  }

  /** Whether some path between two groups runs through a third unit, or one reads the other at different elements. */
  #connectedOutside(a: FusionGroup, b: FusionGroup, joining: Node): boolean {
    const [ua, ub] = [this.#unitOfGroup.get(a)!, this.#unitOfGroup.get(b)!];
    for (const node of [...a.members, ...b.members, joining]) {
      for (const unit of this.#needs(node)) {
        if (unit !== ua && unit !== ub && (this.#reach.depends(unit, ua) || this.#reach.depends(unit, ub))) return true;
      }
    }
    // Members of one must read members of the other element by element.
    for (const [from, to] of [
      [a, b],
      [b, a],
    ]) {
      for (const node of from.members) {
        const size = isReduction(node) ? numel(node.inputs[0].shape) : numel(node.shape);
        const inner = isReduction(node) && from.level.get(node) !== "columns" ? reductionParts(node)[1] : null;
        for (const { base, relation } of this.#bases(node))
          if (this.#groupOf.get(base) === to && this.#levelIn(to, base, relation, size, inner) === null) return true;
      }
    }
    return false;
  }

  #join(into: FusionGroup, other: FusionGroup): void {
    for (const node of other.members) {
      into.members.push(node);
      into.level.set(node, other.level.get(node)!);
      this.#groupOf.set(node, into);
    }
    into.inner ??= other.inner;
    into.expensive += other.expensive;
    other.members = [];
    this.#reach.merge(this.#unitOfGroup.get(into)!, this.#unitOfGroup.get(other)!);
    into.members.sort((x, y) => this.#position.get(x)! - this.#position.get(y)!);
  }

  /** Independent column reductions over one domain share a kernel. */
  #columnGroup(node: Node, parts: [number, number, number], needs: ReadonlySet<number>): FusionGroup {
    const rows = this.#rowsFor(node, parts, needs);
    if (rows !== null) {
      rows.level.set(node, "columns");
      rows.inner ??= parts[2];
      return rows;
    }
    const size = parts[0] * parts[1] * parts[2];
    for (const group of this.#groups) {
      if (group.kind !== "columns" || group.members.filter(isReduction).length >= 8) continue;
      if (group.columns!.some((n, i) => n !== parts[i])) continue;
      const own = this.#unitOfGroup.get(group)!;
      const independent =
        ![...needs].some((unit) => unit === own || this.#reach.depends(unit, own)) && this.#sharesOperand(group, node);
      if (independent) {
        group.level.set(node, "row");
        return group;
      }
    }
    const group = this.#newGroup(size, null, parts);
    group.level.set(node, "row");
    return group;
  }

  /** The group whose rows are summed, if its loop can compute the column sum. */
  #rowsFor(node: Node, parts: [number, number, number], needs: ReadonlySet<number>): FusionGroup | null {
    const { columnsInRows = 0 } = this.options;
    const [pieces, depth, length] = parts;
    if (columnsInRows === 0 || !isOp(node, "reduce") || node.attrs.fn !== "sum" || node.dtype !== "float32")
      return null;
    if (reductionOperand(node, this.#onePass).isSpread) return null;
    if (length <= 32 || length > 1024 || length % 32 !== 0 || pieces < 128 || depth < 16) return null;
    const size = pieces * depth * length;
    for (const { base, relation } of this.#bases(node)) {
      const group = this.#groupOf.get(base);
      if (group === undefined || group.kind !== "rows" || group.size !== size) continue;
      // A group that is only element-wise can be looped by rows as well.
      if (group.inner !== length && (group.inner !== null || !this.#mayGoByRows(group))) continue;
      if (group.level.get(base) !== "full" || relation.kind !== "same") continue;
      const others = group.members.filter((member) => group.level.get(member) === "columns");
      if ((others.length + 1) * (length / 32) > columnsInRows) continue;
      if (others.some((other) => reductionParts(other).some((n, i) => n !== parts[i]))) continue;
      const own = this.#unitOfGroup.get(group)!;
      if ([...needs].every((unit) => unit === own || !this.#reach.depends(unit, own))) return group;
    }
    return null;
  }

  #mayGoByRows(group: FusionGroup): boolean {
    const { members } = group;
    // Only where the loop writes something anyway.
    if (!members.some((member) => this.stored.has(member))) return false;
    return members.every((member) => group.level.get(member) === "full" && !this.#isSeparate(member));
  }

  /** Whether the summed values come from one loop, or from the same memory. */
  #sharesOperand(group: FusionGroup, node: Node): boolean {
    const origin = (member: Node): FusionGroup | undefined =>
      this.#bases(member).flatMap(({ base }) => this.#groupOf.get(base) ?? [])[0];
    const own = origin(node);
    const reductions = group.members.filter(isReduction);
    if (own !== undefined) return reductions.some((member) => origin(member) === own);
    const leavesOf = (reduction: Node): Node[] => [
      ...this.#rematerializer.leafLoads(reductionOperand(reduction, this.#onePass).operand, false).keys(),
    ];
    const leaves = new Set(leavesOf(node));
    return reductions.some((member) => leavesOf(member).some((leaf) => leaves.has(leaf)));
  }
}

export function fuse(fn: GraphFn, options: FuseOptions = {}): Fusion {
  return new Fuser(fn, options).run();
}
