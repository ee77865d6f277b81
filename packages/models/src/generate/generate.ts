// Text generation: prompts in, text out, whole or as a stream.
import { checkOptions } from "@weft/core/internal/graph";
import type { Params } from "../architectures/index.js";
import { ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";
import { frameOf, type TextTokenizer } from "../text/index.js";
import { checkEos, eosOf, generateTokens, type TokenOptions, tokenNames } from "./decode.js";

/** Options of {@link generate} and {@link streamText}. @inline */
interface GenerateOptions extends TokenOptions {
  /** The text ends before the first of these. */
  stop?: readonly string[];
  /** The prompt is encoded without special tokens, such as the text of a chat template. */
  raw?: boolean;
}

/** One generated text. */
export interface Generated {
  /** The text after the prompt. */
  text: string;
  /** New tokens, without the one that ended the text. */
  tokens: number[];
  /** Why it ended. */
  finish: "eos" | "stop" | "length";
}

/** Turns tokens of one row into text, holding back what may be the start of a stop sequence or half a character. */
class TextBuilder {
  readonly tokens: number[] = [];
  text = "";
  finish: Generated["finish"] | null = null;
  #given = 0;
  /** Tokens from here on are decoded together, because a character may consist of several. */
  #window = 0;
  /** Tokens before this one are part of the text as a whole. */
  #read = 0;
  /** Characters of the window that are part of the text. */
  #decoded = 0;

  constructor(
    private readonly tokenizer: TextTokenizer,
    private readonly ends: ReadonlySet<number>,
    private readonly stop: readonly string[],
  ) {}

  /** Adds a token. */
  push(token: number): void {
    if (this.finish !== null) return;
    if (this.ends.has(token)) {
      this.finish = "eos";
      return;
    }
    this.tokens.push(token);
    this.#decode(true);
  }

  /** Ends the text: what was held back is part of it. */
  end(finish: Generated["finish"]): void {
    if (this.finish === null || this.finish === "eos") this.#decode(false);
    this.finish ??= finish;
  }

  /** Decodes the tokens that are not part of the text yet; half a character at the end waits for its other half. */
  #decode(waits: boolean): void {
    const whole = this.tokenizer.decode(this.tokens.slice(this.#window));
    const certain = waits ? whole.replace(/\ufffd+$/, "") : whole;
    this.text += certain.slice(this.#decoded);
    this.#decoded = Math.max(this.#decoded, certain.length);
    if (certain.length === whole.length) {
      this.#window = this.#read;
      this.#read = this.tokens.length;
      this.#decoded = this.tokenizer.decode(this.tokens.slice(this.#window)).length;
    }
    const hit = this.stop.map((s) => this.text.indexOf(s)).filter((at) => at >= 0);
    if (hit.length === 0) return;
    this.text = this.text.slice(0, Math.min(...hit));
    this.finish = "stop";
  }

  /** Text that is certain and was not given before. */
  take(): string {
    let end = this.text.length;
    if (this.finish === null)
      for (const s of this.stop)
        for (let n = Math.min(s.length - 1, this.text.length); n > 0; n--)
          if (this.text.endsWith(s.slice(0, n))) {
            end = Math.min(end, this.text.length - n);
            break;
          }
    const piece = this.text.slice(this.#given, Math.max(end, this.#given));
    this.#given = Math.max(end, this.#given);
    return piece;
  }
}

function prepare(model: Model, tokenizer: TextTokenizer, prompts: readonly string[], options: GenerateOptions) {
  const { stop = [], raw = false, ...rest } = checkOptions("generate", options, [...tokenNames, "stop", "raw"]);
  if (!Array.isArray(prompts) || !prompts.every((prompt) => typeof prompt === "string"))
    throw new ModelError('generate: prompts is a list of texts, such as ["Once upon a time"]');
  if (!Array.isArray(stop) || !stop.every((s) => typeof s === "string" && s !== ""))
    throw new ModelError("generate: stop is a list of texts that are not empty");
  if (tokenizer.vocabulary > model.config.vocabulary)
    throw new ModelError(
      `generate: the tokenizer has ${tokenizer.vocabulary} ids, the model ${model.config.vocabulary}; they do not belong together`,
    );
  const ofModel = eosOf(model);
  const fromTokenizer = tokenizer.special.eos === null ? [] : [tokenizer.special.eos];
  const { eosTokens } = rest;
  if (eosTokens !== undefined) checkEos(eosTokens);
  const ends = new Set<number>(eosTokens ?? (ofModel.length > 0 ? ofModel : fromTokenizer));
  // A tokenizer that closes its texts would end them at once. An end that the prompt itself has stays.
  const closes = !raw && frameOf(tokenizer).after > 0;
  const idsOf = (text: string): number[] => {
    const { ids } = tokenizer.encode(text, { specialTokens: !raw });
    return closes && ids.length > 1 && ends.has(ids[ids.length - 1]) ? ids.slice(0, -1) : ids;
  };
  const builders = prompts.map(() => new TextBuilder(tokenizer, ends, stop));
  return { ids: prompts.map(idsOf), builders, tokenOptions: { ...rest, eosTokens: [...ends] } };
}

/** Generates a text for each prompt; the prompts run together. */
export async function generate(
  model: Model & { params: Params },
  tokenizer: TextTokenizer,
  prompts: readonly string[],
  options: GenerateOptions = {},
): Promise<Generated[]> {
  const { ids, builders, tokenOptions } = prepare(model, tokenizer, prompts, options);
  for await (const step of generateTokens(model, model.params, ids, tokenOptions)) {
    step.forEach((token, row) => {
      if (token !== null) builders[row].push(token);
    });
    if (builders.every(({ finish }) => finish !== null)) break;
  }
  return builders.map((builder) => {
    builder.end("length");
    const { text, tokens, finish } = builder;
    return { text, tokens, finish: finish ?? "length" };
  });
}

/** Generates the text that follows a prompt, piece by piece. */
export async function* streamText(
  model: Model & { params: Params },
  tokenizer: TextTokenizer,
  prompt: string,
  options: GenerateOptions = {},
): AsyncGenerator<string, Generated, void> {
  const { ids, builders, tokenOptions } = prepare(model, tokenizer, [prompt], options);
  const [builder] = builders;
  for await (const [token] of generateTokens(model, model.params, ids, tokenOptions)) {
    if (token !== null) builder.push(token);
    const piece = builder.take();
    if (piece !== "") yield piece;
    if (builder.finish !== null) break;
  }
  builder.end("length");
  const rest = builder.take();
  if (rest !== "") yield rest;
  return { text: builder.text, tokens: builder.tokens, finish: builder.finish ?? "length" };
}
