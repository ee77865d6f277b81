// The architectures, by the `model_type` of config.json.
import { type Fields, ModelError } from "../config/index.js";
import { bert, roberta } from "./bert.js";
import { type Architecture, type ModelTask, tasks } from "./contract.js";
import { distilbert } from "./distilbert.js";
import { gpt2 } from "./gpt2.js";
import { llama, qwen2 } from "./llama.js";
import { vit } from "./vit.js";

/** All architectures. */
const architectures: Readonly<Record<string, Architecture>> = Object.fromEntries(
  Object.entries({ bert, distilbert, roberta, gpt2, llama, qwen2, vit }),
) as Record<string, Architecture>;

/** The architecture of a configuration. */
export function architectureOf(fields: Fields): { type: string; architecture: Architecture } {
  const type = fields.raw["model_type"];
  if (typeof type !== "string") throw fields.error("model_type", "is missing; it names the architecture");
  if (!Object.hasOwn(architectures, type))
    throw fields.error(
      "model_type",
      `is ${JSON.stringify(type.slice(0, 80))}, which is not known; known: ${Object.keys(architectures).join(", ")}`,
    );
  return { type, architecture: architectures[type] };
}

/** The task that a checkpoint was saved for, by the class that it names; `base` if it names none. */
export function savedTask({ classes }: Architecture, fields: Fields): ModelTask {
  const named = fields.raw["architectures"];
  if (named === undefined || named === null) return "base";
  if (!Array.isArray(named) || named.length !== 1)
    throw fields.error("architectures", "must be a list of one class; pass the option task instead");
  const found = tasks.find((task) => classes[task] === named[0]);
  if (found !== undefined) return found;
  // Other heads on a known backbone: the backbone loads, its head does not.
  return "base";
}

/** Throws unless the architecture has a head for the task. */
export function checkTask({ classes }: Architecture, type: string, task: ModelTask): void {
  if (classes[task] === undefined)
    throw new ModelError(
      `${type} has no head for the task ${JSON.stringify(task)}; it has ${Object.keys(classes).join(", ")}`,
    );
}

export * from "./contract.js";
export type { Dense } from "./layers.js";
export { sizeOf, treeOf } from "./tables.js";
