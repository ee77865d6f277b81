// generation_config.json: what a model's publisher says about the choice of tokens.
import { Fields } from "./fields.js";
import { readJson } from "./json.js";

/** What the folder of a model says about generation. */
export interface GenerationDefaults {
  /** Ids that end a text; null if the file names none. */
  readonly eosTokens: readonly number[] | null;
  /** Which tokens are chosen, by the names of the options of a generation. */
  readonly choice: {
    readonly repetitionPenalty: number;
    readonly noRepeatNgram: number;
    readonly badWords: readonly (readonly number[])[];
    readonly suppressTokens: readonly number[];
    readonly minNewTokens: number;
  };
  /** Keys whose effect is not implemented and that would change the most probable tokens, with their values. */
  readonly unsupported: readonly string[];
}

/** Keys that change which tokens are chosen, and the values that have no effect. Null never has one. */
const choosing: Readonly<Record<string, readonly unknown[]>> = {
  num_beams: [1],
  num_beam_groups: [1],
  penalty_alpha: [0],
  dola_layers: [],
  encoder_no_repeat_ngram_size: [0],
  encoder_repetition_penalty: [1],
  diversity_penalty: [0],
  sequence_bias: [],
  force_words_ids: [],
  constraints: [],
  begin_suppress_tokens: [],
  forced_bos_token_id: [],
  forced_eos_token_id: [],
  forced_decoder_ids: [],
  min_length: [0],
  exponential_decay_length_penalty: [],
  guidance_scale: [1],
  watermarking_config: [],
};

const isEmpty = (value: unknown): boolean =>
  value === null || (typeof value === "object" && Object.keys(value as object).length === 0);

/** Reads generation_config.json of a folder; null without one. */
export async function readGenerationConfig(folder: string): Promise<GenerationDefaults | null> {
  const json = await readJson(folder, "generation_config.json");
  if (json === null) return null;
  const fields = new Fields(json, `${folder}/generation_config.json`);
  const eos = fields.raw["eos_token_id"];
  const eosTokens = eos === undefined || eos === null ? null : Array.isArray(eos) ? eos : [eos];
  if (eosTokens?.some((id) => !Number.isInteger(id)))
    throw fields.error("eos_token_id", `is ${JSON.stringify(eos).slice(0, 80)}; it must be an id or a list of ids`);
  return {
    eosTokens,
    choice: {
      repetitionPenalty: fields.number("repetition_penalty", { otherwise: 1, least: 1e-3, most: 1e3 }),
      noRepeatNgram: fields.count("no_repeat_ngram_size", { otherwise: 0, least: 0 }),
      badWords: (fields.list("bad_words_ids") ?? []) as number[][],
      suppressTokens: fields.numbers("suppress_tokens"),
      minNewTokens: fields.count("min_new_tokens", { otherwise: 0, least: 0 }),
    },
    unsupported: Object.entries(choosing).flatMap(([name, neutral]) => {
      const value = fields.raw[name];
      const acts = value !== undefined && !isEmpty(value) && !neutral.includes(value);
      return acts ? [`${name}: ${JSON.stringify(value).slice(0, 80)}`] : [];
    }),
  };
}
