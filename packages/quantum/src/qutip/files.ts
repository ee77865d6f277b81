// Files of other libraries: QuTiP's .qu (pickles, read without executing anything), matrices in .npz and .npy, and parameter files of
// scqubits and SuperGrad.
import { readFileSync, statSync } from "node:fs";
import { isComplex, WeftError } from "@weft/core/internal/graph";
import { readNpy, readNpz } from "@weft/core/io";
import { Operator } from "../operators/index.js";
import { SpecError } from "../schema/index.js";
import { DevicePart, type PartKind } from "../systems/index.js";
import { PickledObject, readObjectPickle } from "./pickle.js";
import { Qobj } from "./qobj.js";

/** Largest .qu file. */
const maxBytes = 2 ** 30;
/** Largest number of entries of a matrix that is read: 2,048 levels. */
const maxEntries = 2 ** 22;

interface Numbers {
  shape: number[];
  re: Float64Array;
  im: Float64Array;
}

const bad = (name: string, what: string): never => {
  throw new SpecError(`${name}: ${what}`);
};

const readers: Record<string, { bytes: number; read(view: DataView, at: number): [number, number] }> = {
  c16: { bytes: 16, read: (v, at) => [v.getFloat64(at, true), v.getFloat64(at + 8, true)] },
  c8: { bytes: 8, read: (v, at) => [v.getFloat32(at, true), v.getFloat32(at + 4, true)] },
  f8: { bytes: 8, read: (v, at) => [v.getFloat64(at, true), 0] },
  f4: { bytes: 4, read: (v, at) => [v.getFloat32(at, true), 0] },
  i8: { bytes: 8, read: (v, at) => [Number(v.getBigInt64(at, true)), 0] },
  i4: { bytes: 4, read: (v, at) => [v.getInt32(at, true), 0] },
};

const isWhole = (x: unknown): x is number => typeof x === "number" && Number.isInteger(x) && x >= 0;

/** A NumPy array of a pickle, or null if the object is something else. */
function arrayOf(value: unknown, name: string): Numbers | null {
  if (!(value instanceof PickledObject) || !/^numpy\.(_core|core)\.multiarray\._reconstruct$/.test(value.global))
    return null;
  const state = value.state as unknown[];
  if (!Array.isArray(state) || state.length !== 5) return bad(name, "holds a NumPy array without data");
  const [, shape, dtype, isFortran, data] = state;
  const kind = dtype instanceof PickledObject && dtype.global === "numpy.dtype" ? String(dtype.args[0]) : "?";
  const order = dtype instanceof PickledObject && Array.isArray(dtype.state) ? dtype.state[1] : "<";
  const reader = readers[kind];
  if (reader === undefined || (order !== "<" && order !== "|"))
    return bad(name, `holds an array of dtype ${String(order)}${kind}; known: ${Object.keys(readers).join(", ")}`);
  if (!Array.isArray(shape) || shape.length > 2 || !shape.every(isWhole) || !(data instanceof Uint8Array))
    return bad(name, "holds a NumPy array without a shape or bytes");
  const size = shape.reduce((a, b) => a * b, 1);
  if (size > maxEntries || data.length !== size * reader.bytes)
    return bad(name, `holds an array [${shape.join(", ")}] with ${data.length} bytes`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const [rows, columns] = shape.length === 2 ? shape : [1, size];
  const out: Numbers = { shape, re: new Float64Array(size), im: new Float64Array(size) };
  for (let k = 0; k < size; k++) {
    const at = isFortran === true ? (k % rows) * columns + Math.floor(k / rows) : k;
    [out.re[at], out.im[at]] = reader.read(view, k * reader.bytes);
  }
  return out;
}

function matrixOfArray({ shape, re, im }: Numbers, name: string): Operator {
  if (shape.length !== 2) return bad(name, `holds an array of ${shape.length} dimensions; a matrix has 2`);
  return new Operator(shape[0], shape[1], re, im);
}

const stateMap = (value: unknown, name: string): Map<string, unknown> => {
  const state = value instanceof PickledObject ? value.state : null;
  const map = Array.isArray(state) ? state.find((part) => part instanceof Map) : state;
  return map instanceof Map ? map : bad(name, "holds an object without its state");
};

function shapeOf(value: unknown, name: string): [number, number] {
  if (!Array.isArray(value) || value.length !== 2 || !value.every(isWhole) || value[0] * value[1] > maxEntries)
    return bad(name, `holds a matrix of shape ${String(value)}`);
  return [value[0], value[1]];
}

/** A SciPy sparse matrix of a pickle (CSR or DIA). */
function sparseOf(value: PickledObject, name: string): Operator {
  const state = stateMap(value, name);
  const [rows, columns] = shapeOf(state.get("_shape"), name);
  const part = (key: string): Numbers =>
    arrayOf(state.get(key), name) ?? bad(name, `holds a sparse matrix without ${key}`);
  const data = part("data");
  const out = Operator.zeros(rows, columns);
  const put = (i: number, j: number, k: number): void => {
    if (!(i >= 0 && i < rows && j >= 0 && j < columns && k >= 0 && k < data.re.length))
      throw new SpecError(`${name}: holds a sparse matrix with an index outside of it`);
    out.re[i * columns + j] += data.re[k];
    out.im[i * columns + j] += data.im[k];
  };
  if (/csr_(array|matrix)$/.test(value.global)) {
    const [indices, starts] = [part("indices").re, part("indptr").re];
    if (starts.length !== rows + 1) return bad(name, "holds a sparse matrix with a wrong number of rows");
    for (let i = 0; i < rows; i++)
      for (let k = starts[i]; k < Math.min(starts[i + 1], indices.length); k++) put(i, indices[k], k);
    return out;
  }
  const offsets = part("offsets").re;
  const width = data.shape[1] ?? data.re.length;
  // Entries of a diagonal that lie outside of the matrix are not set.
  offsets.forEach((offset, d) => {
    for (let j = Math.max(0, offset); j < Math.min(columns, rows + offset, width); j++)
      put(j - offset, j, d * width + j);
  });
  return out;
}

function dataOf(value: unknown, name: string): Operator {
  const array = arrayOf(value, name);
  if (array !== null) return matrixOfArray(array, name);
  if (!(value instanceof PickledObject)) return bad(name, "holds no matrix");
  if (/^qutip\.core\.data\.(dense\.fast_from_numpy|(csr|dia)\.fast_from_scipy)$/.test(value.global))
    return dataOf(value.args[0], name);
  if (/^scipy\.sparse\.(_csr|_dia|csr|dia)\.(csr|dia)_(array|matrix)$/.test(value.global)) return sparseOf(value, name);
  return bad(name, `holds "${value.global}", which is not known; save the matrix with numpy.savez instead`);
}

/** Dimensions of the subsystems of a QuTiP space. */
function spaceOf(value: unknown, name: string, depth = 0): number[] {
  const kind = value instanceof PickledObject ? value.global.split(".").at(-1) : "";
  const state = stateMap(value, name);
  if (kind === "Field") return [1];
  if (kind === "Space" && isWhole(state.get("size"))) return [state.get("size") as number];
  const spaces = state.get("spaces");
  if (kind === "Compound" && Array.isArray(spaces) && depth < 8)
    return spaces.flatMap((space) => spaceOf(space, name, depth + 1));
  return bad(name, `holds a space "${kind}", which is not known; only kets, bras and operators are read`);
}

/**
 * Reads a QuTiP object saved by `qsave` (QuTiP 5): a ket, bra or operator, dense or sparse. The file is a pickle; nothing in it is
 * executed, and anything but matrices and their dimensions is refused.
 *
 * @param file - Path; the ending .qu may be left out.
 */
export function qload(file: string): Qobj {
  const path = file.endsWith(".qu") ? file : `${file}.qu`;
  const { size } = statSync(path);
  if (size > maxBytes) throw new WeftError(`${path}: has ${size} bytes, more than ${maxBytes}`);
  const value = readObjectPickle(readFileSync(path));
  if (!(value instanceof PickledObject) || value.global !== "qutip.core.qobj.Qobj")
    return bad(path, "holds no Qobj of QuTiP 5; save one with qutip.qsave");
  const state = stateMap(value, path);
  const matrix = dataOf(state.get("_data"), path);
  const dims = stateMap(state.get("_dims"), path);
  const [rows, columns] = [spaceOf(dims.get("to_"), path), spaceOf(dims.get("from_"), path)];
  return new Qobj(matrix, [rows, columns.length === rows.length ? columns : rows.map(() => 1)]);
}

/** Reads a matrix (or a vector as a ket) from a .npy file, or the array `name` of a .npz file. */
export async function loadMatrix(file: string, name?: string): Promise<Qobj> {
  let array: Awaited<ReturnType<typeof readNpy>>;
  if (file.endsWith(".npz")) {
    const all = await readNpz(file);
    const names = Object.keys(all);
    const wanted = name ?? (names.length === 1 ? names[0] : bad(file, `holds ${names.join(", ")}; name one of them`));
    array = all[wanted] ?? bad(file, `holds no array "${wanted}"; it holds ${names.join(", ")}`);
  } else array = await readNpy(file);
  const { shape, dtype, data } = array;
  if (shape.length < 1 || shape.length > 2 || shape.some((n) => n === 0))
    return bad(file, `holds an array [${shape.join(", ")}]; a matrix or vector was expected`);
  const [rows, columns = 1] = shape;
  const step = isComplex(dtype) ? 2 : 1;
  return new Qobj(
    Operator.build(rows, columns, (i, j) => {
      const at = (i * columns + j) * step;
      return { re: Number(data[at]), im: step === 2 ? Number(data[at + 1]) : 0 };
    }),
  );
}

/** Names of the parameters of parts in scqubits and SuperGrad, in lower case. */
const parameterNames: Record<string, string> = {
  ec: "ec",
  ej: "ej",
  ejmax: "ej",
  el: "el",
  ng: "ng",
  d: "asymmetry",
  flux: "phiExt",
  phiext: "phiExt",
  phi_ext: "phiExt",
  e_osc: "frequency",
  frequency: "frequency",
  omega_q: "frequency",
  anharm: "anharmonicity",
  anharmonicity: "anharmonicity",
  truncated_dim: "levels",
  truncated_dimension: "levels",
};
/** Parameters of those files that describe their discretization and have no counterpart here. */
const ignored = new Set(["cutoff", "ncut", "id_str", "_type", "type", "name", "evals_method", "esys_method"]);
const kinds: Record<string, PartKind> = {
  fluxonium: "fluxonium",
  transmon: "transmon",
  tunabletransmon: "transmon",
  oscillator: "resonator",
  resonator: "resonator",
  kerroscillator: "duffing",
  duffing: "duffing",
};

/**
 * A part from the parameters of scqubits (`Transmon`, `TunableTransmon`, `Fluxonium`, `Oscillator`: EJ, EC, EL, flux in flux quanta,
 * truncated_dim) or of SuperGrad (ec, ej, el, phiext in radians). Unknown parameters are errors.
 *
 * @param kind - Class name, such as "Fluxonium".
 */
export function partFrom(kind: string, parameters: Readonly<Record<string, unknown>>): DevicePart {
  const own = kinds[kind.toLowerCase()];
  if (own === undefined)
    throw new WeftError(`part: there is no counterpart of "${kind}"; known: ${Object.keys(kinds).join(", ")}`);
  const fields: Record<string, number> = {};
  for (const [key, value] of Object.entries(parameters)) {
    if (ignored.has(key.toLowerCase()) || value === null || value === undefined) continue;
    const name = parameterNames[key.toLowerCase()];
    if (name === undefined) throw new WeftError(`part ${kind}: the parameter "${key}" is not known`);
    if (typeof value !== "number" || !Number.isFinite(value))
      throw new WeftError(`part ${kind}: ${key} must be a finite number, got ${String(value)}`);
    // scqubits counts flux in flux quanta; SuperGrad gives radians under another name.
    fields[name] = key.toLowerCase() === "flux" ? 2 * Math.PI * value : value;
  }
  return new DevicePart(own, fields as never);
}
