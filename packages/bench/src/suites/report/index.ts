// Writes docs/performance.md, docs/quantum-peers.md, docs/reliability.md and the figures of docs/training.md from the files in
// bench/results/; `--check` compares instead. No number of these pages is typed by hand.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Suite } from "../context.js";
import type { DrillRecord } from "../drill.js";
import type { PreflightDrillRecord } from "../preflight.js";
import { type RecordHead, repository, resultFolder } from "../record.js";
import { performancePage } from "./performance.js";
import { quantumPeersPage } from "./quantum-peers.js";
import { reliabilityPage } from "./reliability.js";
import type { StoredFiles } from "./stored.js";
import { trainingFigures } from "./training.js";

const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));

export function readResults(folder = resultFolder): StoredFiles {
  const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
  return Object.fromEntries(names.sort().map((name) => [name.slice(0, -5), readJson(join(folder, name))]));
}

const start = "<!-- figures: written by `npm run bench:report` from bench/results/ -->\n";
const end = "<!-- end of figures -->";

/** The pages with the figures of these results, by path. */
export function pagesOf(files: StoredFiles): Record<string, string> {
  const training = readFileSync(join(repository, "docs/training.md"), "utf8");
  const [from, to] = [training.indexOf(start), training.indexOf(end)];
  if (from < 0 || to < 0) throw new Error("docs/training.md has lost the comments that mark its figures");
  const peers = quantumPeersPage(files["quantum-peers"] as Parameters<typeof quantumPeersPage>[0]);
  const page = performancePage(files, readJson(join(repository, "bench/notes.json")));
  return {
    ...(peers !== null && { "docs/quantum-peers.md": `${peers.join("\n")}\n` }),
    "docs/performance.md": `${page.join("\n").trimEnd()}\n`,
    ...(files.drill !== undefined && {
      "docs/reliability.md": reliabilityPage(
        files.drill as RecordHead & DrillRecord,
        files.preflight as (RecordHead & PreflightDrillRecord) | undefined,
      ),
    }),
    "docs/training.md": `${training.slice(0, from + start.length)}\n${trainingFigures(files).join("\n")}\n${training.slice(to)}`,
  };
}

const suite: Suite = {
  options: { check: { flag: true, help: "compare the pages instead of writing them" } },
  run(context) {
    for (const [path, text] of Object.entries(pagesOf(readResults()))) {
      const target = join(repository, path);
      if (!context.flag("check")) writeFileSync(target, text);
      else if (readFileSync(target, "utf8") !== text)
        throw new Error(`${path} is out of date; run: npm run bench:report`);
    }
  },
};

export default suite;
