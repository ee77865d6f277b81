// weft classify: label and probabilities of texts, or numbers of a regression, by a trained run or by a model of a Hugging Face folder.
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { readText } from "@weft/formats/file";
import type { ClassPrediction } from "@weft/train";
import type { Command } from "commander";
import { attempt, CommandError, printJson, printText, wrongUsage } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  file?: string;
  adapter?: string;
  json?: boolean;
}

const help = `
Examples:
  weft classify runs/ag_news_small "Oil prices fall as stocks rise"
  weft classify runs/ag_news_small --file headlines.txt       one text per line
  cat headlines.txt | weft classify runs/ag_news_small        the same from standard input
  weft classify runs/reviews "A lovely film"                  a run that fine-tuned a pretrained model
  weft classify ./reviews "A lovely film"                     a folder with config.json, as weft export writes it
  weft classify ./bert-base "A lovely film" --adapter ./my-lora

Prints one line per text: label, probability of each class, text. With several labels per text those above one half; of a regression
the numbers. With --json one object per line.`;

export default function add(program: Command): void {
  program
    .command("classify")
    .description("Classify texts with a trained run, or with a model of a Hugging Face folder.")
    .argument("<run>", "folder of a run, such as runs/ag_news_small, or of a model")
    .argument("[texts...]", "texts; without any, or with -, they are read from --file or standard input, one per line")
    .option("--file <path>", "read texts from a file, one per line (- is standard input)")
    .option("--adapter <folder>", "merge the LoRA adapters of this folder into the model")
    .option("--json", "one JSON object per line")
    .addHelpText("after", help)
    .action((run: string, texts: string[], options: Options) => attempt(() => classify(run, texts, options)));
}

async function classify(run: string, given: string[], options: Options): Promise<void> {
  if (given.length > 0 && options.file !== undefined)
    throw new CommandError("give texts or --file, not both", wrongUsage);
  if (!existsSync(run) || !statSync(run).isDirectory())
    throw new CommandError(
      `${run} is not a folder; give that of a run, such as runs/ag_news_small, or of a Hugging Face model`,
    );
  const texts = given.length > 0 && given.join() !== "-" ? given : readTexts(options.file ?? "-");
  if (texts.length === 0) throw new CommandError("there is no text to classify", wrongUsage);
  const predictions = await engineWork(() => predict(run, texts, options.adapter));
  predictions.forEach((prediction, i) => {
    if (options.json) printJson({ text: texts[i], ...prediction }, 0);
    else printText(show(prediction, texts[i]));
  });
}

/** What a folder says about a text: its class, or numbers. */
type Prediction = (ClassPrediction & { labels?: string[] }) | { values: Record<string, number> };

/** Predictions for texts by whatever the folder holds. */
async function predict(folder: string, texts: readonly string[], adapter?: string): Promise<Prediction[]> {
  const { Classifier } = await import("@weft/train");
  const { openFineTuned } = await import("@weft/train/internal/commands");
  const { classifyTexts, isRegression, loadPretrained, loadTokenizer, predictNumbers } = await import("@weft/models");
  const isModel = ["config.json", "adapter_config.json"].some((name) => existsSync(join(folder, name)));
  let opened: Awaited<ReturnType<typeof openFineTuned>>;
  if (isModel || adapter !== undefined) {
    const model = await loadPretrained(folder, { task: "classification", ...(adapter !== undefined && { adapter }) });
    opened = { model, tokenizer: await loadTokenizer(folder, model.config.vocabulary) };
  } else opened = await openFineTuned(folder);
  if (opened === null) return (await Classifier.open(folder)).classify(texts);
  const { model, tokenizer } = opened;
  if (!isRegression(model)) return classifyTexts(model, tokenizer, texts);
  return (await predictNumbers(model, tokenizer, texts)).map((values) => ({ values }));
}

/** Bytes of the largest file of texts. */
const mostBytes = 2 ** 30;

function readTexts(file: string): string[] {
  if (file === "-" && process.stdin.isTTY)
    throw new CommandError("no text was given; write it behind the run, or pipe texts in, one per line", wrongUsage);
  return readText(file === "-" ? 0 : file, mostBytes)
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function show(prediction: Prediction, text: string): string {
  const listed = (numbers: Record<string, number>): string =>
    Object.entries(numbers)
      .map(([name, value]) => `${name} ${value.toFixed(3)}`)
      .join("  ");
  const start =
    "values" in prediction
      ? listed(prediction.values)
      : `${prediction.labels?.join(", ") ?? prediction.label}\t${listed(prediction.probabilities)}`;
  return `${start}\t${text.length > 60 ? `${text.slice(0, 59)}…` : text}`;
}
