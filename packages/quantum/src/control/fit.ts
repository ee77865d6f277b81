// Fitting a device to measured spectra: least squares of a model's transition frequencies over many settings (flux,
// charge), gradients through the eigen-solve. Knows no particular device.
import { WeftError } from "@weft/core/internal/graph";
import { type Tensor, vmap, where } from "@weft/core/internal/tensor";
import { type MinimizeOptions, type Minimum, minimize, type NamedParameters } from "./minimize.js";

export interface SpectrumFit extends Minimum {
  /** Root of the mean squared deviation, in the unit of the data. */
  deviation: number;
}

/**
 * Parameters so that model(params, setting) comes closest to what was measured. `settings` [m, ...], `measured` [m, k];
 * NaN marks what was not measured.
 */
export function fitSpectrum(
  model: (params: NamedParameters, setting: Tensor) => Tensor,
  settings: Tensor,
  measured: Tensor,
  start: NamedParameters,
  options: MinimizeOptions = {},
): SpectrumFit {
  if (settings.shape[0] !== measured.shape[0])
    throw new WeftError(`fitSpectrum: ${settings.shape[0]} settings, but ${measured.shape[0]} rows were measured`);
  const known = measured.isNaN().logicalNot();
  const count = known.cast("float64").sum().itemSync();
  if (count === 0) throw new WeftError("fitSpectrum: every measured number is NaN");
  const data = where(known, measured, 0);
  const loss = (params: NamedParameters): Tensor => {
    const levels = vmap((setting: Tensor) => model(params, setting))(settings) as Tensor;
    if (levels.shape.join() !== measured.shape.join())
      throw new WeftError(`fitSpectrum: the model gives [${levels.shape}], measured is [${measured.shape}]`);
    return where(known, levels.sub(data), 0).square().sum().div(count);
  };
  const found = minimize(loss, start, { gradientTolerance: 1e-10, ...options });
  return { ...found, deviation: Math.sqrt(found.value) };
}
