// --set key=value and files in the words of other programs: the option, and the note that says what was translated.
import { basename } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { note } from "./command.js";

/** Collects the values of a repeated or variadic --set. */
function collect(value: string, previous: string[] | undefined): string[] {
  if (!/^[^=\s]+=/.test(value)) throw new InvalidArgumentError(`"${value}" is not key=value`);
  return [...(previous ?? []), value];
}

/** Adds --set to a command that reads a YAML file. */
export const addSet = (command: Command, example: string): Command =>
  command.option("--set <key=value...>", `override keys of the file, such as ${example}`, collect);

/** Prints what the keys of a file in other words mean here. */
export const translationNote =
  (file: string) =>
  (lines: readonly string[]): void => {
    const text = lines.map((line) => `  ${line}`).join("\n");
    note(`${basename(file)} uses other names; here they mean:\n${text}`);
  };
