// In a real browser: the charts of a run on GPUs, an optimization of a gate while it goes on, and the Wigner function over time; in
// narrow and wide windows, light and dark, and with the keyboard alone.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core";
import type { Browser, Page } from "playwright-core";
import { startUi, type UiServer } from "../index.js";
import { axeProblems, goTo, openChromium, openPage } from "./browser.testkit.js";
import { TestRuns } from "./folder.testkit.js";

const weft = fileURLToPath(new URL("../../../cli/bin/weft.js", import.meta.url));
const skip = CpuDevice.available() ? false : "no C compiler";

/** A slow optimization: thousands of steps of an oscillator with six levels. */
const gate = `name: oscillator
device: {parts: {q: {kind: duffing, frequency: 0, anharmonicity: -0.3, levels: 6}}}
pulses:
  - {on: q, name: x, operator: n, shape: piecewise, length: 10, values: [0.05, 0.1, 0.15, 0.2, 0.25, 0.25, 0.2, 0.15, 0.1, 0.05]}
evolution: {steps: 200, method: pwcExpm}
target: {gate: X, compensation: virtual-z}
learn: [q.x.values]
`;

/** What each window shows must fit into it: no page scrolls sideways. */
async function checkWindow(page: Page, what: string): Promise<void> {
  const [inner, whole] = (await page.evaluate(
    "[document.documentElement.clientWidth, document.documentElement.scrollWidth]",
  )) as [number, number];
  assert.ok(whole <= inner + 1, `${what}: the page is ${whole} px wide in a window of ${inner}`);
  assert.deepEqual(await axeProblems(page), [], what);
}

const windows = [
  { viewport: { width: 360, height: 740 }, colorScheme: "light" },
  { viewport: { width: 360, height: 740 }, colorScheme: "dark" },
  { viewport: { width: 1280, height: 800 }, colorScheme: "light" },
  { viewport: { width: 1280, height: 800 }, colorScheme: "dark" },
] as const;

describe("runs on GPUs and gates", { timeout: 300_000 }, () => {
  const runs = new TestRuns();
  let browser: Browser | null = null;
  let ui: UiServer;
  let optimizing: ChildProcess | null = null;

  before(async () => {
    browser = await openChromium();
    ui = await startUi({ runs: runs.path, gates: runs.path });
  });
  after(async () => {
    optimizing?.kill("SIGKILL");
    await browser?.close();
    await ui.close();
    runs.remove();
  });

  test("a run on two GPUs shows utilization, memory and power of each", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const folder = runs.run("gpus", 50, { devices: 2 });
    const samples = Array.from({ length: 30 }, (_, k) => ({
      v: 1,
      type: "sample",
      t: Date.now() / 1000 - 100 + k,
      host: { cpuPercent: 12 + k, memoryUsedBytes: 8e9 },
      devices: [0, 1].map((index) => ({
        index,
        utilizationPercent: 60 + 20 * index,
        memoryUsedBytes: (20 + index) * 1e9,
        memoryTotalBytes: 143e9,
        powerWatts: 350 + 100 * index + k,
      })),
    }));
    appendFileSync(join(folder, "rank0.jsonl"), samples.map((sample) => `${JSON.stringify(sample)}\n`).join(""));
    for (const options of windows) {
      const page = await openPage(browser, ui.url, options);
      await goTo(page, "/run/gpus");
      for (const title of ["GPU utilization", "Power", "Memory"])
        await page.locator("figure", { hasText: title }).locator("canvas").first().waitFor();
      // The samples at the end of the file do not hide its steps.
      assert.equal(await page.locator(".fact dd").first().textContent(), "50 of 50");
      const power = page.locator("figure", { hasText: "Power" }).first();
      assert.match((await power.textContent()) ?? "", /GPU 0.*GPU 1/s);
      await checkWindow(page, `${options.viewport.width} px, ${options.colorScheme}`);
      await page.close();
    }
  });

  test("quantum optimize --out is followed while it goes on: infidelity, pulses, stop", { skip }, async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const file = join(runs.path, "oscillator.yaml");
    writeFileSync(file, gate);
    const args = [weft, "quantum", "optimize", file, "--out", join(runs.path, "live"), "--iterations", "100000"];
    optimizing = spawn(process.execPath, [...args, "--method", "descent", "--rate", "1e-6"], { stdio: "ignore" });
    const page = await openPage(browser, ui.url);
    await page.getByRole("link", { name: "live" }).first().waitFor();
    await goTo(page, "/run/live");
    await page.getByText("running").first().waitFor();
    await page.getByRole("heading", { name: "live" }).waitFor();
    await page.locator("figure", { hasText: "Infidelity" }).locator("canvas").first().waitFor();
    const steps = async (): Promise<number> =>
      Number.parseInt(((await page.locator(".fact dd").first().textContent()) ?? "").replaceAll(",", ""), 10);
    const first = await steps();
    for (const end = Date.now() + 60_000; (await steps()) <= first; await page.waitForTimeout(200))
      assert.ok(Date.now() < end, "steps arrive");
    // By keyboard alone: to the pulses of the run.
    const link = page.getByRole("link", { name: "Pulses and states" });
    await link.focus();
    await page.keyboard.press("Enter");
    await page.getByText("as the run has optimized it").waitFor();
    await page.locator("figure", { hasText: "Pulses" }).locator("canvas").first().waitFor();
    await goTo(page, "/run/live");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Stop the run" }).click();
    await page.locator(".pill, .state", { hasText: "stopped" }).first().waitFor();
    await page.close();
  });

  test("the Wigner function is played over time, in every window", { skip }, async (t) => {
    if (browser === null) return t.skip("no Chromium");
    writeFileSync(join(runs.path, "oscillator.yaml"), gate);
    for (const options of windows) {
      const page = await openPage(browser, ui.url, options);
      await goTo(page, "/quantum/file%3Aoscillator.yaml");
      const picture = page.locator("figure.wigner img");
      await picture.waitFor();
      const time = async (): Promise<number> =>
        Number(/at ([\d.]+) ns/.exec((await picture.getAttribute("alt")) ?? "")?.[1]);
      assert.equal(await time(), 10, "the final state first");
      const slider = page.getByLabel("time", { exact: true });
      await slider.focus();
      await page.keyboard.press("Home");
      assert.ok((await time()) < 1, `${await time()} ns`);
      const early = await picture.getAttribute("src");
      await page.getByRole("button", { name: "Play" }).press("Enter");
      for (const end = Date.now() + 30_000; (await time()) < 10; await page.waitForTimeout(100))
        assert.ok(Date.now() < end, "it plays to the end");
      assert.notEqual(await picture.getAttribute("src"), early);
      await checkWindow(page, `${options.viewport.width} px, ${options.colorScheme}`);
      await page.close();
    }
  });
});
