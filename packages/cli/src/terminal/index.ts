// The terminal side of the commands.
export { attempt, CommandError, count, counts, failed, warn, writeFiles, wrongUsage } from "./command.js";
export { percent, shorten, significant, size, time } from "./format.js";
export { Progress } from "./progress.js";
export { csv, table } from "./table.js";
