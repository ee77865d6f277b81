// Sharding rules of a user's file: WEFT_SHARD_RULES names a YAML (or JSON) file with rules for the named parts of the
// program. Read once for each version of the file.
import { readFileSync, statSync } from "node:fs";
import { parse } from "yaml";
import { WeftError } from "../graph/index.js";
import { parseRules, type ShardRules } from "../shard/index.js";

let known: { key: string; rules: ShardRules } | null = null;

/** The rules that the environment names; none where it names none. */
export function rulesFromEnvironment(): ShardRules {
  const file = process.env.WEFT_SHARD_RULES;
  if (file === undefined || file === "") return new Map();
  let text: string;
  let key: string;
  try {
    key = `${file}@${statSync(file).mtimeMs}`;
    if (known?.key === key) return known.rules;
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new WeftError(`WEFT_SHARD_RULES: ${file} cannot be read (${(error as Error).message})`);
  }
  let config: unknown;
  try {
    config = parse(text);
  } catch (error) {
    throw new WeftError(`WEFT_SHARD_RULES: ${file} is not YAML: ${(error as Error).message}`);
  }
  known = { key, rules: parseRules(config) };
  return known.rules;
}
