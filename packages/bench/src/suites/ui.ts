// The web app: time from the command to the first picture, weight of the page, frames per second while a run streams, and the first
// picture of a run of a million steps, in Chromium.
import { type ChildProcess, spawn } from "node:child_process";
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { median } from "@weft/formats/stats";
import { MachineWitness } from "@weft/lab/internal/runner";
import type { Browser, Page } from "playwright-core";
import { benchSettings } from "../settings.js";
import type { Context, Suite } from "./context.js";

interface UiRow {
  id: string;
  title: string;
  unit: "ms" | "bytes" | "frames/s";
  value: number;
  samples: number[];
  /** What the measurement checked on the page. */
  check: string;
}

const weft = fileURLToPath(new URL("../../../cli/bin/weft.js", import.meta.url));
const chromium = benchSettings.chromium.get() ?? "/usr/bin/chromium";

/** Writes the folder of a run. */
function writeRun(runs: string, id: string, steps: number, status: "ok" | "running"): string {
  const folder = join(runs, id);
  mkdirSync(folder, { recursive: true });
  const t = Date.now() / 1000 - 100;
  const head = {
    v: 1,
    id,
    devices: 1,
    repeat: 0,
    order: 0,
    command: [],
    status,
    startedAt: t,
    machine: { host: hostname() },
    steps,
  };
  writeFileSync(join(folder, "run.json"), JSON.stringify(head));
  const file = openSync(join(folder, "rank0.jsonl"), "w");
  writeSync(
    file,
    `${JSON.stringify({ v: 1, type: "rank", t, rank: 0, worldSize: 1, pid: process.pid, device: "cpu" })}\n`,
  );
  for (let step = 0; step < steps; step += 1000)
    writeSync(file, Array.from({ length: Math.min(1000, steps - step) }, (_, i) => stepLine(step + i, t)).join(""));
  closeSync(file);
  return folder;
}

const stepLine = (step: number, t: number): string =>
  `{"v":1,"type":"step","t":${(t + step / 1000).toFixed(3)},"rank":0,"step":${step},"durationUs":1000,"dataWaitUs":10,"exposedCommUs":5,"samples":32,"loss":${(1 / (1 + step / 500)).toFixed(5)},"gradientNorm":${(1 + Math.sin(step)).toFixed(4)},"learningRate":0.001}\n`;

/** Starts the command; resolves with the address that it prints. */
async function startUi(runs: string): Promise<{ child: ChildProcess; url: string; began: number }> {
  const began = performance.now();
  const child = spawn(process.execPath, [weft, "ui", runs, "--no-open"], { stdio: ["ignore", "pipe", "inherit"] });
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout!.once("data", (bytes: Buffer) => resolve(bytes.toString().trim()));
    child.once("exit", () => reject(new Error("weft ui ended")));
  });
  return { child, url, began };
}

/** Processor time that a process has used: what other processes do changes it little. */
function processorMs(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

/** From the start of the command to the rows of 200 runs on the screen; the browser is open already, as a user's is. */
async function firstPicture(browser: Browser, runs: string, rounds: number): Promise<UiRow[]> {
  const [times, weights, processor]: number[][] = [[], [], []];
  for (let round = 0; round < rounds; round++) {
    const page = await browser.newPage();
    let bytes = 0;
    page.on("response", async (response) => {
      bytes += (await response.body().catch(() => Buffer.alloc(0))).length;
    });
    const { child, url, began } = await startUi(runs);
    await page.goto(url);
    await page.locator("table.runs tbody tr").nth(199).waitFor();
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    times.push(performance.now() - began);
    weights.push(bytes);
    processor.push(processorMs(child.pid!));
    await page.close();
    child.kill("SIGTERM");
  }
  const check = "200 rows of the table are painted";
  return [
    {
      id: "first-picture",
      title: "from the command to the table of 200 runs",
      unit: "ms",
      value: median(times),
      samples: times,
      check,
    },
    {
      id: "first-picture-processor",
      title: "processor time of the command until then",
      unit: "ms",
      value: median(processor),
      samples: processor,
      check,
    },
    {
      id: "page-weight",
      title: "bytes of the page and its data, uncompressed",
      unit: "bytes",
      value: median(weights),
      samples: weights,
      check,
    },
  ];
}

/** Times between frames while a run writes a thousand steps per second. */
async function streaming(page: Page, folder: string, url: string, seconds: number): Promise<UiRow> {
  await page.goto(url);
  await page.evaluate("location.hash = '/run/live'");
  await page.locator("figure canvas").first().waitFor();
  let step = 2000;
  const t = Date.now() / 1000 - 100;
  const writer = setInterval(() => {
    appendFileSync(join(folder, "rank0.jsonl"), Array.from({ length: 100 }, () => stepLine(step++, t)).join(""));
  }, 100);
  await page.waitForTimeout(1500);
  const frames = (await page.evaluate(`new Promise((done) => {
    const times = []; const start = performance.now();
    const frame = (now) => { times.push(now); now - start < ${seconds * 1000} ? requestAnimationFrame(frame) : done(times); };
    requestAnimationFrame(frame);
  })`)) as number[];
  clearInterval(writer);
  await page.waitForTimeout(1500);
  const shown = Number(
    /[\d,]+/.exec((await page.locator(".fact dd").first().textContent()) ?? "")?.[0].replaceAll(",", ""),
  );
  const gaps = frames.slice(1).map((now, i) => now - frames[i]);
  const rate = (1000 * gaps.length) / gaps.reduce((a, b) => a + b, 0);
  return {
    id: "streaming",
    title: "frames per second while a run streams 1000 steps per second",
    unit: "frames/s",
    value: rate,
    samples: gaps,
    check: `the page shows step ${shown} of ${step}`,
  };
}

async function million(browser: Browser, url: string, rounds: number): Promise<UiRow> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const page = await browser.newPage();
    await page.goto(url);
    await page.locator("table.runs").waitFor();
    const began = performance.now();
    await page.evaluate("location.hash = '/run/million'");
    await page.locator("figure canvas").first().waitFor();
    times.push(performance.now() - began);
    await page.close();
  }
  return {
    id: "million",
    title: "first curves of a run of a million steps",
    unit: "ms",
    value: median(times),
    samples: times,
    check: "the loss is drawn",
  };
}

const suite: Suite = {
  defaults: { rounds: "5", seconds: "4" },
  async run(context: Context) {
    const { chromium: playwright } = await import("playwright-core");
    const runs = mkdtempSync(join(tmpdir(), "weft-ui-bench-"));
    // Chromium and the command are this process's descendants, and so no neighbors.
    const rounds = context.quick ? 1 : context.number("rounds");
    const { record, save, path } = context.open("ui", { rows: [] as UiRow[] }, { settings: { rounds } });
    const witness = new MachineWitness();
    const browser = await playwright.launch({ executablePath: chromium, args: ["--no-sandbox"] });
    const add = (row: UiRow): void => {
      record.rows.push(row);
      context.log(`${row.id}: ${row.value.toPrecision(4)} ${row.unit} (${row.check})`);
      save();
    };
    try {
      for (let i = 0; i < 200; i++) writeRun(runs, `run-${i}`, 50, "ok");
      for (const row of await firstPicture(browser, runs, rounds)) add(row);
      writeRun(runs, "million", context.quick ? 50_000 : 1_000_000, "ok");
      const folder = writeRun(runs, "live", 2000, "running");
      const { child, url } = await startUi(runs);
      try {
        const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
        add(await streaming(page, folder, url, context.quick ? 1 : context.number("seconds")));
        await page.close();
        add(await million(browser, url, 1));
      } finally {
        child.kill("SIGTERM");
      }
    } finally {
      await browser.close();
      rmSync(runs, { recursive: true, force: true });
    }
    // Times beside busy neighbors are not those of the app; processor time and bytes are.
    record.settings.disturbance = witness.report().disturbance;
    save();
    if (path !== null) context.log(`wrote ${path}`);
  },
};

export default suite;
