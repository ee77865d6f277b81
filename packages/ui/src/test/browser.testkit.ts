// For tests: the page in a real Chromium.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { provideChromium } from "@weft/testing/debian";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

/** A Chromium; null and a loud message where there is none. */
export async function openChromium(): Promise<Browser | null> {
  const provided = provideChromium();
  if ("reason" in provided) {
    process.stderr.write(`\nweft: SKIPPED: the page is not tested in a browser: ${provided.reason}\n`);
    return null;
  }
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath: provided.path, args: ["--no-sandbox"] });
}

/** A page that fails the test on any error of its script. */
export async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => {
    throw new Error(`the page failed: ${error.message}`);
  });
  await page.goto(url);
  return page;
}

/** Goes to an address within the page. */
export const goTo = (page: Page, address: string): Promise<void> =>
  page.evaluate(`location.hash = ${JSON.stringify(address)}`);

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Accessibility problems of the page as axe finds them, one line each. */
export async function axeProblems(page: Page): Promise<string[]> {
  // The policy of the page forbids inline scripts; evaluate is not bound by it.
  await page.evaluate(axe);
  const { violations } = (await page.evaluate("axe.run()")) as {
    violations: { id: string; help: string; nodes: { html: string }[] }[];
  };
  return violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`,
  );
}
