// weft audit: published results that contradict themselves or their neighbors, each with the lines of the log.
import { plainText } from "@weft/formats/text";
import { type AuditFinding, auditSubmissions, readSubmissions } from "@weft/lab/internal/atlas";
import type { Command } from "commander";
import { attempt, printJson, printText, withProgress } from "../terminal/index.js";
import { labWork } from "./lab-work.js";

const help = `
Examples:
  weft audit training_results_v5.0
  weft audit training_results_v4.1 training_results_v5.0 --json

A finding is a contradiction, not an accusation: the readings that would explain it are printed with it.`;

export default function add(program: Command): void {
  program
    .command("audit")
    .description("Find published results that contradict themselves or their neighbors.")
    .argument("<dirs...>", "checkouts of mlcommons/training_results_vX")
    .option("--json", "the findings as JSON on standard output")
    .addHelpText("after", help)
    .action((directories: string[], options: { json?: boolean }) => attempt(() => run(directories, options)));
}

async function run(directories: string[], options: { json?: boolean }): Promise<void> {
  const submissions = await withProgress((progress) =>
    labWork(() =>
      directories.flatMap((directory) => {
        progress.clear(); // Each round has its own number of logs.
        return readSubmissions(directory, progress.update.bind(progress));
      }),
    ),
  );
  const findings = auditSubmissions(submissions);
  if (options.json) {
    printJson({ submissions: submissions.length, findings });
    return;
  }
  const text = findings.map(
    (f: AuditFinding, i) =>
      `${i + 1}. ${f.id}: ${f.round} ${f.submitter} ${f.system}, ${f.benchmark}\n     ${f.text}\n` +
      f.readings.map((r) => `     reading   ${r}\n`).join("") +
      f.rows.map((r) => `     from      ${r}\n`).join(""),
  );
  printText(plainText(`${text.join("\n")}\n${submissions.length} submissions, ${findings.length} contradictions\n`));
}
