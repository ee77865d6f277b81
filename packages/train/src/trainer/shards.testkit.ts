// Sharded checkpoints of several ranks in one process, for tests. Run as a program it writes one checkpoint after the
// other until it is killed: arguments are the folder and the number of ranks.
import * as weft from "@weft/core";
import type { Stage } from "@weft/core/internal/shard";
import { type Progress, startShardedCheckpoint } from "./checkpoint.js";
import { type RankGroup, singleRank } from "./group.js";
import type { StoredTensor } from "./shards.js";
import { StatePlacement } from "./state-placement.js";

export const shapes = { a: [7, 5], b: [13], "deep.c": [2, 3, 11], d: [] as number[] };

/** Whole values of a step: they differ between steps, tensors and elements. */
export function valuesOf(name: keyof typeof shapes, step: number): Float32Array {
  const size = shapes[name].reduce((n, d) => n * d, 1);
  return Float32Array.from({ length: size }, (_, i) => 1000 * step + i + name.length / 8);
}

/** The tensors of one rank out of `ranks`; `model` of them share every tensor. */
export function storedBy(rank: number, ranks: number, step: number, model = 1, stage: Stage = 3): StoredTensor[] {
  const names = Object.keys(shapes) as (keyof typeof shapes)[];
  const decision = {
    data: ranks / model,
    model,
    params: names.map((name) => ({ stage, dim: model > 1 && shapes[name].length > 1 ? 1 : -1 })),
    inputs: [],
    rematerialized: [],
  };
  const placement = new StatePlacement(decision, rank);
  return (["model", "optimizer"] as const).flatMap((section) =>
    names.map((name, i) => {
      const shape = shapes[name];
      const placed = placement.parameter(i, shape);
      const { start, stop } = placed.box(rank, shape);
      const whole = weft.tensor(valuesOf(name, step), { shape });
      const local = shape.length === 0 ? whole : whole.index(...start.map((from, d) => `${from}:${stop[d]}`)).realize();
      return { section, name, shape, placement: placed, local };
    }),
  );
}

export const rankOf = (rank: number, size: number): RankGroup => ({ ...singleRank, rank, size });

export const progressOf = (step: number): Progress =>
  ({
    version: 1,
    step,
    epoch: 0,
    index: step,
    lossSum: 0,
    samples: 0,
    seconds: 0,
    epochs: [],
    ranks: 1,
    globalBatch: 1,
    data: { train: "", test: null },
    classes: [],
    config: { model: "test", training: {}, distributed: {} },
  }) as unknown as Progress;

/** Writes a checkpoint of all ranks; `lost` ranks never write their part. */
export const saveAll = (
  run: string,
  ranks: number,
  step: number,
  lost: readonly number[] = [],
  model = 1,
): Promise<void>[] =>
  Array.from({ length: ranks }, (_, rank) => rank)
    .filter((rank) => !lost.includes(rank))
    .map((rank) =>
      startShardedCheckpoint(run, storedBy(rank, ranks, step, model), progressOf(step), 2, rankOf(rank, ranks)),
    );

if (process.argv[1]?.endsWith("shards.testkit.js")) {
  weft.setDevice("reference");
  const [, , run, ranks] = process.argv;
  for (let step = 1; ; step++) {
    await Promise.all(saveAll(run, Number(ranks), step));
    process.stdout.write(`${step}\n`);
  }
}
