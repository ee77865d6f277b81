// Transforms of half spectra for libraries that need true symmetry: imaginary parts that must vanish are set to zero, and the outer
// axes, along which a library may use the symmetry, are transformed first.
import { isOp, type Node, range, realOf } from "../graph/index.js";
import { build } from "../ops/index.js";

export function prepareHalfSpectrum(node: Node): Node {
  if (!isOp(node, "fft") || node.attrs.kind !== "c2r") return node;
  const { axes, size } = node.attrs;
  let [x] = node.inputs;
  const rank = x.shape.length;
  if (axes > 1) {
    const first = rank - axes;
    const order = [...range(first), rank - 1, ...range(axes - 1).map((i) => first + i)];
    const moved = build.permute(x, order);
    const outer = { kind: "c2c", inverse: true, axes: axes - 1, size: moved.shape[rank - 1] } as const;
    x = build.moveAxis(build.make("fft", [moved], outer), first, rank - 1);
  }
  const position = build.iota(x.shape, rank - 1, "int32");
  const is = (k: number): Node => build.eq(position, build.fullLike(position, k));
  const isReal = size % 2 === 0 ? build.binary("or", is(0), is(size / 2)) : is(0);
  const plain = build.toComplex(build.real(x), build.full(x.shape, 0, realOf(x.dtype)));
  return build.make("fft", [build.where(isReal, plain, x)], { ...node.attrs, axes: 1 });
}
