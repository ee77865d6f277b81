// `npm run bench -- SUITE [options]`: installs and builds what is missing, then runs a benchmark suite of the repository.
import { join } from "node:path";
import { root, setup, sh } from "./setup.mjs";

setup();
const status = sh(process.execPath, [join(root, "scripts/build.mjs")]);
if (status !== 0) process.exit(status);
process.exit(sh(process.execPath, [join(root, "packages/bench/dist/suites/main.js"), ...process.argv.slice(2)]));
