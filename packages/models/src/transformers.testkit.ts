// A real transformers (PyTorch, CPU) for the tests.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { io, Tensor, tensor } from "@weft/core";
import { patient, testPython } from "@weft/testing/python";
import type { Batch } from "./architectures/index.js";

const script = fileURLToPath(new URL("../testdata/oracle.py", import.meta.url));
const { python, skip } = existsSync(script)
  ? testPython("transformers", "models against transformers")
  : { python: "", skip: `${script} is not here` };

/** Options for tests that need transformers. */
export const needsTransformers = { skip };

/** A folder that is removed after the tests of the file. */
export function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), "weft-models-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** One model to make (or to load), and what to compute with it. */
export interface OracleRequest {
  dir: string;
  class?: string;
  config?: Record<string, unknown>;
  load?: boolean;
  seed?: number;
  noise?: number;
  dtype?: string;
  shard?: string;
  batch?: Record<string, unknown>;
  steps?: number;
  generate?: Record<string, unknown>[];
  state?: boolean;
  /** Writes the configuration as it is given, not as transformers normalizes it. */
  raw?: boolean;
  /** The answer is `failed` with the message if transformers refuses. */
  mayFail?: boolean;
  /** A model type whose configuration keys are listed instead. */
  keys?: string;
  /** Texts to tokenize by the tokenizer of the folder instead, and a conversation. */
  texts?: string[];
  chat?: { role: string; content: string }[];
  /** Pairs of texts (the second may be empty) that are cut to `maxLength` tokens. */
  pairs?: (readonly [string, string])[];
  maxLength?: number;
}

/** Writes a byte-level tokenizer (256 bytes, a few merges, an end token) into a folder. */
export function writeTokenizer(folder: string): void {
  // Printable bytes stand for themselves, the others for characters from U+0100 on, as in GPT-2.
  const printable = (b: number): boolean => (b > 32 && b < 127) || (b > 160 && b !== 173);
  let next = 256;
  const symbols = Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
  const merges: [string, string][] = [
    ["t", "h"],
    ["th", "e"],
    ["\u0120", "the"],
    ["a", "n"],
    ["an", "d"],
  ];
  const tokens = [...symbols, ...merges.map(([a, b]) => a + b)];
  const end = "<|end|>";
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, "tokenizer.json"),
    JSON.stringify({
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: [
        {
          id: tokens.length,
          content: end,
          single_word: false,
          lstrip: false,
          rstrip: false,
          normalized: false,
          special: true,
        },
      ],
      normalizer: null,
      pre_tokenizer: byteLevel,
      post_processor: null,
      decoder: byteLevel,
      model: {
        type: "BPE",
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: Object.fromEntries([...tokens, end].map((token, id) => [token, id])),
        merges,
      },
    }),
  );
  writeFileSync(
    join(folder, "tokenizer_config.json"),
    JSON.stringify({
      tokenizer_class: "PreTrainedTokenizerFast",
      eos_token: end,
      pad_token: end,
      chat_template:
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
    }),
  );
}

/** Number of ids of {@link writeTokenizer}; the last one ends a text. */
export const byteVocabulary = 262;

type HostArray = io.HostArray;
/** Arrays by name. */
export type NamedArrays = Record<string, HostArray>;

/** Asks transformers. */
export async function askTransformers(requests: readonly OracleRequest[]): Promise<NamedArrays[]> {
  const answers = requests.map(({ dir }) => `${dir}.answer.safetensors`);
  const input = JSON.stringify(requests.map((request, i) => ({ ...request, answer: answers[i] })));
  const done = spawnSync(python, ["-W", "ignore", script], { input, encoding: "utf8", ...patient });
  assert.equal(done.status, 0, done.stderr);
  const all: NamedArrays[] = [];
  for (const path of answers) all.push(await io.readSafetensors(path));
  return all;
}

/** A batch in the words of transformers as a batch of Weft. */
export function toBatch(batch: Record<string, unknown>): Batch {
  const names: Record<string, keyof Batch> = {
    input_ids: "inputIds",
    attention_mask: "attentionMask",
    token_type_ids: "tokenTypeIds",
    position_ids: "positionIds",
    pixel_values: "pixelValues",
    labels: "labels",
  };
  return Object.fromEntries(
    Object.entries(batch).map(([name, value]) => [
      names[name],
      tensor(value as number[][], { dtype: name === "pixel_values" ? "float32" : "int32" }),
    ]),
  );
}

/** Numbers that look random and are the same everywhere. */
export function numbers(count: number, seed: number): number[] {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  });
}

/** A table [rows, columns] of whole numbers from `low` to `high - 1`. */
export const integers = (rows: number, columns: number, low: number, high: number, seed: number): number[][] => {
  const all = numbers(rows * columns, seed);
  return Array.from({ length: rows }, (_, i) =>
    all.slice(i * columns, (i + 1) * columns).map((x) => low + Math.floor(x * (high - low))),
  );
};

/**
 * Largest difference, relative to the largest element (at least `floor`).
 *
 * @param rows - One number per row of the last axis: rows of 0 are not compared.
 */
export async function difference(
  own: Tensor | HostArray,
  wanted: HostArray,
  floor = 1,
  rows?: number[],
): Promise<number> {
  assert.deepEqual([...own.shape], [...wanted.shape]);
  const x = own instanceof Tensor ? await own.data() : own.data;
  const y = wanted.data;
  const width = wanted.shape.at(-1) ?? 1;
  let worst = 0;
  let largest = floor;
  for (let i = 0; i < y.length; i++) {
    if (rows !== undefined && rows[Math.floor(i / width)] === 0) continue;
    const d = Math.abs(Number(x[i]) - Number(y[i]));
    worst = Number.isNaN(d) ? Number.POSITIVE_INFINITY : Math.max(worst, d);
    largest = Math.max(largest, Math.abs(Number(y[i])));
  }
  return worst / largest;
}
