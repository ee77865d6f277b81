// The page in a real browser: a training while it runs, one that is killed, one that is stopped, 200 runs, a million steps, a
// lost connection, and accessibility in both color schemes.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { startUi, type UiServer } from "../index.js";
import { axeProblems, goTo, openChromium, openPage } from "./browser.testkit.js";
import { startTraining, TestRuns } from "./folder.testkit.js";

describe("the page in Chromium", { timeout: 400_000 }, () => {
  const runs = new TestRuns();
  let browser: Browser | null = null;
  let ui: UiServer;

  before(async () => {
    browser = await openChromium();
    ui = await startUi({ runs: runs.path });
  });
  after(async () => {
    await browser?.close();
    await ui.close();
    runs.remove();
  });

  /** The step that the run page shows. */
  const shownStep = async (page: Page): Promise<number> =>
    Number(/[\d,]+/.exec((await page.locator(".fact dd").first().textContent()) ?? "")?.[0].replaceAll(",", "") ?? -1);
  const until = async (what: string, holds: () => Promise<boolean>): Promise<void> => {
    for (const end = Date.now() + 90_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100)))
      if (await holds()) return;
    assert.fail(`not in time: ${what}`);
  };

  test("an empty folder teaches what to type", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const page = await openPage(browser, ui.url);
    await page.getByText("weft train configs/synthetic.yaml").waitFor();
    assert.equal(page.url().includes(ui.token), false, "the token leaves the address bar");
    await page.close();
  });

  test("a training appears, moves without a reload, and is stopped by the button", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const page = await openPage(browser, ui.url);
    await page.getByText("No runs yet").waitFor();
    const training = startTraining(runs.path, "live", ["--epochs", "5000"]);
    const ended = new Promise((resolve) => training.once("exit", resolve));
    try {
      await page.locator("tr[data-id=live] a").click();
      await until("the run has steps", async () => (await shownStep(page)) > 0);
      const first = await shownStep(page);
      await until("the step grows", async () => (await shownStep(page)) > first);
      await page.locator("figure canvas").first().waitFor();
      assert.match((await page.locator("figure .plot").first().getAttribute("aria-label")) ?? "", /Loss: \d+ points/);
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await page.getByRole("button", { name: "Stop the run" }).click();
      await page.locator(".state-canceled").waitFor();
      await ended;
    } finally {
      training.kill("SIGKILL");
      await page.close();
    }
  });

  test("a run that is killed is shown as dead", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const training = startTraining(runs.path, "killed", ["--epochs", "5000"]);
    const page = await openPage(browser, ui.url);
    try {
      await page.locator("tr[data-id=killed] a").click();
      await until("the run has steps", async () => (await shownStep(page)) > 0);
      training.kill("SIGKILL");
      await page.locator(".state-died").waitFor();
      await page.getByText("its process ended without writing why").waitFor();
      assert.equal(await page.getByRole("button", { name: "Stop", exact: true }).count(), 0);
    } finally {
      training.kill("SIGKILL");
      await page.close();
    }
  });

  test("200 runs are listed, filtered, sorted, selected by keyboard and compared", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    for (let i = 0; i < 200; i++)
      runs.run(`many-${i}`, 20, i % 7 === 0 ? { status: "failed", message: "no memory" } : {});
    const page = await openPage(browser, ui.url);
    await page.locator("table.runs tbody tr").nth(199).waitFor();
    assert.ok((await page.locator("table.runs tbody tr").count()) >= 200);
    await page.keyboard.press("/");
    await page.keyboard.type("many-1 failed");
    await until("the filter holds", async () => (await page.locator("table.runs tbody tr").count()) < 30);
    await page.keyboard.press("Escape");
    for (const key of ["j", "x", "j", "x", "c"]) await page.keyboard.press(key);
    await page.getByRole("heading", { name: "Compare 2 runs" }).waitFor();
    await page.locator("figure canvas").waitFor();
    await page.close();
  });

  test("a million steps: a picture at once, then all of them, with the outlier", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    runs.run("million", 1_000_000);
    const page = await openPage(browser, ui.url);
    await goTo(page, "/run/million");
    await page.locator("figure canvas").first().waitFor();
    const described = async (): Promise<string> =>
      (await page.locator("figure .plot").first().getAttribute("aria-label")) ?? "";
    // The band reaches the one step with a loss of 9.5, which means of buckets would hide.
    await until("all steps are read", async () => /to 9\.500/.test(await described()));
    const points = Number(/(\d+) points/.exec(await described())?.[1]);
    assert.ok(points > 500 && points < 7000, `${points} points are drawn`);
    await page.close();
  });

  test("a page that lost its server goes on when it is back", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const folder = new TestRuns();
    folder.run("short", 30);
    const first = await startUi({ runs: folder.path });
    const page = await openPage(browser, first.url);
    await goTo(page, "/run/short");
    await until("30 steps", async () => (await shownStep(page)) === 30);
    await first.close();
    await page.getByText("Connection lost").waitFor();
    folder.run("short", 60);
    const second = await startUi({ runs: folder.path, port: first.port, token: first.token });
    try {
      await until("60 steps", async () => (await shownStep(page)) === 60);
      const label = async (): Promise<string> =>
        (await page.locator("figure .plot").first().getAttribute("aria-label")) ?? "";
      await until("60 points, none twice", async () => /Loss: 60 points/.test(await label()));
      assert.equal(await page.getByText("Connection lost").count(), 0);
    } finally {
      await page.close();
      await second.close();
      folder.remove();
    }
  });

  for (const colorScheme of ["light", "dark"] as const)
    test(`axe finds no problem in the ${colorScheme} scheme, and a narrow window needs no sideways scrolling`, async (t) => {
      if (browser === null) return t.skip("no Chromium");
      const folder = new TestRuns();
      for (const id of ["a", "b"]) folder.run(id, 50);
      folder.study("study", { 1: 2, 2: 1.9 }, false);
      folder.run("c", 5, { status: "failed", message: "<img src=x onerror=alert(1)>" });
      const own = await startUi({ runs: folder.path });
      const page = await openPage(browser, own.url, { colorScheme });
      try {
        for (const [address, selector] of [
          ["/runs", "table.runs tbody tr"],
          ["/run/a", "figure canvas"],
          ["/run/c", ".notice"],
          ["/compare?id=a&id=b", "figure canvas"],
          ["/run/nothing", ".empty"],
          ["/scaling", ".finding"],
          ["/timeline", ".empty"],
          ["/cluster", ".empty"],
        ]) {
          await page.setViewportSize({ width: 1280, height: 800 });
          await goTo(page, address);
          await page.locator(selector).first().waitFor();
          await page.locator(".strip-verdict").waitFor();
          assert.deepEqual(await axeProblems(page), [], address);
          await page.setViewportSize({ width: 390, height: 800 });
          const wide = async (): Promise<number> => Number(await page.evaluate("document.documentElement.scrollWidth"));
          await until(`${address} is narrow`, async () => (await wide()) <= 390);
        }
      } finally {
        await page.close();
        await own.close();
        folder.remove();
      }
    });
});
