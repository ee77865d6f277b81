// Starts commands as child processes and collects their output. Running children are killed when this process is interrupted.
import { spawn } from "node:child_process";
import { pinned } from "../harness/index.js";

/** Children that are killed when this process is interrupted. One handler for all, because it ends the process. */
export const runningChildren = new Set<{ kill(): unknown }>();
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => {
    for (const child of runningChildren) child.kill();
    process.exit(130);
  });

/**
 * Runs a command and returns its standard output. If the command fails, throws an error with the end of its standard error.
 *
 * @param cores cores that the process is pinned to; null for all
 */
export function commandOutput(
  cores: readonly number[] | null,
  command: string,
  args: readonly (string | number)[],
  env: NodeJS.ProcessEnv = process.env,
): Promise<string> {
  const words = args.map(String);
  const [file, line] = cores === null ? [command, words] : pinned(cores, command, words);
  return new Promise((resolve, reject) => {
    const child = spawn(file, line, { env, stdio: ["ignore", "pipe", "pipe"] });
    runningChildren.add(child);
    let [out, err] = ["", ""];
    child.stdout.on("data", (data) => {
      out += data;
    });
    child.stderr.on("data", (data) => {
      err = (err + data).slice(-20000);
    });
    child.on("error", reject);
    child.on("close", (code) => {
      runningChildren.delete(child);
      if (code === 0) resolve(out);
      else reject(new Error(`${command} ${words.slice(0, 4).join(" ")} ended with ${code}: ${err.slice(-800)}`));
    });
  });
}
