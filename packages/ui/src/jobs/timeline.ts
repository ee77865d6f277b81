// Builds the lab's page of a trace: timeline, findings and tables in one document.
import { basename } from "node:path";
import { plainText } from "@weft/formats/text";
import { traceFindings } from "@weft/lab/internal/diagnosis";
import { tracePage } from "@weft/lab/internal/report";
import { analyzeTraces, readTimeline } from "@weft/lab/internal/trace";
import { RequestError } from "../wire/index.js";

/** Events that a timeline holds; shorter ones are left out beyond. */
const mostEvents = 500_000;

/** The page of tapes or traces, as HTML. */
export async function viewTimeline({ files, name }: { files: string[]; name: string }): Promise<string> {
  const report = await analyzeTraces(files);
  const offsets = new Map(report.clockOffsets.map(({ rank, us }) => [rank, us]));
  const inputs = files.map((file) => {
    const rank = report.ranks.find((one) => one.file === file)?.rank ?? 0;
    return { file, rank, offsetUs: offsets.get(rank) ?? 0 };
  });
  const timeline = await readTimeline(inputs, mostEvents);
  if (timeline.rows.length === 0)
    throw new RequestError(422, `${basename(files[0])} holds no events; is it a tape, or a trace of PyTorch or JAX?`);
  return tracePage(plainText(name), report, traceFindings(report), timeline);
}
