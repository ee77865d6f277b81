// The model of a finished fine-tuning: from the tensors of a checkpoint of the training, or as a folder.
import { key, type Tensor } from "@weft/core";
import { loadStateDict, stateDict } from "@weft/core/nn";
import type { Params } from "../architectures/index.js";
import { type PretrainedModel, savePretrained } from "../checkpoint/index.js";
import { ModelError } from "../config/index.js";
import type { TextTokenizer } from "../text/index.js";
import { storedAsInFiles, storedByHead } from "./by-head.js";
import { type FineTuningOptions, sourceOf, trainingRows } from "./fine-tuning.js";
import { type Adapters, type Lora, loraOf } from "./lora.js";
import { openModel } from "./open-model.js";

interface Restored {
  pretrained: PretrainedModel;
  tokenizer: TextTokenizer;
  /** Parameters without the adapters. */
  params: Params;
  lora: { updates: Lora; adapters: Adapters } | null;
  /** Trained parameters of the model by name. */
  own: Record<string, Tensor>;
}

/** Tensors whose name begins with a prefix, without it. */
const under = (tensors: Record<string, Tensor>, prefix: string): Record<string, Tensor> =>
  Object.fromEntries(
    Object.entries(tensors)
      .filter(([name]) => name.startsWith(prefix))
      .map(([name, value]) => [name.slice(prefix.length), value]),
  );

async function restored(
  options: FineTuningOptions,
  tensors: Record<string, Tensor>,
  classes: readonly string[],
): Promise<Restored> {
  const { task = "classification" } = options;
  const texts = options.from === undefined ? (await trainingRows(options)).train : [];
  const names = classes.length === 0 ? null : classes;
  const { pretrained, tokenizer } = await openModel(sourceOf(options, task), names, () =>
    texts.map(({ text }) => text),
  );
  const start = options.byHead === true ? storedByHead(pretrained, pretrained.params) : pretrained.params;
  const whole = stateDict(start);
  const own = under(tensors, "params.");
  const wrong = Object.keys(own).find((name) => !Object.hasOwn(whole, name));
  if (wrong !== undefined)
    throw new ModelError(`the checkpoint has params.${wrong}, which is not a parameter of the model`);
  const loaded = loadStateDict(start, { ...whole, ...own });
  const params = options.byHead === true ? storedAsInFiles(pretrained, loaded) : loaded;
  if (options.lora === undefined) return { pretrained, tokenizer, params, lora: null, own };
  const updates = loraOf(pretrained, options.lora);
  const adapters = loadStateDict(updates.init(key(0)), under(tensors, "adapters."));
  return { pretrained, tokenizer, params, lora: { updates, adapters }, own };
}

const mergedParams = ({ params, lora }: Restored): Params =>
  lora === null ? params : lora.updates.merge(params, lora.adapters);

/**
 * The model of a finished training, with merged adapters, and its tokenizer.
 *
 * @param options - The options of the training.
 * @param tensors - The trained tensors by name, as a checkpoint of the training holds them.
 * @param classes - Names of the classes, empty for language models.
 */
export async function openTuned(
  options: FineTuningOptions,
  tensors: Record<string, Tensor>,
  classes: readonly string[],
): Promise<{ model: PretrainedModel; tokenizer: TextTokenizer }> {
  const found = await restored(options, tensors, classes);
  return { model: { ...found.pretrained, params: mergedParams(found), initialized: [] }, tokenizer: found.tokenizer };
}

/**
 * Writes the model of a finished training as a folder that `loadPretrained` and `transformers` load; adapters are merged, unless
 * `asAdapter` asks for them as a folder that `peft` loads.
 *
 * @param options - The options of the training.
 * @param tensors - The trained tensors by name, as a checkpoint of the training holds them.
 * @param classes - Names of the classes, empty for language models.
 * @param folder - The folder to write.
 */
export async function saveTuned(
  options: FineTuningOptions,
  tensors: Record<string, Tensor>,
  classes: readonly string[],
  folder: string,
  asAdapter = false,
): Promise<void> {
  if (asAdapter && (options.lora === undefined || options.adapter !== undefined))
    throw new ModelError(
      options.lora === undefined
        ? "the run trained all parameters, not LoRA adapters; export it as a model"
        : `the adapters of the run belong to a model with other adapters (${options.adapter}); export it as a model`,
    );
  const found = await restored(options, tensors, classes);
  if (!asAdapter || found.lora === null) return savePretrained(folder, found.pretrained, mergedParams(found));
  return found.lora.updates.save(folder, found.lora.adapters, found.own);
}
