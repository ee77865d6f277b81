// Every test file gets a temporary folder of its own, so that scripts/test.mjs can tell which file left something behind.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";

/** The temporary folder of a test file. The name is short, because paths of sockets are. */
export const folderOf = (base, file) => join(base, createHash("sha1").update(file).digest("hex").slice(0, 8));

/** Where the processor time of a test file is written. */
export const timesOf = (base, file) => `${folderOf(base, file)}.times`;

/** Processor seconds of this process and of those that it has waited for; null where the system does not tell. */
export function processorSeconds() {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return ticks / 100;
  } catch {
    return null;
  }
}

/** Environment and command of every process of this user, where the system tells. */
function processes() {
  if (!existsSync("/proc/self/environ")) return [];
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const [environment, command] = ["environ", "cmdline"].map((f) => readFileSync(`/proc/${pid}/${f}`, "utf8"));
        return command === "" ? [] : [{ pid, environment, command: command.replaceAll("\0", " ").slice(0, 120) }];
      } catch {
        return [];
      }
    });
}

/** What the test files left behind: one line per file, with the names of files and the processes. */
export function leftBehind(base, files) {
  const running = processes();
  return files.flatMap((file) => {
    const folder = folderOf(base, file);
    if (!existsSync(folder)) return [];
    const own = `TMPDIR=${realpathSync(folder)}`;
    const ours = running.filter(({ environment }) => environment.split("\0").includes(own));
    const left = [...readdirSync(folder), ...ours.map(({ pid, command }) => `process ${pid} (${command.trim()})`)];
    const more = left.length > 5 ? ` and ${left.length - 5} more` : "";
    return left.length === 0 ? [] : [`${file}: ${left.slice(0, 5).join(", ")}${more}`];
  });
}
