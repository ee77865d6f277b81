// The trace page in a real browser: it draws, moves by keyboard, finds, selects, links collectives and jumps to findings.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { provideChromium } from "@weft/testing/debian";
import { traceFindings } from "../diagnosis/index.js";
import { launched, type TestEvent, TestFolder, traceText, unpackTrace } from "../trace/fixtures.testkit.js";
import { analyzeTraces, readTimeline } from "../trace/index.js";
import { tracePage } from "./trace-page.js";

const hostile = "<script>document.title='broken'</script>";

function rankEvents(rank: number): TestEvent[] {
  const events: TestEvent[] = [];
  for (let step = 0; step < 6; step++) {
    const begin = 10_000 * step;
    events.push({
      ph: "X",
      cat: "user_annotation",
      name: `ProfilerStep#${step}`,
      pid: 1,
      tid: 1,
      ts: begin,
      dur: 9990,
    });
    events.push({
      ph: "X",
      cat: "user_annotation",
      name: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
      pid: 1,
      tid: 1,
      ts: begin + 1,
      dur: 4000 + step,
    });
    events.push({ ph: "X", cat: "cpu_op", name: hostile, pid: 1, tid: 1, ts: begin + 4100, dur: 50 });
    events.push(
      ...launched(10 * step + 1, { ts: begin + 4200, dur: 5 }, { name: "gemm_tensorop", ts: begin + 4300, dur: 3000 }),
    );
    const args = {
      "Collective name": "allreduce",
      "In msg nelems": 100,
      "Out msg nelems": 100,
      "Group size": 2,
      dtype: "Float",
      "Process Group Name": "0",
    };
    events.push(
      ...launched(
        10 * step + 2,
        { ts: begin + 4210, dur: 5 },
        { name: "ncclDevKernel_AllReduce", ts: begin + 7300 - 100 * rank, dur: 500 + 100 * rank, stream: 20, args },
      ),
    );
  }
  return events;
}

async function page(folder: TestFolder): Promise<string> {
  const files = [0, 1].map((rank) =>
    folder.file(`rank${rank}.json`, traceText(rankEvents(rank), { distributedInfo: { rank, world_size: 2 } })),
  );
  const report = await analyzeTraces(files);
  const timeline = await readTimeline(files.map((file, rank) => ({ file, rank, offsetUs: 0 })));
  assert.equal(timeline.leftOut, 0);
  const path = join(folder.path, "page.html");
  writeFileSync(path, tracePage("two ranks", report, traceFindings(report), timeline));
  return path;
}

test("the trace page in Chromium", async (t) => {
  const chromium = provideChromium();
  if ("reason" in chromium) return t.skip(chromium.reason);
  const { chromium: driver } = await import("playwright-core");
  using folder = new TestFolder();
  const path = await page(folder);
  const browser = await driver.launch({ executablePath: chromium.path, args: ["--no-sandbox"] });
  try {
    for (const colorScheme of ["light", "dark"] as const) {
      const tab = await browser.newPage({ colorScheme, viewport: { width: 1200, height: 900 } });
      const errors: string[] = [];
      tab.on("pageerror", (error) => errors.push(error.message));
      tab.on("request", (request) => request.url().startsWith("file:") || errors.push(request.url()));
      await tab.goto(`file://${path}`);
      await tab.waitForFunction("Number(document.body.dataset.frames) > 0");
      const state = async (name: string) =>
        String(await tab.evaluate(`document.body.dataset[${JSON.stringify(name)}]`));
      const range = async () => {
        await tab.waitForTimeout(60);
        return (await state("view")).split(" ").map(Number);
      };
      assert.ok(Number(await state("drawn")) >= 2 * 5 * 4);
      assert.equal(await tab.title(), "two ranks");

      const all = await range();
      await tab.focus("#view");
      await tab.keyboard.press("w");
      const near = await range();
      assert.ok(near[1] - near[0] < 0.8 * (all[1] - all[0]), "W zooms in");
      await tab.keyboard.press("d");
      const right = await range();
      assert.ok(right[0] > near[0] && Math.abs(right[1] - right[0] - (near[1] - near[0])) < 2, "D moves right");
      await tab.keyboard.press("a");
      assert.ok((await range())[0] < right[0], "A moves left");
      await tab.keyboard.press("s");
      await tab.keyboard.press("0");
      assert.deepEqual(await range(), all, "0 shows everything");

      await tab.click('[data-finding="trace-data-wait"]');
      assert.match((await tab.textContent("#detail")) ?? "", /DataLoader.*data wait.*4\.005 ms/);
      const [from, to] = await range();
      assert.ok(to - from < 20_000_000, "the card jumps to its place");

      await tab.keyboard.press("/");
      await tab.keyboard.type("AllReduce");
      await tab.keyboard.press("Enter");
      assert.match((await tab.textContent("#detail")) ?? "", /^1 of 10: ncclDevKernel_AllReduce/);
      await tab.waitForTimeout(60);
      assert.equal(await state("linked"), "1", "the same collective of the other rank is linked");
      await tab.keyboard.press("Escape");
      await tab.keyboard.press("Escape");
      await tab.waitForTimeout(60);
      assert.equal(await state("linked"), "0");

      await tab.keyboard.press("0");
      await tab.waitForTimeout(60);
      const box = await tab.locator("#view").boundingBox();
      assert.ok(box !== null);
      // The first row is the stream of rank 0 that has most events.
      await tab.mouse.click(box.x + 170 + (1030 * 5000) / 59_990, box.y + 24 + 9);
      assert.match((await tab.textContent("#detail")) ?? "", /gemm_tensorop - computation, rank 0, 3\.000 ms/);
      assert.deepEqual(errors, []);
      await tab.close();
    }
  } finally {
    await browser.close();
  }
});

test("the page shows operators on the roofline of the device", async () => {
  using folder = new TestFolder();
  const file = unpackTrace(folder, "h200_streams");
  const report = await analyzeTraces([file]);
  const html = tracePage("streams", report, [], await readTimeline([{ file, rank: 0, offsetUs: 0 }]));
  const section = /<section id="operators">.*?<\/section>/s.exec(html)?.[0] ?? "";
  assert.match(section, /Model FLOP utilization/);
  assert.match(section, /Conv2d_1/);
  // Products and convolutions have both operations and bytes.
  assert.equal(section.match(/<circle/g)?.length, 5);
  for (const roof of ["bf16: 989 TFLOP/s", "fp32: 67 TFLOP/s"]) assert.ok(section.includes(roof), roof);
  assert.doesNotMatch(section, /NaN|Infinity|undefined/);
});
