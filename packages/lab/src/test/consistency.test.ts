// Text, TeX, CSV, page and JSON of one report agree, over random studies: strong and weak scaling, divided and repeated work, one
// and several repeats, stated warm-ups, short and long epochs.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { readCsvText } from "@weft/formats/csv";
import { seededRandom } from "@weft/formats/stats";
import { type Analysis, analyzeStudy, type StudyReport } from "../diagnosis/index.js";
import { readStudies } from "../import/index.js";
import { performanceReport, reportHtml, studyRows, summaryCsv, summaryTex } from "../report/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { type CorpusJob, writeJob } from "./corpus-files.js";

function randomJob(random: () => number): { job: CorpusJob; warmup: number | undefined } {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const seconds = 10 ** (random() * 5 - 2.5);
  const serial = random() * 0.4;
  const samples = pick([512, 1000, 4096]);
  const work = pick(["divided", "divided", "repeated", "weak"] as const);
  const records = pick(["steps", "epochs", "run"] as const);
  const one = (n: number): number =>
    seconds * (work === "divided" ? serial + (1 - serial) / n : 1 + serial * Math.log2(n));
  return {
    job: {
      counts: pick([[1, 2], [1, 2, 4], [2, 4, 8], [1]]),
      repeats: pick([1, 1, 3]),
      epochs: pick([2, 5]),
      seconds: one,
      noise: random() * 0.05,
      samples,
      records,
      ...(work === "repeated" && { share: () => samples }),
      ...(work === "weak" && { share: () => samples, workload: (n: number) => ({ datasetSamples: samples * n }) }),
    },
    warmup: pick([undefined, 0, 2]),
  };
}

/** Whether a printed number is a value: rounding may change the last digit that is shown. */
function shows(text: string | undefined, value: number | null | undefined, scale = 1): boolean {
  if (value === null || value === undefined) return text === undefined || ["", "--", "-"].includes(text.trim());
  const digits = /-?[\d.]+(?:e[+-]?\d+)?/.exec(text ?? "")?.[0] ?? "";
  const decimals = (/\.(\d*)/.exec(digits)?.[1] ?? "").length;
  const shown = Number(digits);
  return (
    digits !== "" && Math.abs(shown - value * scale) <= Math.max(0.51 * 10 ** -decimals, Math.abs(value * scale) * 1e-3)
  );
}

/** What the outputs disagree about. */
async function disagreements(analysis: Analysis): Promise<string[]> {
  const { report } = analysis;
  const wrong: string[] = [];
  const check = (where: string, holds: boolean, what: unknown): void => {
    if (!holds) wrong.push(`${where}: ${JSON.stringify(what)}`);
  };
  const [header, ...csv] = [...readCsvText(Buffer.from(summaryCsv([report])), "csv")].map((row) => row.fields);
  const tex = summaryTex([report])
    .split("\n")
    .filter((line) => line.endsWith("\\\\") && !line.startsWith("Study"))
    .map((line) => line.replace(/ \\\\$/, "").split(" & "));
  const text = performanceReport([report]).split("Configuration: ").slice(1);
  const page = await reportHtml([{ analysis, rows: studyRows(analysis), charts: [] }]);
  check(
    "runs",
    csv.length === report.runs.length && tex.length === csv.length && text.length === csv.length,
    csv.length,
  );
  report.runs.forEach((run, i) => {
    const point = report.scaling.find((p) => p.devices === run.devices);
    const cell = (name: string): string | undefined => csv[i]![header!.indexOf(name)];
    const mean = run.epochSeconds?.mean;
    const texTime = /^\$(\S+) /.exec(tex[i]![2]!)?.[1] ?? tex[i]![2];
    check("CSV time", shows(cell("mean_epoch_s"), mean), [cell("mean_epoch_s"), mean]);
    check("TeX time", shows(texTime, mean), [texTime, mean]);
    const shown = /(?:time|run|steps): (\S+) \+-/.exec(text[i]!)?.[1];
    check("text time", shows(shown, mean), [shown, mean]);
    check("CSV speedup", shows(cell("measured_ratio"), point?.speedup), [cell("measured_ratio"), point?.speedup]);
    check("CSV verdict", (cell("verdict") ?? "") === (point?.status ?? ""), cell("verdict"));
    check("CSV rate", shows(cell("throughput_samples_per_s"), run.samplesPerSecond), cell("throughput_samples_per_s"));
    check("TeX rate", shows(tex[i]![6], run.samplesPerSecond), [tex[i]![6], run.samplesPerSecond]);
    if (point === undefined) return;
    if (point.valid) check("TeX speedup", shows(tex[i]![3], point.speedup), [tex[i]![3], point.speedup]);
    else check("TeX status", tex[i]![3] === point.status, tex[i]![3]);
    if (point.readings.length > 0 && !point.valid) return;
    check("TeX efficiency", shows(tex[i]![5], point.workEfficiency, 100), [tex[i]![5], point.workEfficiency]);
    const ratio = /(?:Speedup|Ratio of times): (\S+?)[x,]/.exec(text[i]!)?.[1];
    if (point.class !== "baseline") check("text speedup", shows(ratio, point.speedup), [ratio, point.speedup]);
  });
  for (const p of report.scaling) {
    const row = new RegExp(`<tr id="count-[^"]*-${p.devices}">(.*?)</tr>`).exec(page)?.[1] ?? "";
    const cells = [...row.matchAll(/<td[^>]*>(.*?)<\/td>/g)].map((m) => m[1]!.replaceAll(/<[^>]*>/g, ""));
    check("page speedup", shows(cells[2], p.speedup), [cells[2], p.speedup]);
    if (p.valid) check("page efficiency", shows(cells[4], p.workEfficiency, 100), [cells[4], p.workEfficiency]);
  }
  return [...wrong, ...drawn(analysis), ...verdicts(report, page)];
}

/** The points of the charts are those of the tables; predictions lie where the largest measured count leads. */
function drawn(analysis: Analysis): string[] {
  const { report } = analysis;
  const rows = studyRows(analysis).scaling;
  const last = report.scaling.at(-1);
  return [
    ...report.scaling.flatMap((p) =>
      rows.some((r) => r.devices === p.devices && Math.abs(r.speedup - p.speedup) < 1e-9)
        ? []
        : [`no point at ${p.devices}`],
    ),
    ...rows
      .filter((r) => r.kind === "predicted" && (r.speedup < last!.speedup / 2 || r.speedup > last!.speedup * r.devices))
      .map((r) => `predicted ${r.speedup} at ${r.devices} behind ${last!.speedup} at ${last!.devices}`),
  ];
}

/** Every output carries the same verdict. */
function verdicts(report: StudyReport, page: string): string[] {
  const line = /Verdict: (.*)/.exec(performanceReport([report]))![1]!;
  const shown = /<p class="verdict[^"]*"><strong>(.*?)\.<\/strong>/
    .exec(page)?.[1]
    ?.replaceAll("&gt;", ">")
    .replaceAll("&lt;", "<");
  return [
    ...(shown === line ? [] : [`page says ${shown}, text says ${line}`]),
    ...((report.valid === true) === (report.status === "valid")
      ? []
      : [`valid ${report.valid}, status ${report.status}`]),
  ];
}

test("text, TeX, CSV, page and JSON of random studies agree", async () => {
  using folder = new TestFolder();
  const random = seededRandom(5);
  const seen = new Set<string>();
  const wrong: string[] = [];
  for (let k = 0; k < 60; k++) {
    const place = join(folder.path, `s${k}`);
    const { job, warmup } = randomJob(random);
    writeJob(place, job);
    const [study] = readStudies([place], warmup === undefined ? {} : { warmup });
    const analysis = analyzeStudy(study!);
    seen.add(`${analysis.report.status}${analysis.report.scaling.some((p) => p.weak) ? " weak" : ""}`);
    for (const what of await disagreements(analysis)) wrong.push(`study ${k} (${analysis.report.status}): ${what}`);
  }
  assert.deepEqual(wrong, []);
  // The studies are of every kind.
  for (const kind of ["valid", "valid weak", "not valid", "nothing to compare"])
    assert.ok(seen.has(kind), `no ${kind}: ${[...seen]}`);
});
