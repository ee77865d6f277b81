// cuBLASLt played on the host, for small products of float32 and float64: descriptions are objects, products are loops,
// and epilogues happen before the result is rounded, as there.
import koffi from "koffi";

type Table = Record<string, (...args: never[]) => number>;
type Attributes = Map<number, number>;

const readValue = (value: Uint8Array): number => {
  const view = new DataView(value.buffer, value.byteOffset, value.length);
  return value.length === 4 ? view.getInt32(0, true) : Number(view.getBigInt64(0, true));
};

const gelu = (x: number): number => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

export function emulatedLt(log: (name: string) => void): Table {
  let next = 1;
  const objects = new Map<number, Attributes>();
  const create = (out: BigUint64Array, ...values: [number, number][]): number => {
    objects.set(next, new Map(values));
    out[0] = BigInt(next++);
    return 0;
  };
  const set = (object: number, name: number, value: Uint8Array): number => {
    objects.get(object)!.set(name, readValue(value));
    return 0;
  };
  const numbers = (type: number, address: number, count: number): Float32Array | Float64Array => {
    const bytes = koffi.view(BigInt(address), count * (type === 0 ? 4 : 8)) as ArrayBuffer;
    return type === 0 ? new Float32Array(bytes) : new Float64Array(bytes);
  };
  return {
    cublasLtGetVersion: () => 1,
    cublasLtCreate: (out: BigUint64Array) => create(out),
    cublasLtMatmulDescCreate: (out: BigUint64Array) => create(out),
    cublasLtMatmulDescDestroy: () => 0,
    cublasLtMatmulDescSetAttribute: set,
    cublasLtMatrixLayoutCreate: (out: BigUint64Array, type: number, rows: number, columns: number, ld: number) =>
      create(out, [0, type], [2, rows], [3, columns], [4, ld]),
    cublasLtMatrixLayoutDestroy: () => 0,
    cublasLtMatrixLayoutSetAttribute: set,
    cublasLtMatmulPreferenceCreate: (out: BigUint64Array) => create(out),
    cublasLtMatmulPreferenceDestroy: () => 0,
    cublasLtMatmulPreferenceSetAttribute: set,
    cublasLtMatmulAlgoGetHeuristic: (...args: unknown[]) => {
      const type = objects.get(args[2] as number)!.get(0)!;
      const [results, count] = args.slice(-2) as [Uint8Array, Int32Array];
      results.fill(0);
      // Only what the loops below can do.
      count[0] = type <= 1 ? 2 : 0;
      return 0;
    },
    cublasLtMatmul: (...args: number[]) => {
      log("cublasLtMatmul");
      const [, descNumber, alpha, a, al, b, bl, , , , d, dl] = args;
      const [desc, left, right, out] = [descNumber, al, bl, dl].map((n) => objects.get(n)!);
      const type = out.get(0)!;
      const [m, n] = [out.get(2)!, out.get(3)!];
      const [ta, tb] = [desc.get(3) ?? 0, desc.get(4) ?? 0];
      const k = ta === 0 ? left.get(3)! : left.get(2)!;
      const count = out.get(5) ?? 1;
      const size = type === 0 ? 4 : 8;
      const at = (layout: Attributes, g: number): number => g * (layout.get(6) ?? 0) * size;
      const span = (layout: Attributes): number => layout.get(4)! * layout.get(3)!;
      const epilogue = desc.get(7) ?? 1;
      const [scale] = numbers(type, alpha, 1);
      const bias = epilogue & 4 ? numbers(type, desc.get(8)!, m) : null;
      for (let g = 0; g < count; g++) {
        const x = numbers(type, a + at(left, g), span(left));
        const y = numbers(type, b + at(right, g), span(right));
        const z = numbers(type, d + at(out, g), span(out));
        for (let j = 0; j < n; j++)
          for (let i = 0; i < m; i++) {
            let sum = 0;
            for (let p = 0; p < k; p++) {
              const u = ta === 0 ? x[p * left.get(4)! + i] : x[i * left.get(4)! + p];
              const v = tb === 0 ? y[j * right.get(4)! + p] : y[p * right.get(4)! + j];
              sum += u * v;
            }
            sum = sum * scale + (bias?.[i] ?? 0);
            if (epilogue & 2) sum = Math.max(sum, 0);
            if (epilogue & 32) sum = gelu(sum);
            z[j * out.get(4)! + i] = sum;
          }
      }
      return 0;
    },
  };
}
