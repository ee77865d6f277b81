// A PyTorch model's state dict loaded into the trainer: logits, loss, gradient norm and one clipped AdamW step agree.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { assertClose } from "@weft/testing/compare";
import { type Answer, askTorch, needsTorch, type Wire } from "@weft/testing/torch";
import { columns, headColumns } from "../data/index.js";
import { makeModel, unpackBatch } from "./model.js";
import { freshState, StepExecutables, stepLog } from "./step.js";
import { type ConfigParts, rankBatch, textStepOptions, tinyRaw } from "./testkit.js";

const rows = 5;
const length = 9;
const lengths = [9, 4, 1, 7, 9];
const ids = Array.from({ length: rows * length }, (_, i) => 1 + ((i * 37) % 299));
const labels = [0, 3, 1, 2, 2];

const cases: [string, ConfigParts["model"]][] = [
  ["post-norm, sinusoidal positions, relu", {}],
  ["pre-norm, learned positions, gelu", { norm: "pre", positions: "learned", activation: "gelu" }],
];
const dtypes = ["float64", "float32"] as const;

/** A batch as the loader packs it. */
function packed(): weft.Tensor {
  const width = headColumns + length;
  const data = new Int32Array(rows * width);
  for (let row = 0; row < rows; row++) {
    data[row * width + columns.label] = labels[row];
    data[row * width + columns.length] = lengths[row];
    data[row * width + columns.total] = rows;
    for (let i = 0; i < lengths[row]; i++) data[row * width + headColumns + i] = ids[row * length + i];
  }
  return weft.tensor(data, { shape: [rows, width], dtype: "int32" });
}

const wire = (shape: number[], data: number[]): Wire & { dtype: string } => ({ dtype: "int64", shape, data });
const under = (answer: Answer, prefix: string): [string, Wire][] =>
  Object.entries(answer).flatMap(([name, t]) =>
    name.startsWith(`${prefix}.`) ? [[name.slice(prefix.length + 1), t]] : [],
  );

describe("a state dict of PyTorch", needsTorch, () => {
  let answers: Answer[];
  before(() => {
    answers = askTorch(
      cases.flatMap(([, model], seed) =>
        dtypes.map((dtype) => {
          const { model: m } = tinyRaw({ model: { num_layers: 2, ...model } });
          return {
            task: "pretrained",
            seed,
            dtype,
            options: {
              vocabulary: m.vocab_size,
              width: m.d_model,
              heads: m.n_heads,
              layers: m.num_layers,
              feedForward: m.dim_feedforward,
              classes: 4,
              activation: m.activation,
              norm: m.norm,
              positions: m.positions,
              maxLength: m.max_seq_len,
              finalNorm: m.norm === "pre",
            },
            ids: wire([rows, length], ids),
            lengths: wire([rows], lengths),
            labels: wire([rows], labels),
            optimizer: "adamW",
            settings: { lr: 0.01, weight_decay: 0.05, eps: 1e-3 },
            clip: 0.5,
          };
        }),
      ),
    );
  });

  cases.forEach(([name, model], i) => {
    dtypes.forEach((dtype, j) => {
      test(`${name}, ${dtype}`, () => {
        weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
        const answer = answers[i * dtypes.length + j];
        const raw = tinyRaw({
          model: { num_layers: 2, dropout: 0, ...model },
          optimizer: { learning_rate: 0.01, weight_decay: 0.05, epsilon: 1e-3, warmup_steps: 0 },
        });
        const classifier = makeModel(raw, 4, dtype);
        const options = textStepOptions(raw, { model: classifier, dtype, gradientClip: 0.5 });
        const programs = new StepExecutables(options);
        const given = Object.fromEntries(
          under(answer, "state").map(([n, t]) => [
            n,
            weft.tensor(Float64Array.from(t.data), { shape: [...t.shape], dtype }),
          ]),
        );
        const params = nn.loadStateDict(classifier.init(weft.key(0)), given);
        const tolerance = dtype === "float64" ? 1e-11 : 3e-5;
        const compare = (actual: weft.Tensor, expected: Wire, what: string): void =>
          assertClose(actual, { ...expected, dtype }, { name: what, rtol: tolerance, atol: tolerance });
        const batch = packed();
        compare(classifier.logits(params, unpackBatch(batch), null), answer.logits, "logits");
        const state = freshState(options, params);
        const next = programs.whole(state, rankBatch(batch));
        compare(next.log.index(0, stepLog.loss), answer.loss, "loss");
        compare(next.log.index(0, stepLog.norm), answer.norm, "norm");
        const after = nn.stateDict(next.params);
        const expected = under(answer, "after");
        assert.equal(Object.keys(after).length, expected.length);
        for (const [n, t] of expected) compare(after[n], t, n);
      });
    });
  });
});
