// weft generate: text on standard output, times on standard error, clear errors, an end by Ctrl-C.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { key, setDevice } from "@weft/core";
import { defineModel, savePretrained } from "@weft/models";

const weft = fileURLToPath(new URL("../main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-generate-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) =>
  spawnSync(process.execPath, [weft, "generate", ...args], { encoding: "utf8", timeout: 120_000, input: "" });
const onReference = ["--device", "reference"];

before(async () => {
  setDevice("reference");
  const config = { vocab_size: 20, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 4096, initializer_range: 0.5 };
  const model = defineModel({ model_type: "gpt2", ...config }, { task: "causal-lm" });
  await savePretrained(folder, model, model.init(key(0)));
  const vocab = Object.fromEntries(Array.from("abcdefghijklmnopqrst", (letter, id) => [letter, id]));
  writeFileSync(
    join(folder, "tokenizer.json"),
    JSON.stringify({
      version: "1.0",
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      model: { type: "BPE", vocab, merges: [] },
      decoder: { type: "Fuse" },
    }),
  );
});

test("prints the text, and the speed to standard error", () => {
  const { stdout, stderr, status } = run(folder, "abc", "--tokens", "8", ...onReference);
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^[a-t]{8}\n$/);
  assert.match(stderr, /8 tokens; loaded in .* first token after .* tokens\/s/);
  const json = JSON.parse(run(folder, "abc", "--tokens", "8", "--json", ...onReference).stdout) as { text: string };
  assert.equal(`${json.text}\n`, stdout);
});

test("wrong usage is an error with a remedy", () => {
  for (const [args, message] of [
    [["/nowhere", "x"], /nowhere is not a folder; download a model/],
    [[folder], /prompt is empty/],
    [[folder, "a", "--dtype", "int4"], /--dtype int4/],
    [[folder, "a", "--top-k", "3", ...onReference], /temperature/],
  ] as const) {
    const { stderr, status } = run(...args);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /\n\s+at /);
  }
});

test("Ctrl-C ends the text and the command", async () => {
  const child = spawn(process.execPath, [weft, "generate", folder, "abc", "--tokens", "4000", ...onReference]);
  let errors = "";
  child.stderr.on("data", (chunk) => (errors += String(chunk)));
  child.stdout.once("data", () => child.kill("SIGINT"));
  const code = await new Promise((resolve) => child.on("exit", resolve));
  assert.equal(code, 0, errors);
  assert.match(errors, /interrupted/);
});
