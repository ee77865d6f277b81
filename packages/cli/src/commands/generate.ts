// weft generate: text from a language model, printed as it is made.
import { existsSync, statSync } from "node:fs";
import { readText } from "@weft/formats/file";
import { type Command, InvalidArgumentError } from "commander";
import {
  attempt,
  CommandError,
  note,
  parseCount,
  printJson,
  shorten,
  significant,
  withProgress,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  tokens: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  uniqueNgram?: number;
  minTokens?: number;
  promptLookup?: number;
  seed: number;
  stop?: string[];
  adapter?: string;
  chat?: boolean;
  dtype: "auto" | "float32" | "bfloat16" | "float16";
  device?: string;
  json?: boolean;
  ignoreUnsupported?: boolean;
}

const help = `
Examples:
  weft generate ./gpt2 "Once upon a time" --tokens 200
  weft generate ./llama-3.2-1b-instruct "Why is the sky blue?" --chat --dtype bfloat16 --device cuda
  weft generate ./gpt2 "A list:" --temperature 0.8 --top-p 0.95 --seed 7 --stop "\\n\\n"
  weft generate ./llama "Dear" --adapter ./my-lora        adapters that peft or weft export --adapter wrote
  cat prompt.txt | weft generate ./gpt2

The folder holds config.json, model.safetensors (or shards) and tokenizer.json. The text goes to standard output, speed to
standard error. Without --temperature the most probable token is chosen at each step. Ctrl-C ends the text.`;

const number = (value: string): number => {
  const parsed = Number(value);
  if (value.trim() === "" || Number.isNaN(parsed)) throw new InvalidArgumentError(`"${value}" is not a number`);
  return parsed;
};

export default function add(program: Command): void {
  program
    .command("generate")
    .description("Generate text with a language model from a Hugging Face folder.")
    .argument("<model>", "folder of the model")
    .argument("[prompt]", "text to continue; without one it is read from standard input")
    .option("--tokens <n>", "maximum number of new tokens", parseCount, 100)
    .option("--temperature <t>", "sample tokens; logits are divided by this", number)
    .option("--top-k <n>", "sample among the n most probable tokens", parseCount)
    .option("--top-p <p>", "sample among the most probable tokens, whose probabilities add up to p", number)
    .option("--min-p <p>", "sample among tokens with at least this share of the largest probability", number)
    .option("--repetition-penalty <x>", "above 1: avoid tokens that occurred", number)
    .option("--unique-ngram <n>", "no sequence of n tokens occurs twice, the prompt included", parseCount)
    .option("--min-tokens <n>", "number of new tokens before the text may end", parseCount)
    .option(
      "--prompt-lookup <n>",
      "speculative decoding: propose n tokens from an earlier repetition, and verify them in one pass",
      parseCount,
    )
    .option("--seed <n>", "seed of the sampling", number, 0)
    .option("--stop <texts...>", "end before one of these texts")
    .option("--chat", "apply the model's chat template to the prompt")
    .option("--adapter <folder>", "merge the LoRA adapters of this folder into the model")
    .option("--dtype <name>", "auto (that of the files), float32, bfloat16, float16", "auto")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--ignore-unsupported", "generate although generation_config.json has options that are not supported")
    .option("--json", "text, tokens and times as JSON on standard output")
    .addHelpText("after", help)
    .action((model: string, prompt: string | undefined, options: Options) =>
      attempt(() => run(model, prompt, options)),
    );
}

function readPrompt(): string {
  if (process.stdin.isTTY)
    throw new CommandError("no prompt was given; write it after the folder, or pipe it in", wrongUsage);
  return readText(0).trimEnd();
}

async function run(folder: string, given: string | undefined, options: Options): Promise<void> {
  if (!existsSync(folder) || !statSync(folder).isDirectory())
    throw new CommandError(
      `${folder} is not a folder; download a model into one first, for example: hf download openai-community/gpt2 --local-dir ./gpt2`,
    );
  if (!["auto", "float32", "bfloat16", "float16"].includes(options.dtype))
    throw new CommandError(`--dtype ${options.dtype}: use auto, float32, bfloat16 or float16`, wrongUsage);
  const prompt = given ?? readPrompt();
  if (prompt === "")
    throw new CommandError("the prompt is empty; write it after the folder, or pipe a text in", wrongUsage);
  const stopped = new AbortController();
  const stop = (): void => stopped.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    await engineWork(() => stream(folder, prompt, options, stopped.signal));
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

async function stream(folder: string, prompt: string, options: Options, signal: AbortSignal): Promise<void> {
  const { setDevice } = await import("@weft/core");
  const { loadPretrained, loadTokenizer, streamText } = await import("@weft/models");
  if (options.device !== undefined) setDevice(options.device);
  const started = performance.now();
  const model = await withProgress((progress) =>
    loadPretrained(folder, {
      task: "causal-lm",
      dtype: options.dtype,
      ...(options.adapter !== undefined && { adapter: options.adapter }),
      onTensor: (_, done, total) => progress.update(`loading ${shorten(folder, 40)}`, done, total),
    }),
  );
  const tokenizer = await loadTokenizer(folder, model.config.vocabulary);
  if (model.initialized.length > 0)
    throw new CommandError(`${folder} has no language model head (${model.initialized.join(", ")} are missing)`);
  if (model.unknownKeys.length > 0)
    process.stderr.write(
      `weft: config.json has keys that are not known and have no effect: ${model.unknownKeys.join(", ")}\n`,
    );
  const text = options.chat === true ? await tokenizer.chat([{ role: "user", content: prompt }]) : prompt;
  const loaded = performance.now();
  const { temperature, topK, topP, minP, repetitionPenalty, uniqueNgram, minTokens, promptLookup } = options;
  const pieces = streamText(model, tokenizer, text, {
    maxNewTokens: options.tokens,
    seed: options.seed,
    signal,
    raw: options.chat === true,
    ...(options.stop !== undefined && { stop: options.stop.map((s) => s.replaceAll("\\n", "\n")) }),
    ...(temperature !== undefined && { temperature }),
    ...(topK !== undefined && { topK }),
    ...(topP !== undefined && { topP }),
    ...(minP !== undefined && { minP }),
    ...(repetitionPenalty !== undefined && { repetitionPenalty }),
    ...(uniqueNgram !== undefined && { noRepeatNgram: uniqueNgram }),
    ...(minTokens !== undefined && { minNewTokens: minTokens }),
    ...(promptLookup !== undefined && { promptLookup }),
    ...(options.ignoreUnsupported === true && { ignoreUnsupported: true }),
  });
  let first: number | null = null;
  for (;;) {
    const next = await pieces.next();
    first ??= performance.now();
    if (next.done) {
      const seconds = (performance.now() - first) / 1000;
      const times = { loadSeconds: (loaded - started) / 1000, firstTokenSeconds: (first - loaded) / 1000, seconds };
      if (options.json) printJson({ prompt, ...next.value, ...times }, 0);
      else process.stdout.write("\n");
      report(next.value.tokens.length, times, signal.aborted);
      return;
    }
    if (!options.json) process.stdout.write(next.value);
  }
}

function report(
  tokens: number,
  times: { loadSeconds: number; firstTokenSeconds: number; seconds: number },
  cut: boolean,
): void {
  const speed = tokens > 1 && times.seconds > 0 ? `, then ${significant((tokens - 1) / times.seconds)} tokens/s` : "";
  note(
    `${tokens} tokens${cut ? " (interrupted)" : ""}; loaded in ${times.loadSeconds.toFixed(1)} s, ` +
      `first token after ${times.firstTokenSeconds.toFixed(1)} s${speed}`,
  );
}
