// weft classify: label and probabilities of texts by a trained run.
import { existsSync, readFileSync, statSync } from "node:fs";
import type { ClassPrediction } from "@weft/train";
import type { Command } from "commander";
import { attempt, CommandError, print, printJson, wrongUsage } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  file?: string;
  json?: boolean;
}

const help = `
Examples:
  weft classify runs/ag_news_small "Oil prices fall as stocks rise"
  weft classify runs/ag_news_small --file headlines.txt       one text per line
  cat headlines.txt | weft classify runs/ag_news_small        the same from standard input

Prints one line per text: label, probability of each class, text. With --json one object per line.`;

export function add(program: Command): void {
  program
    .command("classify")
    .description("Classify texts with a trained run.")
    .argument("<run>", "folder of a run, such as runs/ag_news_small")
    .argument("[texts...]", "texts; without any, or with -, they are read from --file or standard input, one per line")
    .option("--file <path>", "read texts from a file, one per line (- is standard input)")
    .option("--json", "one JSON object per line")
    .addHelpText("after", help)
    .action((run: string, texts: string[], options: Options) => attempt(() => classify(run, texts, options)));
}

async function classify(run: string, given: string[], options: Options): Promise<void> {
  if (given.length > 0 && options.file !== undefined)
    throw new CommandError("give texts or --file, not both", wrongUsage);
  if (!existsSync(run) || !statSync(run).isDirectory()) throw new CommandError(`${run} is not the folder of a run`);
  const texts = given.length > 0 && given.join() !== "-" ? given : readTexts(options.file ?? "-");
  if (texts.length === 0) throw new CommandError("there is no text to classify", wrongUsage);
  const { Classifier } = await import("@weft/train");
  const classifier = await engineWork(() => Classifier.open(run));
  const predictions = await engineWork(async () => classifier.classify(texts));
  predictions.forEach((prediction, i) => {
    if (options.json) printJson({ text: texts[i], ...prediction }, 0);
    else print(show(prediction, texts[i]));
  });
}

function readTexts(file: string): string[] {
  if (file === "-" && process.stdin.isTTY)
    throw new CommandError("no text was given; write it behind the run, or pipe texts in, one per line", wrongUsage);
  return readFileSync(file === "-" ? 0 : file, "utf8")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function show({ label, probabilities }: ClassPrediction, text: string): string {
  const shares = Object.entries(probabilities)
    .map(([name, share]) => `${name} ${share.toFixed(3)}`)
    .join("  ");
  return `${label}\t${shares}\t${text.length > 60 ? `${text.slice(0, 59)}…` : text}`;
}
