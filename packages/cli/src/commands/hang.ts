// weft hang: which rank holds up a stuck job, in which collective, at which line, and why.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { hangText, judgeHang, liveHang, readHang } from "@weft/lab/internal/hang";
import { probeEnvironment } from "@weft/lab/internal/runner";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  failed,
  printJson,
  printLines,
  printText,
  warn,
  wrongUsage,
} from "../terminal/index.js";

interface Options {
  live?: boolean;
  env?: boolean;
  json?: boolean;
}

const help = `
Files: dumps of PyTorch's flight recorder (pickle or JSON: TORCH_NCCL_DUMP_ON_TIMEOUT, TORCH_FR_BUFFER_SIZE), dumps of Weft's
probe, logs of torchrun and SLURM, stacks of py-spy and faulthandler, output of ncclras. Folders are searched. Pickles are
read as data and never executed.

Examples:
  weft hang /tmp/nccl_trace_rank_*                 dumps that NCCL's watchdog wrote
  weft hang runs/n4-r0 job-*.out                   a run under the probe, and its logs
  weft hang --live 12345                           a running job: its ranks, or the torchrun that started them
  eval "$(weft hang --env dumps)"; torchrun ...    every rank dumps when it makes no progress for WEFT_HANG_SECONDS (120)

Exit code: 0 a culprit was named; 1 none could be; 2 wrong usage.`;

export default function add(program: Command): void {
  program
    .command("hang")
    .description("Explain a stuck distributed job: culprit rank, collective, source line and kind.")
    .argument("<paths...>", "files and folders; process ids with --live; a folder for the dumps with --env")
    .option("--live", "the arguments are process ids of a running job on this machine")
    .option("--env", "print the environment that makes PyTorch jobs write dumps into a folder")
    .option("--json", "the verdict as JSON on standard output")
    .addHelpText("after", help)
    .action((paths: string[], options: Options) => attempt(() => run(paths, options)));
}

async function run(paths: string[], options: Options): Promise<void> {
  if (options.env) return printEnvironment(paths);
  const evidence = await (options.live ? liveHang(processIds(paths)) : readHang(paths));
  for (const problem of evidence.problems) warn(problem);
  for (const note of evidence.notes) warn(note);
  if (evidence.ranks.size + evidence.calls.length + evidence.notes.length === 0)
    throw new CommandError("there is no dump, stack or log of a rank here; weft hang --help lists what is read");
  const verdict = judgeHang(evidence);
  if (options.json) printJson(verdict);
  else printText(hangText(verdict));
  if (verdict.culprits.length === 0) process.exitCode = failed;
}

function processIds(values: readonly string[]): number[] {
  return values.map((value) => {
    if (!/^\d{1,9}$/.test(value) || Number(value) < 1)
      throw new CommandError(`"${value}" is not a process id; --live takes numbers, as ps shows them`, wrongUsage);
    return Number(value);
  });
}

function printEnvironment(paths: readonly string[]): void {
  if (paths.length !== 1) throw new CommandError("--env takes one folder", wrongUsage);
  const folder = resolve(paths[0]);
  mkdirSync(folder, { recursive: true });
  const quoted = (value: string) => `'${value.replaceAll("'", "'\\''")}'`;
  for (const [name, value] of Object.entries(probeEnvironment(folder, process.env)))
    printLines(`export ${name}=${quoted(value)}\n`);
}
