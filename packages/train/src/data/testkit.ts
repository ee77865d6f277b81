// For tests: folders that are removed afterward, and the testdata folder.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

/** A folder for one test file, removed at its end; token files and downloads go there too. */
export function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), "weft-data-"));
  process.env.WEFT_DATASETS = join(folder, "home");
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export const testdata = (...parts: string[]): string =>
  join(fileURLToPath(new URL("../../testdata", import.meta.url)), ...parts);
