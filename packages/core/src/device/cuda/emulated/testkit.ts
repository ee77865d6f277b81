// What tests on the emulated GPU share: the device, numbers that are the same everywhere, and the comparison with the
// reference device.
import assert from "node:assert/strict";
import * as weft from "../../../index.js";
import { useCudaLibraries } from "../driver.js";
import { CudaDevice } from "../index.js";
import { canEmulate, emulatedLibraries } from "./index.js";

export const skip = canEmulate() ? false : "no C++ compiler";
export const calls = { log: [] as string[] };
export const reference = new weft.ReferenceDevice();
let made: CudaDevice | null = null;

/** Makes the emulated device; the real libraries stay what they are for everybody else. */
export function prepareEmulator(): void {
  if (skip !== false || made !== null) return;
  const found = useCudaLibraries(emulatedLibraries(calls));
  made = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
}
export const device = (): CudaDevice => made!;

type Results = weft.Tensor | weft.Tensor[];

/** Runs the same program on both devices and compares; returns what the emulated one launched. */
export function agree(make: () => Results, tolerance = 1e-5): string[] {
  const values = (on: weft.ReferenceDevice | CudaDevice): number[][] => {
    weft.setDevice(on as never);
    const made = make();
    return (Array.isArray(made) ? made : [made]).map((t) => Array.from(t.dataSync() as ArrayLike<number>, Number));
  };
  const expected = values(reference);
  calls.log.length = 0;
  const got = values(device());
  got.forEach((numbers, k) => {
    numbers.forEach((value, i) => {
      const want = expected[k][i];
      const same = Object.is(value, want) || (Number.isNaN(value) && Number.isNaN(want));
      assert.ok(
        same || Math.abs(value - want) <= tolerance * (1 + Math.abs(want)),
        `result ${k}, element ${i}: ${value}, expected ${want}`,
      );
    });
  });
  return [...calls.log];
}

/** Numbers that are the same on every device to the last bit. */
export const data = (shape: number[], seed: number, scale = 1): weft.Tensor => {
  const size = shape.reduce((a, b) => a * b, 1);
  const numbers = Float32Array.from({ length: size }, (_, i) => {
    const x = Math.sin((i + 1) * 12.9898 + seed * 78.233) * 43758.5453;
    return Math.fround((x - Math.floor(x) - 0.5) * scale);
  });
  return weft.tensor(numbers, { shape });
};
