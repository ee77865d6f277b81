// What the examples share: writing the picture beside the program when it is run directly.
import { mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Runs an example that was started directly: prints its results and writes its picture. */
export async function main(url, solve) {
  const path = fileURLToPath(url);
  if (process.argv[1] === undefined || realpathSync(process.argv[1]) !== path) return;
  const { picture, ...results } = await solve();
  console.log(results);
  const file = join(dirname(path), "pictures", path.replace(/.*\/(.*)\.mjs$/, "$1.svg"));
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, picture);
  console.log(`wrote ${file}`);
}
