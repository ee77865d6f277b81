// The settings of docs/meta.md are valid.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { markdownBlocks, needsRepository, repositoryRoot } from "@weft/testing/examples";
import { parseControlFile } from "../control/index.js";
import { metaConfig, parseMetaFile } from "./index.js";

const blocks = (language: string): string[] =>
  markdownBlocks(readFileSync(join(repositoryRoot, "docs/meta.md"), "utf8"), language);

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
