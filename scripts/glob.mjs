// Files below a folder that satisfy a test; Node 20 has no glob of its own.
import { readdirSync } from "node:fs";
import { join } from "node:path";

export function globSync(folder, wanted) {
  const found = [];
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.name === "node_modules") continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) found.push(...globSync(path, wanted));
    else if (wanted(path)) found.push(path);
  }
  return found;
}
