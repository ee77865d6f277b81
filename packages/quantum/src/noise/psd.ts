// Power spectral densities of noise, as functions of tensors: one task or a batch of them, differentiable in every
// parameter. Knows no qubit and no rate.
import { WeftError } from "@weft/core/internal/graph";
import { sub, type Tensor } from "@weft/core/internal/tensor";

export const psdModels = ["oneOverF", "lorentzian", "doubleExponential"] as const;
export type PsdModel = (typeof psdModels)[number];

/** Parameters of a spectrum; tensors of one shape, or scalars. Frequencies are angular. */
export interface PsdParameters {
  /** Exponent of 1/f noise; for doubleExponential it sets the second cutoff and the weights. */
  alpha: Tensor;
  amplitude: Tensor;
  cutoff: Tensor;
}

const lorentz = (square: Tensor, amplitude: Tensor, cutoff: Tensor): Tensor =>
  amplitude.div(square.add(cutoff.square()));

/** S(w) for w >= 0 (spectra here are even). `w` broadcasts against the parameters. */
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

export function checkModel(model: string): PsdModel {
  if (!(psdModels as readonly string[]).includes(model))
    throw new WeftError(`psd: there is no model "${model}"; known: ${psdModels.join(", ")}`);
  return model as PsdModel;
}

export const spectralDensity = (model: PsdModel, frequency: Tensor, parameters: PsdParameters): Tensor =>
  densities[checkModel(model)](frequency.abs(), parameters);
