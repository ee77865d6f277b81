// Exit codes of the command `weft`, and a commander class that suggests the right name for an unknown option or command. It imports
// nothing but commander, because `weft --help` loads it.
import { Command, type ErrorOptions } from "commander";

/** Exit codes: the command failed, its usage was wrong, or Ctrl-C ended it. */
export const failed = 1;
export const wrongUsage = 2;
export const interrupted = 130;

/** An option or a command that does not exist. */
export class UnknownName extends Error {
  constructor(
    readonly wrong: string,
    readonly known: readonly string[],
    readonly what: "option" | "command",
    /** The help to read, as text in parentheses. */
    readonly hint: string,
  ) {
    super(`unknown ${what} '${wrong}'`);
  }
}

/** "(weft train --help explains the command)" */
function helpHint(command: Command): string {
  if (command.parent === null) return "(weft --help lists the commands)";
  const names: string[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) names.unshift(at.name());
  return `(${names.join(" ")} --help explains the command)`;
}

/** A command whose errors name the help to read. It throws `UnknownName` for unknown names, so that the caller can suggest one. */
export class SuggestingCommand extends Command {
  override createCommand(name?: string): SuggestingCommand {
    return new SuggestingCommand(name);
  }

  override error(message: string, options?: ErrorOptions): never {
    return super.error(`${message}\n${helpHint(this)}`, options);
  }

  /** Called by commander. */
  unknownOption(flag: string): void {
    const known = this.createHelp()
      .visibleOptions(this)
      .flatMap(({ long }) => (long == null ? [] : [long]));
    throw new UnknownName(flag.split("=")[0], known, "option", helpHint(this));
  }

  /** Called by commander. */
  unknownCommand(): void {
    const known = this.createHelp()
      .visibleCommands(this)
      .map((command) => command.name());
    throw new UnknownName(String(this.args[0]).slice(0, 60), known, "command", helpHint(this));
  }
}
