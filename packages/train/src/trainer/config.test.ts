// Configurations: every key is validated, unknown and useless keys are rejected with a remedy, batch sizes are
// explicit.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  allKeys,
  checkConfig,
  loadAnyConfig,
  loadConfig,
  type RawConfig,
  readConfig,
  resolveConfig,
  showConfig,
} from "./config.js";
import { type ConfigParts, tinyRaw } from "./testkit.js";

const folder = mkdtempSync(join(tmpdir(), "weft-config-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const refuses = (raw: unknown, what: RegExp): void => assert.throws(() => checkConfig(raw, "x.yaml"), what);
const changed = (change: (raw: Record<string, Record<string, unknown>>) => void): unknown => {
  const raw = structuredClone(tinyRaw()) as unknown as Record<string, Record<string, unknown>>;
  change(raw);
  return raw;
};

test("aliases that multiply and brackets without end are errors of the file", () => {
  const names = [..."abcdefghi"];
  const bomb = names.map((name, i) => `${name}: &${name} [${Array(9).fill(i === 0 ? "x" : `*${names[i - 1]}`)}]`);
  for (const [text, what] of [
    [bomb.join("\n"), /is not YAML: Excessive alias count/],
    [`a: ${"[".repeat(20_000)}${"]".repeat(20_000)}`, /brackets inside each other/],
  ] as const) {
    const file = join(folder, "bomb.yaml");
    writeFileSync(file, text);
    assert.throws(() => loadConfig(file), what);
  }
});

test("an unknown key is an error that suggests the right name", () => {
  refuses(
    changed((c) => {
      c.model.d_modle = 3;
    }),
    /model\.d_modle is not known; did you mean model\.d_model\?/,
  );
  refuses(
    changed((c) => {
      c.training.batch_size = 3;
    }),
    /training\.batch_size is not known; it is called training\.global_batch/,
  );
  refuses(
    changed((c) => {
      c.data.num_workers = 2;
    }),
    /it is called data\.loaders/,
  );
  // In the wrong section.
  refuses(
    changed((c) => {
      c.training.warmup_steps = 2;
    }),
    /training\.warmup_steps is not known; it is called optimizer\.warmup_steps/,
  );
  refuses(
    changed((c) => {
      c.zzz = {};
    }),
    /x\.yaml: zzz is not known; known keys: name, output, seed, device, training/,
  );
});

test("a key without effect is an error", () => {
  const useless: [string, ConfigParts | Record<string, unknown>][] = [
    ["optimizer.betas", { optimizer: { type: "sgd", betas: [0.9, 0.99] } }],
    ["optimizer.momentum", { optimizer: { momentum: 0.9 } }],
    ["optimizer.min_ratio", { optimizer: { min_ratio: 0.1 } }],
    ["precision.loss_scale", { precision: { compute: "bfloat16", loss_scale: 128 } }],
    ["data.prefetch", { data: { loaders: 0, prefetch: 4 } }],
    ["data.path", { data: { path: "x" } }],
    ["data.test_limit", { training: { evaluate: false } }],
  ];
  for (const [key, parts] of useless)
    assert.throws(
      () => tinyRaw(parts as ConfigParts),
      new RegExp(`${key.replace(".", "\\.")} would have no effect: it needs`),
      key,
    );
});

test("errors of missing, wrong and impossible values name the key", () => {
  refuses([], /a configuration is a map/);
  refuses(
    changed((c) => {
      delete c.model.d_model;
    }),
    /model\.d_model is missing/,
  );
  refuses(
    changed((c) => {
      c.model.n_heads = 2.5;
    }),
    /model\.n_heads is 2\.5/,
  );
  refuses(
    changed((c) => {
      c.data.dataset = "mnist";
    }),
    /data\.dataset is "mnist".*ag_news/,
  );
  const resolve = (parts: ConfigParts): unknown => resolveConfig(tinyRaw(parts));
  assert.throws(() => resolve({ model: { n_heads: 3 } }), /d_model 16 is not a multiple of model\.n_heads 3/);
  assert.throws(
    () => resolve({ data: { length_buckets: [16, 8, 32] } }),
    /must rise and end with model\.max_seq_len 32/,
  );
  assert.throws(() => resolve({ training: { global_batch: undefined } }), /batch_per_rank .* or global_batch/);
  assert.throws(
    () => resolve({ training: { batch_per_rank: 7 } }),
    /makes 20 per rank, but training\.batch_per_rank says 7/,
  );
  assert.throws(() => resolve({ training: { global_batch: 3, accumulation: 4 } }), /less than 1 ranks x 4 micro-steps/);
  assert.throws(
    () => resolve({ distributed: { devices: 3, memory: ["1GB", "2GB"] } } as ConfigParts),
    /distributed\.memory has 2 sizes for 3 ranks; give one for all, or one for each/,
  );
});

test("the global batch is fixed or grows with the ranks, as configured", () => {
  const at = (training: Partial<RawConfig["training"]>, devices: number): number[] => {
    const c = resolveConfig(tinyRaw({ training: { global_batch: undefined, ...training } }), { devices });
    return [c.globalBatch, c.batchPerRank];
  };
  assert.deepEqual(at({ batch_per_rank: 8 }, 1), [8, 8]);
  assert.deepEqual(at({ batch_per_rank: 8, accumulation: 3 }, 2), [48, 8]);
  assert.deepEqual(at({ global_batch: 24 }, 2), [24, 12]);
  assert.deepEqual(at({ global_batch: 25 }, 3), [25, 9]);
});

test("a file: duplicate keys are rejected, paths are relative to it, and the printed configuration can be read again", () => {
  const file = join(folder, "a.yaml");
  writeFileSync(file, "name: a\nname: b\n");
  assert.throws(() => readConfig(file), /a\.yaml.*unique/);
  writeFileSync(file, showConfig({ ...tinyRaw(), data: { ...tinyRaw().data, dataset: "imdb", path: "reviews" } }));
  const config = loadConfig(file);
  assert.equal(config.data.path, join(folder, "reviews"));
  assert.deepEqual(checkConfig(JSON.parse(JSON.stringify(readConfig(file).raw)), "again"), readConfig(file).raw);
});

test("without evaluation nothing is held out, and the printed configuration can be read again", () => {
  const silent = changed((raw) => {
    raw.training.evaluate = false;
    delete raw.data.test_limit;
    delete raw.data.validation;
  });
  for (const given of [
    resolveConfig(tinyRaw({ data: { validation: 0.2 } }), { evaluate: false }),
    resolveConfig(checkConfig(silent, "silent")),
  ]) {
    assert.deepEqual([given.training.evaluate, given.data.validation, given.data.test_limit], [false, 0, undefined]);
    writeFileSync(join(folder, "shown.yaml"), showConfig(given));
    assert.deepEqual(loadConfig(join(folder, "shown.yaml")).data, given.data);
  }
});

test("every shipped configuration is valid", () => {
  const home = fileURLToPath(new URL("../../../../configs", import.meta.url));
  const files = readdirSync(home).filter((name) => name.endsWith(".yaml"));
  assert.ok(files.length >= 1);
  for (const name of files) assert.equal(`${loadAnyConfig(join(home, name)).name}.yaml`, name);
});

test("docs/training.md names every key, and its figures are those of the files", () => {
  const root = fileURLToPath(new URL("../../../../", import.meta.url));
  const page = join(root, "docs/training.md");
  if (!existsSync(page)) return;
  const text = readFileSync(page, "utf8");
  assert.ok(allKeys.length > 40);
  for (const key of allKeys)
    assert.ok(text.includes(`\`${key.split(".").at(-1)}\``), `${key} is not in docs/training.md`);
  const report = [join(root, "packages/bench/dist/suites/main.js"), "report", "--check"];
  const checked = spawnSync(process.execPath, report, { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stderr);
});
