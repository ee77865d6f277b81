// Generates C from a schedule: the kernels, and one function that runs all steps in order.
import { cpus } from "node:os";

import {
  type BatchDim,
  contiguousOperand,
  emitKernel,
  emitLaneC,
  isCounted,
  isZeroBase,
  kernelBytes,
  type Location,
  type LoopKernel,
  laneAvals,
  laneName,
  loopMemory,
  type MatrixOperand,
  memoryKey,
  mergeBatch,
  type Schedule,
  type ScheduleStep,
  type Strided,
  storageType,
  tallyLanes,
  whole,
} from "../../compile/index.js";
import { expectedSteps, fewestSmall, type KernelWork, opCost, smallProduct } from "../../cost/index.js";
import {
  bytesOf,
  type DType,
  InternalError,
  isComplex,
  isOp,
  type Node,
  numel,
  outputAvals,
  stridesOf,
} from "../../graph/index.js";
import type { KernelInfo } from "../contract.js";
import { bytesReceived, describe, membersOf } from "../group/descriptor.js";
import { attentionName, attentionProduct, attentionStatement } from "./attention.js";
import { libraryCall } from "./library-calls.js";
import { withPrelude } from "./native-units.js";

interface CpuProgramText {
  /** Translation units, compiled in parallel. */
  units: string[];
  kernels: KernelInfo[];
  /** What its collectives exchange: members of a group differ in these numbers only, and share the compiled code. */
  tables: bigint[];
}

const processors = cpus().length;

/** Matrix dtypes as the library numbers them. */
const matrixCode: Partial<Record<DType, number>> = { float32: 0, float64: 1, complex64: 2, complex128: 3, bfloat16: 4 };

class ProgramWriter {
  readonly #functions = new Map<string, string>();
  readonly kernels: KernelInfo[] = [];
  readonly #bodies: string[] = [];
  readonly tables: bigint[] = [];
  readonly #descriptors = new Map<Node, string>();

  /** The name of a kernel function with this text; equal kernels are generated once. */
  #function(text: string): string {
    let name = this.#functions.get(text);
    if (name === undefined) {
      name = `k${this.#functions.size}`;
      this.#functions.set(text, name);
    }
    return name;
  }

  #pointer(plan: Schedule, location: Location): string {
    if (location.kind === "scratch") return `(scratch + ${location.offset})`;
    return location.kind === "input" ? `b[${location.index}]` : `b[${plan.fn.params.length + location.index}]`;
  }

  #at(plan: Schedule, node: Node, index = 0): string {
    const location = plan.locations.get(memoryKey(node, index));
    if (location === undefined) throw new InternalError(`no memory for %${node.id} (${node.op})`);
    return this.#pointer(plan, location);
  }

  /** The address of a contiguous operand. */
  #operand(plan: Schedule, node: Node): string {
    return this.#at(plan, contiguousOperand(plan, node));
  }

  /** Statements of all steps; `timed` numbers them for the profile. */
  steps(plan: Schedule, timed: boolean): string[] {
    const lines: string[] = [];
    for (const step of plan.steps) {
      const text = this.#step(plan, step);
      if (text === null) continue;
      // A collective is one kernel: its start and its finish are timed together.
      if (timed && !(step.kind === "collective" && step.phase === "start")) {
        lines.push(
          `  ${text}`,
          `  if (times) times[${this.kernels.length - 1}] = (now = rt->now()) - start, start = now;`,
        );
      } else lines.push(`  ${text}`);
    }
    return lines;
  }

  #note(info: KernelInfo): void {
    this.kernels.push(info);
  }

  #step(plan: Schedule, step: ScheduleStep): string | null {
    if (step.kind === "kernel") return this.#kernelStep(plan, step);
    if (step.kind === "copy") {
      const node = step.from;
      const bytes = numel(node.shape) * bytesOf(node.dtype);
      const touches = [
        { place: this.#at(plan, node), bytes },
        { place: `b[${plan.fn.params.length + step.to}]`, bytes },
      ];
      this.#note({ name: "copy", kind: "kernel", flops: 0, bytes: 2 * bytes, work: { touches, ops: {}, rows: 0 } });
      return `memcpy(b[${plan.fn.params.length + step.to}], ${this.#at(plan, node)}, ${bytes});`;
    }
    if (step.kind === "loop") return this.#loopStep(plan, step);
    if (step.kind === "lane") return this.#laneStep(plan, step);
    if (step.kind === "batch") throw new InternalError("plans for CPUs have no batches of kernels");
    if (step.kind === "collective") return this.#collectiveStep(plan, step);
    const { node } = step;
    if (numel(node.shape) === 0 && node.outputs === null) return null;
    const info: KernelInfo = { name: libraryName(node), kind: "library", ...opCost(node) };
    info.work = this.#libraryWork(plan, node);
    const text =
      step.matrices !== null
        ? this.#matmul(plan, step, info)
        : isOp(node, "custom")
          ? this.#attention(plan, node, step.operands!)
          : this.#library(plan, node);
    this.#note(info);
    return text;
  }

  #kernelStep(plan: Schedule, { kernel }: Extract<ScheduleStep, { kind: "kernel" }>): string | null {
    if (kernel.size === 0) return null;
    const { units, call, work } = this.#call(plan, kernel);
    this.#note({
      name: kernel.name,
      kind: "kernel",
      flops: kernel.size * kernel.cost,
      bytes: kernelBytes(kernel),
      work,
    });
    return call("0", String(units));
  }

  #touches(plan: Schedule, nodes: readonly Node[]): KernelWork["touches"] {
    return nodes.map((node) => ({ place: this.#at(plan, node), bytes: numel(node.shape) * bytesOf(node.dtype) }));
  }

  /** The work of a library call. */
  #libraryWork(plan: Schedule, node: Node): KernelWork {
    const inputs = node.inputs
      .filter((input) => !isZeroBase(node, input) && !isCounted(node, input, true))
      .map((input) => ({ place: this.#place(plan, input), bytes: numel(input.shape) * bytesOf(input.dtype) }));
    const outputs = outputAvals(node).map((aval, i) => ({
      place: this.#at(plan, node, i),
      bytes: numel(aval.shape) * bytesOf(aval.dtype),
    }));
    const work: KernelWork = { touches: [...inputs, ...outputs], ops: {}, rows: 0 };
    const { flops } = opCost(node);
    if (node.op === "scatterAdd" || node.op === "scatterReduce") {
      // Rows of a table are added as rows: only their starts are looked up.
      const { axis } = (node as Node<"scatterAdd">).attrs;
      const row = numel(node.shape.slice(axis + 1));
      const count = numel(node.inputs[2].shape);
      work.ops = { lookup: count / row, simple: 2 * count };
      work.rows = count / row;
    } else if (node.op === "updateSlice") work.touches.splice(0);
    else if (node.op === "cumsum") work.ops = { strided: numel(node.shape) };
    else if (node.op === "argsort") work.ops = { lookup: flops };
    else if (isOp(node, "custom")) work.product = attentionProduct(node);
    else if (node.op !== "matmul") work.linalg = flops;
    return work;
  }

  /** The memory behind an operand, or what names it where a library reads it through views. */
  #place(plan: Schedule, node: Node): string {
    let at = node;
    while (!plan.locations.has(memoryKey(at)) && at.inputs.length > 0) at = at.inputs[0];
    return plan.locations.has(memoryKey(at)) ? this.#at(plan, at) : `%${at.id}`;
  }

  /** A call of a kernel over some of its outer iterations. */
  #call(
    plan: Schedule,
    kernel: LoopKernel,
    inRows = false,
  ): { units: number; call: (from: string, count: string) => string; work: KernelWork } {
    const { text, units, tally, columns } = emitKernel(kernel, inRows);
    const name = this.#function(`(void* const* p, long lo, long hi) {\n${text}\n}`);
    // Waking a thread pays from about ten microseconds of work.
    const perUnit = Math.max(1, (kernel.size / Math.max(1, units)) * Math.max(1, kernel.cost / 4));
    const grain = Math.max(1, Math.ceil(12000 / perUnit));
    const pointers = kernel.buffers.map((node) => this.#at(plan, node)).join(", ");
    const touches = this.#touches(plan, kernel.buffers);
    if (columns !== undefined) for (const touch of touches) touch.run = columns;
    const work: KernelWork = { touches, ops: tally.ops, rows: tally.rows };
    return { units, work, call: (from, count) => `W_RUN(${name}, ${from}, ${count}, ${grain}, ${pointers});` };
  }

  #matmul(plan: Schedule, step: Extract<ScheduleStep, { kind: "library" }>, info: KernelInfo): string {
    const { node, epilogue } = step;
    const [a, b] = step.matrices!;
    const code = matrixCode[node.dtype];
    if (code === undefined) throw new InternalError(`matmul of ${node.dtype}`);
    const rank = node.shape.length - 2;
    const [m, n] = node.shape.slice(-2);
    const k = node.inputs[0].shape[rank + 1];
    const element = storageType[node.dtype];
    const width = isComplex(node.dtype) ? 2 : 1;
    const place = (operand: MatrixOperand): string => {
      const base = this.#at(plan, operand.node);
      return operand.offset === 0 ? base : `((${element}*)${base} + ${operand.offset * width})`;
    };
    const batch = numel(node.shape.slice(0, rank));
    // Small matrices in large batches: written out with constant sizes, which the compiler unrolls and vectorizes.
    const limit = smallProduct[node.dtype] ?? 0;
    const out = [...(plan.layouts.get(node) ?? stridesOf(node.shape))];
    const dims = mergeBatch(node.shape.slice(0, rank), a.strides, b.strides, out);
    if (
      epilogue === null &&
      batch >= fewestSmall &&
      m <= limit &&
      n <= limit &&
      k <= limit &&
      dims.length <= 1 &&
      out[rank] === n
    ) {
      info.kind = "kernel";
      info.name = `mm_${batch}x${m}x${k}x${n}`;
      info.work!.ops.product = batch * m * n * k * width * width;
      const name = this.#function(smallMatmul(node.dtype, m, n, k, a, b, dims[0]));
      const grain = Math.max(1, Math.ceil(20000 / (m * n * k * width * width)));
      return `W_RUN(${name}, 0, ${batch}, ${grain}, ${place(a)}, ${place(b)}, ${this.#at(plan, node)});`;
    }
    const isTransposed = (operand: MatrixOperand, rows: number, columns: number): boolean =>
      !(operand.strides[rank + 1] === 1 || columns === 1) && rows > 1;
    const [left, right] = info.work!.touches;
    const isSpread = (operand: MatrixOperand, rows: number, columns: number, touch: { run?: number }): boolean => {
      const [down, across] = operand.strides.slice(-2);
      const [piece, apart] = across === 1 ? [columns, down] : [rows, across];
      if (apart <= piece || Math.min(rows, columns) < 2) return false;
      touch.run = piece * bytesOf(node.dtype);
      return true;
    };
    isSpread(a, m, k, left);
    const spread = isSpread(b, k, n, right);
    info.work!.product = {
      dtype: node.dtype,
      batch,
      m,
      n,
      k,
      left: isTransposed(a, m, k),
      right: isTransposed(b, k, n),
      spread,
    };
    const list = (values: number[]): string => (values.length === 0 ? "NULL" : `(const long[]){${values.join(", ")}}`);
    const [ars, acs] = a.strides.slice(-2);
    const [brs, bcs] = b.strides.slice(-2);
    const call = (rows: string, left: string, out_: string): string =>
      `rt->gemm(${code}, ${rows}, ${n}, ${k}, ${left}, ${ars}, ${acs}, ${Number(a.conjugate)}, ${place(b)}, ${brs}, ${bcs}, ${Number(b.conjugate)}, ` +
      `${out_}, ${out[rank]}, ${dims.length}, ${list(dims.map((d) => d.size))}, ${list(dims.map((d) => d.a))}, ` +
      `${list(dims.map((d) => d.b))}, ${list(dims.map((d) => d.c))}, threads);`;
    const target = this.#at(plan, node);
    if (epilogue === null) return call(String(m), place(a), target);
    const finish = this.#call(plan, epilogue, true);
    info.name += `+${epilogue.name.split("_").slice(1, -1).join("_")}`;
    info.flops += epilogue.size * epilogue.cost;
    const seen = new Set(info.work!.touches.map(({ place }) => place));
    info.work!.touches.push(...finish.work.touches.filter(({ place }) => !seen.has(place)));
    info.work!.ops = finish.work.ops;
    info.work!.rows = finish.work.rows;
    const perRow = finish.units / m;
    // Panels of rows that stay in the second-level cache between product and epilogue. The library lays out the right matrix
    // again for each: with fewer rows than columns in the left one that costs more than reading the result once more.
    const panel = Math.max(64, Math.ceil(2 ** 19 / Math.max(1, n * width * 4)));
    if (m <= panel * 2 || panel < k)
      return `${call(String(m), place(a), target)} ${finish.call("0", String(finish.units))}`;
    const offset = (base: string, stride: number): string => `((${element}*)${base} + r * ${stride * width})`;
    return (
      `for (long r = 0; r < ${m}; r += ${panel}) { const long rows = r + ${panel} < ${m} ? ${panel} : ${m} - r; ` +
      `${call("rows", offset(place(a), ars), offset(target, n))} ${finish.call(`r * ${perRow}`, `rows * ${perRow}`)} }`
    );
  }

  #attention(plan: Schedule, node: Node<"custom">, operands: readonly Strided[]): string {
    return attentionStatement(node, operands, {
      input: (i) => this.#at(plan, operands[i].node),
      output: (i) => this.#at(plan, node, i),
    });
  }

  #library(plan: Schedule, node: Node): string {
    return libraryCall(node, {
      code: matrixCode[node.inputs[0].dtype] ?? 0,
      input: (i) => this.#operand(plan, node.inputs[i]),
      output: (i = 0) => this.#at(plan, node, i),
    });
  }

  #collectiveStep(plan: Schedule, { node, phase }: Extract<ScheduleStep, { kind: "collective" }>): string {
    const { attrs } = node;
    const [input] = node.inputs;
    const descriptor = this.#descriptor(node);
    if (phase === "finish")
      this.#note({
        name: `${attrs.kind}_${input.shape.join("x")}`,
        kind: "collective",
        flops: opCost(node).flops,
        bytes: bytesReceived(attrs, input.shape),
        work: {
          touches: [],
          ops: {},
          rows: 0,
          collective: { kind: attrs.kind, members: membersOf(attrs).length, bytes: bytesReceived(attrs, input.shape) },
        },
      });
    const operands = `${this.#operand(plan, input)}, ${this.#at(plan, node)}`;
    return `if ((failed = rt->collective(rt->group, ${descriptor}, ${operands}, ${phase === "start" ? 1 : 2}))) return failed;`;
  }

  /** The place of a collective's numbers. */
  #descriptor(node: Node<"collective">): string {
    let place = this.#descriptors.get(node);
    if (place === undefined) {
      place = `tables + ${this.tables.length}`;
      this.tables.push(...describe(node.attrs, node.inputs[0].shape));
      this.#descriptors.set(node, place);
    }
    return place;
  }

  /** A scan over small problems: one kernel over blocks of lanes. */
  #laneStep(plan: Schedule, { node, program }: Extract<ScheduleStep, { kind: "lane" }>): string {
    if (program.form !== "thread") throw new InternalError("a block of threads on a CPU");
    const { text, lanesPerUnit } = emitLaneC(program);
    const name = this.#function(`(void* const* p, long lo, long hi) {\n${text}\n}`);
    const units = Math.ceil(program.lanes / lanesPerUnit);
    const outputs = outputAvals(node);
    const pointers = [
      ...node.inputs.map((x) => this.#operand(plan, x)),
      ...outputs.map((_, i) => this.#at(plan, node, i)),
    ];
    const bytes = laneAvals(node).reduce((n, x) => n + numel(x.shape) * bytesOf(x.dtype), 0);
    const { ops, rows } = tallyLanes(program);
    const sizes = [...node.inputs, ...outputs].map((x) => numel(x.shape) * bytesOf(x.dtype));
    const touches = pointers.map((place, i) => ({ place, bytes: sizes[i] }));
    const work = { touches, ops, rows };
    this.#note({ name: laneName(program), kind: "kernel", flops: program.flops * program.lanes, bytes, work });
    const grain = Math.max(1, Math.ceil(20000 / (Math.max(1, program.flops) * lanesPerUnit)));
    return `W_RUN(${name}, 0, ${units}, ${grain}, ${pointers.join(", ")});`;
  }

  /** A scan: its step as a function of its own, called once per iteration with advanced pointers; carries swap buffers. */
  #loopStep(plan: Schedule, step: Extract<ScheduleStep, { kind: "loop" }>): string {
    const { node, body } = step;
    const { consts, carries, length, reverse, stop } = node.attrs;
    const before = this.kernels.length;
    const inner = this.steps(body, false);
    const used = this.kernels.splice(before);
    const name = `body${this.#bodies.length}`;
    this.#bodies.push(
      `W_DRIVER static int ${name}(void* const* b, char* scratch, const weft_runtime* rt, int threads, const int64_t* tables) {\n  int failed = 0; (void)failed; (void)tables;\n${inner.join("\n")}\n  return 0;\n}`,
    );
    const start = step.offset;
    const memory = loopMemory(step).carries;
    const buffers = memory.map(({ reads, writes }) => [
      `(scratch + ${start + reads})`,
      `(scratch + ${start + writes})`,
    ]);
    const total = body.fn.params.length + body.fn.outputs.length;
    const lines: string[] = [`{ void* q[${total}];`];
    const bytes = (n: Node): number => numel(n.shape) * bytesOf(n.dtype);
    node.inputs.forEach((x, i) => {
      if (i < consts) lines.push(`q[${i}] = ${this.#operand(plan, x)};`);
      else if (i < consts + carries) {
        const c = i - consts;
        lines.push(`memcpy(${buffers[c][0]}, ${this.#operand(plan, x)}, ${bytes(x)}); q[${i}] = ${buffers[c][0]};`);
        lines.push(`q[${body.fn.params.length + c}] = ${buffers[c][1]};`);
      }
    });
    const end = node.inputs[stop === "while" ? consts : 0];
    const count = stop === "count" ? `w_steps(q[0], ${whole(numel(end.shape))}, ${whole(length)})` : whole(length);
    const runs = stop === "while" ? ` && w_runs(q[${consts}], ${whole(numel(end.shape))})` : "";
    lines.push(
      `const long steps = ${count}; long s = 0;`,
      `for (; s < steps${runs}; s++) { if (W_STOPPED) return W_STOPPED_CODE; const long t = ${reverse ? "steps - 1 - s" : "s"};`,
    );
    node.inputs.forEach((x, i) => {
      if (i >= consts + carries)
        lines.push(`q[${i}] = (char*)${this.#operand(plan, x)} + t * ${bytes(x) / Math.max(1, length)};`);
    });
    body.fn.outputs.forEach((y, i) => {
      if (i >= carries)
        lines.push(`q[${body.fn.params.length + i}] = (char*)${this.#at(plan, node, i)} + t * ${bytes(y)};`);
    });
    lines.push(`if ((failed = ${name}(q, scratch + ${start}, rt, threads, tables))) return failed;`);
    for (let c = 0; c < carries; c++) {
      const [from, to] = [consts + c, body.fn.params.length + c];
      if (memory[c].reads === memory[c].writes) continue;
      lines.push(`{ void* swap = q[${from}]; q[${from}] = q[${to}]; q[${to}] = swap; }`);
    }
    lines.push("}");
    if (stop !== undefined)
      body.fn.outputs.forEach((y, i) => {
        if (i >= carries)
          lines.push(
            `memset((char*)${this.#at(plan, node, i)} + s * ${bytes(y)}, 0, (${whole(length)} - s) * ${bytes(y)});`,
          );
      });
    for (let c = 0; c < carries; c++)
      lines.push(`memcpy(${this.#at(plan, node, c)}, q[${consts + c}], ${bytes(body.fn.outputs[c])});`);
    lines.push("}");
    const trips = expectedSteps(node.attrs);
    const flops = used.reduce((n, k) => n + k.flops, 0) * trips;
    const moved = used.reduce((n, k) => n + k.bytes, 0) * trips;
    const kernels = used.flatMap(({ work }) => (work === undefined ? [] : [inLoop(work, name)]));
    const work: KernelWork = { touches: [], ops: {}, rows: 0, loop: { steps: trips, kernels } };
    this.#note({ name: `${stop ?? "scan"}_${length}x${used.length}`, kind: "loop", flops, bytes: moved, work });
    return lines.join(" ");
  }

  program(plan: Schedule): string[] {
    const steps = this.steps(plan, true);
    const pointers = plan.fn.params.length + plan.fn.outputs.length;
    const kernels = [...this.#functions].map(([text, name]) => ({ name, text }));
    const main = [
      ...this.#bodies,
      `W_DRIVER static int program(const double* a, const weft_runtime* rt, int threads, double* times, const int64_t* tables) {`,
      `  void* b[${pointers + 1}];`,
      `  for (int i = 0; i < ${pointers + 1}; i++) b[i] = (void*)(uintptr_t)a[i];`,
      `  char* scratch = b[${pointers}];`,
      "  int failed = 0; double start = times ? rt->now() : 0, now; (void)scratch; (void)now; (void)start; (void)failed; (void)tables;",
      ...steps,
      "  return 0;",
      "}",
      "const volatile int32_t* w_stop;",
      "W_DRIVER int weft_run(const double* a, const weft_runtime* rt, int threads, double* times, const int64_t* tables) {",
      "  rt->enter(threads);",
      "  w_stop = rt->stop;",
      "  const int failed = program(a, rt, threads, times, tables);",
      "  rt->leave();",
      "  return failed;",
      "}",
    ].join("\n");
    // Units compile in parallel; small programs do not need it. The number is that of a machine, not of a process, because it is part of
    // the key of the cache.
    const size = kernels.reduce((sum, { text }) => sum + text.length, 0);
    const parts = Math.min(Math.max(2, processors), Math.max(1, Math.floor(size / unitLength)), kernels.length, 8);
    const declarations = kernels.map(({ name }) => `void ${name}(void* const* p, long lo, long hi);`).join("\n");
    return balanced(kernels, Math.max(1, parts)).map((mine, i) => {
      const definitions = mine
        .map(({ name, text }) => `__attribute__((visibility("hidden"))) void ${name}${text}`)
        .join("\n\n");
      return withPrelude(`${declarations}\n${definitions}\n${i === 0 ? main : ""}`);
    });
  }
}

/** Length of a kernel's text from which another unit pays. */
const unitLength = 6000;

/** Kernels in groups of about equal length: the longest first, each into the shortest group. */
function balanced<T extends { text: string }>(kernels: readonly T[], count: number): T[][] {
  const groups = Array.from({ length: count }, () => ({ length: 0, members: [] as T[] }));
  for (const kernel of [...kernels].sort((a, b) => b.text.length - a.text.length)) {
    const shortest = groups.reduce((a, b) => (b.length < a.length ? b : a));
    shortest.members.push(kernel);
    shortest.length += kernel.text.length;
  }
  return groups.map(({ members }) => members);
}

/** Places inside a loop's step are not those of the same name around it. */
const inLoop = (work: KernelWork, name: string): KernelWork => ({
  ...work,
  touches: work.touches.map(({ place, bytes }) => ({ place: `${name} ${place}`, bytes })),
});

function libraryName(node: Node): string {
  const dims = node.inputs[0].shape.join("x");
  if (isOp(node, "cumsum") && node.attrs.fn !== undefined) return `cum${node.attrs.fn}_${dims}`;
  return node.op === "matmul"
    ? `gemm_${dims}_${node.inputs[1].shape[node.inputs[1].shape.length - 1]}`
    : `${isOp(node, "custom") ? attentionName(node) : node.op}_${dims}`;
}

/** One product per index; sizes and strides are constants, so that all loops unroll. */
function smallMatmul(
  dtype: DType,
  m: number,
  n: number,
  k: number,
  a: MatrixOperand,
  b: MatrixOperand,
  dim: BatchDim | undefined,
): string {
  const type = storageType[dtype];
  const [ars, acs] = a.strides.slice(-2);
  const [brs, bcs] = b.strides.slice(-2);
  const step = dim ?? { a: 0, b: 0, c: m * n };
  if (!isComplex(dtype))
    return `(void* const* p, long lo, long hi) {
  for (long u = lo; u < hi; u++) {
    const ${type}* restrict a = (const ${type}*)p[0] + u * ${step.a};
    const ${type}* restrict b = (const ${type}*)p[1] + u * ${step.b};
    ${type}* restrict c = (${type}*)p[2] + u * ${step.c};
    ${type} bl[${k * n}] __attribute__((aligned(64)));
    for (int q = 0; q < ${k}; q++) for (int j = 0; j < ${n}; j++) bl[q * ${n} + j] = b[q * ${brs} + j * ${bcs}];
    for (int i = 0; i < ${m}; i++) {
      ${type} acc[${n}] __attribute__((aligned(64))) = {0};
      for (int q = 0; q < ${k}; q++) {
        const ${type} x = a[i * ${ars} + q * ${acs}];
        for (int j = 0; j < ${n}; j++) acc[j] += x * bl[q * ${n} + j];
      }
      for (int j = 0; j < ${n}; j++) c[i * ${n} + j] = acc[j];
    }
  }
}`;
  // Both products of a row with its numbers as they lie, re and im side by side; they are combined once at the end.
  const own = bcs === 1;
  const [re, im] = b.conjugate
    ? ["x[2 * j] + y[2 * j + 1]", "y[2 * j] - x[2 * j + 1]"]
    : ["x[2 * j] - y[2 * j + 1]", "x[2 * j + 1] + y[2 * j]"];
  // Vectors as wide as the row allows, at most a register.
  const size = type === "double" ? 8 : 4;
  let width = 64;
  while ((2 * n * size) % width !== 0) width /= 2;
  const vectors = (2 * n * size) / width;
  const copy = `${type} bl[${2 * k * n}] __attribute__((aligned(64)));
    for (int q = 0; q < ${k}; q++) for (int j = 0; j < ${n}; j++) {
      bl[2 * (q * ${n} + j)] = b[2 * (q * ${brs} + j * ${bcs})];
      bl[2 * (q * ${n} + j) + 1] = b[2 * (q * ${brs} + j * ${bcs}) + 1];
    }`;
  return `(void* const* p, long lo, long hi) {
  typedef ${type} vec __attribute__((vector_size(${width}), aligned(${size}), may_alias));
  for (long u = lo; u < hi; u++) {
    const ${type}* restrict a = (const ${type}*)p[0] + u * ${2 * step.a};
    const ${type}* restrict b = (const ${type}*)p[1] + u * ${2 * step.b};
    ${type}* restrict c = (${type}*)p[2] + u * ${2 * step.c};
    ${own ? "" : copy}
    for (int i = 0; i < ${m}; i++) {
      ${type} x[${2 * n}] __attribute__((aligned(64))), y[${2 * n}] __attribute__((aligned(64)));
      vec vx[${vectors}] = {0}, vy[${vectors}] = {0};
#pragma GCC unroll 24
      for (int q = 0; q < ${k}; q++) {
        const ${type} ar = a[2 * (i * ${ars} + q * ${acs})], ai = ${a.conjugate ? "-" : ""}a[2 * (i * ${ars} + q * ${acs}) + 1];
        const vec* row = (const vec*)(${own ? `b + 2 * q * ${brs}` : `bl + ${2 * n} * q`});
#pragma GCC unroll 24
        for (int j = 0; j < ${vectors}; j++) { vx[j] += ar * row[j]; vy[j] += ai * row[j]; }
      }
      __builtin_memcpy(x, vx, sizeof x); __builtin_memcpy(y, vy, sizeof y);
      for (int j = 0; j < ${n}; j++) { c[2 * (i * ${n} + j)] = ${re}; c[2 * (i * ${n} + j) + 1] = ${im}; }
    }
  }
}`;
}

export function writeProgram(plan: Schedule): CpuProgramText {
  const writer = new ProgramWriter();
  const units = writer.program(plan);
  return { units, kernels: writer.kernels, tables: writer.tables };
}
