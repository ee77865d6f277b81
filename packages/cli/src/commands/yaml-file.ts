// The text of a YAML file with the values of --set, for readers that take text.
import { basename } from "node:path";
import { readText } from "@weft/formats/file";
import { readSetting, withSettings } from "@weft/formats/internal";
import { parseYaml } from "@weft/formats/yaml";
import { stringify } from "yaml";
import { CommandError, wrongUsage } from "../terminal/index.js";

/** A file with --set applied. */
interface FileText {
  text: string;
  /** Entries of --set whose first part is not a section of the file. */
  rest: string[];
}

/**
 * Reads a file and sets keys of it.
 *
 * @param sections - Its sections. Entries that begin with another name are returned, such as parameters of a device.
 */
export function readWithSettings(file: string, set: readonly string[], sections: readonly string[]): FileText {
  const text = readText(file);
  const own = set.filter((entry) => sections.includes(readSetting(entry)?.key.split(".")[0] ?? ""));
  const rest = set.filter((entry) => !own.includes(entry));
  if (own.length === 0) return { text, rest };
  try {
    return { text: stringify(withSettings(parseYaml(text), own).file), rest };
  } catch (error) {
    throw new CommandError(`${basename(file)}: ${(error as Error).message}`, wrongUsage);
  }
}
