// `npm run docs:publish` puts the documentation site onto the branch gh-pages of this repository, as one commit without
// history, and pushes nothing unless a remote is named: `npm run docs:publish -- origin`. The site is built and checked first.
// For tests: --site DIR takes a site that exists, --repository DIR another repository.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { root, sh } from "../setup.mjs";

const branch = "gh-pages";
const { values, positionals } = parseArgs({
  options: { site: { type: "string" }, repository: { type: "string", default: root } },
  allowPositionals: true,
});

function fail(message) {
  console.error(`weft docs: ${message}`);
  process.exit(1);
}
if (positionals.length > 1) fail(`one remote at most, got ${positionals.join(", ")}`);

const site = resolve(values.site ?? join(root, "site"));
if (values.site === undefined && sh(process.execPath, [join(root, "scripts/docs/build.mjs"), "--check"]) !== 0)
  fail("the site has problems and was not published");
if (!existsSync(join(site, "index.html"))) fail(`${site} has no index.html`);

const work = mkdtempSync(join(tmpdir(), "weft-publish-"));
/** Runs git with an index of its own, so that the user's is not touched; returns what it printed. */
function git(...args) {
  const env = {
    ...process.env,
    GIT_INDEX_FILE: join(work, "index"),
    GIT_AUTHOR_NAME: "Weft documentation",
    GIT_AUTHOR_EMAIL: "docs@localhost",
    GIT_COMMITTER_NAME: "Weft documentation",
    GIT_COMMITTER_EMAIL: "docs@localhost",
  };
  const done = spawnSync("git", args, { cwd: values.repository, encoding: "utf8", env });
  if (done.status !== 0) fail(`git ${args[0]}: ${done.stderr}`);
  return done.stdout.trim();
}
try {
  // Hosts of static pages otherwise leave out files whose names begin with an underscore.
  writeFileSync(join(site, ".nojekyll"), "");
  git("--work-tree", site, "add", "--all", "--force", site);
  const commit = git("commit-tree", git("write-tree"), "-m", `docs: site of ${git("rev-parse", "--short", "HEAD")}`);
  git("update-ref", `refs/heads/${branch}`, commit);
  console.log(
    `weft docs: the branch ${branch} has ${git("ls-tree", "-r", "--name-only", branch).split("\n").length} files`,
  );
  const [remote] = positionals;
  if (remote === undefined) console.log(`weft docs: publish it with git push --force REMOTE ${branch}`);
  else git("push", "--force", remote, branch);
} finally {
  rmSync(work, { recursive: true });
}
