// Where the shared reference data lies: beside the repository, or where WEFT_SHARED says. Only tests and scripts use it.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The path, or null when this machine does not have it. */
export function sharedPath(...parts: string[]): string | null {
  const root = fileURLToPath(new URL("../../../..", import.meta.url));
  const path = join(process.env["WEFT_SHARED"] ?? join(root, "..", "shared"), ...parts);
  return existsSync(path) ? path : null;
}
