// The C, C++ and CUDA sources of the repository: formats them by .clang-format, or with `--check` says which are not formatted.
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { globSync } from "./glob.mjs";
import { root } from "./setup.mjs";

export const isNative = (path) => /\.(c|cc|cu|cuh|h)$/.test(path);

export const nativeFiles = () =>
  globSync(join(root, "packages"), (path) => isNative(path) && !path.includes("/dist/")).map((path) =>
    relative(root, path),
  );

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { format } = await import("@wasm-fmt/clang-format");
  const style = readFileSync(join(root, ".clang-format"), "utf8");
  const different = nativeFiles().filter((path) => {
    const text = readFileSync(join(root, path), "utf8");
    // The formatter knows languages by file names; CUDA is C++ to it.
    const formatted = format(text, path.replace(/\.cuh?$/, ".cc"), style);
    if (formatted === text) return false;
    if (!process.argv.includes("--check")) writeFileSync(join(root, path), formatted);
    return true;
  });
  if (different.length > 0 && process.argv.includes("--check")) {
    console.error(`not formatted (run: node scripts/native-files.mjs):\n${different.join("\n")}`);
    process.exit(1);
  }
}
