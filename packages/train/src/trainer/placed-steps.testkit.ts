// A rank of placement.test.ts: takes steps of a model with given placements, or with the plan for a memory limit, and
// writes losses, bytes and parameters as JSON. Arguments: a JSON file with the cases, and a folder for the answers.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as weft from "@weft/core";
import { evenBounds } from "@weft/core/internal/shard";
import { adamW } from "@weft/core/optim";
import { defineModel, storedByHead } from "@weft/models";
import { boundsBySpeed } from "../data/index.js";
import { joinGroup, type RankGroup } from "./group.js";
import { initLlama, type Llama, type LlamaShape, llamaLoss } from "./llama.testkit.js";
import { abstractState, compiledBytes, placeRun } from "./plan-run.js";
import { leavesOf, type PlacementDecision, parseMemory, StatePlacement } from "./state-placement.js";
import { freshState, type RankBatch, StepExecutables, type StepOptions, stepLog } from "./step.js";

/** What one case of the test says. */
export interface PlacedCase {
  name: string;
  rows: number;
  layers: number;
  width: number;
  steps: number;
  /** A language model over sequences of this many positions instead of layers on rows. */
  positions?: number;
  /** That language model is a GPT-2, whose attention projections are stored by head. */
  gpt2?: boolean;
  /** Layers without a residual stream, and with this many rows of an embedding table before them. */
  table?: number;
  decision?: PlacementDecision;
  /** Limit of every rank, or of each. */
  memory?: number | number[];
  /** Speeds of the ranks. */
  speeds?: number[];
}

export interface PlacedAnswer {
  losses: number[];
  /** Bytes of the compiled step on the rank that needs most, and on this one. */
  bytes: number;
  own: number;
  decision: PlacementDecision;
}

type Params = { layers: { weight: weft.Tensor; bias: weft.Tensor }[]; head: weft.Tensor; table?: weft.Tensor };

const llamaOf = ({ layers, width }: PlacedCase): LlamaShape => ({
  layers,
  width,
  heads: 4,
  groups: 2,
  hidden: 2 * width,
  vocabulary: 24,
});

export function optionsOf(given: PlacedCase, group: Pick<RankGroup, "rank" | "size">): StepOptions<Params | Llama> {
  const { layers, width } = given;
  const shape = llamaOf(given);
  const language: StepOptions<Llama>["task"] = {
    init: (key) => initLlama(shape, key),
    loss: (params, batch) => llamaLoss(shape, params, batch as weft.Tensor),
    evaluate: (_params, batch) => (batch as weft.Tensor).sum(),
  };
  const gpt2 = defineModel(
    {
      ...{ model_type: "gpt2", vocab_size: 24, n_embd: width, n_layer: layers, n_head: 4, n_positions: 16 },
      ...{ initializer_range: 0.3, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0 },
    },
    { task: "causal-lm" },
  );
  const fused: StepOptions<never>["task"] = {
    init: (key) => storedByHead(gpt2, gpt2.init(key)) as never,
    loss: (params, batch) => gpt2.loss(params, { inputIds: batch as weft.Tensor, labels: batch as weft.Tensor }),
    evaluate: (_params, batch) => (batch as weft.Tensor).sum(),
  };
  const rows: StepOptions<Params>["task"] = {
    init(key) {
      const keys = weft.splitKey(key, layers + 2);
      const normal = (i: number, ...shape: number[]): weft.Tensor =>
        weft.randn(shape, { key: keys.index(i) }).mul(shape[0] ** -0.5);
      return {
        layers: Array.from({ length: layers }, (_, i) => ({
          weight: normal(i, width, width),
          bias: weft.zeros([width]),
        })),
        head: normal(layers, width, 3),
        ...(given.table !== undefined && { table: normal(layers + 1, given.table, width).mul(given.table ** 0.5) }),
      };
    },
    loss({ table, ...params }, batch) {
      let h = batch as weft.Tensor;
      if (table !== undefined) h = weft.take(table, h, 0).mean(1);
      for (const { weight, bias } of params.layers) {
        const next = weft.gelu(h.matmul(weight).add(bias));
        h = table === undefined ? h.add(next) : next;
      }
      return h.matmul(params.head).sub(1).square().mean();
    },
    evaluate: (_params, batch) => (batch as weft.Tensor).sum(),
  };
  return {
    task: (given.positions === undefined ? rows : given.gpt2 === true ? fused : language) as never,
    optimizer: adamW({ learningRate: 1e-4 }) as never,
    group,
    dtype: "float32",
    seed: 1,
    gradientClip: 1,
    bucketBytes: 1 << 16,
    window: 1,
    scaling: null,
  };
}

/** Rows [from, to) of a rank's share of a batch of a step. */
function batchOf(
  { rows, width, positions, table }: PlacedCase,
  placement: StatePlacement,
  step: number,
  stop: boolean,
): RankBatch {
  const seed = 100 + step;
  const all =
    table !== undefined
      ? weft.randint(0, table, [rows, 5], { seed })
      : positions === undefined
        ? weft.randn([rows, width], { seed })
        : weft.randint(0, 24, [rows, positions], { seed });
  const { rank, ranks, speeds } = placement.share;
  const bounds = speeds === undefined ? evenBounds(rows, ranks) : boundsBySpeed(rows, speeds);
  const inputs = all.index(`${bounds[rank]}:${bounds[rank + 1]}`).realize();
  return { inputs, rows, bounds, share: 1, stop: stop ? weft.tensor(Int32Array.from([0]), { dtype: "int32" }) : null };
}

/** Takes the steps of a case on this rank. */
export function takeSteps(given: PlacedCase, group: RankGroup): PlacedAnswer {
  const options = optionsOf(given, group);
  const several = group.size > 1;
  const even = new StatePlacement(
    { data: group.size, model: 1, params: [], inputs: [], rematerialized: [] },
    group.rank,
  );
  const placement =
    given.decision !== undefined
      ? new StatePlacement(given.decision, group.rank)
      : given.memory === undefined
        ? even
        : placeRun(
            options,
            batchOf(given, even, 0, several),
            group,
            parseMemory(given.memory, group.size),
            1,
            given.speeds,
          ).placement;
  const whole = abstractState(options);
  const own = compiledBytes(options, placement, whole, batchOf(given, even, 0, several));
  const programs = new StepExecutables(options, placement, leavesOf(whole as never));
  const { params, optimizer } = programs.initialState(weft.key(7));
  let state = freshState(options, params, optimizer);
  const losses: number[] = [];
  for (let step = 0; step < given.steps; step++) {
    state = programs.whole(state, batchOf(given, placement, step, several));
    losses.push((state.log.dataSync() as Float32Array)[stepLog.loss]);
  }
  return { losses, bytes: group.most(own), own, decision: placement.decision };
}

if (process.argv[1]?.endsWith("placed-steps.testkit.js")) {
  const [, , file, folder] = process.argv;
  const cases = JSON.parse(readFileSync(file, "utf8")) as PlacedCase[];
  const group = await joinGroup();
  const answers = cases.map((given) => takeSteps(given, group));
  writeFileSync(join(folder, `rank${group.rank}.json`), JSON.stringify(answers));
  group.close();
}
