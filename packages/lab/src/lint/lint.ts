// Lints job scripts and configurations, cross-checked with each other and with the facts of the probe.
import { existsSync, readFileSync, statSync } from "node:fs";
import { yamlProblem } from "@weft/formats/yaml";
import type { Run } from "../model/index.js";
import { type ConfigFile, lintConfig, readConfigFile } from "./config-rules.js";
import type { LintProblem } from "./problem.js";
import { readScript, type Script } from "./script.js";
import { type ConfigLookup, gpusAsked, lintScript } from "./script-rules.js";

/** Options of `lintFiles`. */
interface LintOptions {
  /** Runs whose probe facts say which keys were read. */
  runs?: readonly Run[];
}

const largest = 5e6;

/** Devices that a script of the same call requests; else those in the facts of the probe. */
function devicesOf(scripts: readonly Script[], runs: readonly Run[]): number | null {
  const asked = scripts.flatMap((script) => gpusAsked(script) ?? []);
  const seen = runs.flatMap((run) =>
    run.ranks.flatMap((r) => (r.facts.deviceCount === undefined ? [] : [r.facts.deviceCount])),
  );
  const known = asked.length > 0 ? asked : seen;
  return known.length === 0 ? null : Math.max(...known);
}

/** Lints YAML configurations and SLURM scripts. */
export function lintFiles(paths: readonly string[], { runs = [] }: LintOptions = {}): LintProblem[] {
  const problems: LintProblem[] = [];
  const scripts: Script[] = [];
  const configs: ConfigFile[] = [];
  for (const file of paths) {
    const refuse = (message: string, fix: string): void => {
      problems.push({ file, id: "unreadable", severity: "error", message, fix });
    };
    if (!existsSync(file)) refuse("no such file", "check the path");
    else if (!statSync(file).isFile()) refuse("not a file", "name the files themselves, for example configs/*.yaml");
    else if (statSync(file).size > largest)
      refuse("larger than 5 MB: not a configuration or script", "name another file");
    else {
      const text = readFileSync(file, "utf8");
      if (text.includes("\0")) {
        refuse("not text", "name configurations (.yaml) and job scripts");
        continue;
      }
      if (!/\.ya?ml$/.test(file)) scripts.push(readScript(text, file));
      else if (yamlProblem(text) !== null) refuse(yamlProblem(text)!, "name another file");
      else configs.push(readConfigFile(text, file));
    }
  }
  const named = (name: string): ConfigFile | undefined =>
    configs.find(
      (c) => c.file.endsWith(name) || name.endsWith(c.file) || c.file.split("/").at(-1) === name.split("/").at(-1),
    );
  const lookup: ConfigLookup = {
    workers: (name) => {
      const leaf = named(name)?.leaves.find((l) => /(^|\.)num_workers$/.test(l.key));
      return typeof leaf?.value === "number" ? leaf.value : null;
    },
    device: (name) => {
      const config = named(name);
      return config === undefined ? null : String(config.leaves.find((l) => l.key === "device")?.value ?? "cpu");
    },
  };
  const devices = devicesOf(scripts, runs);
  for (const script of scripts) problems.push(...lintScript(script, lookup));
  for (const config of configs) problems.push(...lintConfig(config, runs, devices));
  return problems;
}
