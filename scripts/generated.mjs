// Pages that are generated: written, or with `--check` compared, so that tests can tell when one is out of date.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { root } from "./setup.mjs";

export function writeOrCheck(path, lines) {
  const target = join(root, path);
  const text = `${lines.join("\n").trimEnd()}\n`;
  if (!process.argv.includes("--check")) {
    writeFileSync(target, text);
    console.log(`wrote ${path}`);
  } else if (!existsSync(target) || readFileSync(target, "utf8") !== text) {
    console.error(`${path} is out of date; run: node ${relative(root, process.argv[1])}`);
    process.exit(1);
  }
}
