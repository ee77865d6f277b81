// Plans of training steps of whole models for simulated clusters: how long planning takes, and what it predicts. The step is traced on
// placeholders, so that nothing of the model is allocated.
import * as weft from "@weft/core";
import { h200, type Rates } from "@weft/core/internal/cost";
import { adamW } from "@weft/core/optim";
import { median } from "@weft/formats/stats";
import { defineModel } from "@weft/models";
import { planRun } from "@weft/train/internal/plan-run";
import type { Suite } from "./context.js";

interface PlacementCase {
  id: string;
  model: string;
  config: Record<string, unknown>;
  task: "causal-lm" | "masked-lm";
  rows: number;
  length: number;
  hosts: number;
  perHost: number;
  /** Bytes per device; null without a limit. */
  memory: number | null;
}

/** What a plan of a case is, and the time that planning took. */
export interface PlacementRow
  extends Pick<PlacementCase, "id" | "model" | "rows" | "length" | "hosts" | "perHost" | "memory"> {
  /** Milliseconds of each round, from the traced step to the plan; tracing takes `traceMilliseconds` before. */
  rounds: number[];
  planMilliseconds: number;
  traceMilliseconds: number;
  placement: string;
  stepSeconds: number;
  bytes: number;
}

const llama8b = {
  model_type: "llama",
  hidden_size: 4096,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  intermediate_size: 14336,
  vocab_size: 128256,
  max_position_embeddings: 8192,
};
const bertLarge = {
  model_type: "bert",
  vocab_size: 30522,
  hidden_size: 1024,
  num_hidden_layers: 24,
  num_attention_heads: 16,
  intermediate_size: 4096,
  max_position_embeddings: 512,
};
const tiny = { ...llama8b, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2 };

function cases(quick: boolean): PlacementCase[] {
  const llama = { model: "Llama 8B", config: llama8b, task: "causal-lm", rows: 128, length: 2048 } as const;
  const cluster = { hosts: 16, perHost: 8 };
  if (quick)
    return [
      {
        ...llama,
        ...cluster,
        id: "tiny-16x8",
        model: "tiny Llama",
        config: { ...tiny, intermediate_size: 64, vocab_size: 128 },
        length: 16,
        memory: 80e9,
      },
    ];
  return [
    { ...llama, ...cluster, id: "llama-8b-16x8-80gb", memory: 80e9 },
    { ...llama, ...cluster, id: "llama-8b-16x8-40gb", memory: 40e9 },
    { ...llama, ...cluster, id: "llama-8b-16x8", memory: null },
    { ...llama, id: "llama-8b-1x8-141gb", rows: 8, hosts: 1, perHost: 8, memory: 141e9 },
    {
      ...{ id: "bert-large-2x8-20gb", model: "BERT-large", config: bertLarge, task: "masked-lm" },
      ...{ rows: 256, length: 512, hosts: 2, perHost: 8, memory: 20e9 },
    },
  ];
}

/** H200 devices, and hosts that links of 400 Gbit/s connect. */
function clusterRates(devices: number, perHost: number): Rates {
  const far = { members: devices, latency: 30e-6, bandwidth: 45e9 };
  const links = Object.fromEntries(Object.keys(h200.links).map((kind) => [kind, [far]])) as unknown as Rates["links"];
  return devices === perHost ? h200 : { ...h200, between: { devices: perHost, links } };
}

function measure(given: PlacementCase, rounds: number): PlacementRow {
  const { config, task, rows, length, hosts, perHost, memory } = given;
  const devices = hosts * perHost;
  const model = defineModel(config, { task });
  const options: Parameters<typeof planRun>[0] = {
    task: {
      init: (key) => model.init(key),
      loss: (params, ids) =>
        model.loss(
          params as Record<string, unknown>,
          { inputIds: ids as weft.Tensor, labels: ids as weft.Tensor },
          { dtype: "bfloat16" },
        ),
      evaluate: (_, ids) => (ids as weft.Tensor).sum(),
    },
    optimizer: adamW({ learningRate: 1e-4 }) as never,
    group: { rank: 0, size: devices },
    dtype: "float32",
    seed: 1,
    gradientClip: 1,
    bucketBytes: 4 << 20,
    window: 1,
    scaling: null,
  };
  const batch = { inputs: weft.zeros([1, length], { dtype: "int32" }), rows };
  const all = Array.from({ length: rounds }, () => {
    const begin = performance.now();
    const { plan } = planRun(options, batch, devices, memory ?? undefined, clusterRates(devices, perHost));
    return { plan, traced: performance.now() - begin - plan.planned };
  });
  const [{ plan }] = all;
  if (plan.bytes > (memory ?? Number.POSITIVE_INFINITY))
    throw new Error(`${given.id}: the plan needs ${plan.bytes} of ${memory} bytes`);
  const { id, model: name } = given;
  return {
    ...{ id, model: name, rows, length, hosts, perHost, memory },
    rounds: all.map((round) => round.plan.planned),
    planMilliseconds: median(all.map((round) => round.plan.planned)),
    traceMilliseconds: median(all.map(({ traced }) => traced)),
    placement: plan.name,
    stepSeconds: plan.seconds,
    bytes: plan.bytes,
  };
}

const suite: Suite = {
  defaults: { rounds: "5" },
  run(context) {
    weft.setDevice("reference");
    const rows = context.choose(cases(context.quick)).map((given) => {
      const row = measure(given, context.number("rounds"));
      console.log(
        `${row.id.padEnd(22)} planned in ${row.planMilliseconds.toFixed(0)} ms (traced in ${row.traceMilliseconds.toFixed(0)}): ` +
          `${row.placement}; ${row.stepSeconds.toPrecision(3)} s, ${(row.bytes / 1e9).toPrecision(3)} GB`,
      );
      return row;
    });
    context.open("placements", { rates: h200.name, rows }).save();
  },
};

export default suite;
