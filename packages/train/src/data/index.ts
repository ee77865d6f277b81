// Text data sets as tokens: downloaded, tokenized once, shuffled, divided over ranks, prefetched.
export { columns, headColumns, type MicroBatch, rowsPerRank } from "./batch.js";
export {
  type DatasetName,
  type DatasetSource,
  type DatasetSplit,
  dataHome,
  datasetNames,
  datasets,
  findSplit,
  splits,
} from "./datasets.js";
export { type Downloaded, type DownloadOptions, download } from "./download.js";
export { boundsBySpeed, type Epoch, type EpochOptions, planEpoch, shareOf } from "./epoch.js";
export { type HeldOut, holdOut } from "./holdout.js";
export { type Loader, type LoaderOptions, openLoader, type Position } from "./loader.js";
export { mapFile } from "./map-file.js";
export { type OwnData, type OwnFormat, ownFormatOf, ownFormats, ownSplit } from "./own-data.js";
export { type SyntheticOptions, syntheticTable } from "./synthetic.js";
export { DataError, TableBuilder, type TextTable, textOf } from "./table.js";
export { fileTokenizer, hashTokenizer, IdList, makeTokenizer, type Tokenizer, tokenize } from "./tokenizer.js";
export { limitRows, openTokens, readTokens, type TokenSet, tokenizeListeners } from "./tokens.js";
