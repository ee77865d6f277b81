// --set key=value and files in the words of other programs: the option, and the note that says what was translated.
import { basename } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { note } from "./command.js";

/** Collects the values of a repeated or variadic --set. */
function collect(value: string, previous: string[] | undefined): string[] {
  if (!/^[^=\s]+=/.test(value)) throw new InvalidArgumentError(`"${value}" is not key=value`);
  return [...(previous ?? []), value];
}

/** Adds --set to a command that reads a YAML file. */
export const addSet = (command: Command, example: string): Command =>
  command.option("--set <key=value...>", `override keys of the file, such as ${example}`, collect);

/** --output, the former name of --out: accepted, not shown. */
export const formerOutput = (what: string): Option => new Option(`--output <${what}>`).hideHelp();

/** Options with --out, also where its former name was used. */
export const withOut = <T extends { out?: string }>({ output, ...options }: T & { output?: string }): T =>
  ({ ...(output !== undefined && { out: output }), ...options }) as T;

/** Prints what the keys of a file in other words mean here. */
export const translationNote =
  (file: string) =>
  (lines: readonly string[]): void => {
    const text = lines.map((line) => `  ${line}`).join("\n");
    note(`${basename(file)} uses other names; here they mean:\n${text}`);
  };
