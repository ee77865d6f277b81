// The command `weft`: collects the commands and hands over to commander. Each command is one thin file.
import { Command, CommanderError } from "commander";
import { commands } from "./commands/index.js";
import { wrongUsage } from "./terminal/index.js";

// A reader that has seen enough (head, less) closes the pipe; that is no error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(0);
});

const program = new Command("weft");
program
  .description("Tensors that shard themselves, and a lab that says why a job does not scale.")
  .version("0.1.0")
  .showHelpAfterError("(weft --help lists the commands)")
  .exitOverride();
for (const add of commands) add(program);
try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  process.exitCode = error.exitCode === 0 ? 0 : wrongUsage;
}
