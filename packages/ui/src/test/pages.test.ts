// The pages beside the runs in a real browser: a study with its ledger, a tape, a quantum gate, and a cluster with two workers.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { LocalCluster } from "@weft/cluster";
import { CpuDevice, jit, matmul, randn, setDevice } from "@weft/core";
import type { Browser, Page } from "playwright-core";
import { startUi, type UiServer } from "../index.js";
import { axeProblems, goTo, openChromium, openPage } from "./browser.testkit.js";
import { TestRuns } from "./folder.testkit.js";

process.env.WEFT_RATES ??= "assumed";

describe("the pages of studies, tapes, gates and clusters", { timeout: 300_000 }, () => {
  const runs = new TestRuns();
  const ledger = join(runs.path, "ledger.jsonl");
  let browser: Browser | null = null;
  let ui: UiServer;

  before(async () => {
    browser = await openChromium();
    ui = await startUi({ runs: runs.path, ledger, gates: runs.path });
  });
  after(async () => {
    await browser?.close();
    await ui.close();
    runs.remove();
  });

  /** Opens a page of the app and calls back; checks it with axe at the end. */
  const visit = async (address: string, look: (page: Page) => Promise<void>, url = ui.url): Promise<void> => {
    const page = await openPage(browser!, url);
    try {
      await goTo(page, address);
      await look(page);
      assert.deepEqual(await axeProblems(page), [], address);
    } finally {
      await page.close();
    }
  };

  test("a study shows its verdict, its speedup, findings with commands, and how predictions held", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    runs.study("even", { 1: 4, 2: 2.2 });
    const prediction = {
      v: 1,
      type: "prediction",
      at: 1,
      study: "even",
      finding: null,
      metric: "epochSeconds",
      devices: 2,
      from: null,
      unit: "s",
      reason: "law",
      basedOn: [],
    };
    const lines = [
      { ...prediction, id: "a", to: 2.1, interval: [1.9, 2.4] },
      { ...prediction, id: "b", to: 9, interval: [8, 10] },
      { v: 1, type: "outcome", prediction: "a", at: 2, value: 2.2, error: -0.05, inside: true, runs: [] },
      { v: 1, type: "outcome", prediction: "b", at: 2, value: 2.2, error: 3, inside: false, runs: [] },
    ];
    writeFileSync(ledger, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    await visit("/scaling/even", async (page) => {
      await page.locator(".notice").first().waitFor();
      // 4 s over 2.2 s.
      await page.getByText("1.82×").first().waitFor();
      assert.match((await page.locator("svg.plot-svg").first().getAttribute("aria-label")) ?? "", /2 devices: 1\.82×/);
      await page.getByText("50% of 2 intervals held; 80% should.").waitFor();
    });
    // Two devices that do the work of one each: the lab finds that the work is not divided.
    runs.study("doubled", { 1: 4, 2: 4.1 }, false);
    await visit("/scaling/doubled", async (page) => {
      await page.locator(".finding").first().waitFor();
      await page
        .getByText("weft scale --name doubled --devices 1,2 --repeats 5 -- python train.py --gpus {n}")
        .first()
        .waitFor();
    });
  });

  test("a tape is shown on the lab's timeline, in a frame without access to the page", async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const folder = runs.run("taped", 5);
    const tape = Array.from({ length: 20 }, (_, i) => ({
      type: "instruction",
      worker: 0,
      workerId: "rank 0",
      step: i,
      program: 0,
      op: "matmul <b>",
      kind: i % 4 === 0 ? "collective" : "kernel",
      startUs: 1000 * i,
      endUs: 1000 * i + 800,
      bytes: 8,
      flops: 8,
      cause: null,
      inputs: [],
      outputs: [],
      shapes: [],
    }));
    const head = { type: "tape", version: 1 };
    writeFileSync(
      join(folder, "tape-rank0.jsonl"),
      [head, ...tape].map((line) => `${JSON.stringify(line)}\n`).join(""),
    );
    const page = await openPage(browser, ui.url);
    await goTo(page, "/timeline/tape%3Ataped");
    const frame = page.frameLocator("iframe.frame");
    await frame.locator("canvas").waitFor();
    assert.equal(await frame.locator("body").evaluate("window.origin"), "null", "the frame is sandboxed");
    await page.close();
  });

  test("a slider changes the infidelity, and the optimization lowers it", {
    skip: CpuDevice.available() ? false : "no C compiler",
  }, async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const text =
      "device: {parts: {q: {kind: qubit, frequency: 0.5}}}\npulses: [{on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: 0.28, omega: 3.14159265359}]\nevolution: {steps: 200}\ntarget: {gate: X, compensation: virtual-z}\nlearn: [q.x.amplitude]\n";
    writeFileSync(join(runs.path, "gate.yaml"), text);
    await visit("/quantum/file%3Agate.yaml", async (page) => {
      const shown = async (): Promise<number> => Number(await page.locator(".fact dd").first().textContent());
      await page.locator(".rank-parts").waitFor();
      const first = await shown();
      assert.ok(first > 1e-3 && first < 0.5, String(first));
      // Its least value: no pulse.
      await page.getByLabel("q.x.amplitude").press("Home");
      const until = async (holds: (value: number) => boolean): Promise<void> => {
        for (const end = Date.now() + 60_000; !holds(await shown()); await page.waitForTimeout(100))
          assert.ok(Date.now() < end, `the infidelity is ${await shown()}`);
      };
      await until((value) => value > 2 * first);
      await page.getByRole("button", { name: "Optimize" }).click();
      await until((value) => value < first / 2);
      await page.locator("figure canvas").nth(2).waitFor();
    });
  });

  test("a cluster shows workers, clients, bytes between workers, and plans", {
    skip: CpuDevice.available() ? false : "no C compiler",
  }, async (t) => {
    if (browser === null) return t.skip("no Chromium");
    const cluster = await LocalCluster.start({ devices: 2, cores: 1, calibrate: false });
    const settings = { WEFT_TOKEN: cluster.token, WEFT_FORCE_SHARD: "1" };
    Object.assign(process.env, settings);
    const watching = await startUi({ runs: runs.path, server: cluster.address, security: { token: cluster.token } });
    try {
      setDevice(`cluster:${cluster.address}`);
      const product = jit((x: ReturnType<typeof randn>, w: ReturnType<typeof randn>) => matmul(x, w).sum(0));
      const [x, w] = [randn([64, 32], { seed: 1 }), randn([32, 16], { seed: 2 })];
      for (let i = 0; i < 5; i++) await product(x, w).data();
      await visit(
        "/cluster",
        async (page) => {
          await page.locator(".tile").nth(1).waitFor();
          await page.getByText("What the planner chose").waitFor();
          await page.locator(".placement").first().waitFor();
          assert.match((await page.locator(".candidates").textContent()) ?? "", /one device on 1/);
          const names = await page.locator(".candidates th").allTextContents();
          assert.equal(new Set(names).size, names.length, "candidates have distinct names");
          await page.getByText(`${process.pid} on host`).first().waitFor();
          assert.match((await page.locator(".matrix").textContent()) ?? "", /[1-9][\d.]* (B|kB)/);
        },
        watching.url,
      );
    } finally {
      setDevice("cpu");
      for (const key of Object.keys(settings)) delete process.env[key];
      await watching.close();
      await cluster.stop();
    }
  });

  test("studies with pipes or links are refused, and a thread that fails takes nothing with it", async () => {
    mkdirSync(join(runs.path, "broken"));
    writeFileSync(join(runs.path, "broken", "study.json"), "{");
    const get = async (path: string): Promise<number> => {
      const headers = { authorization: `Bearer ${ui.token}` };
      return (await fetch(new URL(path, ui.url), { headers })).status;
    };
    assert.equal(await get("/api/study?id=broken"), 422);
    assert.equal(await get("/api/study?id=even"), browser === null ? 404 : 200);
    assert.equal(await get("/api/study?id=../etc"), 404);
    assert.equal(await get("/frame/guess"), 404);
  });
});
