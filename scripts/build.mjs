// Compiles the three packages with the strict compiler; incremental, so a second call costs under a second.
import { join } from "node:path";
import { root, sh } from "./setup.mjs";

const wanted = process.argv.slice(2);
const status = sh(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", ...wanted]);
process.exit(status);
