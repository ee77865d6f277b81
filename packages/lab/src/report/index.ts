// Exports of the report layer: writes the files of an analysis.
export { type ChartSpec, framed, gray, palette, type ReportChart, studyCharts } from "./charts.js";
export { fixFiles } from "./fixes.js";
export { reportHtml } from "./html.js";
export { predictionChart } from "./prediction-chart.js";
export { renderPng, renderSvg } from "./render.js";
export { studyRows } from "./rows.js";
export { performanceReport, summaryCsv, summaryTex, texText } from "./tables.js";
export { tracePage } from "./trace-page.js";
export {
  classText,
  effectText,
  efficiencyText,
  findingTitle,
  ratioText,
  readingText,
  verdictExitCode,
  verdictExitCodes,
  verdictLine,
  workText,
} from "./words.js";
export { writeReport } from "./write.js";
