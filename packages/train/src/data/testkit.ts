// For tests of data/ and train/: folders that clean up after themselves, and the shared data sets where they are.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

/** A folder for one test file, removed at its end; token files and downloads go there too. */
export function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), "weft-data-"));
  process.env.WEFT_DATA = join(folder, "home");
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export const testdata = (...parts: string[]): string =>
  join(fileURLToPath(new URL("../../testdata", import.meta.url)), ...parts);

/** The folder of a real data set, or options that skip a test and say why. */
export function sharedData(name: string): { folder: string } | { skip: string } {
  const root = process.env.WEFT_SHARED ?? fileURLToPath(new URL("../../../../../shared", import.meta.url));
  const folder = join(root, "data", name);
  return existsSync(folder)
    ? { folder }
    : { skip: `${name} is not here (set WEFT_SHARED to the folder that holds data/${name})` };
}
