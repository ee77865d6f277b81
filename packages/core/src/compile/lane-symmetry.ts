// Finds state variables that are constant, equal or opposite in every step: assumed as far as the initial values allow, and
// retracted where a step does not preserve it.
import { kindOf } from "../graph/index.js";
import { type LaneScalar, signOf, stripped } from "./lane-scalar.js";

/** The assumption about a state variable: a constant, or the variable `root` up to a sign. */
export interface Assumed {
  constant: number | null;
  root: number;
  sign: 1 | -1;
}

export const assumeNothing = (init: readonly LaneScalar[]): Assumed[] =>
  init.map((_, i) => ({ constant: null, root: i, sign: 1 }));

/**
 * The strongest assumption that the initial values allow; `table` returns the values of a scalar on every lane, if known.
 */
export function assumeAll(init: readonly LaneScalar[], table: (s: LaneScalar) => string | null): Assumed[] {
  const roots = new Map<string, { root: number; sign: 1 | -1 }>();
  return init.map((s, i) => {
    const own: Assumed = { constant: null, root: i, sign: 1 };
    if (kindOf(s.dtype) !== "float") return own;
    if (s.op === "const") return { constant: s.value, root: i, sign: 1 };
    const base = stripped(s);
    const values = table(base);
    const numbers = values?.split(",").map(Number) ?? null;
    if (numbers?.every((x) => x === numbers[0])) return { constant: signOf(s) * numbers[0] || 0, root: i, sign: 1 };
    // Tables are compared up to a sign, by the sign of their first nonzero number.
    const turned = numbers !== null && numbers.find((x) => x !== 0)! < 0;
    const key = numbers === null ? `#${base.id}` : `${s.dtype} ${numbers.map((x) => (turned ? -x : x) || 0).join()}`;
    const sign = (signOf(s) * (turned ? -1 : 1)) as 1 | -1;
    const found = roots.get(key);
    if (found === undefined) {
      roots.set(key, { root: i, sign });
      return own;
    }
    return { constant: null, root: found.root, sign: sign === found.sign ? 1 : -1 };
  });
}

/** The part of an assumption that a step preserves; null where it preserves all of it. */
export function refine(assumed: readonly Assumed[], next: readonly LaneScalar[]): Assumed[] | null {
  const groups = new Map<string, number>();
  const signs: (1 | -1)[] = [];
  let changed = false;
  const refined = assumed.map((a, i): Assumed => {
    const n = next[i];
    const join = (key: string, sign: 1 | -1): Assumed => {
      const root = groups.get(key);
      if (root === undefined) {
        groups.set(key, i);
        return { constant: null, root: i, sign: 1 };
      }
      // Signs are relative to the first member of the group.
      return { constant: null, root, sign: signs[root] === sign ? 1 : -1 };
    };
    if (a.constant !== null) {
      if (n.op === "const" && n.value === a.constant) return a;
      changed = true;
      const sign = signOf(n);
      signs[i] = sign;
      return join(`c${a.constant}|${n.dtype}|${stripped(n).id}|${a.constant === 0 ? "" : sign}`, sign);
    }
    if (a.root === i) {
      signs[i] = 1;
      return a;
    }
    const root = next[a.root];
    const same = stripped(n) === stripped(root) && signOf(n) === a.sign * signOf(root);
    if (same || (n.op === "const" && root.op === "const" && n.value === a.sign * root.value)) return a;
    changed = true;
    signs[i] = a.sign;
    return join(`r${a.root}|${stripped(n).id}|${signOf(n) * a.sign}`, a.sign);
  });
  return changed ? refined : null;
}
