// A reverse loop begins each step by rematerializing what the forward step computed from the same state. Where a lane has
// room, those values are stored along with the states and read back instead.
import { bytesOf } from "../graph/index.js";
import { type LaneStore, liveScalars } from "./lane.js";
import type { LaneLoop, LaneScalar } from "./lane-scalar.js";

const commutes: ReadonlySet<string> = new Set(["add", "mul"]);

const keyOf = (op: string, s: LaneScalar, args: readonly LaneScalar[], address: string): string => {
  const ids = args.map((a) => a.id);
  if (commutes.has(op)) ids.sort((a, b) => a - b);
  return `${op}|${s.dtype}|${ids.join(",")}|${s.value}|${s.input}|${address}|${s.part}|${s.of?.id ?? ""}`;
};

/** A value of the reverse loop that equals one of the forward loop, or its negative. */
interface Image {
  s: LaneScalar;
  sign: 1 | -1;
}

/** The value of the reverse loop that corresponds to an operation of the forward loop. */
function imageOf(
  s: LaneScalar,
  args: readonly Image[],
  address: string,
  byKey: ReadonlyMap<string, LaneScalar>,
): Image | null {
  const of = args.map((a) => a.s);
  const find = (op: string, list: readonly LaneScalar[], sign: 1 | -1): Image | null => {
    const found = byKey.get(keyOf(op, s, list, address));
    return found === undefined ? null : { s: found, sign };
  };
  const [a, b] = args;
  if (s.op === "neg") return { s: a.s, sign: -a.sign as 1 | -1 };
  if (s.op === "mul" || s.op === "div") return find(s.op, of, (a.sign * b.sign) as 1 | -1);
  if (s.op === "add" || s.op === "sub") {
    const second = s.op === "add" ? b.sign : -b.sign;
    if (a.sign === second) return find("add", of, a.sign);
    return find("sub", of, a.sign) ?? find("sub", [of[1], of[0]], -a.sign as 1 | -1);
  }
  return args.every((x) => x.sign === 1) ? find(s.op, of, 1) : null;
}

/** The loop that a reverse loop reads step by step; null where it reads at other times. */
function pairsOf(live: readonly LaneScalar[]): Map<LaneLoop, LaneLoop> {
  const pairs = new Map<LaneLoop, LaneLoop | null>();
  for (const s of live) {
    if (s.op !== "past") continue;
    const reader = s.loop;
    const inStep = reader !== null && reader.parent === s.of!.parent && s.address!.equals(reader.time);
    const found = pairs.get(s.of!);
    if (!inStep || (found !== undefined && found !== reader)) pairs.set(s.of!, null);
    else pairs.set(s.of!, reader);
  }
  return new Map([...pairs].filter((p): p is [LaneLoop, LaneLoop] => p[1] !== null));
}

/**
 * Replaces values of reverse loops by reads of forward ones, in place, where that saves at least twice as many operations
 * as it adds reads and the history of a lane stays within `maxBytes`.
 */
export function saveSteps(stores: readonly LaneStore[], maxBytes: number): void {
  const live = [...liveScalars(stores)].sort((a, b) => a.id - b.id);
  // Reserves ids for new values before existing ones.
  for (const s of live) s.id *= 2;
  for (const [forward, reader] of pairsOf(live)) {
    const mine = live.filter((s) => s.loop === reader);
    const byKey = new Map(mine.map((s) => [keyOf(s.op, s, s.args, s.address?.key ?? ""), s]));
    const images = new Map<LaneScalar, Image>();
    for (const s of mine) if (s.op === "past" && s.of === forward) images.set(forward.history[s.value], { s, sign: 1 });
    const origin = new Map<LaneScalar, { from: LaneScalar; sign: 1 | -1 }>();
    const time = new Map([[forward.variable, reader.time]]);
    for (const s of live) {
      if (s.loop !== forward || images.has(s) || s.op === "state") continue;
      const args = s.args.map((a): Image | undefined => (a.loop === forward ? images.get(a) : { s: a, sign: 1 }));
      if (args.includes(undefined)) continue;
      const image = imageOf(s, args as Image[], s.address?.substitute(time).key ?? "", byKey);
      if (image === null) continue;
      images.set(s, image);
      if (image.s.args.length > 0 && s.op !== "neg" && !origin.has(image.s))
        origin.set(image.s, { from: s, sign: image.sign });
    }
    // Values with other readers stay; those that were only operands are removed.
    const needed = new Set<LaneScalar>();
    for (const s of mine) if (!origin.has(s)) for (const a of s.args) if (origin.has(a)) needed.add(a);
    for (const s of [...reader.next, ...stores.filter((x) => x.loop === reader).map((x) => x.value)])
      if (origin.has(s)) needed.add(s);
    const bytes = (list: Iterable<LaneScalar>): number => [...list].reduce((n, s) => n + bytesOf(s.dtype), 0);
    const total = (bytes(needed) + bytes(forward.history)) * forward.length;
    if (needed.size === 0 || origin.size < 2 * needed.size || total > maxBytes) continue;
    for (const s of needed) {
      const { from, sign } = origin.get(s)!;
      let slot = forward.history.indexOf(from);
      if (slot < 0) slot = forward.history.push(from) - 1;
      const read = { op: "past", args: [], of: forward, value: slot, address: reader.time };
      if (sign === 1) Object.assign(s, read);
      else Object.assign(s, { op: "neg", args: [{ ...s, ...read, id: s.id - 1 }] });
    }
  }
}
