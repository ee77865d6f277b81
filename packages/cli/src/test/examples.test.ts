// The programs of examples/ run at small sizes, verify their results and write their pictures; their pages show these pictures.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core/internal/device";
import { Hosts, noHosts } from "@weft/testing/hosts";
import { testPython } from "@weft/testing/python";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const examples = join(root, "examples");
const main = fileURLToPath(new URL("../main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-examples-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const names = [
  "shard-product",
  "profile-chain",
  "grape",
  "meta-learning",
  "ddp-study",
  "own-data",
  "trace",
  "slurm",
  "two-hosts",
  "benchmark",
];
const here = existsSync(examples);
const skip = here ? (CpuDevice.available() ? false : "no C compiler") : "no repository here";

/** Pictures that the page of an example shows. */
const shown = (name: string): string[] =>
  [...readFileSync(join(examples, name, "README.md"), "utf8").matchAll(/!\[[^\]]+\]\(([^)]+)\)/g)].map((m) => m[1]);

/** Runs an example; checks that it verified its results and wrote the pictures of its page. */
function run(name: string, env: Record<string, string> = {}): void {
  const out = join(folder, name);
  const done = spawnSync(process.execPath, [join(examples, name, "program.mjs"), "--small", "--out", out], {
    cwd: root,
    encoding: "utf8",
    timeout: 280_000,
    env: { ...process.env, WEFT_RATES: "assumed", ...env },
  });
  assert.equal(done.status, 0, done.stderr);
  const skipped = /^SKIPPED: .*$/m.exec(done.stdout);
  if (skipped !== null) {
    process.stderr.write(`\nweft: ${name}: ${skipped[0]}\n`);
    return;
  }
  assert.match(done.stdout, /^verified: /m);
  for (const line of done.stdout.matchAll(/^picture: (.+)$/gm)) {
    const svg = readFileSync(join(root, line[1]), "utf8");
    assert.match(svg, /^<svg [\s\S]*<\/svg>\s*$/);
    assert.doesNotMatch(svg, /NaN|undefined|Infinity/);
  }
}

test("every example has a page with its pictures", { skip: here ? false : "no repository here" }, () => {
  const found = readdirSync(examples, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && existsSync(join(examples, entry.name, "program.mjs")))
    .map((entry) => entry.name);
  assert.deepEqual(found.sort(), [...names].sort());
  for (const name of names) {
    const pictures = shown(name);
    assert.ok(pictures.length > 0, `${name}/README.md shows no picture`);
    for (const picture of pictures) assert.ok(existsSync(join(examples, name, picture)), `${name}/${picture}`);
  }
});

test("the examples type-check", { skip: here ? false : "no repository here" }, () => {
  const done = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", examples], {
    encoding: "utf8",
  });
  assert.equal(done.status, 0, done.stdout);
});

for (const name of names.filter((name) => name !== "two-hosts" && name !== "ddp-study"))
  test(`the example ${name} runs`, { skip }, () => run(name));

const torch = testPython("torch", "the example ddp-study");
test("the example ddp-study runs", { skip: skip || torch.skip }, () => run("ddp-study", { PYTHON: torch.python }));

test("the example two-hosts runs on two hosts", { skip: skip || noHosts, timeout: 180_000 }, async () => {
  const hosts = new Hosts(2);
  try {
    const secrets = { WEFT_TOKEN: "the token of the clients", WEFT_WORKER_TOKEN: "the token of the workers" };
    const address = await hosts.serve([process.execPath, main], secrets);
    run("two-hosts", { ...hosts.environment, ...secrets, WEFT_CONNECT: address });
  } finally {
    hosts.remove();
  }
});
