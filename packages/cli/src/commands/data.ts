// weft data: downloads data sets and shows their contents.

import { type DatasetName, datasetNames, datasets, download, findSplit, splits, textOf } from "@weft/train/data";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  ProgressLine,
  print,
  printJson,
  size,
  suggestName,
  table,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  data?: string;
  hub?: string;
  force?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft data get ag_news                      download into the cache; resumable and verified
  weft data get imdb --data data/imdb        download into a folder
  weft data show ag_news --data data/ag_news rows and classes of each split
  weft data list`;

export function add(program: Command): void {
  const data = program.command("data").description("Download and inspect data sets.").addHelpText("after", help);
  data
    .command("get")
    .description("Download a data set from the hub.")
    .argument("<name>", datasetNames.join(", "))
    .option("--data <dir>", "folder for its files (the cache by default)")
    .option("--hub <url>", "another hub (or WEFT_HUB)")
    .option("--force", "download existing files again")
    .option("--json", "downloaded files as JSON")
    .action((name: string, options: Options) => attempt(() => get(name, options)));
  data
    .command("show")
    .description("Show rows, classes and the first text of each split.")
    .argument("<name>", datasetNames.join(", "))
    .option("--data <dir>", "folder that holds its splits")
    .option("--json", "as JSON")
    .action((name: string, options: Options) => attempt(() => show(name, options)));
  data
    .command("list")
    .description("List the supported data sets.")
    .option("--json", "as JSON")
    .action((options: Options) => attempt(() => list(options)));
}

function known(name: string): DatasetName {
  if (!(datasetNames as string[]).includes(name))
    throw new CommandError(
      `there is no data set "${name}" ${suggestName(name, datasetNames, "data sets")}`,
      wrongUsage,
    );
  return name as DatasetName;
}

async function get(name: string, options: Options): Promise<void> {
  const dataset = known(name);
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.on("SIGINT", stop);
  const progress = new ProgressLine();
  try {
    const done = await engineWork(() =>
      download(dataset, {
        ...(options.hub !== undefined && { hub: options.hub }),
        ...(options.data !== undefined && { folder: options.data }),
        force: options.force === true,
        signal: abort.signal,
        onProgress: (file, at, total) => progress.update(`${dataset} ${file}`, at, total ?? 0),
      }),
    );
    progress.clear();
    if (options.json) printJson(done, 0);
    else
      for (const { split, path, bytes, how } of done)
        print(`${split}  ${how === "there" ? "cached" : how}  ${size(bytes)}  ${path}\n`);
  } finally {
    progress.clear();
    process.off("SIGINT", stop);
  }
}

async function show(name: string, options: Options): Promise<void> {
  const dataset = known(name);
  const found = await engineWork(async () => {
    const all = [];
    for (const split of splits) {
      const source = findSplit(dataset, split, options.data);
      const texts = await source.read();
      const rows = datasets[dataset].classes.map((_, c) => texts.labels.filter((label) => label === c).length);
      all.push({ split, path: source.path, rows: texts.rows, classes: rows, first: textOf(texts, 0).slice(0, 60) });
    }
    return all;
  });
  if (options.json) printJson(found, 0);
  else {
    const header = ["split", "rows", ...datasets[dataset].classes, "first text"];
    const lines = found.map((f) => [f.split, String(f.rows), ...f.classes.map(String), f.first]);
    print(`${table(header, lines)}\n`);
  }
}

async function list(options: Options): Promise<void> {
  const all = datasetNames.map((name) => ({
    name,
    classes: datasets[name].classes,
    hub: datasets[name].hub?.repository ?? null,
  }));
  if (options.json) printJson(all, 0);
  else
    print(
      `${table(
        ["name", "from", "classes"],
        all.map((d) => [d.name, d.hub ?? "made here", d.classes.join(", ")]),
        3,
      )}\n`,
    );
}
