// Documents that say what the code does, kept true: the README's example runs, the generated pages are up to date.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const compiler = join(root, "node_modules/typescript/bin/tsc");
const needsRepository =
  existsSync(join(root, "README.md")) && existsSync(compiler) ? {} : { skip: "no repository here" };

const run = (args: string[]) => spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });

test("the README's example compiles strictly, runs and learns", needsRepository, () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1]);
  assert.equal(blocks.length, 1);
  // Inside the repository, so that "weft" is found.
  mkdirSync(join(root, "runs"), { recursive: true });
  const folder = mkdtempSync(join(root, "runs/readme-"));
  try {
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }\n');
    writeFileSync(join(folder, "example.ts"), blocks[0]);
    const options = { rootDir: ".", noEmit: false, composite: false, declaration: false };
    const config = { extends: join(root, "tsconfig.base.json"), compilerOptions: options, files: ["example.ts"] };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const built = run([compiler, "-p", folder]);
    assert.equal(built.status, 0, built.stdout);
    const done = run([join(folder, "example.js")]);
    assert.equal(done.status, 0, done.stderr);
    const said = /^loss ([\d.]+), accuracy ([\d.]+)$/m.exec(done.stdout);
    assert.ok(said !== null, done.stdout);
    assert.ok(Number(said[1]) < 0.12, `loss ${said[1]}`);
    assert.ok(Number(said[2]) > 0.95, `accuracy ${said[2]}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("links of the README lead somewhere", needsRepository, () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const targets = [...readme.matchAll(/\]\(([^)#]+)\)/g)].map((match) => match[1]).filter((t) => !t.includes("://"));
  assert.ok(targets.length > 8);
  assert.deepEqual(
    targets.filter((target) => !existsSync(join(root, target))),
    [],
  );
});

test("docs/ops.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "scripts/ops-doc.mjs"), "--check"]);
  assert.equal(status, 0, stderr);
});

test("docs/performance.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "packages/bench/dist/suites/main.js"), "report", "--check"]);
  assert.equal(status, 0, stderr);
});
