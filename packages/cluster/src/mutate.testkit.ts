// Seeded mutations of plain data and of files, for fuzzing messages, tapes and checkpoints.
import { at, type Path, places, withValue } from "./hostile.testkit.js";

/** Seeded random numbers in [0, 1). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const pick = <T>(random: () => number, items: readonly T[]): T => items[Math.floor(random() * items.length)];

const code = '0); system("weft-payload"); (0';
const numbers = [0, -1, 1, 2, 7, 12, 13, 255, 1.5, 2 ** 31, 2 ** 32, 2 ** 49, 2 ** 53, 1e21, 1e300, -(2 ** 53)];
const strings = [code, "", "max", "float32", "attention", "x".repeat(300), "\u0000", "__proto__", "constructor", "é\n"];
const deep = (levels: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = i % 2 === 0 ? [value] : { $fn: value };
  return value;
};

type Mutation = (random: () => number, root: unknown, path: Path, all: readonly Path[]) => unknown;

const mutations: readonly Mutation[] = [
  (random, root, path) => withValue(root, path, pick(random, numbers)),
  (random, root, path) => withValue(root, path, pick(random, strings)),
  (random, root, path) => withValue(root, path, pick(random, [null, true, false, [], {}, { $: "nan" }, { $fn: {} }])),
  (random, root, path) => withValue(root, path, deep(Math.floor(random() * 60))),
  // Swap in another value of the same message: nodes, references and attributes change places.
  (random, root, path, all) => withValue(root, path, structuredClone(at(root, pick(random, all)))),
  // Add or remove a key or an item.
  (random, root, path) => {
    const copy = structuredClone(root);
    const value = at(copy, path);
    if (Array.isArray(value)) {
      if (random() < 0.5) value.splice(Math.floor(random() * value.length), 1);
      else value.push(...structuredClone(value), pick(random, numbers));
    } else if (typeof value === "object" && value !== null) {
      const keys = Object.keys(value);
      if (random() < 0.5 && keys.length > 0) delete (value as Record<string, unknown>)[pick(random, keys)];
      else Object.defineProperty(value, pick(random, strings), { value: 1, enumerable: true, configurable: true });
    }
    return copy;
  },
  // Change a number slightly.
  (random, root, path) => {
    const value = at(root, path);
    return typeof value === "number" ? withValue(root, path, value + pick(random, [-1, 1, 0.5, 1024])) : root;
  },
];

/** Valid plain data, changed in one to three places. */
export function mutated(random: () => number, root: unknown): unknown {
  let result = root;
  for (let turns = 1 + Math.floor(random() * 3); turns > 0; turns--) {
    const all = places(result).filter((path) => path.length > 0);
    if (all.length === 0) return result;
    result = pick(random, mutations)(random, result, pick(random, all), all);
  }
  return result;
}

/** A file with bytes changed, cut, repeated, or with a number of 4 or 8 bytes written somewhere. */
export function mutatedBytes(random: () => number, bytes: Buffer): Buffer {
  let copy = Buffer.from(bytes);
  for (let turns = 1 + Math.floor(random() * 4); turns > 0; turns--) {
    if (copy.length === 0) return copy;
    // Mutate headers more often.
    const place = Math.floor(random() < 0.7 ? random() * Math.min(256, copy.length) : random() * copy.length);
    const kind = Math.floor(random() * 6);
    if (kind === 0) copy[place] = Math.floor(random() * 256);
    else if (kind === 1) copy = copy.subarray(0, place);
    else if (kind === 2) copy = Buffer.concat([copy.subarray(0, place), copy.subarray(place >> 1)]);
    else if (kind === 3 && place + 8 <= copy.length)
      copy.writeBigUInt64LE(pick(random, [0n, 2n ** 32n, 2n ** 53n, 2n ** 64n - 1n]), place);
    else if (kind === 4 && place + 4 <= copy.length)
      copy.writeUInt32LE(pick(random, [0, 0x7fffffff, 0xffffffff, 65536]), place);
    else copy.write(pick(random, ["99999999999", "-1", "[", '"', ",", "(", "F64", "<c16"]), place, "latin1");
  }
  return copy;
}
