// Lint rules for YAML configurations: keys that the program never read (according to the probe), devices that do not exist, and
// unreadable files.

import type { ConfigFacts } from "@weft/formats/internal";
import { isMap, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import type { Run } from "../model/index.js";
import type { LintProblem } from "./problem.js";

interface Leaf {
  key: string;
  value: unknown;
  line: number;
}

export interface ConfigFile {
  file: string;
  leaves: Leaf[];
  problems: LintProblem[];
}

const mostErrors = 10;

export function readConfigFile(text: string, file: string): ConfigFile {
  const counter = new LineCounter();
  const document = parseDocument(text, { lineCounter: counter, uniqueKeys: true });
  // One mistake may give an error at every line behind it.
  const problems: LintProblem[] = document.errors
    .slice(0, mostErrors)
    .map((error) => ({
      file,
      line: counter.linePos(error.pos[0]).line,
      id: error.code === "DUPLICATE_KEY" ? "duplicate-key" : "bad-yaml",
      severity: "error",
      message: /call stack/.test(error.message) ? "nested too deeply" : error.message.split("\n")[0]!,
      fix: error.code === "DUPLICATE_KEY" ? "keep one of them: the other is silently lost" : "correct the syntax",
    }));
  const leaves: Leaf[] = [];
  const walk = (node: unknown, path: string[], line: number): void => {
    if (isMap(node))
      for (const pair of node.items) {
        const name = isScalar(pair.key) ? String(pair.key.value) : "?";
        const at = isScalar(pair.key) && pair.key.range ? counter.linePos(pair.key.range[0]).line : line;
        walk(pair.value, [...path, name], at);
      }
    else if (isSeq(node)) leaves.push({ key: path.join("."), value: node.toJSON(), line });
    else leaves.push({ key: path.join("."), value: isScalar(node) ? node.value : null, line });
  };
  walk(document.contents, [], 1);
  return { file, leaves, problems };
}

/** Keys that these runs read from this file; null when no run opened it. */
function readKeys(file: string, runs: readonly Run[]): Set<string> | null {
  const tail = file.split("/").at(-1)!;
  const facts = runs
    .flatMap((run) => run.ranks.flatMap((rank) => rank.facts.configs ?? []))
    .filter((c: ConfigFacts) => c.file.split("/").at(-1) === tail);
  if (facts.length === 0) return null;
  return new Set(facts.flatMap((c) => c.read));
}

export function lintConfig(config: ConfigFile, runs: readonly Run[], deviceCount: number | null): LintProblem[] {
  const problems = [...config.problems];
  const read = readKeys(config.file, runs);
  for (const { key, value, line } of config.leaves) {
    // A program that reads a whole section has read its keys.
    const wasRead = read === null || read.has(key) || [...read].some((r) => key.startsWith(`${r}.`) && r.endsWith("*"));
    if (!wasRead)
      problems.push({
        file: config.file,
        line,
        id: "key-never-read",
        severity: "warning",
        message: `${key} is set and the program never read it: it has no effect`,
        fix: "remove it, or make the program use it",
      });
    const ordinal = typeof value === "string" ? /^cuda:(\d+)$/.exec(value.trim()) : null;
    if (ordinal !== null && deviceCount !== null && Number(ordinal[1]) >= deviceCount)
      problems.push({
        file: config.file,
        line,
        id: "device-ordinal",
        severity: "error",
        message: `${key}: ${value} does not exist: there ${deviceCount === 1 ? "is 1 device" : `are ${deviceCount} devices`}`,
        fix: `cuda:0 to cuda:${Math.max(0, deviceCount - 1)}`,
      });
    if (/(^|\.)num_workers$/.test(key) && value === 0)
      problems.push({
        file: config.file,
        line,
        id: "no-loaders",
        severity: "info",
        message: "num_workers: 0 loads data in the training process, between the steps",
        fix: "num_workers: 2 with as many cores",
      });
  }
  return problems;
}
