// A module API: a layer, its options and its parameters in one object. The parameters are a plain tree, so that transforms work on
// `model.params`.
import type { Key, Tensor } from "../tensor/index.js";
import { countParameters, loadStateDict, type StateDict, stateDict } from "./state.js";

/** A layer: a function that draws parameters and a function that applies them. */
export interface Layer<I, P, X extends readonly unknown[]> {
  /** Draws parameters. */
  init(options: I, key: Key): P;
  /** Applies the layer to its inputs. */
  apply(params: P, ...inputs: X): Tensor;
}

/** A layer together with its parameters. */
export interface BoundLayer<P, X extends readonly unknown[]> {
  /** The parameters, a tree of tensors. */
  readonly params: P;
  /** Applies the layer with the parameters of the model. */
  forward(...inputs: X): Tensor;
  /** Applies the layer with other parameters, as in `grad((p) => model.apply(p, x).sum())(model.params)`. */
  apply(params: P, ...inputs: X): Tensor;
  /** Returns the model with other parameters. */
  with(params: P): BoundLayer<P, X>;
  /** Returns the parameters by name, with the names of PyTorch. */
  stateDict(): StateDict;
  /** Returns the model with the tensors of a dictionary, such as a checkpoint or a PyTorch state_dict. */
  load(dict: StateDict): BoundLayer<P, X>;
  /** Number of elements of all parameters. */
  readonly size: number;
}

function hold<P, X extends readonly unknown[]>(
  apply: (params: P, ...inputs: X) => Tensor,
  params: P,
): BoundLayer<P, X> {
  return {
    params,
    forward: (...inputs) => apply(params, ...inputs),
    apply,
    with: (others) => hold(apply, others),
    stateDict: () => stateDict(params),
    load: (dict) => hold(apply, loadStateDict(params, dict)),
    size: countParameters(params),
  };
}

/** Creates a model with new parameters: `nn.model(nn.linear, { in: 3, out: 2 }, weft.key(0)).forward(x)`. */
export const model = <I, P, X extends readonly unknown[]>(
  layer: Layer<I, P, X>,
  options: I,
  key: Key,
): BoundLayer<P, X> => hold((params: P, ...inputs: X) => layer.apply(params, ...inputs), layer.init(options, key));
