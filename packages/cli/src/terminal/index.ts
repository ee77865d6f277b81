// Terminal input and output shared by all commands.

export { formatCsv as csv } from "@weft/formats/csv";
export {
  formatBytes as size,
  formatMicroseconds as time,
  formatPercent as percent,
  shorten,
  significant,
} from "@weft/formats/text";
export {
  attempt,
  CommandError,
  failed,
  interrupted,
  isInterrupted,
  note,
  parseCount,
  parseCounts,
  warn,
  writeFiles,
  wrongUsage,
} from "./command.js";
export { hasColors, paint, widthOf, wrapped } from "./paint.js";
export { printJson, printLines, printText } from "./print.js";
export { durationText, ProgressLine, progressSetting, showCompiling, showPlanning, withProgress } from "./progress.js";
export { addSet, formerOutput, translationNote, withOut } from "./settings.js";
export { suggestName } from "./suggest.js";
export { table } from "./table.js";
