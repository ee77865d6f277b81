import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { provideChromium, providePdflatex } from "@weft/testing/debian";
import { type Analysis, analyzeStudy } from "../diagnosis/index.js";
import { readStudies } from "../import/index.js";
import { emptyRun } from "../model/index.js";
import { textWidth } from "./font.js";
import {
  effectText,
  fixFiles,
  renderPng,
  studyCharts,
  studyRows,
  summaryCsv,
  summaryTex,
  texText,
  writeReport,
} from "./index.js";

const fixture = fileURLToPath(new URL("../../testdata/ddp_experiments", import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "weft-report-"));
after(() => rmSync(directory, { recursive: true }));
let analyses: Analysis[] = [];
let files: string[] = [];
before(async () => {
  analyses = readStudies([fixture]).map(analyzeStudy);
  files = await writeReport(analyses, directory);
});

test("an effect without a value is described by its bounds, one with a value by both", () => {
  const base = { metric: "epochSeconds" as const, devices: 2, from: 10, unit: "s", reason: "because" };
  assert.equal(
    effectText({ ...base, to: null, interval: [5, 10] }),
    "epochSeconds at 2 devices: 10 -> 5 to 10 s; because",
  );
  assert.equal(
    effectText({ ...base, to: 7, interval: [6, 8] }),
    "epochSeconds at 2 devices: 10 -> 7 s (80%: 6 to 8 s); because",
  );
});

test("the report has the documented files and no temporary ones", () => {
  const charts = ["epoch_time_detailed", "speedup_efficiency", "throughput", "loss", "accuracy"];
  const expected = ["IMDB", "AGNews"].flatMap((s) => charts.flatMap((c) => [`${s}_${c}.svg`, `${s}_${c}.png`]));
  const others = [
    "analysis.json",
    "comprehensive_summary.csv",
    "summary_table.tex",
    "performance_report.txt",
    "report.html",
  ];
  assert.deepEqual([...files].sort(), [...expected, ...others].sort());
  for (const name of files)
    assert.ok(existsSync(join(directory, name)) && !existsSync(join(directory, `${name}.part`)), name);
});

test("the CSV contains raw numbers with units in the header", () => {
  const [header, ...rows] = readFileSync(join(directory, "comprehensive_summary.csv"), "utf8").trim().split("\n");
  assert.match(header!, /^study,run,devices,status,mean_epoch_s,std_epoch_s,measurements,mean_epoch_mixed_s,/);
  const columns = header!.split(",");
  const cell = (row: string, name: string) => row.split(",")[columns.indexOf(name)];
  assert.equal(rows.length, 4);
  assert.equal(Number(cell(rows[1]!, "mean_epoch_s")).toFixed(4), "3.2062");
  assert.equal(cell(rows[3]!, "valid_as_speedup"), "false");
  assert.equal(Number(cell(rows[3]!, "work_speedup")).toFixed(2), "1.85");
  assert.equal(Number(cell(rows[3]!, "mean_epoch_mixed_s")).toFixed(2), "42.33");
  assert.doesNotMatch(rows.join(""), /[±%]|\dx,/);
});

test("the text report rates no baseline and does not call 0.46 a speedup", () => {
  const text = readFileSync(join(directory, "performance_report.txt"), "utf8");
  assert.match(text, /Speedup: 3\.49x, efficiency 87\.3%/);
  assert.match(
    text,
    /Ratio of times: 0\.46, not a speedup\. Work per second relative to the baseline: 1\.85x or 0\.46x/,
  );
  assert.match(text, /42\.29 \+- 0\.50 s separated/);
  assert.match(text, /42\.33 \+- 0\.51 s mixed/);
  assert.doesNotMatch(text, /excellent/i);
});

test("LaTeX is escaped, and pdflatex compiles the table", (t) => {
  assert.equal(
    texText("50%_a & {b} \\ é #$~^"),
    "50\\%\\_a \\& \\{b\\} \\textbackslash{} ? \\#\\$\\textasciitilde{}\\textasciicircum{}",
  );
  const tex = summaryTex(analyses.map((a) => ({ ...a.report, name: `${a.report.name}_50%` })));
  writeFileSync(join(directory, "summary_table.tex"), tex);
  writeFileSync(
    join(directory, "doc.tex"),
    "\\documentclass{article}\\begin{document}\\input{summary_table.tex}\\end{document}\n",
  );
  const pdflatex = providePdflatex();
  if ("reason" in pdflatex) return t.skip(pdflatex.reason);
  const log = execFileSync(pdflatex.path, ["-interaction=nonstopmode", "-halt-on-error", "doc.tex"], {
    cwd: directory,
    encoding: "utf8",
  });
  assert.match(log, /Output written on doc\.pdf \(1 page/);
  assert.doesNotMatch(log, /undefined|Overfull \\hbox \((?:[5-9]\d|\d{3,})/i);
});

test("images contain text: they differ from those with an empty label", async () => {
  const svg = (text: string) =>
    `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40"><text x="5" y="25" font-family="DejaVu Sans, Verdana, sans-serif" font-size="16">${text}</text></svg>`;
  const [blank, written] = [await renderPng(svg("")), await renderPng(svg("Speedup 3.49x"))];
  assert.ok(written.length > blank.length * 2, `${written.length} against ${blank.length} bytes`);
  assert.ok(Math.abs(textWidth("Speedup", 10, false) - 43.7) < 1.5);
  assert.ok(textWidth("Speedup", 10, true) > textWidth("Speedup", 10, false));
  const drawn = readFileSync(join(directory, "AGNews_speedup_efficiency.svg"), "utf8");
  for (const label of ["1.85x", "46%", "0.46x", "not a speedup", "not valid as a scaling result"])
    assert.ok(drawn.includes(label), label);
});

test("charts have the ideal line, unclipped efficiency and one mark per measured and predicted count", () => {
  const analysis = analyses[0]!;
  const chart = studyCharts(analysis, studyRows(analysis)).find((c) => c.name === "speedup_efficiency")!;
  const panels = chart.spec["hconcat"] as {
    layer: { data: { values: { devices: number; value: number; kind?: string }[] } }[];
  }[];
  assert.deepEqual(
    panels[0]!.layer[0]!.data.values.map((v) => v.value),
    [1, 4, 8, 16],
  );
  assert.deepEqual(
    panels[0]!.layer[2]!.data.values.map((v) => `${v.devices} ${v.kind}`),
    ["1 measured", "4 measured", "8 predicted", "16 predicted"],
  );
  for (const panel of panels) {
    const y = (panel.layer[2] as unknown as { encoding: { y: { scale: { domain: number[] } } } }).encoding.y.scale
      .domain;
    assert.ok(panel.layer[2]!.data.values.every((v) => v.value <= y[1]! && v.value >= y[0]!));
  }
});

test("fixes are written as configuration and job script; an invalid study has none", () => {
  assert.deepEqual(fixFiles(analyses[1]!), {});
  const make = (devices: number, seconds: number) => {
    const run = emptyRun(`n${devices}`, devices, { kind: "scale", path: `n${devices}` });
    run.status = "ok";
    run.machine = { cores: 4 };
    run.epochs = [1.1, 1, 1.004, 0.996].map((f, i) => ({ epoch: i + 1, seconds: seconds * f }));
    run.ranks = Array.from({ length: devices }, (_, rank) => ({
      rank,
      facts: { samplerSharded: true, loaderWorkers: 2, batchPerRank: 8 },
    }));
    for (let s = 0; s < 10; s++)
      for (let rank = 0; rank < devices; rank++)
        run.steps.push({ rank, step: s, durationUs: 1000, exposedCommUs: 300, commUs: 300 });
    return run;
  };
  const written = fixFiles(analyzeStudy({ name: "My Study", runs: [make(1, 10), make(4, 4)], problems: [] }));
  assert.deepEqual(Object.keys(written), ["My_Study_optimized.yaml", "My_Study_run.sh"]);
  assert.match(written["My_Study_optimized.yaml"]!, /training:\n(.*\n)* {2}accumulation_steps: 4\n/);
  assert.match(written["My_Study_optimized.yaml"]!, /batch_size: 128/);
  assert.match(written["My_Study_run.sh"]!, /--cpus-per-task=12\n#SBATCH --gres=gpu:4/);
});

test("an empty list of studies gives files with a header", () => {
  assert.equal(summaryCsv([]), "study,run,devices\n");
});

test("in a browser the charts are interactive, a click scrolls to the row, and phone and print layouts fit", async (t) => {
  const chromium = provideChromium();
  if ("reason" in chromium) return t.skip(chromium.reason);
  const { chromium: driver } = await import("playwright-core");
  const browser = await driver.launch({ executablePath: chromium.path, args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
    const trouble: string[] = [];
    page.on("pageerror", (error) => trouble.push(error.message));
    page.on("console", (message) => message.type() === "error" && trouble.push(message.text()));
    page.on("request", (request) => request.url().startsWith("http") && trouble.push(`fetches ${request.url()}`));
    await page.goto(pathToFileURL(join(directory, "report.html")).href);
    await page.waitForFunction("document.querySelectorAll('figure[data-ready]').length === 10");
    const symbols = page.locator(
      "figure[data-chart='chart-AGNews-epoch_time_detailed'] .mark-symbol path[aria-roledescription='point']",
    );
    const first = symbols.first();
    await first.scrollIntoViewIfNeeded();
    await first.click({ force: true });
    const shown = await page.evaluate(
      "[location.hash, document.querySelector('tr.shown')?.textContent ?? '', document.querySelector('tr.shown')?.closest('details')?.open]",
    );
    assert.match((shown as string[])[0]!, /^#row-AGNews-exp04[12]-agnews-\w+-20ep-\d+$/);
    assert.match((shown as string[])[1]!, /metrics\.csv:\d+/);
    assert.equal((shown as unknown[])[2], true);
    await page.click(".verdict.invalid a");
    assert.equal(await page.evaluate("location.hash"), "#count-AGNews-4");
    const targets = await page.evaluate(
      "[...document.querySelectorAll(\"a[href^='#']\")].filter(a => !document.getElementById(a.getAttribute('href').slice(1))).map(a => a.outerHTML)",
    );
    assert.deepEqual(targets, []);
    const text = (await page.evaluate("document.body.innerText")) as string;
    for (const part of ["1.85x (46%)", "42.33 s mixed", "42.29 s separated", "NOT VALID as a scaling result"])
      assert.ok(text.includes(part), part);
    const phone = await browser.newPage({ viewport: { width: 360, height: 740 } });
    await phone.goto(pathToFileURL(join(directory, "report.html")).href);
    await phone.waitForFunction("document.querySelectorAll('figure[data-ready]').length === 10");
    assert.equal(await phone.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
    const letters = (await phone.evaluate(
      "Math.min(...[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height).filter(h => h > 0))",
    )) as number;
    assert.ok(letters >= 9, `smallest letters on a phone are ${letters} px high`);
    const pdf = await page.pdf({ format: "A4" });
    assert.ok(pdf.length > 50000);
    assert.deepEqual(trouble, []);
  } finally {
    await browser.close();
  }
});
