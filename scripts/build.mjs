// Compiles all packages with the strict compiler; incremental, so a second call costs under a second. Removes compiled files
// whose source is gone: a renamed test would otherwise run twice.
import { existsSync, readdirSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { globSync } from "./glob.mjs";
import { root, sh } from "./setup.mjs";

const wanted = process.argv.slice(2);
const status = sh(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", ...wanted]);
for (const name of readdirSync(join(root, "packages"))) {
  const [dist, src] = ["dist", "src"].map((folder) => join(root, "packages", name, folder));
  if (!existsSync(dist)) continue;
  for (const file of globSync(dist, (path) => /\.(d\.ts|js)$/.test(path))) {
    const source = join(src, relative(dist, file)).replace(/\.(d\.ts|js)$/, "");
    if (!existsSync(`${source}.ts`) && !existsSync(`${source}.mjs`)) rmSync(file);
  }
}
process.exit(status);
