// `npm run docs` writes the documentation site into site/. With `--check` it then checks the links of the site, the number
// of undocumented names, and the site in a browser. TypeDoc and the TypeScript it needs are packages of this folder alone
// and are installed on first use (docs/decisions.md).
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { root, setup, sh } from "../setup.mjs";
import { checkSite } from "./check.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const site = join(root, "site");

function fail(message) {
  console.error(`weft docs: ${message}`);
  process.exit(1);
}

function installTypeDoc() {
  const marker = join(here, "node_modules/.package-lock.json");
  const lock = join(here, "package-lock.json");
  if (existsSync(marker) && statSync(marker).mtimeMs >= statSync(lock).mtimeMs - 1000) return;
  console.log("weft docs: installing TypeDoc ...");
  if (sh("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: here }) !== 0)
    fail("TypeDoc could not be installed; `npm ci` in scripts/docs says why");
}

const unknown = process.argv.slice(2).filter((argument) => argument !== "--check");
if (unknown.length > 0) fail(`unknown argument ${unknown[0]}; the only argument is --check`);
const check = process.argv.includes("--check");
setup();
installTypeDoc();
// The visit with a browser uses the compiled lab.
if (check && sh(process.execPath, [join(root, "scripts/build.mjs")]) !== 0) fail("the build failed");
const work = mkdtempSync(join(tmpdir(), "weft-docs-"));
const started = performance.now();
const steps = check ? 2 : 1;
const say = (step, what) =>
  console.log(`weft docs: ${step} of ${steps}: ${what} (${Math.round((performance.now() - started) / 1000)} s so far)`);
try {
  say(1, "reading the sources, writing the reference and the pages");
  if (sh(process.execPath, [join(here, "generate.mjs"), site, work]) !== 0) fail("TypeDoc failed");
  console.log("weft docs: open site/index.html");
  if (check) {
    say(2, "checking links, names and the site in a browser");
    const undocumented = JSON.parse(readFileSync(join(work, "undocumented.json"), "utf8"));
    const problems = await checkSite(site, undocumented);
    if (problems.length > 0) fail(`${problems.length} problems:\n${problems.join("\n")}`);
  }
} finally {
  rmSync(work, { recursive: true });
}
