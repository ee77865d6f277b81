// The examples of docs/meta.md run, and its settings are valid.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseControlFile } from "../control/index.js";
import { metaConfig, parseMetaFile } from "./index.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const page = join(root, "docs/meta.md");
const needsRepository = existsSync(page) ? {} : { skip: "no repository here" };
const blocks = (language: string): string[] =>
  [...readFileSync(page, "utf8").matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map((m) => m[1]!);

test("the example of docs/meta.md runs", needsRepository, () => {
  mkdirSync(join(root, "runs"), { recursive: true });
  const folder = mkdtempSync(join(root, "runs/meta-docs-"));
  try {
    writeFileSync(join(folder, "example.mjs"), blocks("ts").join("\n"));
    const done = spawnSync(process.execPath, [join(folder, "example.mjs")], {
      cwd: root,
      encoding: "utf8",
      env: { ...process.env, WEFT_THREADS: "1" },
    });
    assert.equal(done.status, 0, done.stderr);
    const [, infidelities] = /^GRAPE (.*)$/m.exec(done.stdout)!;
    assert.ok(
      infidelities!.split(" ").every((x) => Number(x) < 0.08),
      infidelities,
    );
    assert.match(done.stdout, /^fidelity true$/m);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the settings of docs/meta.md are valid, and those shown are the defaults", needsRepository, () => {
  const [pulse, integration, whole] = blocks("yaml");
  assert.deepEqual(parseControlFile(pulse!).objective, { cvar: 0.1 });
  const defaults = metaConfig();
  const shown = parseMetaFile(whole!, "docs/meta.md");
  const { tasks: _, problem: __, policy: shownPolicy, ...rest } = shown;
  for (const [key, value] of Object.entries(rest)) {
    if (key === "integration") continue;
    assert.deepEqual(value, defaults[key as keyof typeof rest], key);
  }
  assert.equal(shownPolicy.width, 128);
  assert.deepEqual(parseMetaFile(integration!).integration, defaults.integration);
});
