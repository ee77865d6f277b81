// Tapes and traces that the timeline can show: those of the runs, and those beside them in the runs folder.
import { lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { TimelineSource } from "../wire/index.js";
import { isInside } from "./files.js";
import type { RunPlace } from "./row.js";

const isTape = (name: string): boolean => /^tape[\w.-]*\.jsonl$/.test(name);
const isTrace = (name: string): boolean => /(\.tape|\.json|\.json\.gz|\.xplane\.pb)$/.test(name);
/** JSON files beside runs that are no traces. */
const isOther = (name: string): boolean => /^(run|study|slurm|report|parameters|ledger)\.json$/.test(name);

const mostFiles = 64;
const mostRows = 500;
const mostBytes = 2 ** 30;

/** A timeline and its files. */
export interface TimelineFiles {
  row: TimelineSource;
  files: string[];
}

function filesIn(root: string, folder: string, wanted: (name: string) => boolean): { path: string; bytes: number }[] {
  if (!isInside(root, folder)) return [];
  try {
    return readdirSync(folder)
      .filter(wanted)
      .sort()
      .map((name) => join(folder, name))
      .flatMap((path) => {
        const status = lstatSync(path);
        return status.isFile() ? [{ path, bytes: status.size }] : [];
      })
      .slice(0, mostFiles);
  } catch {
    return [];
  }
}

function timeline(
  id: string,
  name: string,
  kind: TimelineSource["kind"],
  found: { path: string; bytes: number }[],
): TimelineFiles[] {
  const bytes = found.reduce((sum, file) => sum + file.bytes, 0);
  if (found.length === 0) return [];
  return [
    {
      row: { id, name, kind, files: found.length, bytes, tooLarge: bytes > mostBytes },
      files: found.map(({ path }) => path),
    },
  ];
}

/** Finds the timelines of the runs at these places and of the runs folder itself. */
export function findTimelines(root: string, places: readonly RunPlace[]): TimelineFiles[] {
  const ofRuns = places.flatMap(({ id, folder }) => [
    ...timeline(`tape:${id}`, id, "tape", filesIn(root, folder, isTape)),
    ...timeline(`trace:${id}`, id, "trace", filesIn(root, join(folder, "traces"), isTrace)),
  ]);
  const beside = filesIn(root, root, (name) => isTrace(name) && !isOther(name)).flatMap((file) => {
    const name = file.path.slice(root.length + 1);
    return timeline(`file:${name}`, name, name.endsWith(".tape") ? "tape" : "trace", [file]);
  });
  return [...ofRuns, ...beside].slice(0, mostRows);
}
