// Compiles all packages with the strict compiler; incremental, so a second call costs under a second. C and CUDA sources are
// copied beside the compiled files that read them. Removes files whose source is gone: a renamed test would otherwise run twice.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { buildPage } from "./build-page.mjs";
import { globSync } from "./glob.mjs";
import { isNative } from "./native-files.mjs";
import { root, sh } from "./setup.mjs";

const wanted = process.argv.slice(2);
const status = sh(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", ...wanted]);
for (const name of readdirSync(join(root, "packages"))) {
  const [dist, src] = ["dist", "src"].map((folder) => join(root, "packages", name, folder));
  if (!existsSync(dist) || !existsSync(src)) continue; // a folder without sources was a package once
  for (const file of globSync(dist, (path) => /\.(d\.ts|js)$/.test(path))) {
    const source = join(src, relative(dist, file)).replace(/\.(d\.ts|js)$/, "");
    if (![".ts", ".tsx", ".mjs"].some((extension) => existsSync(source + extension))) rmSync(file);
  }
  for (const file of globSync(dist, isNative)) if (!existsSync(join(src, relative(dist, file)))) rmSync(file);
  for (const file of globSync(src, isNative)) {
    const target = join(dist, relative(src, file));
    const text = readFileSync(file, "utf8");
    // An equal file keeps its time, which keys of saved programs contain.
    if (existsSync(target) && readFileSync(target, "utf8") === text) continue;
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
  }
}
if (status === 0) await buildPage();
process.exit(status);
