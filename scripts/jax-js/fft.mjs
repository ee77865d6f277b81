// `numpy.fft` of jax-js over Weft: complex numbers are pairs of arrays there.
import { tensorOf, weft, wrap } from "./array.mjs";

const join = ({ real, imag }) => weft.complex(tensorOf(real), tensorOf(imag));
const apart = (z) => ({ real: wrap(weft.real(z)), imag: wrap(weft.imag(z)) });
const real = (x) => {
  const t = tensorOf(x);
  if (!t.dtype.startsWith("float")) throw new Error(`fft: needs floats, got ${t.dtype}`);
  return t;
};
const line =
  (fn, read, write) =>
  (x, axis = -1) =>
    write(fn(read(x), { axis }));
const grid =
  (fn, read, write, all) =>
  (x, axes = all) =>
    write(fn(read(x), axes === null ? {} : { axes }));

export const fft = line(weft.fft, join, apart);
export const ifft = line(weft.ifft, join, apart);
export const rfft = line(weft.rfft, real, apart);
export const irfft = line(weft.irfft, join, wrap);
export const hfft = line(weft.hfft, join, wrap);
export const ihfft = line(weft.ihfft, real, apart);
export const fftn = grid(weft.fftn, join, apart, null);
export const ifftn = grid(weft.ifftn, join, apart, null);
export const rfftn = grid(weft.rfftn, real, apart, null);
export const irfftn = grid(weft.irfftn, join, wrap, null);
export const fft2 = grid(weft.fftn, join, apart, [-2, -1]);
export const ifft2 = grid(weft.ifftn, join, apart, [-2, -1]);
export const rfft2 = grid(weft.rfftn, real, apart, [-2, -1]);
export const irfft2 = grid(weft.irfftn, join, wrap, [-2, -1]);
export const fftfreq = (n, d) => wrap(weft.fftfreq(n, d));
export const rfftfreq = (n, d) => wrap(weft.rfftfreq(n, d));
export const fftshift = (x, axes) => wrap(weft.fftshift(tensorOf(x), axes ?? undefined));
export const ifftshift = (x, axes) => wrap(weft.ifftshift(tensorOf(x), axes ?? undefined));
