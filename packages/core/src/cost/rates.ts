// Rates of a device and its links: measured (runtime/calibrate.ts), or assumed for a machine that is not available. All cost
// estimates are based on these rates.
import { type CollectiveKind, collectiveKinds, type DType, isComplex, WeftError } from "../graph/index.js";
import type { OpClass, ProductTable } from "./kernel-cost.js";

/** Points of a curve, ascending in x; linear in log x between them, constant outside. */
export type RateCurve = readonly (readonly [x: number, y: number])[];

export interface Link {
  /** Number of communicating devices. */
  members: number;
  /** Seconds before the first byte arrives. */
  latency: number;
  /** Bytes per second that a device receives, for large messages. */
  bandwidth: number;
  /** Bandwidth by bytes received, where it was measured: medium messages stay in caches. */
  curve?: RateCurve;
}

export interface Rates {
  /** Name of the measured or assumed machine. */
  name: string;
  /** True where nothing was measured: every result is a prediction about another machine. */
  assumed: boolean;
  /** True where the machine was busy during measurement: usable now, but not saved. */
  disturbed?: boolean;
  /** Floating-point operations per second of matrix products, by the cube root of m n k. */
  matmul: Partial<Record<DType, RateCurve>>;
  /** The same for factorizations. */
  linalg: number;
  /** Bytes per second that a kernel streams, by the bytes that it accesses. */
  bandwidth: RateCurve;
  /** Simple operations (add, compare) and special functions (exp, tanh) per second, in fused kernels. */
  simple: number;
  special: number;
  /** Elements gathered or scattered per second, and random numbers per second. */
  lookup: number;
  random: number;
  /** Overhead in seconds of a kernel, and of a call of a whole function. */
  kernel: number;
  call: number;
  /** Matrix products by shape and layout. This and the next three are measured on CPUs, for kernel-cost.ts. */
  products?: Partial<Record<DType, ProductTable>>;
  /** Operations per second by class. */
  ops?: Partial<Record<OpClass, number>>;
  /** Overhead in seconds of an inner loop. */
  row?: number;
  /** Bytes per second of narrow memory accesses (column sums), by the bytes per access. */
  columns?: RateCurve;
  links: Record<CollectiveKind, readonly Link[]>;
  /** Devices per host, and links between devices of different hosts; without it all links are alike. */
  between?: { devices: number; links: Record<CollectiveKind, readonly Link[]> };
  /** Rates while `members` devices of the machine work at the same time: they share memory, caches and power. */
  crowded?: { members: number; rates: Omit<Rates, "links" | "crowded"> };
}

/** Interpolates two trees of numbers in logarithms; where their structure differs, takes the nearer one. */
function between<T>(a: T, b: T, part: number): T {
  if (typeof a === "number" && typeof b === "number")
    return (a > 0 && b > 0 ? Math.exp((1 - part) * Math.log(a) + part * Math.log(b)) : part < 0.5 ? a : b) as T;
  const nearer = part < 0.5 ? a : b;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return nearer;
  if (Object.keys(a).length !== Object.keys(b).length) return nearer;
  const mixed = Object.entries(a).map(([key, x]) => [key, between(x, (b as Record<string, unknown>)[key], part)]);
  return (Array.isArray(a) ? mixed.map(([, x]) => x) : Object.fromEntries(mixed)) as T;
}

/** Rates of each of `devices` that work at the same time, interpolated by the logarithm of their number. */
export function ratesAt(rates: Rates, devices: number): Rates {
  const { crowded, links, ...alone } = rates;
  if (crowded === undefined || crowded.members < 2 || devices < 2) return rates;
  if (devices >= crowded.members) return { ...crowded.rates, links };
  return { ...between(alone, crowded.rates, Math.log(devices) / Math.log(crowded.members)), links };
}

export function valueAt(curve: RateCurve, x: number): number {
  if (curve.length === 0) return Number.NaN;
  const above = curve.findIndex(([at]) => at >= x);
  if (above === 0) return curve[0][1];
  if (above < 0) return curve[curve.length - 1][1];
  const [x0, y0] = curve[above - 1];
  const [x1, y1] = curve[above];
  const part = Math.log(x / x0) / Math.log(x1 / x0);
  return y0 + part * (y1 - y0);
}

/** The link for this many devices, or for the next larger measured number. */
export function linkOf(links: readonly Link[], members: number): Link | undefined {
  return links.find((link) => link.members >= members) ?? links[links.length - 1];
}

/** Seconds of a collective in which a device receives `bytes`. */
export function linkTime(rates: Rates, kind: CollectiveKind, members: number, bytes: number): number {
  const link = linkOf(rates.links[kind], members);
  if (members <= 1 || link === undefined) return 0;
  const { latency, bandwidth, curve } = link;
  return latency + bytes / (curve === undefined || bytes === 0 ? bandwidth : valueAt(curve, bytes));
}

export function matmulRate(rates: Rates, dtype: DType, m: number, n: number, k: number): number {
  const size = Math.cbrt(Math.max(1, m * n * k));
  const own = rates.matmul[dtype];
  if (own !== undefined) return valueAt(own, size);
  const known = rates.matmul[isComplex(dtype) ? "complex64" : "float32"] ?? rates.matmul.float32 ?? [];
  // Where only single precision was measured: a vector holds half as many doubles.
  return valueAt(known, size) * (dtype === "float64" || dtype === "complex128" ? 0.5 : 1);
}

/** Parses and checks rates from JSON, so that an invalid file does not put NaN into every cost. */
export function parseRates(json: unknown): Rates {
  const rates = json as Rates;
  const bad = (what: string): never => {
    throw new WeftError(`rates: ${what}; measure them again (delete the calibration file)`);
  };
  const isRate = (x: unknown): boolean => typeof x === "number" && Number.isFinite(x) && x > 0;
  if (typeof rates !== "object" || rates === null) bad("this is no object");
  for (const key of ["linalg", "simple", "special", "lookup", "random"] as const)
    if (!isRate(rates[key])) bad(`"${key}" is ${String(rates[key])}, not a positive number`);
  for (const key of ["kernel", "call"] as const)
    if (!(rates[key] >= 0)) bad(`"${key}" is ${String(rates[key])}, not a number of seconds`);
  const isCurve = (curve: unknown): boolean =>
    Array.isArray(curve) &&
    curve.length > 0 &&
    curve.every((point) => Array.isArray(point) && point.length === 2 && point.every(isRate)) &&
    curve.every((point, i) => i === 0 || point[0] > curve[i - 1][0]);
  const curves: [string, unknown][] = [["bandwidth", rates.bandwidth], ...Object.entries(rates.matmul ?? {})];
  if (rates.columns !== undefined) curves.push(["columns", rates.columns]);
  for (const [name, curve] of curves)
    if (!isCurve(curve)) bad(`the curve "${name}" has no points, or not positive ones in ascending order`);
  for (const [name, rate] of Object.entries(rates.ops ?? {}))
    if (!isRate(rate)) bad(`operations of "${name}" are ${String(rate)} a second, not a positive number`);
  if (rates.row !== undefined && !(rates.row >= 0 && rates.row < 1)) bad(`"row" is ${String(rates.row)}`);
  for (const [name, table] of Object.entries(rates.products ?? {})) {
    const count = Array.isArray(table?.sizes) ? table.sizes.length ** 3 : 0;
    const isTable =
      count > 0 &&
      [table.nn, table.tn, table.nt, table.ns].every((t) => Array.isArray(t) && t.length === count && t.every(isRate));
    if (!isTable || !table.sizes.every((size, i) => isRate(size) && (i === 0 || size > table.sizes[i - 1])))
      bad(`the table of products of ${name} is incomplete`);
  }
  if (rates.matmul?.float32 === undefined) bad("products of float32 are missing");
  if (rates.crowded !== undefined) {
    if (!isRate(rates.crowded?.members)) bad("the crowd has no number of members");
    parseRates({ ...rates.crowded.rates, links: rates.links, crowded: undefined });
  }
  for (const kind of collectiveKinds)
    if (
      !Array.isArray(rates.links?.[kind]) ||
      !rates.links[kind].every(
        ({ members, latency, bandwidth, curve }) =>
          isRate(members) && latency >= 0 && isRate(bandwidth) && (curve === undefined || isCurve(curve)),
      )
    )
      bad(`the link of ${kind} is missing or not positive`);
  return rates;
}

/** One link for every kind of collective. */
export function sameLinks(links: readonly Link[]): Rates["links"] {
  return Object.fromEntries(collectiveKinds.map((kind) => [kind, links])) as Rates["links"];
}
