// Power spectral densities of noise as functions of tensors, for one task or a batch, differentiable in every parameter.
import { WeftError } from "@weft/core/internal/graph";
import { sub, type Tensor } from "@weft/core/internal/tensor";

/** Names of the noise spectra. */
export const psdModels = ["oneOverF", "lorentzian", "doubleExponential"] as const;
/** Name of a noise spectrum. */
export type PsdModel = (typeof psdModels)[number];

/** Parameters of a noise spectrum: tensors of one shape, or scalars. Frequencies are angular. */
export interface PsdParameters {
  /** Exponent of 1/f noise. For doubleExponential it sets the second cutoff and the weights. */
  alpha: Tensor;
  /** Strength of the noise. */
  amplitude: Tensor;
  /** Cutoff frequency. */
  cutoff: Tensor;
}

const lorentz = (square: Tensor, amplitude: Tensor, cutoff: Tensor): Tensor =>
  amplitude.div(square.add(cutoff.square()));

/** S(w) for w >= 0; the spectra are even. `w` broadcasts against the parameters. */
const densities: Record<PsdModel, (w: Tensor, p: PsdParameters) => Tensor> = {
  oneOverF: (w, p) => p.amplitude.div(w.pow(p.alpha).add(p.cutoff.pow(p.alpha))),
  lorentzian: (w, p) => lorentz(w.square(), p.amplitude, p.cutoff),
  doubleExponential: (w, p) => {
    const second = p.alpha.clip(null, 5).div(5);
    return lorentz(w.square(), p.amplitude.mul(sub(1, second)), p.cutoff).add(
      lorentz(w.square(), p.amplitude.mul(second), p.cutoff.mul(p.alpha.add(1))),
    );
  },
};

/** The name of a model; an unknown one is an error. */
export function checkModel(model: string): PsdModel {
  if (!(psdModels as readonly string[]).includes(model))
    throw new WeftError(`psd: there is no model "${model}"; known: ${psdModels.join(", ")}`);
  return model as PsdModel;
}

/** Power spectral density S(w) of a noise model; even in the angular frequency. */
export const spectralDensity = (model: PsdModel, frequency: Tensor, parameters: PsdParameters): Tensor =>
  densities[checkModel(model)](frequency.abs(), parameters);
