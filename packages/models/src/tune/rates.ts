// Layer-wise learning rates, for any optimizer whose step is proportional to its rate.
import { mapNamed, stateDict } from "@weft/core/nn";
import type { Optimizer } from "@weft/core/optim";
import { ModelError } from "../config/index.js";

/**
 * An optimizer whose rate is multiplied by a factor per parameter. A factor of 0 freezes a parameter.
 *
 * @param factor - The factor by the dotted name of a parameter, such as {@link layerDecay} gives.
 */
export function withRates<S>(optimizer: Optimizer<S>, factor: (name: string) => number): Optimizer<S> {
  return {
    init: (params) => optimizer.init(params),
    update(params, grads, state) {
      const [stepped, after] = optimizer.update(params, grads, state);
      const named = stateDict(stepped);
      const scaled = mapNamed(params, (name, before) => {
        const own = factor(name);
        if (!(own >= 0)) throw new ModelError(`withRates: the factor of ${name} is ${own}; it must be at least 0`);
        if (own === 0) return before;
        return own === 1 ? named[name] : before.add(named[name].sub(before).mul(own));
      });
      return [scaled, after];
    },
  };
}

/** Factors that fall by `decay` per layer from the head down: decay^0 for the head, decay^(layers + 1) for the embeddings. */
export function layerDecay(layers: number, decay: number): (name: string) => number {
  return (name) => {
    if (/embed|(^|\.)(wte|wpe)\./.test(name)) return decay ** (layers + 1);
    const layer = /(?:^|\.)(?:layers?|h)\.(\d+)\./.exec(name);
    return layer === null ? 1 : decay ** (layers - Number(layer[1]));
  };
}
