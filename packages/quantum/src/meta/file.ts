// Meta-training settings from a YAML file: the settings of metaConfig, with problem and tasks in their YAML form.
import { WeftError } from "@weft/core/internal/graph";
import { problemSchema, tasksSchema } from "../control/internal.js";
import { parseYaml, readValue, strict } from "../schema/index.js";
import { type MetaConfig, type MetaSettings, metaConfig, settingsShape } from "./config.js";

const fileSchema = strict({ ...settingsShape, problem: problemSchema.optional(), tasks: tasksSchema.optional() });

/** Reads the settings of a meta-training run from YAML; `overrides` (from a command line) win. */
export function parseMetaFile(source: string, name = "meta", overrides: MetaSettings = {}): MetaConfig {
  const settings = readValue(fileSchema, parseYaml(source, name), name);
  try {
    return metaConfig({ ...settings, ...overrides });
  } catch (error) {
    if (error instanceof WeftError) throw new WeftError(`${name}: ${error.message}`);
    throw error;
  }
}
