import assert from "node:assert/strict";
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { h200 } from "@weft/core/internal/cost";
import { inScope } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { chooseSharding } from "./choose.js";
import { rulesFromEnvironment } from "./rules.js";

const folder = mkdtempSync(join(tmpdir(), "weft-rules-"));
afterEach(() => {
  delete process.env.WEFT_SHARD_RULES;
});
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

function use(text: string, at = 1): void {
  const file = join(folder, "rules.yaml");
  writeFileSync(file, text);
  utimesSync(file, at, at);
  process.env.WEFT_SHARD_RULES = file;
}

test("rules of a YAML file decide how a named part is split, even a small one", () => {
  const x = build.input([8, 6], "float32");
  const y = inScope({ name: "encoder.0", backward: false }, () => build.unary("exp", x));
  const fn = { params: [x], outputs: [y] };
  const options = { devices: 4, rates: h200, params: [null], donated: [false], enabled: true };
  assert.equal(chooseSharding(fn, options).mesh.size, 1);
  use("scopes:\n  encoder:\n    shard: { axis: 1, mesh: wide }\n");
  const choice = chooseSharding(fn, options);
  assert.equal(String(choice.mesh), "wide=4");
  assert.deepEqual(choice.strategy?.(y), { split: { wide: 1 }, carry: [] });
});

test("a rules file is read again when it changes, and errors name it", () => {
  use("scopes: { a: { shard: { axis: 0 } } }", 10);
  assert.equal(rulesFromEnvironment().size, 1);
  use("scopes: { a: { shard: { axis: 0 } }, b: { shard: { axis: 0 } } }", 20);
  assert.equal(rulesFromEnvironment().size, 2);
  use("scopes: [", 30);
  assert.throws(rulesFromEnvironment, /rules.yaml is not YAML/);
  use("scopes: { a: { axis: 0 } }", 40);
  assert.throws(rulesFromEnvironment, /scope a: "axis" is not one of/);
  process.env.WEFT_SHARD_RULES = join(folder, "nothing.yaml");
  assert.throws(rulesFromEnvironment, /nothing.yaml cannot be read/);
});
