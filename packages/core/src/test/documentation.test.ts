// Documentation of all packages: links between pages lead somewhere, names without TSDoc become fewer, decisions have
// unique numbers. `npm run docs -- --check` checks the generated site.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { needsRepository, repositoryRoot, undocumentedExports } from "../testing/examples.js";

/** Names without TSDoc that public entries may export. The number may only go down: lower it when it does. */
const undocumentedLimit = 0;

const run = (...args: string[]) => spawnSync(process.execPath, args, { cwd: repositoryRoot, encoding: "utf8" });

test("links and anchors in Markdown pages lead somewhere", needsRepository, () => {
  const { status, stderr } = run("scripts/docs/markdown.mjs");
  assert.equal(status, 0, stderr);
});

test("no more public names than before lack TSDoc", needsRepository, async () => {
  const { entries } = (await import(join(repositoryRoot, "scripts/docs/entries.mjs"))) as {
    entries: { name: string; source: string }[];
  };
  assert.ok(entries.length >= 10);
  const missing = [...new Set(entries.flatMap(({ source }) => undocumentedExports(source)))];
  console.log(`${missing.length} public names have no TSDoc:\n${missing.join("\n")}`);
  assert.ok(missing.length <= undocumentedLimit, `${missing.length} names, limit ${undocumentedLimit}`);
  assert.equal(missing.length, undocumentedLimit, "fewer names lack TSDoc than before: lower undocumentedLimit");
});

test("the sources of the API reference compile as its generator reads them", needsRepository, () => {
  const { status, stdout } = run("node_modules/typescript/bin/tsc", "-p", "scripts/docs/tsconfig.json");
  assert.equal(status, 0, stdout);
});

const hasGit = spawnSync("git", ["--version"]).status === 0;
const needsGit = hasGit ? needsRepository : { skip: "no git" };

test("the site is published as one commit on a branch, without touching the index", needsGit, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-publish-"));
  try {
    const [repository, site] = ["repository", "site"].map((name) => join(folder, name));
    for (const path of [repository, join(site, "assets")]) mkdirSync(path, { recursive: true });
    writeFileSync(join(site, "index.html"), "<h1>Weft</h1>");
    writeFileSync(join(site, "assets/_style.css"), "");
    const git = (...args: string[]) => {
      const author = ["-c", "user.name=a", "-c", "user.email=a@b"];
      return spawnSync("git", [...author, ...args], { cwd: repository, encoding: "utf8" }).stdout;
    };
    git("init", "-q");
    git("commit", "-q", "--allow-empty", "-m", "first");
    const publish = () => run("scripts/docs/publish.mjs", "--site", site, "--repository", repository);
    for (let time = 0; time < 2; time++) assert.equal(publish().status, 0, publish().stderr);
    assert.equal(git("ls-tree", "-r", "--name-only", "gh-pages"), ".nojekyll\nassets/_style.css\nindex.html\n");
    assert.equal(git("rev-list", "--count", "gh-pages"), "1\n");
    assert.equal(git("status", "--porcelain"), "");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("each decision has its own number and an entry in the contents", needsRepository, () => {
  const page = readFileSync(join(repositoryRoot, "docs/decisions.md"), "utf8");
  const records = [...page.matchAll(/^### (\d+)\. (.+)$/gm)].map(([, number, title]) => `${number}. ${title}`);
  const contents = [...page.matchAll(/^- \[(\d+\. .+)\]\(#/gm)].map((match) => match[1]);
  assert.ok(records.length > 90);
  assert.deepEqual([...contents].sort(), [...records].sort());
  assert.equal(new Set(records.map((record) => record.split(".")[0])).size, records.length);
});
