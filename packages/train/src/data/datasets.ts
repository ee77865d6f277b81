// The supported data sets and readers for their splits: CSV, JSON lines, Parquet, or one folder per class. The existing
// files decide the format.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { CsvError, readCsv } from "@weft/formats/csv";
import { trainSettings } from "../settings.js";
import { parquetObjects } from "./files.js";
import { syntheticClasses, syntheticTable } from "./synthetic.js";
import { DataError, TableBuilder, type TextTable } from "./table.js";

/** Split of a data set. */
export type DatasetSplit = "train" | "test";
/** All splits. */
export const splits: readonly DatasetSplit[] = ["train", "test"];

interface DatasetInfo {
  classes: readonly string[];
  /** CSV files: number of columns; the first is the class. */
  columns: number;
  /** The number of the first class in CSV files. */
  firstLabel: number;
  /** The folder of each class, where the split is a folder. */
  folders: readonly string[];
  /** Path of each split's Parquet file on the hub. */
  hub: { repository: string; files: Record<DatasetSplit, string> } | null;
}

/** Supported data sets by name. */
export const datasets = {
  ag_news: {
    classes: ["World", "Sports", "Business", "Sci/Tech"],
    columns: 3,
    firstLabel: 1,
    folders: ["world", "sports", "business", "scitech"],
    hub: {
      repository: "fancyzhx/ag_news",
      files: { train: "data/train-00000-of-00001.parquet", test: "data/test-00000-of-00001.parquet" },
    },
  },
  imdb: {
    classes: ["negative", "positive"],
    columns: 2,
    firstLabel: 0,
    folders: ["neg", "pos"],
    hub: {
      repository: "stanfordnlp/imdb",
      files: { train: "plain_text/train-00000-of-00001.parquet", test: "plain_text/test-00000-of-00001.parquet" },
    },
  },
  synthetic: { classes: syntheticClasses, columns: 2, firstLabel: 0, folders: syntheticClasses, hub: null },
} as const satisfies Record<string, DatasetInfo>;

/** Name of a supported data set. */
export type DatasetName = keyof typeof datasets;
/** Names of the supported data sets. */
export const datasetNames = Object.keys(datasets) as DatasetName[];
export const infoOf = (name: string): DatasetInfo => datasets[name as DatasetName];

/** Folder of downloads and token files. */
export const dataHome = (): string =>
  trainSettings.datasets.get() ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "weft", "data");

type Reader = (source: DatasetSource, bytes: Buffer) => TextTable | Promise<TextTable>;

/** One file or folder that holds a split. */
export interface DatasetSource {
  /** Name of the data set, or the format of an own one. */
  dataset: string;
  /** The split. */
  split: DatasetSplit;
  /** File or folder that it is read from. */
  path: string;
  /** Hash of the bytes that were read. */
  sha256: string;
  /** Names of the classes, where the data set has none of its own. */
  classes?: readonly string[];
  /** Reads the texts; called only if there is no token file. */
  read(): Promise<TextTable>;
}

const formats: readonly [ending: string, reader: Reader][] = [
  [".csv", readCsvTable],
  [".jsonl", readJsonLines],
  [".parquet", readParquet],
];

/** The split of a data set in a folder; `synthetic` needs none. */
export function findSplit(dataset: DatasetName, split: DatasetSplit, folder?: string): DatasetSource {
  if (dataset === "synthetic" && folder === undefined) return syntheticSource(split);
  const place = folder ?? join(dataHome(), dataset);
  for (const [ending, reader] of formats)
    for (const packed of ["", ".gz"]) {
      const path = join(place, `${split}${ending}${packed}`);
      if (existsSync(path)) return fileSource(dataset, split, path, reader);
    }
  const tree = join(place, split);
  if (existsSync(tree) && statSync(tree).isDirectory()) return folderSource(dataset, split, tree);
  const looked = `${join(place, `${split}.csv`)}, .jsonl (or .gz of them), .parquet, or folders ${join(tree, infoOf(dataset).folders[0])} ...`;
  const remedy =
    folder === undefined
      ? `fetch it with: weft data get ${dataset}; or name its folder with --data DIR`
      : "give the folder that holds both splits";
  throw new DataError(`${dataset}: there is no ${split} split at ${looked}; ${remedy}`);
}

function fileSource(dataset: DatasetName, split: DatasetSplit, path: string, reader: Reader): DatasetSource {
  const raw = readFileSync(path);
  const source: DatasetSource = {
    dataset,
    split,
    path,
    sha256: createHash("sha256").update(raw).digest("hex"),
    read: async () => {
      let bytes = raw;
      if (path.endsWith(".gz"))
        try {
          bytes = gunzipSync(raw);
        } catch (error) {
          throw new DataError(`${path}: damaged or cut off (${(error as Error).message}); fetch it again`);
        }
      return finished(path, await reader(source, bytes));
    },
  };
  return source;
}

/** Generated: 2,000 training and 500 test rows. */
function syntheticSource(split: DatasetSplit): DatasetSource {
  const options = { rows: split === "train" ? 2000 : 500, seed: split === "train" ? 1 : 2 };
  return {
    dataset: "synthetic",
    split,
    path: `synthetic/${split}`,
    sha256: createHash("sha256")
      .update(`synthetic 1 ${JSON.stringify(options)}`)
      .digest("hex"),
    read: async () => syntheticTable(options),
  };
}

function finished(path: string, table: TextTable): TextTable {
  if (table.rows === 0) throw new DataError(`${path}: the data set is empty; there is nothing to train on`);
  return table;
}

function classOf(source: DatasetSource, value: string, where: string, first: number): number {
  const { classes } = infoOf(source.dataset);
  const label = Number(value) - first;
  if (value.trim() === "" || !Number.isInteger(label) || label < 0 || label >= classes.length)
    throw new DataError(
      `${where}: the class is ${JSON.stringify(value.slice(0, 40))}; ${source.dataset} has the classes ${first} to ${first + classes.length - 1}`,
    );
  return label;
}

function readCsvTable(source: DatasetSource, bytes: Buffer): TextTable {
  const { columns, firstLabel } = infoOf(source.dataset);
  const table = new TableBuilder();
  try {
    for (const { fields, line } of readCsv(bytes, source.path, columns)) {
      const label = fields[0].toString("utf8");
      // A first row with column names is a header.
      if (line === 1 && /^[a-z_ ]+$/i.test(label)) continue;
      table.add(classOf(source, label, `${source.path}:${line}`, firstLabel), fields.slice(1));
    }
  } catch (error) {
    throw error instanceof CsvError ? new DataError(error.message) : error;
  }
  return table.build();
}

function readJsonLines(source: DatasetSource, bytes: Buffer): TextTable {
  const table = new TableBuilder();
  let line = 0;
  for (let at = 0; at < bytes.length; ) {
    const found = bytes.indexOf(0x0a, at);
    const end = found < 0 ? bytes.length : found;
    line++;
    const text = bytes.toString("utf8", at, end);
    at = end + 1;
    if (text.trim() === "") continue;
    const where = `${source.path}:${line}`;
    let row: { text?: unknown; label?: unknown };
    try {
      row = JSON.parse(text) as typeof row;
    } catch (error) {
      throw new DataError(`${where}: not JSON (${(error as Error).message}); correct or remove this row`);
    }
    if (typeof row !== "object" || row === null || typeof row.text !== "string")
      throw new DataError(`${where}: a row needs "text" (a string) and "label" (a number)`);
    table.add(classOf(source, String(row.label), where, 0), [row.text]);
  }
  return table.build();
}

async function readParquet(source: DatasetSource, bytes: Buffer): Promise<TextTable> {
  const table = new TableBuilder();
  for await (const value of parquetObjects(bytes, source.path, ["text", "label"])) {
    const row = value as Record<string, unknown>;
    const where = `${source.path}: row ${table.rows}`;
    if (typeof row.text !== "string") throw new DataError(`${where}: its text is ${typeof row.text}, not a string`);
    table.add(classOf(source, String(row.label), where, 0), [row.text]);
  }
  return table.build();
}

function folderSource(dataset: DatasetName, split: DatasetSplit, tree: string): DatasetSource {
  const hash = createHash("sha256");
  const table = new TableBuilder();
  infoOf(dataset).folders.forEach((name, label) => {
    const folder = join(tree, name);
    if (!existsSync(folder))
      throw new DataError(
        `${folder} is missing; a split of ${dataset} has the folders ${infoOf(dataset).folders.join(", ")}`,
      );
    // Sorted, because the order of directory listings is not defined.
    for (const file of readdirSync(folder).sort()) {
      const bytes = readFileSync(join(folder, file));
      hash.update(`${name}/${file}:${bytes.length}:`).update(bytes);
      table.add(label, [bytes]);
    }
  });
  return { dataset, split, path: tree, sha256: hash.digest("hex"), read: async () => finished(tree, table.build()) };
}
