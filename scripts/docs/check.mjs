// Checks of the generated site: links and anchors of every page, the number of names without TSDoc, and a visit with a
// browser: front page, a function, the search, both color schemes, no errors in the console.
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, relative, sep } from "node:path";
import { globSync } from "../glob.mjs";
import { root } from "../setup.mjs";

const unescapeHtml = (text) =>
  text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");

/** Ids and relative link targets of a page. */
function readPage(file) {
  const ids = new Set();
  const targets = new Set();
  for (const [tag] of readFileSync(file, "utf8").matchAll(/<[a-z][^<>]*>/gi))
    for (const [, name, value] of tag.matchAll(/\s(id|name|href|src)="([^"]*)"/g)) {
      if (name === "id" || (name === "name" && /^<a\s/.test(tag))) ids.add(unescapeHtml(value));
      else if (name !== "name" && !/^(?:[a-z]+:|\/\/)/i.test(value)) targets.add(unescapeHtml(value));
    }
  return { ids, targets };
}

/** Broken relative links and anchors of all pages of a folder. */
function brokenSiteLinks(site) {
  const files = globSync(site, (path) => /\.(html|svg)$/.test(path));
  const pages = new Map(files.map((file) => [file, readPage(file)]));
  const broken = [];
  let links = 0;
  for (const [file, { targets }] of pages)
    for (const target of targets) {
      links++;
      const [path, anchor = ""] = target.split("#");
      const to = path === "" ? file : join(dirname(file), decodeURIComponent(path.split("?")[0]));
      const report = (reason) => broken.push(`${relative(site, file)}: ${target}: ${reason}`);
      if (to !== site && !to.startsWith(site + sep)) report("outside the site");
      else if (!existsSync(to) || !statSync(to).isFile()) report("no such file");
      else if (anchor !== "" && !pages.get(to)?.ids.has(decodeURIComponent(anchor))) report("no such anchor");
    }
  console.log(`weft docs: checked ${links} links of ${files.length} pages`);
  return broken;
}

/** What a check leaves to look at: screenshots of the visit, the list of undocumented names. */
const results = join(root, "runs/docs");

const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};

/** Serves the site on a free port of this machine. */
async function serve(site) {
  const server = createServer((request, response) => {
    const path = join(site, decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    const file = path.endsWith(sep) ? join(path, "index.html") : path;
    const found = file.startsWith(site + sep) && existsSync(file) && statSync(file).isFile();
    response.writeHead(found ? 200 : 404, { "content-type": types[extname(file)] ?? "application/octet-stream" });
    response.end(found ? readFileSync(file) : "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** Visits the site in Chromium; returns what is wrong. */
async function visit(site) {
  const { provideChromium } = await import(join(root, "packages/testing/dist/debian.js"));
  const chromium = provideChromium();
  if ("reason" in chromium) {
    console.log(`weft docs: SKIPPED the check in a browser: ${chromium.reason}`);
    return [];
  }
  const { chromium: driver } = await import("playwright-core");
  const browser = await driver.launch({ executablePath: chromium.path, args: ["--no-sandbox"] });
  const server = await serve(site);
  const problems = [];
  const expect = (holds, message) => holds || problems.push(`browser: ${message}`);
  try {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ colorScheme, viewport: { width: 1280, height: 900 } });
      const open = (path) => page.goto(server.address + path, { waitUntil: "networkidle" });
      const picture = (name) => page.screenshot({ path: join(results, `${name}-${colorScheme}.png`) });
      page.on("pageerror", (error) => problems.push(`browser: ${page.url()}: ${error.message}`));
      page.on(
        "console",
        (message) => message.type() === "error" && problems.push(`browser: ${page.url()}: ${message.text()}`),
      );
      page.on("request", (request) => expect(request.url().startsWith(server.address), `fetches ${request.url()}`));

      await open("");
      expect(
        (await page.locator("h1").first().textContent())?.startsWith("Weft"),
        "the front page has no heading Weft",
      );
      expect(
        (await page.locator(".col-content pre code").count()) >= 2,
        "the front page shows no commands and example",
      );
      const background = await page.evaluate("getComputedStyle(document.body).backgroundColor");
      const luminance =
        background
          .match(/\d+/g)
          .slice(0, 3)
          .reduce((sum, part) => sum + Number(part), 0) / 765;
      expect(colorScheme === "light" ? luminance > 0.8 : luminance < 0.3, `${colorScheme} pages have ${background}`);
      const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
      expect(!wide, "the front page is wider than the window");
      const entries = await page.locator(".tsd-navigation a").evaluateAll((links) => links.map((link) => link.href));
      expect(entries.length > 30, `the navigation has ${entries.length} links`);
      for (const link of entries) {
        const path = decodeURIComponent(new URL(link).pathname).slice(1) || "index.html";
        expect(existsSync(join(site, path)), `the navigation leads to ${path}, which does not exist`);
      }
      await picture("front");

      await page.locator("#tsd-search-trigger").click();
      await page.locator("#tsd-search-input").pressSequentially("softmax");
      const first = page.locator('#tsd-search-results a[href*="functions/_weft_core.softmax.html"]').first();
      await first.waitFor({ timeout: 20_000 });
      await picture("search");
      await first.click();
      await page.waitForLoadState("networkidle");
      expect(/softmax\.html$/.test(page.url().split("#")[0]), `the search for softmax leads to ${page.url()}`);
      expect(
        /softmax/.test((await page.locator("h1").first().textContent()) ?? ""),
        "the page of softmax has no heading",
      );
      await picture("function");

      for (const [path, name] of [
        ["modules/_weft_core.html", "module"],
        ["documents/Decisions.html", "page"],
      ]) {
        await open(path);
        expect((await page.locator(".col-content h1, .col-content h2").count()) > 0, `${path} has no heading`);
        await picture(name);
      }
      await page.close();
    }
  } catch (error) {
    problems.push(`browser: ${error.message}`);
  } finally {
    server.close();
    await browser.close();
  }
  console.log("weft docs: visited the site in Chromium; screenshots are in runs/docs");
  return problems;
}

/** Exported names and members without TSDoc; writes their list. */
function checkDocumented(undocumented) {
  const list = join(results, "undocumented.txt");
  writeFileSync(list, `${undocumented.join("\n")}\n`);
  const found = `${undocumented.length} names and members have no TSDoc; ${relative(root, list)} lists them`;
  return undocumented.length > 0 ? [found] : [];
}

/** Everything that is wrong with a site. */
export async function checkSite(site, undocumented) {
  mkdirSync(results, { recursive: true });
  return [...brokenSiteLinks(site), ...checkDocumented(undocumented), ...(await visit(site))];
}
