// weft lint: finds mistakes in job scripts and configurations before they are submitted.
import { existsSync } from "node:fs";
import { readText } from "@weft/formats/file";
import { listSome } from "@weft/formats/text";
import { parseYaml } from "@weft/formats/yaml";
import { readStudies } from "@weft/lab/internal/import";
import { type LintProblem, lintFiles } from "@weft/lab/internal/lint";
import { type Command, Option } from "commander";
import { attempt, failed, printJson, printText, writeFiles } from "../terminal/index.js";
import { fileKindOf, fileKinds } from "./file-kinds.js";
import { labWork } from "./lab-work.js";

interface Options {
  runs?: string[];
  as?: string;
  json?: boolean;
  out?: string;
}

const help = `
Examples:
  weft lint configs/*.yaml scripts/*.sh            tasks x processes, cores per rank, endpoints, devices
  weft lint my_model.yaml gate.yaml                Weft's own files, as weft train and weft quantum read them
  weft lint configs/*.yaml --runs runs/2026-11-15  also the keys that the program never read, as the probe saw it

Exits with 1 when there is an error, with 0 when there are only warnings.`;

export default function add(program: Command): void {
  program
    .command("lint")
    .description("Find mistakes in YAML configurations and SLURM scripts.")
    .argument("<files...>", "configurations (.yaml) and job scripts")
    .option("--runs <paths...>", "studies whose probe recorded which keys were read")
    .addOption(new Option("--as <kind>", "check the YAML files as files of this kind").choices(Object.keys(fileKinds)))
    .option("--json", "the problems as JSON on standard output")
    .option("--out <dir>", "write lint.json into a directory")
    .addHelpText("after", help)
    .action((files: string[], options: Options) => attempt(() => run(files, options)));
}

/** Weft's own files, checked by the readers of the commands that use them. */
async function ownProblems(
  files: readonly string[],
  as?: string,
): Promise<{ own: LintProblem[]; unrecognized: string[] }> {
  const problems: LintProblem[] = [];
  const unrecognized: string[] = [];
  for (const file of files.filter((path) => /\.ya?ml$/.test(path) && existsSync(path))) {
    let kind: string | null;
    try {
      kind = as ?? fileKindOf(parseYaml(readText(file)));
    } catch {
      continue; // Not YAML: reported with its line already.
    }
    if (kind === null) {
      unrecognized.push(file);
      continue;
    }
    const problem = { file, id: `weft-${kind}` };
    try {
      for (const line of await fileKinds[kind].check(file))
        problems.push({ ...problem, severity: "info", message: line, fix: "write Weft's own keys" });
    } catch (error) {
      const message = (error as Error).message.replaceAll("\n", "; ");
      problems.push({ ...problem, severity: "error", message, fix: `weft schema ${kind} lists the keys` });
    }
  }
  return { own: problems, unrecognized };
}

async function run(files: string[], options: Options): Promise<void> {
  const runs = await labWork(() => readStudies(options.runs ?? []).flatMap((study) => study.runs));
  const linted = lintFiles(files, { runs });
  // A pipe, a device or a file that no person wrote is not read again.
  const refused = new Set(linted.filter((p) => p.id === "unreadable").map((p) => p.file));
  const { own, unrecognized } = await ownProblems(
    files.filter((file) => !refused.has(file)),
    options.as,
  );
  const problems = [...linted, ...own];
  const errors = problems.filter((p) => p.severity === "error").length;
  if (options.out !== undefined) writeFiles(options.out, { "lint.json": `${JSON.stringify({ problems }, null, 2)}\n` });
  if (options.json) printJson({ problems, unrecognized });
  else {
    for (const p of problems)
      printText(
        `${p.file}${p.line === undefined ? "" : `:${p.line}`}: ${p.severity}: ${p.message} [${p.id}]\n    fix: ${p.fix}\n`,
      );
    printText(
      `${files.length} file${files.length === 1 ? "" : "s"}, ${errors} error${errors === 1 ? "" : "s"}, ${problems.length - errors} other\n`,
    );
    if (unrecognized.length > 0)
      printText(
        `not recognized as files of Weft, checked only for what holds in any program: ${listSome(unrecognized, 5)}\n    if one is of Weft, say of which kind: weft lint --as ${Object.keys(fileKinds)[0]} FILE\n`,
      );
  }
  if (errors > 0) process.exitCode = failed;
}
