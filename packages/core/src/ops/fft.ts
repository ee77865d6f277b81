// The gradient of Fourier transforms. The transpose of a transform is the transform in the other direction; between real numbers and
// half spectra, numbers that stand for two (themselves and their conjugates) count twice.
import { type Node, realOf } from "../graph/index.js";
import { binary, cast, eq, fullLike, iota, mul, where } from "./build.js";
import { make } from "./make.js";

/** Weight of every number of a half spectrum: `twice`, and 1 for those without a conjugate partner. */
function weighted(x: Node, size: number, twice: number): Node {
  const axis = x.shape.length - 1;
  const position = iota(x.shape, axis, "int32");
  const isFirst = eq(position, fullLike(position, 0));
  const isSingle = size % 2 === 0 ? binary("or", isFirst, eq(position, fullLike(position, size / 2))) : isFirst;
  const one = cast(fullLike(position, 1), realOf(x.dtype));
  return mul(x, cast(where(isSingle, one, fullLike(one, twice)), x.dtype));
}

export function fftVjp({ attrs }: Node<"fft">, g: Node): Node {
  const { kind, inverse, size } = attrs;
  if (kind === "c2c") return make("fft", [g], { ...attrs, inverse: !inverse });
  if (kind === "r2c") return make("fft", [weighted(g, size, 0.5)], { ...attrs, kind: "c2r", inverse: true });
  return weighted(make("fft", [g], { ...attrs, kind: "r2c", inverse: false }), size, 2);
}
