// Rows of the suite of models: whole models of @weft/models with random weights, as training steps and as generation.
import * as weft from "@weft/core";
import { bytesOf } from "@weft/core/internal/graph";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import { defineModel, generateTokens, type Model, type Params } from "@weft/models";

/** A model in the words of the peer, and as a configuration of @weft/models. */
interface Shape {
  width: number;
  layers: number;
  heads: number;
  keyHeads: number;
  inner: number;
  vocabulary: number;
  positions: number;
  family: "bert" | "distilbert" | "gpt2" | "llama";
}

export interface ModelRow {
  id: string;
  title: string;
  /** A training step, one token of a generation, or a whole generation by prompt and new tokens, per token. */
  kind: "train" | "decode" | "generate";
  shape: Shape;
  batch: number;
  /** Tokens per sequence (training), or tokens of the prompt (generation). */
  length: number;
  /** Tokens that are generated per call. */
  tokens: number;
  dropout: number;
  checkpoint: boolean;
  /** Required ratio to the peer. */
  wanted: number;
  /** Rows of CPUs compute in float32; the others in bfloat16 on GPUs. */
  device?: "cpu";
}

const base = { width: 768, layers: 12, heads: 12, keyHeads: 12, inner: 3072, positions: 512 };
const bert: Shape = { ...base, vocabulary: 30522, family: "bert" };
const gpt2: Shape = { ...base, vocabulary: 50304, positions: 1024, family: "gpt2" };
/** About 1.24 billion parameters. */
const llama: Shape = {
  width: 2048,
  layers: 16,
  heads: 32,
  keyHeads: 8,
  inner: 8192,
  vocabulary: 128256,
  positions: 4096,
  family: "llama",
};

const training = { kind: "train" as const, tokens: 1 };
const decoding = { kind: "decode" as const, batch: 1, length: 128, tokens: 256, dropout: 0, checkpoint: false };

const modelRows: ModelRow[] = [
  { id: "decode-gpt2", title: "GPT-2 124M, bf16, batch 1: one token", shape: gpt2, wanted: 1.5, ...decoding },
  { id: "decode-llama", title: "Llama 1.24B, bf16, batch 1: one token", shape: llama, wanted: 1.5, ...decoding },
  {
    id: "bert-base",
    title: "BERT-base fine-tuning step, bf16, 64 x 128",
    shape: bert,
    batch: 64,
    length: 128,
    dropout: 0.1,
    checkpoint: false,
    wanted: 1,
    ...training,
  },
  {
    id: "distilbert",
    title: "DistilBERT fine-tuning step, bf16, 64 x 128",
    shape: { ...bert, layers: 6, family: "distilbert" },
    batch: 64,
    length: 128,
    dropout: 0.1,
    checkpoint: false,
    wanted: 1,
    ...training,
  },
  {
    id: "gpt2",
    title: "GPT-2 124M pretraining step, bf16, 16 x 1024",
    shape: gpt2,
    batch: 16,
    length: 1024,
    dropout: 0,
    checkpoint: false,
    wanted: 1,
    ...training,
  },
  {
    id: "llama",
    title: "Llama 1.24B pretraining step, bf16, 4 x 2048, checkpointing",
    shape: llama,
    batch: 4,
    length: 2048,
    dropout: 0,
    checkpoint: true,
    wanted: 1,
    ...training,
  },
  {
    id: "bert-small",
    title: "BERT-small (4 layers, width 512) fine-tuning step, float32, 8 x 64",
    shape: { ...bert, width: 512, layers: 4, heads: 8, keyHeads: 8, inner: 2048 },
    batch: 8,
    length: 64,
    dropout: 0.1,
    checkpoint: false,
    wanted: 1.2,
    device: "cpu",
    ...training,
  },
  ...[1, 8].map((batch) => ({
    id: `generate-gpt2-${batch}`,
    title: `GPT-2 124M, float32, greedy, batch ${batch}: 32 tokens after a prompt of 32, per step`,
    kind: "generate" as const,
    shape: { ...gpt2, vocabulary: 50257 },
    batch,
    length: 32,
    tokens: 32,
    dropout: 0,
    checkpoint: false,
    wanted: 1.5,
    device: "cpu" as const,
  })),
];

/** Rows for a kind of device. */
export const rowsFor = (device: string): ModelRow[] =>
  device.startsWith("cpu")
    ? modelRows.filter((row) => row.device === "cpu")
    : modelRows.filter((row) => row.device !== "cpu");

/** The same with sizes that take no time. */
export const smallRow = (row: ModelRow): ModelRow => ({
  ...row,
  batch: Math.min(row.batch, 2),
  length: 8,
  tokens: row.kind === "train" ? 1 : 4,
  shape: { ...row.shape, width: 16, layers: 1, heads: 2, keyHeads: 2, inner: 24, vocabulary: 40, positions: 64 },
});

function modelOf({ shape, dropout, kind }: ModelRow): Model {
  const { width, layers, heads, keyHeads, inner, vocabulary, positions, family } = shape;
  const encoder = {
    hidden_size: width,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    intermediate_size: inner,
    vocab_size: vocabulary,
    max_position_embeddings: positions,
  };
  const configs = {
    bert: { ...encoder, hidden_dropout_prob: dropout, attention_probs_dropout_prob: dropout },
    distilbert: {
      dim: width,
      n_layers: layers,
      n_heads: heads,
      hidden_dim: inner,
      vocab_size: vocabulary,
      max_position_embeddings: positions,
      dropout,
      attention_dropout: dropout,
      seq_classif_dropout: dropout,
    },
    gpt2: {
      n_embd: width,
      n_layer: layers,
      n_head: heads,
      n_inner: inner,
      vocab_size: vocabulary,
      n_positions: positions,
      embd_pdrop: dropout,
      attn_pdrop: dropout,
      resid_pdrop: dropout,
    },
    llama: { ...encoder, num_key_value_heads: keyHeads, tie_word_embeddings: true },
  };
  const isText = family === "gpt2" || family === "llama";
  const task = isText ? "causal-lm" : "classification";
  return defineModel(
    { model_type: family, ...configs[family] },
    { task, ...(kind === "train" && !isText && { labels: 4 }) },
  );
}

/** What the peer needs to make the same model. */
export function peerRow(row: ModelRow, compile: boolean): Record<string, unknown> {
  const { shape, batch, length, tokens, kind } = row;
  const { family, ...sizes } = shape;
  const isText = family === "gpt2" || family === "llama";
  return {
    id: row.id + (compile || kind === "generate" ? "" : " graph"),
    kind,
    compile,
    batch,
    length,
    prompt: length,
    tokens,
    slots: length + tokens,
    config: {
      ...sizes,
      llama: family === "llama",
      causal: isText,
      post: !isText,
      gelu: family === "gpt2" ? "tanh" : "none",
      classes: isText ? 0 : 4,
      dropout: row.dropout,
      checkpoint: row.checkpoint,
    },
  };
}

/** A row that is ready to be timed. */
export interface PreparedModelRow {
  /** Milliseconds per step or token. */
  measure(seconds: number): Promise<number>;
  info: Record<string, unknown>;
  /** Why the result is wrong, null if it is right. */
  wrong: string | null;
  release(): void;
}

const released = (tree: unknown): void => {
  for (const leaf of weft.treeLeaves(tree)) leaf.dispose();
};

/** Bytes of all tensors of a tree. */
const bytesIn = (tree: unknown): number =>
  [...new Set(weft.treeLeaves(tree))].reduce((n, { size, dtype }) => n + size * bytesOf(dtype), 0);

/** Bytes of all parameters in a dtype of this size in bytes. */
const parameterCount = (model: Model): number =>
  Object.values(model.parameters).reduce((n, { shape }) => n + shape.reduce((a, b) => a * b, 1), 0);

async function prepareTraining(row: ModelRow): Promise<PreparedModelRow> {
  const model = modelOf(row);
  const { device } = weft.session();
  const half = row.device !== "cpu";
  const before = device.memory().usedBytes;
  const optimizer = optim.adamW({ learningRate: 1e-4 });
  const { vocabulary } = row.shape;
  const inputIds = weft.randint(0, vocabulary, [row.batch, row.length], { seed: 1 }).realize();
  const labels = model.task === "causal-lm" ? inputIds : weft.randint(0, 4, [row.batch], { seed: 2 }).realize();
  const isVector = (_: string, t: weft.Tensor): boolean => t.rank < 2;
  type State = ReturnType<typeof optimizer.init>;
  const step = weft.jit(
    (p: Params, s: State, key: weft.Tensor) => {
      const [rest, mine] = weft.splitKey(key, 2);
      const [loss, grads] = weft.valueAndGrad((q: Params) =>
        model.loss(
          half ? nn.castParameters(q, "bfloat16", { keep: isVector }) : q,
          { inputIds, labels },
          {
            ...(half && { dtype: "bfloat16" as const }),
            ...(row.dropout > 0 && { train: true, key: mine }),
            ...(row.checkpoint && { checkpoint: "all" as const }),
          },
        ),
      )(p);
      return [...optimizer.update(p, grads, s), rest, loss] as const;
    },
    { donate: [0, 1, 2] },
  );
  let params = weft.jit((key: weft.Tensor) => model.init(key))(weft.key(0));
  let state = weft.treeMap((t) => t.realize(), optimizer.init(params));
  let key = weft.key(1);
  const call = (): weft.Tensor => {
    const [p, s, k, loss] = step(params, state, key) as [Params, State, weft.Tensor, weft.Tensor];
    [params, state, key] = [p, s, k];
    return loss;
  };
  const losses: number[] = [];
  for (let i = 0; i < 3; i++) losses.push(Number(await call().item()));
  const expected = Math.log(model.task === "causal-lm" ? vocabulary : 4);
  const wrong =
    Math.abs(losses[0] - expected) > 0.35 * expected || !losses.every(Number.isFinite)
      ? `losses ${losses.join(", ")} of random weights; about ${expected.toFixed(2)} is expected`
      : null;
  const run = async (seconds: number): Promise<number> => {
    const once = async (count: number): Promise<number> => {
      const start = performance.now();
      for (let i = 0; i < count; i++) call().dispose();
      await device.synchronize();
      return (performance.now() - start) / count;
    };
    const first = await once(1);
    return once(Math.max(1, Math.ceil((seconds * 1e3) / first)));
  };
  return {
    measure: run,
    wrong,
    info: {
      losses,
      parameters: parameterCount(model),
      heldBytes: device.memory().usedBytes - before,
      scratchBytes: step.scratchBytes,
      // Parameters, optimizer state and batch, and what a step needs beside them.
      peakBytes: bytesIn([params, state, key, inputIds, labels]) + step.scratchBytes,
      kernels: step.kernels(params, state, key).length,
    },
    release: () => released([params, state, key, inputIds, labels]),
  };
}

async function prepareDecoding(row: ModelRow): Promise<PreparedModelRow> {
  const model = modelOf(row);
  const params = weft.jit((key: weft.Tensor) => model.init(key, { dtype: "bfloat16" }))(weft.key(0));
  const prompt = Array.from({ length: row.length }, (_, i) => (i * 7919) % row.shape.vocabulary);
  const run = async (count: number): Promise<{ tokens: number[]; ms: number }> => {
    const tokens: number[] = [];
    let start = 0;
    const options = { maxNewTokens: count + 1, eosTokens: [] };
    for await (const [token] of generateTokens(model, params, [prompt], options)) {
      // The prompt gives the first token.
      if (tokens.length === 0) start = performance.now();
      tokens.push(token as number);
    }
    return { tokens, ms: (performance.now() - start) / count };
  };
  const first = await run(row.tokens);
  const again = await run(row.tokens);
  const same = first.tokens.join() === again.tokens.join();
  return {
    measure: async (seconds) => {
      const rounds = Math.max(1, Math.ceil((seconds * 1e3) / (again.ms * row.tokens)));
      let total = 0;
      for (let i = 0; i < rounds; i++) total += (await run(row.tokens)).ms;
      return total / rounds;
    },
    wrong: same ? null : "two runs with the same prompt give different tokens",
    info: { parameters: parameterCount(model), weightBytes: 2 * parameterCount(model) },
    release: () => released(params),
  };
}

/** Whole generations, prompt included. */
async function prepareGeneration(row: ModelRow): Promise<PreparedModelRow> {
  const model = modelOf(row);
  const params = weft.jit((key: weft.Tensor) => model.init(key))(weft.key(0));
  const prompts = Array.from({ length: row.batch }, (_, r) =>
    Array.from({ length: row.length }, (_, i) => ((r + 1) * (i + 1) * 7919) % row.shape.vocabulary),
  );
  const run = async (): Promise<{ tokens: (number | null)[][]; ms: number }> => {
    const start = performance.now();
    const tokens: (number | null)[][] = [];
    const options = { maxNewTokens: row.tokens, eosTokens: [] };
    for await (const step of generateTokens(model, params, prompts, options)) tokens.push(step);
    return { tokens, ms: (performance.now() - start) / row.tokens };
  };
  const first = await run();
  const again = await run();
  return {
    measure: async (seconds) => {
      const rounds = Math.max(1, Math.ceil((seconds * 1e3) / (again.ms * row.tokens)));
      let total = 0;
      for (let i = 0; i < rounds; i++) total += (await run()).ms;
      return total / rounds;
    },
    wrong:
      String(first.tokens) === String(again.tokens) ? null : "two runs with the same prompts give different tokens",
    info: { parameters: parameterCount(model) },
    release: () => released(params),
  };
}

const preparers = { train: prepareTraining, decode: prepareDecoding, generate: prepareGeneration };

export const prepareRow = (row: ModelRow): Promise<PreparedModelRow> => preparers[row.kind](row);
