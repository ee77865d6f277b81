// Odd, damaged and hostile studies: nobody is accused wrongly, what was left out is reported, and errors name their cause.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { analyzeStudy, type StudyReport, symptoms } from "../diagnosis/index.js";
import { readStudies } from "../import/index.js";
import { performanceReport, summaryCsv, summaryTex } from "../report/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { exportedStudies } from "./exported-studies.js";
import { oddStudies } from "./odd-studies.js";

/** Open questions are no accusation. */
const questions = new Set(["work-not-divided", "not-distinguishable", "noisy", "wrong-launch"]);

test("odd studies: no wrong accusation, and faults behind oddities are found", () => {
  using folder = new TestFolder();
  const wrong: string[] = [];
  [...oddStudies, ...exportedStudies].forEach((study, k) => {
    const place = join(folder.path, `s${k}`);
    study.write(place);
    const { expect } = study;
    if (typeof expect === "object" && "refused" in expect) {
      try {
        readStudies([place]);
        wrong.push(`${study.name}: not refused`);
      } catch (error) {
        if (!expect.refused.test((error as Error).message)) wrong.push(`${study.name}: ${(error as Error).message}`);
      }
      return;
    }
    let report: StudyReport;
    try {
      ({ report } = analyzeStudy(readStudies([place])[0]!));
    } catch (error) {
      wrong.push(`${study.name}: ${(error as Error).stack}`);
      return;
    }
    if (new Set(report.runs.map((run) => run.id)).size < report.runs.length)
      wrong.push(`${study.name}: two runs with one name`);
    const told = report.findings.map((f) => `${f.id} ${f.severity}`).join(", ");
    const text = performanceReport([report]) + summaryCsv([report]) + summaryTex([report]);
    if (/\bNaN\b|undefined|Infinity/.test(text.replaceAll(/NaN left out|durationUs.*/g, "")))
      wrong.push(`${study.name}: not a number in the report`);
    if (expect === "honest") {
      const cause = report.mainCause;
      const open = report.findings.find((f) => f.id === cause)?.severity === "unresolved" || questions.has(cause ?? "");
      if (report.status === "not valid" || (cause !== null && !symptoms.has(cause) && !open))
        wrong.push(`${study.name}: ${report.status}, ${cause}: ${told}`);
    } else if (!report.findings.some((f) => f.id === expect.finds && f.severity === "invalid"))
      wrong.push(`${study.name}: ${report.status}: ${told || "nothing"}`);
    const speedup = report.scaling.at(-1)?.speedup ?? 0;
    if (study.speedup !== undefined && Math.abs(speedup / study.speedup - 1) > 0.02)
      wrong.push(`${study.name}: speedup ${speedup}, not ${study.speedup}`);
    const said = JSON.stringify([report.problems, report.findings]);
    if (study.reports !== undefined && !study.reports.test(said))
      wrong.push(`${study.name}: silent about ${study.reports}`);
  });
  assert.ok(oddStudies.length >= 40);
  assert.deepEqual(wrong, []);
});
