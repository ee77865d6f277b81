// Reads sharding rules: WEFT_SHARD_RULES names a YAML or JSON file with rules for named parts of the program. Cached by
// modification time.
import { statSync } from "node:fs";
import { WeftError } from "@weft/core/internal/graph";
import { parseRules, type ShardRules } from "@weft/core/internal/shard";
import { readText } from "@weft/formats/file";
import { parseYaml } from "@weft/formats/yaml";
import { clusterSettings } from "./settings.js";

let cached: { key: string; rules: ShardRules } | null = null;

/** Parses rules from a file (YAML or JSON) or an object; `named` is the option's name in errors. */
export function readRules(given: string | object, named = "sharding"): ShardRules {
  if (typeof given !== "string") return parseRules(given);
  let text: string;
  let key: string;
  try {
    key = `${given}@${statSync(given).mtimeMs}`;
    if (cached?.key === key) return cached.rules;
    text = readText(given);
  } catch (error) {
    throw new WeftError(`${named}: ${given} cannot be read (${(error as Error).message})`);
  }
  let config: unknown;
  try {
    config = parseYaml(text);
  } catch (error) {
    throw new WeftError(`${named}: ${given} ${(error as Error).message}`);
  }
  cached = { key, rules: parseRules(config) };
  return cached.rules;
}

/** The rules of WEFT_SHARD_RULES; empty if it is not set. */
export function rulesFromEnvironment(): ShardRules {
  const file = clusterSettings.shardRules.get();
  return file === undefined ? new Map() : readRules(file, "WEFT_SHARD_RULES");
}
