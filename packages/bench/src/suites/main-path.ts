// Path of the program that runs suites; suites start it again to serve Weft's rows from a process of its own.
import { fileURLToPath } from "node:url";

export const entryPoint = fileURLToPath(new URL("./main.js", import.meta.url));
