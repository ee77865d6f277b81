// Least-squares fits of model parameters to measured transition frequencies over many settings (flux, charge), with gradients
// through the eigensolver.
import { WeftError } from "@weft/core/internal/graph";
import { type Tensor, vmap, where } from "@weft/core/internal/tensor";
import { type MinimizeOptions, type Minimum, minimize, type NamedParameters } from "./minimize.js";

/** Result of `fitSpectrum`. */
export interface SpectrumFit extends Minimum {
  /** Root-mean-square deviation, in the unit of the data. */
  deviation: number;
}

/**
 * Fits parameters so that model(params, setting) matches measured transition frequencies.
 *
 * @param settings - One setting per measurement: [m, ...].
 * @param measured - Frequencies [m, k]; NaN marks missing values.
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
  const isMeasured = measured.isNaN().logicalNot();
  const count = isMeasured.cast("float64").sum().itemSync();
  if (count === 0) throw new WeftError("fitSpectrum: every measured number is NaN");
  const data = where(isMeasured, measured, 0);
  const loss = (params: NamedParameters): Tensor => {
    const levels = vmap((setting: Tensor) => model(params, setting))(settings) as Tensor;
    if (levels.shape.join() !== measured.shape.join())
      throw new WeftError(`fitSpectrum: the model gives [${levels.shape}], measured is [${measured.shape}]`);
    return where(isMeasured, levels.sub(data), 0).square().sum().div(count);
  };
  const found = minimize(loss, start, { gradientTolerance: 1e-10, ...options });
  return { ...found, deviation: Math.sqrt(found.value) };
}
