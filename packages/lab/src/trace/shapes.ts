// Shapes of the operators of a trace (record_shapes=True): the raw lists are interned while the file is read and parsed when an
// analysis asks for them.
import { argumentIndex as arg, type EventSlots } from "./event.js";
import { hashBytes, type SymbolColumns, Symbols } from "./symbols.js";

/** Sizes of one input: of a tensor, of each tensor of a list, or empty. */
type Dims = readonly (number | readonly number[])[];

/** Inputs of an operator as the profiler recorded them. */
export interface OperatorInputs {
  dims: readonly Dims[];
  types: readonly string[];
  /** Values of inputs that are no tensors, as text; empty in traces of older versions. */
  values: readonly string[];
}

/** Combinations beyond this many (a trace with ever new shapes) are not recorded. */
const mostCombinations = 1 << 20;

const isSize = (value: unknown): boolean => typeof value === "number" && value >= 0 && value <= Number.MAX_SAFE_INTEGER;
/** Sizes, or a list of them; deeper lists are not written by the profiler. */
const isSizes = (value: unknown): boolean =>
  Array.isArray(value) && value.every((item) => (Array.isArray(item) ? item.every(isSize) : isSize(item)));

/** Combinations of dims, types and values, three ids of `texts` each. */
export interface ShapeColumns {
  texts: SymbolColumns;
  parts: Int32Array;
}

export class ShapeTable {
  private readonly texts = new Symbols();
  private readonly ids = new Map<string, number>();
  private readonly parts: [dims: number, types: number, values: number][] = [];
  private readonly parsed: (OperatorInputs | null | undefined)[] = [];
  private last: [number, number, number] = [-1, -1, -1];
  private lastId = -1;

  get size(): number {
    return this.parts.length;
  }

  /** Id of the inputs of an event; -1 where it has none. */
  add(e: EventSlots, bytes: Buffer): number {
    if (!e.has(arg["Input Dims"])) return -1;
    const dims = this.intern(e, bytes, arg["Input Dims"]);
    const types = this.intern(e, bytes, arg["Input type"]);
    const values = this.intern(e, bytes, arg["Concrete Inputs"]);
    return this.combination(dims, types, values);
  }

  private combination(dims: number, types: number, values: number): number {
    const [a, b, c] = this.last;
    if (a === dims && b === types && c === values) return this.lastId;
    const key = `${dims},${types},${values}`;
    let id = this.ids.get(key);
    if (id === undefined) {
      if (this.parts.length >= mostCombinations) return -1;
      id = this.parts.length;
      this.ids.set(key, id);
      this.parts.push([dims, types, values]);
    }
    this.last = [dims, types, values];
    this.lastId = id;
    return id;
  }

  /** A copy of the combinations (three texts each), for another thread. */
  columns(): ShapeColumns {
    return { texts: this.texts.columns(), parts: Int32Array.from(this.parts.flat()) };
  }

  /** Adds the combinations of another table; returns their ids here. */
  append({ texts, parts }: ShapeColumns): Int32Array {
    const textIds = this.texts.append(texts);
    const here = (text: number): number => (text < 0 ? -1 : textIds[text]);
    const ids = new Int32Array(parts.length / 3);
    for (let i = 0; i < ids.length; i++)
      ids[i] = this.combination(here(parts[3 * i]), here(parts[3 * i + 1]), here(parts[3 * i + 2]));
    return ids;
  }

  /** The inputs, or null where they are malformed. */
  inputs(id: number): OperatorInputs | null {
    let known = this.parsed[id];
    if (known === undefined) this.parsed[id] = known = this.parse(id);
    return known;
  }

  private parse(id: number): OperatorInputs | null {
    const [dims, types, values] = this.parts[id].map((text) => {
      try {
        return text < 0 ? [] : (JSON.parse(this.texts.raw(text)) as unknown);
      } catch {
        return null;
      }
    });
    if (!Array.isArray(dims) || !dims.every(isSizes) || !Array.isArray(types) || !Array.isArray(values)) return null;
    return { dims: dims as Dims[], types: types.map(String), values: values.map(String) };
  }

  private intern(e: EventSlots, bytes: Buffer, argument: number): number {
    if (!e.has(argument)) return -1;
    const start = e.argStart[argument];
    const end = e.argEnd[argument];
    return this.texts.intern(bytes, start, end, hashBytes(bytes, start, end));
  }
}
