// Meta-training from a YAML file: every key known, every number checked, a wrong one named with its place.

import { WeftError } from "@weft/core/internal/graph";
import { z } from "zod";
import { integrationSchema, problemOf, problemSchema, readYaml, tasksOf, tasksSchema } from "../control/internal.js";
import { type MetaConfig, type MetaSettings, metaConfig, presetNames } from "./config.js";

const number = z.number();
const file = z.strictObject({
  preset: z.enum(presetNames).optional(),
  seed: number.optional(),
  problem: problemSchema.optional(),
  tasks: tasksSchema.optional(),
  policy: z
    .strictObject({
      width: number.optional(),
      hidden: number.optional(),
      activation: z.enum(["tanh", "relu", "silu", "gelu"]).optional(),
      outputScale: number.optional(),
      gain: number.optional(),
    })
    .optional(),
  batch: number.optional(),
  inner: z.strictObject({ steps: number.optional(), rate: number.optional() }).optional(),
  order: z.union([z.literal(1), z.literal(2)]).optional(),
  outer: z.strictObject({ rate: number.optional(), clip: number.optional() }).optional(),
  iterations: number.optional(),
  validation: z.strictObject({ tasks: number.optional(), every: number.optional() }).optional(),
  integration: z
    .strictObject({ training: integrationSchema.optional(), evaluation: integrationSchema.optional() })
    .optional(),
});

/** Settings of a file's text; `overrides` (from a command line) win. */
export function parseMetaFile(text: string, name = "meta", overrides: MetaSettings = {}): MetaConfig {
  const { problem, tasks, ...rest } = readYaml(file, text, name);
  try {
    return metaConfig({
      ...(rest as MetaSettings),
      problem: problemOf(problem),
      ...(tasks !== undefined && { tasks: tasksOf(tasks) }),
      ...overrides,
    });
  } catch (error) {
    if (error instanceof WeftError) throw new WeftError(`${name}: ${error.message}`);
    throw error;
  }
}
