// The command `weft`: adds the commands and passes control to commander. Each command is one file.
import { CommanderError } from "commander";
import { addCommands } from "./commands/index.js";
import { SuggestingCommand, UnknownName, wrongUsage } from "./usage/index.js";

// A reader such as head or less closes the pipe early; that is not an error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(0);
});

// What commander says of wrong usage: printed below like every other error.
let complaint = "";

const program = new SuggestingCommand("weft");
program
  .configureOutput({
    writeErr: (text) => {
      complaint += text;
    },
  })
  .description("Tensors that shard themselves, and a lab that says why a job does not scale.")
  .version("0.1.0")
  .addHelpText(
    "after",
    `
Begin with one of these:
  weft init                                          asks what you want to do, and writes the files for it
  weft doctor                                        what this machine has and lacks
  weft train configs/synthetic.yaml                  a training of seconds
  weft scale --devices 1,2 -- python train.py        how your own job scales, and why not better
Every command explains itself: weft COMMAND --help.`,
  )
  .exitOverride();
try {
  await addCommands(program, process.argv.slice(2));
  await program.parseAsync();
} catch (error) {
  if (error instanceof UnknownName) {
    const { suggestName } = await import("./terminal/index.js");
    const { wrong, known, what, hint } = error;
    complaint = `error: ${error.message}\n${suggestName(wrong, known, `${what}s`)}\n${hint}\n`;
  } else if (!(error instanceof CommanderError)) throw error;
  // Help needs no more than commander.
  if (!complaint.startsWith("error:")) process.stderr.write(complaint);
  else {
    const { plainText } = await import("@weft/formats/text");
    const { paint, widthOf, wrapped } = await import("./terminal/index.js");
    const text = wrapped(plainText(complaint), widthOf(process.stderr));
    process.stderr.write(text.replace(/^error:/, paint.bad("error:", process.stderr)));
  }
  process.exitCode = error instanceof CommanderError && error.exitCode === 0 ? 0 : wrongUsage;
}
