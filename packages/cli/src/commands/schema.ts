// weft schema: the JSON Schemas of the YAML files that Weft reads, for editors.
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  printLines,
  printText,
  suggestName,
  table,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { fileKinds } from "./file-kinds.js";

interface Options {
  out?: string;
}

const help = `
Examples:
  weft schema                             the kinds of files
  weft schema train > train.schema.json
  weft schema --out .weft/schemas         all of them

In the first line of a YAML file, editors with the YAML language server read:
  # yaml-language-server: $schema=train.schema.json`;

export default function add(program: Command): void {
  program
    .command("schema")
    .description("Print the JSON Schema of a kind of YAML file, for completion and checks in editors.")
    .argument("[kind]", Object.keys(fileKinds).join(", "))
    .option("--out <dir>", "write all schemas into a directory")
    .addHelpText("after", help)
    .action((kind: string | undefined, options: Options) => attempt(() => run(kind, options)));
}

/** The JSON Schema of a kind as text. */
export const schemaText = async (kind: string): Promise<string> =>
  `${JSON.stringify(await fileKinds[kind].schema(), null, 2)}\n`;

async function run(kind: string | undefined, { out }: Options): Promise<void> {
  const names = Object.keys(fileKinds);
  if (kind !== undefined && !names.includes(kind))
    throw new CommandError(`there is no kind "${kind}" ${suggestName(kind, names, "kinds")}`, wrongUsage);
  if (out !== undefined) {
    const wanted = kind === undefined ? names : [kind];
    const texts = await Promise.all(wanted.map(async (name) => [`${name}.schema.json`, await schemaText(name)]));
    printLines(`${writeFiles(out, Object.fromEntries(texts) as Record<string, string>).join("\n")}\n`);
  } else if (kind !== undefined) printLines(await schemaText(kind));
  else
    printText(
      `${table(
        ["kind", "file"],
        names.map((name) => [name, fileKinds[name].description]),
        2,
      )}\n`,
    );
}
