// Why a distributed job hangs: evidence of its ranks, and a verdict.
export { judgeHang } from "./judge.js";
export { liveHang } from "./live.js";
export { readHang } from "./read.js";
export { hangText } from "./text.js";
export type { HangVerdict } from "./verdict.js";
