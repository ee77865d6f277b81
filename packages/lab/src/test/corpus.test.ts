// The validity rules against a corpus of studies: no honest study is called invalid, and faults are found.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { analyzeStudy, type StudyReport } from "../diagnosis/index.js";
import { readStudies } from "../import/index.js";
import { isHard } from "../model/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { corpus } from "./corpus.js";

/** Faults of the training, not of the measurement: they are reported and do not invalidate a study. */
const harmless = new Set(["same-order-every-epoch"]);

test("no honest study of the corpus is accused, and at least 95% of the faults are found", () => {
  using folder = new TestFolder();
  const reports = corpus.map((study, k): StudyReport => {
    const place = join(folder.path, `s${k}`);
    study.write(place);
    return analyzeStudy(readStudies([place])[0]!).report;
  });
  const honest = corpus.filter((c) => c.fault === null).length;
  assert.ok(corpus.length >= 60 && honest * 2 >= corpus.length, `${corpus.length} studies, ${honest} honest`);
  const accused: string[] = [];
  const missed: string[] = [];
  corpus.forEach((study, k) => {
    const report = reports[k]!;
    const told = report.findings.map((f) => `${f.id} ${f.severity}`).join(", ");
    // Only counted or derived evidence may invalidate.
    for (const f of report.findings)
      if (f.severity === "invalid") assert.ok(f.evidence.some(isHard), `${study.name}: ${f.id}`);
    if (study.fault === null) {
      if (report.status === "not valid") accused.push(`${study.name}: ${told}`);
      // Where the work was counted there is nothing to doubt either.
      else if (study.counted) assert.equal(report.status, "valid", `${study.name}: ${told}`);
      return;
    }
    const found = report.findings.find((f) => f.id === study.fault);
    const strong = found !== undefined && ["invalid", "unresolved"].includes(found.severity);
    if (found === undefined || !(strong || harmless.has(study.fault)))
      missed.push(`${study.name}: ${told || "nothing"}`);
    else if (study.counted && study.fault === "work-not-divided") assert.equal(report.status, "not valid", study.name);
  });
  assert.deepEqual(accused, []);
  const faults = corpus.length - honest;
  assert.ok(missed.length <= faults * 0.05, `${missed.length} of ${faults} missed: ${missed.join("; ")}`);
});

test("a command that only sleeps is not accused of a missing sampler", () => {
  using folder = new TestFolder();
  const study = corpus.find((c) => c.name.startsWith("a command that sleeps"))!;
  study.write(join(folder.path, "s"));
  const { report } = analyzeStudy(readStudies([join(folder.path, "s")])[0]!);
  assert.equal(report.status, "undecided");
  for (const { title, cause, fix, refutedBy } of report.findings)
    assert.doesNotMatch([title, cause, fix, refutedBy].join(" "), /sampler|data set|batch/i);
});

test("no number is defended in a study whose runs are not comparable", () => {
  using folder = new TestFolder();
  const study = corpus.find((c) => c.name.startsWith("baseline in fp32"))!;
  study.write(join(folder.path, "s"));
  const { report } = analyzeStudy(readStudies([join(folder.path, "s")])[0]!);
  assert.equal(report.status, "not valid");
  assert.deepEqual(
    report.scaling.slice(1).map((p) => [p.workSpeedup, p.workEfficiency]),
    [
      [null, null],
      [null, null],
    ],
  );
});
