// weft data: downloads data sets and shows their contents, also those of the user.
import { existsSync } from "node:fs";
import {
  type DatasetName,
  datasetNames,
  datasets,
  download,
  findSplit,
  ownFormatOf,
  ownSplit,
  splits,
  textOf,
} from "@weft/train/internal/data";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  ProgressLine,
  printJson,
  printText,
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
  text?: string[];
  label?: string;
  json?: boolean;
}

const help = `
Examples:
  weft data get ag_news                      download into the cache; resumable and verified
  weft data get imdb --data data/imdb        download into a folder
  weft data show ag_news --data data/ag_news  rows and classes of each split
  weft data show reviews.csv --label stars   the same of your own file or folder
  weft data list`;

export default function add(program: Command): void {
  const data = program.command("data").description("Download and inspect data sets.").addHelpText("after", help);
  data
    .command("get")
    .description("Download a data set from the hub.")
    .argument("<name>", datasetNames.join(", "))
    .option("--data <dir>", "folder for its files (the cache by default)")
    .option("--hub <url>", "another hub (or WEFT_HUB)")
    .option("--force", "download existing files again")
    .option("--json", "downloaded files as JSON")
    .addHelpText(
      "after",
      "\nExample:\n  weft data get imdb --data data/imdb        a second call continues an interrupted download",
    )
    .action((name: string, options: Options) => attempt(() => get(name, options)));
  data
    .command("show")
    .description("Show rows, classes and the first text of each split.")
    .argument("<name>", `${datasetNames.join(", ")}, or a file or folder of your own`)
    .option("--data <dir>", "folder that holds its splits")
    .option(
      "--text <columns...>",
      "columns of the text in a file of your own (default: all but the class and those that number the rows)",
    )
    .option("--label <column>", "column of the class in a file of your own")
    .option("--json", "the same as JSON on standard output")
    .addHelpText(
      "after",
      "\nExamples:\n  weft data show ag_news\n  weft data show reviews.csv --text title body --label stars",
    )
    .action((name: string, options: Options) => attempt(() => show(name, options)));
  data
    .command("list")
    .description("List the supported data sets.")
    .option("--json", "the list as JSON on standard output")
    .addHelpText("after", "\nExample:\n  weft data list")
    .action((options: Options) => attempt(() => list(options)));
}

function datasetNamed(name: string, mayBeFile = false): DatasetName {
  if (!(datasetNames as string[]).includes(name))
    throw new CommandError(
      `there is no data set${mayBeFile ? " and no file" : ""} "${name}" ${suggestName(name, datasetNames, "data sets")}`,
      wrongUsage,
    );
  return name as DatasetName;
}

async function get(name: string, options: Options): Promise<void> {
  const dataset = datasetNamed(name);
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
        printText(`${split}  ${how === "there" ? "cached" : how}  ${size(bytes)}  ${path}\n`);
  } finally {
    progress.clear();
    process.off("SIGINT", stop);
  }
}

/** Reads a split of a data set that Weft knows, or of the user's own. */
function sourceOf(name: string, { data, text, label }: Options): (split: (typeof splits)[number]) => Promise<Source> {
  if ((datasetNames as string[]).includes(name) || !existsSync(name)) {
    const dataset = datasetNamed(name, true);
    if (text !== undefined || label !== undefined)
      throw new CommandError(`--text and --label have no effect: the columns of ${name} are known`, wrongUsage);
    return async (split) => ({ ...findSplit(dataset, split, data), classes: datasets[dataset].classes });
  }
  if (data !== undefined) throw new CommandError(`--data has no effect: ${name} is the data`, wrongUsage);
  const own = { format: ownFormatOf(name), path: name, ...(text && { text }), ...(label !== undefined && { label }) };
  return async (split) => {
    const source = await ownSplit(own, split);
    return { ...source, classes: source.classes ?? [] };
  };
}

type Source = Pick<ReturnType<typeof findSplit>, "path" | "read"> & { classes: readonly string[] };

/** More classes than this are counted, not listed. */
const shownClasses = 8;

async function show(name: string, options: Options): Promise<void> {
  const found = await engineWork(async () => {
    const all = [];
    const open = sourceOf(name, options);
    for (const split of splits) {
      const { path, classes, read } = await open(split);
      const texts = await read();
      const counts = classes.map(() => 0);
      for (const label of texts.labels) counts[label]++;
      const first = texts.rows === 0 ? "" : textOf(texts, 0).replace(/\s+/g, " ").slice(0, 60);
      all.push({ split, path, names: classes, rows: texts.rows, classes: counts, first });
    }
    return all;
  });
  if (options.json) printJson(found, 0);
  else {
    const names = found[0].names;
    const isListed = names.length <= shownClasses;
    const header = ["split", "rows", ...(isListed ? names : [`rows of the ${names.length} classes`]), "first text"];
    const lines = found.map(({ split, rows, classes, first }) => {
      const range = `${Math.min(...classes)} to ${Math.max(...classes)}`;
      return [split, String(rows), ...(isListed ? classes.map(String) : [range]), first];
    });
    printText(`${table(header, lines)}\n`);
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
    printText(
      `${table(
        ["name", "from", "classes"],
        all.map((d) => [d.name, d.hub ?? "made here", d.classes.join(", ")]),
        3,
      )}\n`,
    );
}
