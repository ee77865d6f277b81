// Fine-tuning: low-rank updates against merged weights, frozen parts and rates against closed forms, packed sequences against
// separate ones, rematerialization against stored values, and a task made from a file.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { grad, io, jit, key, setDevice, type Tensor, tensor, treeLeaves, valueAndGrad } from "@weft/core";
import { stateDict } from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import {
  defineModel,
  fineTuning,
  layerDecay,
  loraOf,
  maskTokens,
  type Params,
  packSequences,
  readTexts,
  savePretrained,
  splitParams,
  storedAsInFiles,
  storedByHead,
  withRates,
} from "../index.js";
import { byteVocabulary, integers, scratch, writeTokenizer } from "../transformers.testkit.js";

setDevice("reference");
const folder = scratch();
const sizes = { vocab_size: 50, num_labels: 3 };
const gpt2 = {
  model_type: "gpt2",
  n_embd: 16,
  n_layer: 2,
  n_head: 2,
  n_positions: 32,
  initializer_range: 0.2,
  ...sizes,
};
const wide = {
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  intermediate_size: 24,
  max_position_embeddings: 32,
  initializer_range: 0.2,
  ...sizes,
};
const configs = { gpt2, llama: { model_type: "llama", ...wide }, bert: { model_type: "bert", ...wide } };
const inputIds = tensor(integers(2, 6, 0, 50, 1), { dtype: "int32" });
const labels = inputIds;

async function close(a: Tensor, b: Tensor, bound: number, what = ""): Promise<void> {
  const [x, y] = [await a.data(), await b.data()];
  assert.equal(x.length, y.length);
  for (let i = 0; i < x.length; i++)
    assert.ok(Math.abs(Number(x[i]) - Number(y[i])) <= bound, `${what} ${i}: ${x[i]} and ${y[i]}`);
}

for (const kind of ["gpt2", "llama", "bert"] as const)
  test(`LoRA on ${kind}: beside the weights equals merged into them, and can be taken out again`, async () => {
    const model = defineModel(configs[kind], { task: kind === "bert" ? "classification" : "causal-lm" });
    const params = model.init(key(1));
    const lora = loraOf(model, { rank: 2, alpha: 3 });
    const fresh = lora.init(key(2));
    const logits = (p: Params): Tensor => model.apply(p, { inputIds }).logits as Tensor;
    await close(logits(lora.combine(params, fresh)), logits(params), 0);
    const drawn = Object.fromEntries(
      Object.entries(fresh).map(([name, { lora_A, lora_B }]) => [name, { lora_A, lora_B: lora_B.add(0.1) }]),
    );
    const merged = lora.merge(params, drawn);
    await close(logits(lora.combine(params, drawn)), logits(merged), 2e-5);
    assert.notDeepEqual(await logits(merged).data(), await logits(params).data());
    const before = stateDict(params);
    for (const [name, tensor] of Object.entries(stateDict(lora.unmerge(merged, drawn))))
      await close(tensor, before[name], 1e-6, name);
    // Gradients exist for adapters alone, and change the loss.
    const target = kind === "bert" ? tensor([0, 1], { dtype: "int32" }) : labels;
    const grads = grad((a: typeof drawn) => model.loss(lora.combine(params, a), { inputIds, labels: target }))(drawn);
    assert.equal(treeLeaves(grads).length, 2 * lora.layers.length);
    for (const leaf of treeLeaves(grads)) assert.ok(Number(await leaf.abs().max().item()) > 0);
    const dir = join(folder, `lora-${kind}`);
    await lora.save(dir, drawn);
    const back = await lora.load(dir);
    for (const name of lora.layers) assert.deepEqual(back[name].lora_A.rawSync(), drawn[name].lora_A.rawSync());
    await assert.rejects(
      loraOf(model, { rank: 3 }).load(dir),
      /has shape \[2, .*|has rank 2 and scale 1.5, expected 3 and 2/,
    );
    assert.throws(() => loraOf(model, { rank: 2, targets: ["nothing"] }), /no layer called nothing/);
    const table = { gpt2: "wte", llama: "embed_tokens", bert: "word_embeddings" }[kind];
    assert.throws(() => loraOf(model, { rank: 2, targets: [table] }), /is an embedding/);
  });

test("adapters of GPT-2's head have its layout, and those of other settings are refused", async () => {
  const model = defineModel(configs.gpt2, { task: "classification", labels: 3 });
  const params = model.init(key(1));
  const lora = loraOf(model, { rank: 2, targets: ["score", "c_proj"] });
  const drawn = Object.fromEntries(
    Object.entries(lora.init(key(2))).map(([name, { lora_A, lora_B }]) => [name, { lora_A, lora_B: lora_B.add(0.1) }]),
  );
  // The head is stored as [labels, hidden], the other layers as [in, out].
  assert.deepEqual(drawn["score"].lora_B.shape, [3, 2]);
  const logits = (p: Params): Tensor => model.apply(p, { inputIds }).logits as Tensor;
  await close(logits(lora.combine(params, drawn)), logits(lora.merge(params, drawn)), 2e-5);
  const dir = join(folder, "lora-head");
  await lora.save(dir, drawn);
  const path = join(dir, "adapter_config.json");
  const config = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  // Adapters with another scale are not those that the training would continue with.
  writeFileSync(path, JSON.stringify({ ...config, use_rslora: true }));
  await assert.rejects(lora.load(dir), /has rank 2 and scale 2.8.*, expected 2 and 2/);
  await lora.save(dir, drawn, { "score.weight": stateDict(params)["score.weight"] });
  await assert.rejects(lora.load(dir), /score.weight, which is not one of the adapted layers/);
  await lora.save(dir, drawn);
  writeFileSync(path, JSON.stringify({ ...config, use_rslora: false, rank_pattern: {}, modules_to_save: null }));
  assert.equal(Object.keys(await lora.load(dir)).length, lora.layers.length);
});

test("packed sequences give the losses and logits of separate ones", async () => {
  const sequences = [integers(1, 5, 1, 50, 2)[0], integers(1, 3, 1, 50, 3)[0], integers(1, 7, 1, 50, 4)[0]];
  const packed = packSequences(sequences, 10);
  assert.deepEqual(packed.inputIds.shape, [2, 10]);
  for (const kind of ["gpt2", "llama"] as const) {
    const model = defineModel(configs[kind], { task: "causal-lm" });
    const params = model.init(key(4));
    const all = model.apply(params, { ...packed }).logits as Tensor;
    const place = [
      [0, 0],
      [0, 5],
      [1, 0],
    ];
    let total = 0;
    let count = 0;
    for (const [i, sequence] of sequences.entries()) {
      const alone = {
        inputIds: tensor([sequence], { dtype: "int32" }),
        labels: tensor([sequence], { dtype: "int32" }),
      };
      const [row, start] = place[i];
      await close(
        all.index(row, `${start}:${start + sequence.length}`),
        (model.apply(params, alone).logits as Tensor).index(0),
        1e-5,
        `${kind} sequence ${i}`,
      );
      total += Number(await model.loss(params, alone).item()) * (sequence.length - 1);
      count += sequence.length - 1;
    }
    const loss = Number(await model.loss(params, { ...packed }).item());
    assert.ok(Math.abs(loss - total / count) < 1e-5, `${loss} and ${total / count}`);
  }
});

test("rematerialized layers have the gradients of stored ones, dropout included", async () => {
  for (const kind of ["gpt2", "bert"] as const) {
    const model = defineModel(configs[kind], { task: kind === "bert" ? "masked-lm" : "causal-lm" });
    const params = model.init(key(5));
    const gradsOf = (checkpoint: "none" | "all" | ((layer: number) => boolean)) =>
      stateDict(
        jit((p: Params) =>
          grad((q: Params) => model.loss(q, { inputIds, labels }, { train: true, key: key(6), checkpoint }))(p),
        )(params),
      );
    const stored = gradsOf("none");
    for (const policy of ["all" as const, (layer: number) => layer === 1])
      for (const [name, tensor] of Object.entries(gradsOf(policy))) await close(tensor, stored[name], 1e-5, name);
    assert.throws(() => model.loss(params, { inputIds, labels }, { train: true }), /needs a key/);
  }
});

test("projections of GPT-2 stored by head have the logits and gradients of the layout of the files", async () => {
  const model = defineModel(gpt2, { task: "causal-lm" });
  const params = model.init(key(5));
  const byHead = storedByHead(model, params);
  const shapes = Object.entries(stateDict(byHead)).filter(([name]) => name.includes("c_attn"));
  assert.deepEqual(shapes.map(([, { shape }]) => shape).slice(0, 2), [[16, 2, 3, 8], [48]]);
  await close(
    model.apply(byHead, { inputIds }).logits as Tensor,
    model.apply(params, { inputIds }).logits as Tensor,
    1e-5,
  );
  for (const more of [{}, { train: true, key: key(6), checkpoint: "all" as const }]) {
    const gradient = grad((p: Params) => model.loss(p, { inputIds, labels }, more));
    const [expected, own] = [gradient(params), storedAsInFiles(model, gradient(byHead))].map(stateDict);
    for (const [name, leaf] of Object.entries(own)) await close(leaf, expected[name], 1e-6, name);
  }
  const back = stateDict(storedAsInFiles(model, byHead));
  for (const [name, leaf] of Object.entries(stateDict(params))) await close(back[name], leaf, 0, name);
  // Models without fused projections stay as they are.
  const bert = defineModel(configs.bert, { task: "classification" });
  const own = bert.init(key(1));
  assert.deepEqual(treeLeaves(storedByHead(bert, own)), treeLeaves(own));
});

test("bfloat16 with float32 parameters is close to float32, and gradients are float32", async () => {
  const model = defineModel(configs.llama, { task: "causal-lm" });
  const params = model.init(key(7));
  const [loss, grads] = valueAndGrad((p: Params) => model.loss(p, { inputIds, labels }, { dtype: "bfloat16" }))(params);
  const exact = Number(await model.loss(params, { inputIds, labels }).item());
  assert.ok(Math.abs(Number(await loss.item()) - exact) < 0.03 * exact);
  for (const leaf of treeLeaves(grads)) assert.equal(leaf.dtype, "float32");
});

test("frozen parameters stay, and a factor scales the step of any optimizer", async () => {
  const model = defineModel(configs.bert, { task: "classification" });
  const params = model.init(key(8));
  const { trained, join: joined } = splitParams(params, (name) => name.startsWith("classifier"));
  assert.deepEqual(Object.keys(trained).sort(), ["classifier.bias", "classifier.weight"]);
  const moved = joined(Object.fromEntries(Object.entries(trained).map(([name, t]) => [name, t.add(1)])));
  const [before, after] = [stateDict(params), stateDict(moved)];
  for (const name of Object.keys(before))
    await close(after[name], name.startsWith("classifier") ? before[name].add(1) : before[name], 0, name);
  const factor = layerDecay(2, 0.5);
  assert.deepEqual(
    [
      "classifier.weight",
      "bert.encoder.layer.1.output.dense.bias",
      "bert.encoder.layer.0.output.dense.bias",
      "bert.embeddings.word_embeddings.weight",
      "transformer.wte.weight",
    ].map(factor),
    [1, 0.5, 0.25, 0.125, 0.125],
  );
  const point = { a: { w: tensor([1, 2]) }, b: { w: tensor([3]) }, c: { w: tensor([4]) } };
  const slope = { a: { w: tensor([0.5, -1]) }, b: { w: tensor([2]) }, c: { w: tensor([7]) } };
  const rates: Record<string, number> = { "a.w": 1, "b.w": 0.25, "c.w": 0 };
  for (const [whole, part] of [
    [optim.adamW({ learningRate: 0.1 }), optim.adamW({ learningRate: 0.025 })],
    [optim.sgd({ learningRate: 0.1, momentum: 0.9 }), optim.sgd({ learningRate: 0.025, momentum: 0.9 })],
  ] as const) {
    const own = withRates(whole as optim.Optimizer<unknown>, (name) => rates[name]);
    const [next] = own.update(point, slope, own.init(point));
    const [a] = (whole as optim.Optimizer<unknown>).update(point, slope, whole.init(point));
    const [b] = (part as optim.Optimizer<unknown>).update(point, slope, part.init(point));
    await close(next.a.w, a.a.w, 0);
    await close(next.b.w, b.b.w, 1e-6);
    await close(next.c.w, point.c.w, 0);
  }
});

test("masking chooses the share of tokens, never special ones, and labels them", async () => {
  const ids = tensor(integers(50, 40, 0, 30, 9), { dtype: "int32" });
  const options = { maskToken: 31, vocabulary: 30, specialIds: [3, 4], share: 0.3 };
  const { inputIds: masked, labels: wanted } = maskTokens(ids, undefined, key(1), options);
  const [before, after, target] = [await ids.data(), await masked.data(), await wanted.data()].map((a) =>
    Array.from(a, Number),
  );
  const counts = { chosen: 0, masked: 0, kept: 0, open: 0 };
  before.forEach((id, i) => {
    if (id !== 3 && id !== 4) counts.open++;
    if (target[i] === -100) {
      assert.equal(after[i], id);
      return;
    }
    assert.equal(target[i], id);
    assert.ok(id !== 3 && id !== 4);
    counts.chosen++;
    if (after[i] === 31) counts.masked++;
    else if (after[i] === id) counts.kept++;
  });
  assert.ok(Math.abs(counts.chosen / counts.open - 0.3) < 0.04);
  assert.ok(Math.abs(counts.masked / counts.chosen - 0.8) < 0.06);
  assert.ok(Math.abs(counts.kept / counts.chosen - 0.1) < 0.05);
  assert.notDeepEqual(await maskTokens(ids, undefined, key(2), options).inputIds.data(), await masked.data());
});

test("a task from a file learns, with LoRA too, and is saved as a whole model", async () => {
  const dir = join(folder, "base");
  writeTokenizer(dir);
  const base = defineModel({ ...configs.bert, vocab_size: byteVocabulary }, { task: "masked-lm" });
  await savePretrained(dir, base, base.init(key(10)));
  const data = join(folder, "rows.csv");
  writeFileSync(data, 'label,text\nup,"aaaa, aa"\ndown,bbb\nup,aaa\ndown,bbbb\n');
  assert.deepEqual((await readTexts(data))[0], { label: "up", text: "aaaa, aa" });
  const headed = join(folder, "headed.csv");
  for (const [text, wanted] of [
    ["review,rating\ngood,5\nbad,1\n", { text: "good", label: "5" }],
    ["Label,title,words\nup,a,b\n", { text: "a b", label: "up" }],
    ["id,text,stars\n7,fine,3\n", { text: "fine" }],
    ["text\nfine\n", { text: "fine" }],
    ["up,fine\n", { text: "fine", label: "up" }],
  ] as const) {
    writeFileSync(headed, text);
    assert.deepEqual((await readTexts(headed))[0], wanted);
  }
  for (const more of [{}, { lora: { rank: 2 } }, { freeze: ["bert.embeddings", "bert.encoder.layer.0"] }]) {
    const task = await fineTuning({ from: dir, data, maxLength: 8, ...more });
    assert.deepEqual(task.pretrained.labels, ["down", "up"]);
    let trained = task.model.init(key(11));
    const optimizer = optim.adamW({ learningRate: 0.02 });
    let state = optimizer.init(trained);
    const step = jit((p: typeof trained, s: typeof state) => {
      const [loss, grads] = valueAndGrad((q: typeof trained) =>
        task.loss(q, task.data.train, { key: key(1), train: false }),
      )(p);
      return { next: optimizer.update(p, grads, s), loss };
    });
    const losses: number[] = [];
    for (let i = 0; i < 12; i++) {
      const { next, loss } = step(trained, state);
      [trained, state] = next;
      losses.push(Number(await loss.item()));
    }
    assert.ok(losses[11] < 0.5 * losses[0], losses.join(", "));
    const whole = task.finish(trained);
    await close(
      task.pretrained.apply(whole, task.data.train).logits as Tensor,
      task.logits(trained, task.data.train),
      1e-4,
    );
    const path = join(folder, "trained.safetensors");
    await io.save(path, stateDict(trained));
    const restored = task.restore((await io.load(path)) as Record<string, Tensor>, key(0));
    await close(task.logits(restored, task.data.train), task.logits(trained, task.data.train), 0);
    await savePretrained(join(folder, "tuned"), task.pretrained, whole);
  }
  await assert.rejects(fineTuning({ from: dir, data, labels: ["up"] }), /text 2 has the label down, .* labels: up/);
  await assert.rejects(
    fineTuning({ from: dir, data, freeze: ["encoder"] }),
    /no parameter of the model starts with encoder/,
  );
  await assert.rejects(fineTuning({ from: dir, data, freeze: ["bert", "classifier"] }), /nothing to train/);
  const one = join(folder, "one.jsonl");
  writeFileSync(one, '{"text": "a", "label": 1}\n{"text": "b", "label": 1}\n');
  await assert.rejects(fineTuning({ from: dir, data: one }), /all texts have the label 1/);
  writeFileSync(one, '{"text": "a", "label": 1}\n{"text": "b", "label": null}\n');
  await assert.rejects(fineTuning({ from: dir, data: one }), /text 2 has no label/);
  await assert.rejects(fineTuning({ from: dir, data: join(folder, "none.csv") }), /no such file/);
});

test("words with tags: the first token of a word has its tag, and a tagger learns them", async () => {
  const dir = join(folder, "tagger");
  writeTokenizer(dir);
  const base = defineModel({ ...configs.bert, vocab_size: byteVocabulary }, { task: "masked-lm" });
  await savePretrained(dir, base, base.init(key(10)));
  const data = join(folder, "tags.jsonl");
  const rows = [
    { tokens: ["EU", "and", "us"], ner_tags: ["B-ORG", "O", "B-LOC"] },
    { tokens: ["the", "EU"], ner_tags: ["O", "B-ORG"] },
  ];
  const write = (...lines: unknown[]): void =>
    writeFileSync(data, lines.map((row) => `${JSON.stringify(row)}\n`).join(""));
  write(...rows);
  const task = await fineTuning({ from: dir, task: "token-classification", data, maxLength: 9 });
  assert.deepEqual(task.classes, ["B-LOC", "B-ORG", "O"]);
  const list = async (t: Tensor | undefined): Promise<number[][]> => {
    const flat = Array.from((await (t as Tensor).data()) as ArrayLike<number>);
    return [flat.slice(0, 9), flat.slice(9)];
  };
  // Bytes are tokens, but for the merges " the" (258) and "and" (260); 261 is padding.
  const [none, space, pad] = [-100, 32, 261];
  assert.deepEqual(await list(task.data.train.inputIds), [
    [space, 69, 85, space, 260, space, 117, 115, pad],
    [258, space, 69, 85, pad, pad, pad, pad, pad],
  ]);
  assert.deepEqual(await list(task.data.train.labels), [
    [1, none, none, 2, none, 0, none, none, none],
    [2, 1, none, none, none, none, none, none, none],
  ]);
  assert.deepEqual(await list(task.data.train.attentionMask), [
    [1, 1, 1, 1, 1, 1, 1, 1, 0],
    [1, 1, 1, 1, 0, 0, 0, 0, 0],
  ]);
  let trained = task.model.init(key(11));
  const optimizer = optim.adamW({ learningRate: 0.02 });
  let state = optimizer.init(trained);
  const step = jit((p: typeof trained, s: typeof state) => {
    const grads = grad((q: typeof trained) => task.loss(q, task.data.train, { key: key(1), train: false }))(p);
    return optimizer.update(p, grads, s);
  });
  for (let i = 0; i < 15; i++) [trained, state] = step(trained, state);
  const [right, predicted, labeled] = (await task.correct(trained, task.data.train).array()) as number[][];
  assert.deepEqual([right, predicted], [labeled, labeled]);
  assert.equal(labeled[0] + labeled[1] + labeled[2], 5, "the tags of both texts, and no other token");
  assert.equal(Number(await task.weight(task.data.train, { key: key(0), train: true }).item()), 5);
  write(rows[0], { tokens: ["a"], ner_tags: [] });
  await assert.rejects(readTexts(data), /line 2 has 1 words and 0 tags/);
  write(rows[0], { text: "a", label: "x" });
  await assert.rejects(fineTuning({ from: dir, task: "token-classification", data }), /text 2 has no tags/);
  writeFileSync(join(folder, "ragged.csv"), "label,text\na,b\nc\n");
  await assert.rejects(readTexts(join(folder, "ragged.csv")), /ragged\.csv:3: has 1 fields, the first row 2/);
  writeFileSync(join(folder, "latin.csv"), Buffer.from("label,text\na,caf\u00e9\n", "latin1"));
  await assert.rejects(readTexts(join(folder, "latin.csv")), /is not text in UTF-8/);
});
