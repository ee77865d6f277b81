// cuFFT played on the host, by the definition of the transform. Knows plans without embedding only, as the device makes them.
import koffi from "koffi";

interface Plan {
  sizes: number[];
  batch: number;
}

const view = (address: number, bytes: number): ArrayBuffer => koffi.view(BigInt(address), bytes) as ArrayBuffer;

/** Transforms lines of complex pairs along each axis. */
function transform(data: Float64Array, { sizes, batch }: Plan, sign: number): Float64Array {
  let inner = 1;
  let current = data;
  const total = batch * sizes.reduce((a, b) => a * b, 1);
  for (const n of [...sizes].reverse()) {
    const next = new Float64Array(2 * total);
    for (let at = 0; at < total; at++) {
      const k = Math.floor(at / inner) % n;
      const first = at - k * inner;
      for (let j = 0; j < n; j++) {
        const angle = (sign * 2 * Math.PI * ((j * k) % n)) / n;
        const [re, im] = [current[2 * (first + j * inner)], current[2 * (first + j * inner) + 1]];
        next[2 * at] += re * Math.cos(angle) - im * Math.sin(angle);
        next[2 * at + 1] += re * Math.sin(angle) + im * Math.cos(angle);
      }
    }
    current = next;
    inner *= n;
  }
  return current;
}

export function emulatedFft(log: (name: string) => void) {
  const plans = new Map<number, Plan>();
  type Numbers = Float32ArrayConstructor | Float64ArrayConstructor;
  const points = ({ sizes, batch }: Plan): number => batch * sizes.reduce((a, b) => a * b, 1);
  const c2c = (name: string, T: Numbers) => (plan: number, from: number, to: number, direction: number) => {
    log(name);
    const shape = plans.get(plan)!;
    const bytes = 2 * points(shape) * T.BYTES_PER_ELEMENT;
    new T(view(to, bytes)).set(transform(Float64Array.from(new T(view(from, bytes))), shape, direction));
    return 0;
  };
  const r2c = (name: string, T: Numbers) => (plan: number, from: number, to: number) => {
    log(name);
    const shape = plans.get(plan)!;
    const n = shape.sizes[shape.sizes.length - 1];
    const count = points(shape);
    const half = Math.floor(n / 2) + 1;
    const x = new T(view(from, count * T.BYTES_PER_ELEMENT));
    const full = transform(
      Float64Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? x[i / 2] : 0)),
      shape,
      -1,
    );
    const out = new T(view(to, 2 * (count / n) * half * T.BYTES_PER_ELEMENT));
    for (let i = 0; i < out.length; i++) out[i] = full[2 * n * Math.floor(i / (2 * half)) + (i % (2 * half))];
    return 0;
  };
  const c2r = (name: string, T: Numbers) => (plan: number, from: number, to: number) => {
    log(name);
    const shape = plans.get(plan)!;
    if (shape.sizes.length > 1) return 4;
    const [n] = shape.sizes;
    const half = Math.floor(n / 2) + 1;
    const x = new T(view(from, 2 * shape.batch * half * T.BYTES_PER_ELEMENT));
    const full = Float64Array.from({ length: 2 * shape.batch * n }, (_, i) => {
      const [row, k, part] = [Math.floor(i / (2 * n)), Math.floor(i / 2) % n, i % 2];
      const value = x[2 * (row * half + (k < half ? k : n - k)) + part];
      return k < half || part === 0 ? value : -value;
    });
    const out = transform(full, shape, 1);
    new T(view(to, shape.batch * n * T.BYTES_PER_ELEMENT)).set(out.filter((_, i) => i % 2 === 0));
    return 0;
  };
  let next = 1;
  return {
    cufftCreate: (out: Int32Array) => {
      out[0] = next++;
      return 0;
    },
    cufftDestroy: (plan: number) => (plans.delete(plan) ? 0 : 1),
    cufftSetStream: () => 0,
    cufftMakePlanMany64: (plan: number, rank: number, n: BigInt64Array, ...rest: unknown[]) => {
      plans.set(plan, { sizes: Array.from(n.subarray(0, rank), Number), batch: rest[7] as number });
      (rest[8] as BigUint64Array)[0] = 64n;
      return 0;
    },
    cufftExecC2C: c2c("cufftExecC2C", Float32Array),
    cufftExecZ2Z: c2c("cufftExecZ2Z", Float64Array),
    cufftExecR2C: r2c("cufftExecR2C", Float32Array),
    cufftExecD2Z: r2c("cufftExecD2Z", Float64Array),
    cufftExecC2R: c2r("cufftExecC2R", Float32Array),
    cufftExecZ2D: c2r("cufftExecZ2D", Float64Array),
  };
}
