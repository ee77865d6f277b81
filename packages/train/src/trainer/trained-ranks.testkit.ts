// A rank of tests that train on several: runs the given trainings one after the other, and rank 0 writes losses and notes as JSON.
// Arguments: a JSON file with the trainings, and the file of the answers.
import { readFileSync, writeFileSync } from "node:fs";
import * as weft from "@weft/core";
import { loadAnyConfig } from "./config.js";
import { joinGroup } from "./group.js";
import type { TrainResult } from "./train-types.js";
import { trainConfig } from "./trainer.js";

/** One training. */
export interface RankTraining {
  file: string;
  output: string;
  set?: string[];
  maxSteps?: number;
  resume?: boolean;
}

/** What came out, on rank 0. */
export interface RankTrained {
  losses: number[];
  notes: string[];
  test: TrainResult["test"];
}

if (process.argv[1]?.endsWith("trained-ranks.testkit.js")) {
  const [, , file, answers] = process.argv;
  weft.setDevice("cpu");
  const group = await joinGroup();
  const made: RankTrained[] = [];
  for (const { file: config, resume = false, ...rest } of JSON.parse(readFileSync(file, "utf8")) as RankTraining[]) {
    const notes: string[] = [];
    const resolved = loadAnyConfig(config, { ...rest, devices: group.size });
    const { losses, test } = await trainConfig(resolved, { group, resume, onNote: (text) => notes.push(text) });
    made.push({ losses, notes, test });
  }
  if (group.rank === 0) writeFileSync(answers, JSON.stringify(made));
  group.close();
}
