// weft init: writes a commented YAML file with its JSON Schema, a job script, and says which commands to type.
import { existsSync, mkdirSync } from "node:fs";
import { delimiter, isAbsolute, join, relative } from "node:path";
import { createInterface } from "node:readline";
import { type Command, InvalidArgumentError } from "commander";
import {
  attempt,
  CommandError,
  interrupted,
  parseCount,
  printText,
  suggestName,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { goals, type InitAnswers } from "./init-templates.js";

interface Options {
  name?: string;
  devices: number;
  command: string;
  data?: string;
  label?: string;
  text?: string[];
  force?: boolean;
}

const list = Object.entries(goals)
  .map(([goal, { title }]) => `  weft init ${goal.padEnd(9)} ${title}`)
  .join("\n");
const help = `
Examples:
${list}
  weft init text proj --data reviews.csv --label stars    with your own texts

Without a goal it asks, on a terminal. Files that exist are not overwritten without --force.`;

const name = (value: string): string => {
  if (!/^[A-Za-z][\w.-]{0,60}$/.test(value))
    throw new InvalidArgumentError(`"${value}": letters, digits, dots, dashes and underscores, a letter first`);
  return value;
};

export default function add(program: Command): void {
  program
    .command("init")
    .description("Write a configuration, a job script and the commands to type, for one of five goals.")
    .argument("[goal]", Object.keys(goals).join(", "))
    .argument("[folder]", "where to write", ".")
    .option("--name <name>", "name of the configuration and its run (default: the goal)", name)
    .option("--devices <n>", "devices of the job script", parseCount, 2)
    .option(
      "--command <line>",
      "the job to measure, with {n} for the number of devices",
      "torchrun --nproc_per_node={n} train.py",
    )
    .option("--data <path>", "your texts for a text classifier: a CSV, JSON lines or Parquet file, or a folder")
    .option("--label <column>", "column of the class in that file (default: the one with a usual name)")
    .option(
      "--text <columns...>",
      "columns of the text in that file (default: all but the class and those that number the rows)",
    )
    .option("--force", "overwrite files")
    .addHelpText("after", help)
    .action((goal: string | undefined, folder: string, options: Options) => attempt(() => run(goal, folder, options)));
}

/** Whether the shell finds this command by its name. */
const isOnPath = (): boolean =>
  (process.env.PATH ?? "")
    .split(delimiter)
    .some((folder) => folder !== "" && !folder.includes("node_modules") && existsSync(join(folder, "weft")));

/** The data of the user as the configuration names it. It is read once: what training would refuse is refused here. */
async function ownData(
  { data, label, text }: Options,
  goal: string,
  folder: string,
): Promise<Pick<InitAnswers, "data">> {
  const given = [
    data === undefined ? [] : "--data",
    label === undefined ? [] : "--label",
    text === undefined ? [] : "--text",
  ].flat();
  if (given.length > 0 && goal !== "text")
    throw new CommandError(`${given.join(" and ")} belong to weft init text, not to ${goal}`, wrongUsage);
  if (data === undefined) {
    if (given.length > 0) throw new CommandError(`${given.join(" and ")} need --data`, wrongUsage);
    return {};
  }
  const columns = { ...(label !== undefined && { label }), ...(text !== undefined && { text }) };
  const { ownFormatOf, ownSplit, splits } = await import("@weft/train/internal/data");
  return engineWork(async () => {
    const dataset = ownFormatOf(data);
    for (const split of splits) await ownSplit({ format: dataset, path: data, ...columns }, split);
    return { data: { dataset, path: isAbsolute(data) ? data : relative(folder, data), ...columns } };
  });
}

/** Asks for what the command line leaves out. */
async function ask(options: Options): Promise<{ goal: string; answers: InitAnswers }> {
  const input = createInterface({ input: process.stdin, output: process.stderr });
  // Lines that are typed ahead wait for their question.
  const lines = input[Symbol.asyncIterator]();
  const question = async (text: string): Promise<string> => {
    process.stderr.write(text);
    const { value, done } = await lines.next();
    if (done === true) throw new CommandError("nothing was written", interrupted);
    return value.trim();
  };
  try {
    const names = Object.keys(goals);
    const list = names.map((goal, i) => `  ${i + 1}  ${goals[goal].title}`).join("\n");
    const answer = await question(`What do you want to do?\n${list}\n1 to ${names.length}: `);
    const goal = names[Number(answer) - 1] ?? answer;
    if (!names.includes(goal)) throw new CommandError(`"${answer}" ${suggestName(answer, names, "goals")}`, wrongUsage);
    const chosen = await question(`Its name [${options.name ?? goal}]: `);
    const command = goal === "pytorch" ? await question(`The command of the job [${options.command}]: `) : "";
    return {
      goal,
      answers: {
        name: name(chosen === "" ? (options.name ?? goal) : chosen),
        devices: options.devices,
        command: command === "" ? options.command : command,
      },
    };
  } finally {
    input.close();
  }
}

async function run(given: string | undefined, folder: string, options: Options): Promise<void> {
  const names = Object.keys(goals);
  if (given === undefined && !process.stdin.isTTY)
    throw new CommandError(`name a goal (${names.join(", ")}); questions need a terminal`, wrongUsage);
  if (given !== undefined && !names.includes(given))
    throw new CommandError(`there is no goal "${given}" ${suggestName(given, names, "goals")}`, wrongUsage);
  const { goal, answers } =
    given === undefined
      ? await ask(options)
      : { goal: given, answers: { name: options.name ?? given, devices: options.devices, command: options.command } };
  const { files, schema, train, next } = goals[goal].write({ ...answers, ...(await ownData(options, goal, folder)) });
  const { schemaText } = await import("./schema.js");
  const all: Record<string, string> = { ...files, [`${schema}.schema.json`]: await schemaText(schema) };
  mkdirSync(folder, { recursive: true });
  const script = train === undefined ? [] : ["job.sh"];
  const present = [...Object.keys(all), ...script].filter((file) => existsSync(join(folder, file)));
  if (present.length > 0 && options.force !== true)
    throw new CommandError(
      `${present.join(", ")} already ${present.length === 1 ? "exists" : "exist"} in ${folder}; choose another folder, or give --force`,
    );
  const written = writeFiles(folder, all);
  if (train !== undefined) {
    const { slurmScript } = await import("@weft/train/internal/commands");
    const job = { name: answers.name, command: [train], nodes: 1, ranksPerNode: answers.devices, cpusPerRank: 1 };
    written.push(...writeFiles(folder, { "job.sh": slurmScript(job) }));
  }
  const where = folder === "." ? "" : `cd ${folder}\n  `;
  printText(`wrote ${written.join(", ")}\n\nType:\n  ${where}${next.join("\n  ")}\n`);
  if (!isOnPath()) printText(`weft is not on your path; type once: alias weft='node ${process.argv[1]}'\n`);
}
