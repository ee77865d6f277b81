// The runs folder: trainings, and studies with their runs. It is looked through again and again; a run whose files did not
// change costs one look at their times.
import { readdirSync, realpathSync, statSync } from "node:fs";
import { join } from "node:path";
import { lenientParser, type StudyFile, studyFileSchema } from "@weft/formats/internal";
import { plainText } from "@weft/formats/text";
import type { Overview, RunRow, StudyRow } from "../wire/index.js";
import { readSmall } from "./files.js";
import { changeKey, type RunPlace, readRow } from "./row.js";

/** Runs that are listed; more are left out, newest folder names first. */
const mostRuns = 2000;
/** Seconds after which the row of a running run is recomputed even if no file changed: its process may have ended. */
const recheckSeconds = 2;

const parseStudyFile = lenientParser(studyFileSchema);

interface Entry {
  place: RunPlace;
  key: string;
  row: RunRow | null;
  at: number;
}

/** Folders in a folder, without links. */
function foldersIn(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith("."))
      .map((entry) => entry.name);
  } catch {
    return [];
  }
}

/** Lists the runs and studies of a folder. */
export class RunsFolder {
  readonly #entries = new Map<string, Entry>();
  readonly #studies = new Map<string, { folder: string; row: StudyRow }>();
  #leftOut = 0;

  constructor(
    readonly path: string,
    private readonly server: string | null = null,
  ) {}

  /** The folder with links resolved; null while it does not exist. */
  get root(): string | null {
    try {
      return realpathSync(this.path);
    } catch {
      return null;
    }
  }

  /** Looks for new, changed and removed runs. */
  scan(): Overview {
    const root = this.root;
    const seen = new Set<string>();
    this.#studies.clear();
    this.#leftOut = 0;
    if (root !== null) {
      // The folder of one run or one study may be given, too.
      if (!this.#study(root, root, "", seen)) this.#run({ root, folder: root, id: "." }, seen);
      for (const name of foldersIn(root).sort().reverse()) {
        const folder = join(root, name);
        if (!this.#study(root, folder, name, seen)) this.#run({ root, folder, id: name }, seen);
      }
    }
    for (const id of this.#entries.keys()) if (!seen.has(id)) this.#entries.delete(id);
    return {
      folder: this.path,
      exists: root !== null,
      runs: [...this.#entries.values()].flatMap(({ row }) => row ?? []),
      studies: [...this.#studies.values()].map(({ row }) => row),
      leftOut: this.#leftOut,
      server: this.server,
    };
  }

  #study(root: string, folder: string, id: string, seen: Set<string>): boolean {
    // Most folders are runs: looking costs less than trying to open.
    if (statSync(join(folder, "study.json"), { throwIfNoEntry: false }) === undefined) return false;
    const text = readSmall(root, join(folder, "study.json"));
    if (text === null) return false;
    let head: Partial<StudyFile> = {};
    try {
      const parsed = parseStudyFile(JSON.parse(text));
      if (parsed.ok) head = parsed.value;
    } catch {
      // Its runs are shown all the same.
    }
    const study = plainText((head.name ?? id).slice(0, 200));
    const inside = foldersIn(join(folder, "runs"));
    for (const name of inside.sort()) {
      const home = join(folder, "runs", name);
      this.#run({ root, folder: home, id: join(id, "runs", name), study }, seen);
    }
    this.#studies.set(id === "" ? "." : id, {
      folder,
      row: {
        id: id === "" ? "." : id,
        name: study,
        counts: head.counts?.slice(0, 64) ?? [],
        runs: inside.length,
        ...(head.createdAt !== undefined && { createdAt: head.createdAt }),
        command: head.command?.slice(0, 64).map((word) => plainText(word.slice(0, 500))) ?? [],
      },
    });
    return true;
  }

  #run(place: RunPlace, seen: Set<string>): void {
    if (this.#entries.size >= mostRuns && !this.#entries.has(place.id)) {
      this.#leftOut++;
      return;
    }
    const key = changeKey(place.folder);
    if (key.startsWith("-")) return; // no run.json
    seen.add(place.id);
    const cached = this.#entries.get(place.id);
    const now = Date.now() / 1000;
    const settled = cached?.row?.state !== "running" || now - cached.at < recheckSeconds;
    if (cached !== undefined && cached.key === key && settled) return;
    this.#entries.set(place.id, { place, key, row: readRow(place), at: now });
  }

  /** Where a listed run is. Nothing else can be asked for, so that a request cannot name a path. */
  place(id: string): RunPlace | null {
    return this.#entries.get(id)?.place ?? null;
  }

  /** All listed runs. */
  get runs(): { place: RunPlace; row: RunRow | null }[] {
    return [...this.#entries.values()];
  }

  get places(): RunPlace[] {
    return [...this.#entries.values()].map(({ place }) => place);
  }

  row(id: string): RunRow | null {
    return this.#entries.get(id)?.row ?? null;
  }

  /** Folder of a listed study. */
  studyFolder(id: string): string | null {
    return this.#studies.get(id)?.folder ?? null;
  }
}
