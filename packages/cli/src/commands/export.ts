// weft export: the parameters of a trained run as one folder in the layout of Hugging Face.
import { existsSync, statSync } from "node:fs";
import type { Command } from "commander";
import { attempt, CommandError, printJson, printText } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  fileSize: string;
  adapter?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft export runs/ag_news_small exported            model.safetensors and config.json
  weft export runs/large exported --file-size 2GB    several files with model.safetensors.index.json
  weft export runs/reviews adapter --adapter         the LoRA adapters alone, in the layout of PEFT

Reads the newest checkpoint of the run, sharded or not, tensor by tensor.`;

export default function add(program: Command): void {
  program
    .command("export")
    .description("Write the parameters of a run as one folder of .safetensors files.")
    .argument("<run>", "folder of a run, such as runs/ag_news_small")
    .argument("<folder>", "folder to create")
    .option("--file-size <size>", "largest size of one file", "5GB")
    .option("--adapter", "write the LoRA adapters of a fine-tuning instead of the whole model")
    .option("--json", "the result as JSON")
    .addHelpText("after", help)
    .action((run: string, folder: string, options: Options) => attempt(() => exportTo(run, folder, options)));
}

async function exportTo(run: string, folder: string, options: Options): Promise<void> {
  if (!existsSync(run) || !statSync(run).isDirectory())
    throw new CommandError(`${run} is not a folder; give that of a run of weft train, such as runs/NAME`);
  const { exportRun } = await import("@weft/train");
  const { parseBytes } = await import("@weft/train/internal/commands");
  const result = await engineWork(() =>
    exportRun(run, folder, parseBytes(options.fileSize), { adapter: options.adapter === true }),
  );
  const { tensors, files, step } = result;
  if (options.json) printJson(result, 0);
  else
    printText(
      `${folder}: ${tensors} tensors of step ${step} in ${files.length === 1 ? files[0] : `${files.length} files`}`,
    );
}
