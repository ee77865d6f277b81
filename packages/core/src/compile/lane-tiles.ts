// Finds accesses of a loop over time that go through tiles. The numbers of many steps of a lane are contiguous in memory,
// those of adjacent lanes far apart. A warp moves the numbers of several steps of all its lanes at once, in whole cache
// lines, and each lane reads its own from shared memory.
import { type DType, isComplex } from "../graph/index.js";
import { settings } from "../settings/index.js";
import type { Ix } from "./index-expr.js";
import type { LaneProgram } from "./lane.js";
import type { LaneLoop } from "./lane-scalar.js";

/** A tile: K steps of every lane of a warp, of one buffer. */
export interface Tile {
  id: number;
  buffer: number;
  dtype: DType;
  /** Stride between lanes, stride between steps, and the first number. */
  laneStride: number;
  stepNumbers: number;
  first: number;
  /** Steps per tile, numbers of a lane in it, and stride between lanes in shared memory. */
  steps: number;
  numbers: number;
  row: number;
  /** Numbers that a thread moves at once. */
  width: 1 | 4;
}

/**
 * Minimum number of lanes: few lanes read single numbers faster than tiles. WEFT_LANE_TILES sets another limit, for
 * tests.
 */
const tiledLanes = (): number => settings.laneTiles.get();
const tileBytes = 64;

/** The tile of an access; null where the layout of its lanes or steps does not allow one. */
export function tileOf(
  program: LaneProgram,
  loop: LaneLoop,
  buffer: number,
  dtype: DType,
  address: Ix,
): Omit<Tile, "id"> | null {
  const { prefix, lanes } = program;
  if (isComplex(dtype) || (dtype !== "float32" && dtype !== "float64")) return null;
  if (lanes < tiledLanes() || lanes % 32 !== 0 || loop.parent !== null) return null;
  const stepNumbers = address.stride(loop.variable);
  const last = prefix.length - 1;
  const laneStride = address.stride(`l${last}`);
  if (stepNumbers === null || laneStride === null || stepNumbers < 1 || stepNumbers > 8) return null;
  let stride = laneStride;
  for (let i = last; i >= 0; i--) {
    if (address.stride(`l${i}`) !== stride && prefix[i] > 1) return null;
    stride *= prefix[i];
  }
  const known = [...address.variables()].every((name) => name === loop.variable || /^l\d+$/.test(name));
  // The steps of a lane are contiguous, and lanes do not overlap.
  if (!known || laneStride < stepNumbers * loop.length || laneStride < 8) return null;
  const size = dtype === "float64" ? 8 : 4;
  const steps = Math.floor(tileBytes / size / stepNumbers);
  if (steps < 2 || loop.length < 2 * steps) return null;
  const first = Math.floor(address.constant / stepNumbers) * stepNumbers;
  const numbers = steps * stepNumbers;
  const aligned = [laneStride, numbers, first, loop.length * stepNumbers].every((n) => n % 4 === 0);
  // An odd number of pairs between lanes avoids bank conflicts.
  const row = numbers + (numbers % 4 === 0 ? 2 : 1);
  return {
    buffer,
    dtype,
    laneStride,
    stepNumbers,
    first,
    steps,
    numbers,
    row,
    width: aligned && dtype === "float32" ? 4 : 1,
  };
}

export const sameTile = (a: Omit<Tile, "id">, b: Omit<Tile, "id">): boolean =>
  a.buffer === b.buffer && a.laneStride === b.laneStride && a.stepNumbers === b.stepNumbers && a.first === b.first;
