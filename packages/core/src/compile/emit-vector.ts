// CUDA code for vectors: several neighboring elements per thread, stored by one access.
import { isComplex } from "../graph/index.js";
import { firstOf, vectorBase } from "./body.js";
import { writeText } from "./emit-common.js";
import type { LoopKernel, Store } from "./kernel.js";
import { type CValue, computeType, eachPart, storageType, storeText } from "./scalar.js";

/** How a kernel stores vectors: arrays filled in the loop over a vector, statements after it. */
interface VectorStores {
  declare: string[];
  fill: string[];
  write: string[];
  /** Statements of stores whose elements are not contiguous; they are written in a separate loop. */
  single: string[];
}

export function vectorStores(
  kernel: LoopKernel,
  stores: readonly Store[],
  values: readonly CValue[],
  vector: { variable: string; width: number },
  aligned: boolean,
): VectorStores {
  const { width } = vector;
  const result: VectorStores = { declare: [], fill: [], write: [], single: [] };
  stores.forEach((s, k) => {
    const { dtype } = kernel.buffers[s.buffer];
    const base = aligned && !isComplex(dtype) ? vectorBase(s.address, vector) : null;
    if (base !== null) {
      result.declare.push(`__align__(16) ${storageType[dtype]} o${k}[${width}];`);
      result.fill.push(...storeText(`o${k}`, "j", dtype, values[k]));
      result.write.push(`w_store<${width}>(p${s.buffer} + ${base.print()}, o${k});`);
      return;
    }
    const vectors = eachPart(values[k], (_, part) => `o${k}_${part}`);
    vectors.forEach((name, part) => {
      result.declare.push(`${computeType[s.value.dtype]} ${name}[${width}];`);
      result.fill.push(`${name}[j] = ${values[k][part]};`);
    });
    result.single.push(
      ...writeText(
        kernel,
        s,
        eachPart(vectors, (name) => `${name}[j]`),
      ),
    );
  });
  return result;
}

/** The loops over one vector: all of it is read and computed before any of it is written. */
export function vectorLines(
  { variable, width }: { variable: string; width: number },
  loads: readonly string[],
  body: readonly string[],
  stores: VectorStores,
  guard: string,
): string[] {
  const open = [
    "#pragma unroll",
    `for (int j = 0; j < ${width}; j++) {`,
    `  const ix ${variable} = ${firstOf(variable)} + j;`,
  ];
  const lines = [...loads, ...stores.declare, ...open, ...body, ...stores.fill.map((l) => `  ${l}`), "}"];
  if (stores.single.length > 0)
    lines.push(...(guard === "" ? [] : [guard]), ...open, ...stores.single.map((l) => `  ${l}`), "}");
  lines.push(...stores.write.map((l) => `${guard} ${l}`.trim()));
  return lines;
}
