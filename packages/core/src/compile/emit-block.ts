// Emits block programs as CUDA: the threads of a block compute each array of a step together, with a barrier after every
// level. A block of one warp uses a warp barrier.
import { isComplex } from "../graph/index.js";
import { scalarStatement } from "./emit-lane.js";
import type { LaneTextCuda } from "./emit-lane-cuda.js";
import type { BlockArray, BlockProgram, BlockTask } from "./lane-block.js";
import { closure } from "./lane-block.js";
import type { LaneScalar } from "./lane-scalar.js";
import { computeType, literal, storageType } from "./scalar.js";

/** Limit of scalars that a thread computes for all its elements at once. */
const maxSideBySide = 240;

const arrayName = (a: BlockArray): string => `m${a.id}`;

class BlockPrinter {
  readonly lines: string[] = [];
  constructor(readonly program: BlockProgram) {}

  #use(s: LaneScalar): string {
    return s.op === "const" ? literal(s.value, s.dtype) : `x${s.id}`;
  }

  #read(s: LaneScalar): string {
    const at = s.address!.print();
    if (s.op === "shared") {
      const array = this.program.arrays[s.input];
      return `${arrayName(array)}[${at}${s.part === 1 ? ` + ${array.count}` : ""}]`;
    }
    return isComplex(this.program.inputs[s.input].dtype)
      ? `p${s.input}[2*(${at})${s.part === 1 ? " + 1" : ""}]`
      : `p${s.input}[${at}]`;
  }

  #write(task: BlockTask, values: readonly LaneScalar[], element: string): string[] {
    if ("array" in task.target) {
      const { array } = task.target;
      return values.map(
        (v, k) => `${arrayName(array)}[${element}${k === 1 ? ` + ${array.count}` : ""}] = ${this.#use(v)};`,
      );
    }
    const { output, address } = task.target;
    const { dtype } = this.program.outputs[output];
    const place = address.print();
    return values.map((v, k) => {
      const at = isComplex(dtype) ? `2*(${place})${k === 1 ? " + 1" : ""}` : place;
      return `p${this.program.inputs.length + output}[${at}] = ${this.#use(v)};`;
    });
  }

  #task(task: BlockTask, indent: string): void {
    const { threads } = this.program;
    const e = task.variable;
    const body = (values: readonly LaneScalar[], inner: string): string[] => [
      ...closure(values)
        .filter((s) => s.op !== "const")
        .map((s) =>
          scalarStatement(
            s,
            (x) => this.#use(x),
            (x) => this.#read(x),
            inner,
            `x${s.id}`,
          ),
        ),
      ...this.#write(task, values, e).map((line) => inner + line),
    ];
    const rounds = Math.ceil(task.count / threads);
    // A thread computes a few elements interleaved, while registers last.
    const unrolls = rounds > 1 && rounds * closure(task.values.flat()).length <= maxSideBySide;
    this.lines.push(unrolls ? "#pragma unroll" : "#pragma unroll 1");
    const guard = task.count % threads === 0 ? "" : ` if (${e} < ${task.count})`;
    this.lines.push(
      `${indent}for (int r_ = 0; r_ < ${rounds}; r_++) { const ix ${e} = tid + r_ * ${threads};${guard} {`,
    );
    if (!task.each) this.lines.push(...body(task.values as LaneScalar[], `${indent}  `));
    else
      (task.values as LaneScalar[][]).forEach((values, i) => {
        this.lines.push(`${indent}  if (${e} == ${i}) {`, ...body(values, `${indent}    `), `${indent}  }`);
      });
    this.lines.push(`${indent}} }`);
  }

  print(): string {
    const { program } = this;
    const { arrays, before, levels, advance, after, loop, prefix, sharedBytes, threads } = program;
    const barrier = threads === 32 ? "__syncwarp();" : "__syncthreads();";
    const sizes = [...program.inputs, ...program.outputs].map((x) => x.shape.reduce((n, d) => n * d, 2));
    this.lines.push(
      `  typedef ${sizes.some((n) => n >= 2 ** 31) ? "long long" : "int"} ix;`,
      ...program.inputs.map(
        (x, i) => `  const ${storageType[x.dtype]}* __restrict__ p${i} = (const ${storageType[x.dtype]}*)p[${i}];`,
      ),
      ...program.outputs.map((o, k) => {
        const i = program.inputs.length + k;
        return `  ${storageType[o.dtype]}* __restrict__ p${i} = (${storageType[o.dtype]}*)p[${i}];`;
      }),
      `  __shared__ __align__(16) char memory[${Math.max(16, sharedBytes)}];`,
      ...arrays.map(
        (a) => `  ${computeType[a.dtype]}* const ${arrayName(a)} = (${computeType[a.dtype]}*)(memory + ${a.offset});`,
      ),
      "  const ix tid = threadIdx.x; const ix b = blockIdx.x; (void)b;",
    );
    let stride = 1;
    for (let i = prefix.length - 1; i >= 0; i--) {
      const outermost = prefix.slice(0, i).every((d) => d === 1);
      const quotient = stride === 1 ? "b" : `b / ${stride}`;
      this.lines.push(`  const ix l${i} = ${outermost ? quotient : `(${quotient}) % ${prefix[i]}`}; (void)l${i};`);
      stride *= prefix[i];
    }
    for (const task of before) this.#task(task, "  ");
    this.lines.push(`  ${barrier}`);
    const q = loop.reverse ? `${loop.length - 1} - q` : "q";
    this.lines.push(
      `  for (ix q = 0; q < ${loop.length}; q++) { const ix ${loop.variable} = ${q}; (void)${loop.variable};`,
    );
    for (const level of levels) {
      for (const task of level) this.#task(task, "    ");
      this.lines.push(`    ${barrier}`);
    }
    for (const [state, from] of advance)
      this.lines.push(
        `    for (ix e = tid; e < ${state.count * state.parts}; e += ${threads}) ${arrayName(state)}[e] = ${arrayName(from)}[e];`,
      );
    this.lines.push(`    ${barrier}`, "  }");
    for (const task of after) this.#task(task, "  ");
    return this.lines.join("\n");
  }
}

export function emitBlockCuda(program: BlockProgram): LaneTextCuda {
  return { text: new BlockPrinter(program).print(), threads: program.threads, blocks: program.lanes };
}
