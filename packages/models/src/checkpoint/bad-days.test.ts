// Model folders that are damaged, wrong or hostile: every one is refused by an error that names the file and the problem, in
// bounded time and memory, and nothing stays allocated.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { CpuDevice, io, key, memory, ones, setDevice, tensor, useDevice, zeros } from "@weft/core";
import type { JsonObject } from "../config/index.js";
import { defineModel, loadPretrained, loadTokenizer, savePretrained } from "../index.js";
import { scratch, writeTokenizer } from "../transformers.testkit.js";

setDevice("reference");
const folder = scratch();
const good = join(folder, "good");
const sharded = join(folder, "sharded");
const config = { model_type: "gpt2", vocab_size: 300, n_embd: 8, n_layer: 2, n_head: 2, n_positions: 16 };

before(async () => {
  const model = defineModel(config, { task: "causal-lm" });
  const params = model.init(key(0));
  await savePretrained(good, model, params);
  await savePretrained(sharded, model, params, { maxShardBytes: 3000 });
});

let next = 0;
/** A copy of a folder to be damaged. */
function copy(from: string): string {
  const target = join(folder, `copy-${next++}`);
  cpSync(from, target, { recursive: true });
  return target;
}

const json = (dir: string, name: string): JsonObject => JSON.parse(readFileSync(join(dir, name), "utf8")) as JsonObject;
const write = (dir: string, name: string, value: unknown): void =>
  writeFileSync(join(dir, name), typeof value === "string" ? value : JSON.stringify(value));
const index = "model.safetensors.index.json";

async function refused(dir: string, message: RegExp, options = {}): Promise<void> {
  const held = memory().bytes;
  const start = performance.now();
  await assert.rejects(loadPretrained(dir, options), (error: Error) => {
    assert.match(error.message, message);
    return true;
  });
  assert.ok(performance.now() - start < 20_000);
  assert.ok(memory().bytes <= held, `${memory().bytes - held} bytes stay`);
}

test("truncated files", async () => {
  const cut = copy(good);
  truncateSync(join(cut, "model.safetensors"), 2000);
  await refused(cut, /model\.safetensors.*(truncated|claims)/s);
  const shard = copy(sharded);
  const name = Object.values(json(shard, index)["weight_map"] as JsonObject)[0] as string;
  const size = readFileSync(join(shard, name)).length;
  truncateSync(join(shard, name), size - 1);
  await refused(shard, new RegExp(`${name}.*(truncated|claims)`, "s"));
  const empty = copy(good);
  writeFileSync(join(empty, "model.safetensors"), "");
  await refused(empty, /is no \.safetensors file/);
});

test("an index that lies", async () => {
  const map = (dir: string): Record<string, string> => json(dir, index)["weight_map"] as Record<string, string>;
  const missing = copy(sharded);
  const files = map(missing);
  write(missing, index, { weight_map: { ...files, "transformer.more.weight": Object.values(files)[0] } });
  await refused(missing, /lacks the tensor transformer\.more\.weight, which the index places there/);
  const moved = copy(sharded);
  const names = Object.keys(files);
  const [first] = names;
  const other = Object.values(files).find((file) => file !== files[first]) as string;
  write(moved, index, { weight_map: { ...files, [first]: other } });
  await refused(
    moved,
    /holds the tensor .* which the index places in|lacks the tensor .* which the index places there/,
  );
  const silent = copy(sharded);
  write(silent, index, { weight_map: Object.fromEntries(names.slice(0, -1).map((name) => [name, files[name]])) });
  await refused(silent, /which the index does not list/);
  const absent = copy(sharded);
  write(absent, index, { weight_map: { ...files, [first]: "model-00009-of-00009.safetensors" } });
  await refused(absent, /there is no such file, but the index names it/);
  const none = copy(sharded);
  write(none, index, {});
  await refused(none, /has no weight_map/);
});

test("paths and links that lead out of the folder", async () => {
  const secret = join(folder, "secret.safetensors");
  cpSync(join(good, "model.safetensors"), secret);
  for (const path of [
    "../secret.safetensors",
    secret,
    "a/b.safetensors",
    "..",
    ".hidden.safetensors",
    "model.bin",
    7,
  ]) {
    const dir = copy(sharded);
    const files = json(dir, index)["weight_map"] as JsonObject;
    write(dir, index, { weight_map: { ...files, [Object.keys(files)[0]]: path } });
    await refused(dir, /is not the name of a \.safetensors file of this folder/);
  }
  const linked = join(folder, "linked");
  mkdirSync(linked);
  cpSync(join(good, "config.json"), join(linked, "config.json"));
  symlinkSync(secret, join(linked, "model.safetensors"));
  await refused(linked, /links to .* which is outside the folder/);
  // The layout of a download cache is allowed.
  const snapshot = join(folder, "cache/snapshots/1");
  mkdirSync(snapshot, { recursive: true });
  mkdirSync(join(folder, "cache/blobs"));
  for (const name of ["config.json", "model.safetensors"]) {
    cpSync(join(good, name), join(folder, "cache/blobs", name));
    symlinkSync(`../../blobs/${name}`, join(snapshot, name));
  }
  assert.equal((await loadPretrained(snapshot)).type, "gpt2");
  const pipe = join(folder, "pipe");
  mkdirSync(pipe);
  cpSync(join(good, "config.json"), join(pipe, "config.json"));
  execFileSync("mkfifo", [join(pipe, "model.safetensors")]);
  await refused(pipe, /is not a regular file/);
  const loop = join(folder, "loop");
  mkdirSync(loop);
  symlinkSync("config.json", join(loop, "config.json"));
  await refused(loop, /config\.json: cannot be read/);
});

test("tensors of the wrong shape or dtype, too many and too few", async () => {
  const all = (await io.load(join(good, "model.safetensors"))) as Record<string, ReturnType<typeof ones>>;
  const broken = async (tensors: typeof all, message: RegExp): Promise<void> => {
    const dir = copy(good);
    await io.save(join(dir, "model.safetensors"), tensors);
    await refused(dir, message);
  };
  const name = "transformer.wpe.weight";
  await broken({ ...all, [name]: ones([8, 16]) }, /wpe\.weight has shape \[8, 16\]; the configuration gives \[16, 8\]/);
  await broken({ ...all, [name]: zeros([16, 8], { dtype: "int32" }) }, /is int32; parameters are float32/);
  await broken({ ...all, "transformer.h.0.new.weight": ones([2]) }, /is not a parameter of gpt2/);
  const { [name]: _, ...fewer } = all;
  await broken(fewer, /lacks 1 parameters of gpt2: transformer\.wpe\.weight/);
  await broken({ ...all, "wpe.weight": ones([16, 8]) }, /are both the parameter transformer\.wpe\.weight/);
  // A tensor in two shards.
  const twice = copy(sharded);
  const files = json(twice, index)["weight_map"] as Record<string, string>;
  const [shard, another] = [...new Set(Object.values(files))];
  const extra = (await io.load(join(twice, another))) as typeof all;
  const [copied] = Object.keys(files).filter((n) => files[n] === shard);
  await io.save(join(twice, another), { ...extra, [copied]: all[copied] });
  await refused(twice, /which the index places in|is in .* and in/);
});

test("headers and JSON files that are bombs", async () => {
  const huge = copy(good);
  const bytes = readFileSync(join(huge, "model.safetensors"));
  bytes.writeBigUInt64LE(2n ** 62n, 0);
  writeFileSync(join(huge, "model.safetensors"), bytes);
  await refused(huge, /header claims/);
  const wide = copy(good);
  const header = JSON.stringify({
    "transformer.wte.weight": { dtype: "F32", shape: [2 ** 40, 2 ** 40], data_offsets: [0, 4] },
  });
  const start = Buffer.alloc(8);
  start.writeBigUInt64LE(BigInt(header.length));
  writeFileSync(join(wide, "model.safetensors"), Buffer.concat([start, Buffer.from(header), Buffer.alloc(4)]));
  await refused(wide, /takes .* bytes and has 4/);
  for (const [text, message] of [
    ["[".repeat(100_000), /nested more than 64 levels/],
    [`{"a":${"[".repeat(500)}${"]".repeat(500)}}`, /nested more than 64 levels/],
    ["[1, 2]", /is not a JSON object/],
    ["{", /is not JSON/],
    [`{"model_type": "gpt2", "model_type": "bert"}`, /has the key "model_type" twice/],
    [JSON.stringify({ ...config, padding: "x".repeat(2 ** 21) }), /at most 1048576 are read/],
  ] as const) {
    const dir = copy(good);
    write(dir, "config.json", text);
    await refused(dir, message);
  }
});

test("configurations with impossible or unsupported values say which", async () => {
  for (const [change, message] of [
    [{ n_layer: 1e15 }, /n_layer is 1000000000000000; it must be a number from 1 to 4096/],
    [{ n_embd: -8 }, /n_embd is -8/],
    [{ n_embd: 8.5 }, /n_embd is 8\.5; it must be a whole number/],
    [{ n_embd: "8" }, /n_embd is "8"/],
    [{ n_head: 3 }, /n_head is 3, which does not divide n_embd 8/],
    [{ layer_norm_epsilon: null, n_positions: {} }, /n_positions is \{\}/],
    [{ activation_function: "mish" }, /activation_function is "mish", which is not supported; supported: gelu/],
    [{ scale_attn_by_inverse_layer_idx: 1 }, /scale_attn_by_inverse_layer_idx is 1; it must be true or false/],
    [{ quantization_config: { bits: 4 } }, /quantization_config is .* which is not supported; load the weights before/],
    [{ model_type: "mamba" }, /model_type is "mamba", which is not known; known: bert/],
    [{ model_type: undefined }, /model_type is missing/],
    [{ architectures: ["A", "B"] }, /architectures must be a list of one class/],
    [{ id2label: [1] }, /id2label/],
  ] as const) {
    const dir = copy(good);
    write(dir, "config.json", { ...json(dir, "config.json"), ...change });
    await refused(dir, message);
  }
  const llama = {
    model_type: "llama",
    vocab_size: 10,
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 8,
  };
  for (const [change, message] of [
    [
      { rope_scaling: { rope_type: "longrope", factor: 2 } },
      /rope_scaling: rope_type is "longrope", which is not supported; supported: default/,
    ],
    [{ rope_parameters: { rope_type: "yarn" } }, /rope_parameters: factor is missing/],
    [{ num_key_value_heads: 3 }, /num_key_value_heads is 3, which does not divide/],
    [{ head_dim: 3 }, /head_dim is 3; rotary positions need an even number/],
  ] as const)
    assert.throws(() => defineModel({ ...llama, ...change }), message);
  assert.throws(
    () => defineModel(config, { task: "masked-lm" }),
    /gpt2 has no head for the task "masked-lm"; it has base, causal-lm/,
  );
  await refused(good, /task is "sing"/, { task: "sing" });
  await refused(good, /dtype is auto, float32/, { dtype: "int4" });
  await refused(join(folder, "nowhere"), /has no config\.json/);
});

test("a tokenizer that does not belong to the model", async () => {
  const dir = copy(good);
  writeTokenizer(dir);
  await assert.rejects(loadTokenizer(dir, 100), /ids up to 261, its model has 100 \(vocab_size\)/);
  write(dir, "tokenizer.json", { model: 3 });
  await assert.rejects(loadTokenizer(dir), /is not a tokenizer/);
  await assert.rejects(loadTokenizer(good), /has no tokenizer\.json/);
});

test("sequences and inputs that a model cannot take", () => {
  const model = defineModel(config, { task: "causal-lm" });
  const params = model.init(key(1));
  const ids = (n: number) => tensor([new Array<number>(n).fill(1)], { dtype: "int32" });
  assert.throws(() => model.apply(params, { inputIds: ids(17) }), /17 tokens; the model has 16 positions/);
  assert.throws(() => model.apply(params, {}), /inputIds are \[batch, length\], got none/);
  assert.throws(() => model.loss(params, { inputIds: ids(3) }), /the batch has no labels/);
  assert.throws(
    () => defineModel(config, { task: "base" }).loss(params, { inputIds: ids(3), labels: ids(3) }),
    /task "base" has no head/,
  );
});

test("out of memory while loading says what would fit", { skip: !CpuDevice.available() }, async () => {
  const model = defineModel({ ...config, vocab_size: 40_000, n_embd: 64, n_positions: 64 }, { task: "causal-lm" });
  const dir = join(folder, "large");
  await savePretrained(dir, model, model.init(key(0)));
  process.env["WEFT_CPU_MEMORY"] = "6000000";
  try {
    useDevice(new CpuDevice({ threads: 1 }));
    await assert.rejects(
      loadPretrained(dir),
      /out of memory while loading: \d+ parameters in float32 take 0\.0107 GB.*What would fit: dtype: "bfloat16" takes .* sharding over \d+ such devices/s,
    );
  } finally {
    delete process.env["WEFT_CPU_MEMORY"];
    setDevice("reference");
  }
});
