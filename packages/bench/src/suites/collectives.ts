import type { Suite } from "./context.js";
export const suite: Suite = { run() {} };
