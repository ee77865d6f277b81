// Formats tensors as NumPy does: nested brackets, long axes abbreviated.
import { isComplex, kindOf, showShape, stridesOf } from "../graph/index.js";
import type { Data, TensorHandle } from "./handle.js";

const edge = 3;
const longAxis = 8;

function showNumber(x: number): string {
  if (Number.isInteger(x) && Math.abs(x) < 1e9) return Object.is(x, -0) ? "-0" : String(x);
  const magnitude = Math.abs(x);
  return magnitude >= 1e6 || magnitude < 1e-4 ? x.toExponential(4) : String(Number(x.toPrecision(6)));
}

/** `float32[2, 3] [[1, 2, 3], [4, 5, 6]]` with long axes abbreviated. */
export function format(t: TensorHandle, data: Data = t.dataSync()): string {
  const complex = isComplex(t.dtype);
  const bool = kindOf(t.dtype) === "bool";
  const element = (i: number): string => {
    if (complex) {
      const im = Number(data[2 * i + 1]);
      return `${showNumber(Number(data[2 * i]))}${im < 0 || Object.is(im, -0) ? "-" : "+"}${showNumber(Math.abs(im))}i`;
    }
    if (bool) return String(data[i] === 1);
    return kindOf(t.dtype) === "int" ? String(data[i]) : showNumber(Number(data[i]));
  };
  const strides = stridesOf(t.shape);
  const show = (axis: number, offset: number): string => {
    if (axis === t.shape.length) return element(offset);
    const n = t.shape[axis];
    const parts: string[] = [];
    for (let i = 0; i < n; i++) {
      if (n > longAxis && i === edge) {
        parts.push("...");
        i = n - edge - 1;
        continue;
      }
      parts.push(show(axis + 1, offset + i * strides[axis]));
    }
    return `[${parts.join(", ")}]`;
  };
  return `${t.dtype}${showShape(t.shape)} ${show(0, 0)}`;
}
