// Layer-wise learning rates, for any optimizer whose step is proportional to its rate.
import { WeftError } from "../graph/index.js";
import { mapNamed, stateDict } from "../nn/index.js";
import type { Optimizer } from "./common.js";

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
        if (!(own >= 0)) throw new WeftError(`withRates: the factor of ${name} is ${own}; it must be at least 0`);
        if (own === 0) return before;
        return own === 1 ? named[name] : before.add(named[name].sub(before).mul(own));
      });
      return [scaled, after];
    },
  };
}

/**
 * Factors by starts of names: a parameter has the factor of the longest start that its name has, or 1.
 *
 * @param table - Factors by starts of dotted names, such as `{ "encoder.layers.0": 0.1 }`.
 */
export function ratesByName(table: Readonly<Record<string, number>>): (name: string) => number {
  const starts = Object.keys(table).sort((a, b) => b.length - a.length);
  return (name) => table[starts.find((start) => name.startsWith(start)) ?? ""] ?? 1;
}

/** The number of the layer that a parameter belongs to, by its dotted name (`layers.3.`, `h.3.`); -1 without one. */
export const layerOf = (name: string): number => Number(/(?:^|\.)(?:layers?|h)\.(\d+)\./.exec(name)?.[1] ?? -1);

/** Factors that fall by `decay` per layer from the head down: decay^0 for the head, decay^(layers + 1) for the embeddings. */
export function layerDecay(layers: number, decay: number): (name: string) => number {
  return (name) => {
    if (/embed|(^|\.)(wte|wpe)\./.test(name)) return decay ** (layers + 1);
    const layer = layerOf(name);
    return layer < 0 ? 1 : decay ** (layers - layer);
  };
}
