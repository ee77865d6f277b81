// weft quantum tune: measures which integration method, number of steps and pieces of time give value and gradient of a gate fastest.
import { availableParallelism } from "node:os";
import { setDevice } from "@weft/core";
import { type MethodName, methodNames, type TunedEvolution, tuneEvolution } from "@weft/quantum/internal";
import { type Command, InvalidArgumentError, Option } from "commander";
import { attempt, ProgressLine, printJson, printText, significant, table, time } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { loadProblem, physical } from "./quantum-run.js";

interface Options {
  tolerance?: number;
  methods?: MethodName[];
  device?: string;
  set?: string[];
  json?: boolean;
}

const help = `
Examples:
  weft quantum tune gate.yaml
  weft quantum tune gate.yaml --tolerance 1e-8 --methods trotter4 dopri8

For every method it finds the steps (or the tolerance of an adaptive method) that leave an error below --tolerance in the
infidelity, and times one value with its gradient; with the fastest method it tries pieces of time that run in parallel. The
first line is the section evolution to write into the specification. More devices: weft quantum profile gate.yaml --devices 1 2.`;

const fraction = (value: string): number => {
  const x = Number(value);
  if (!(x > 0 && x < 1)) throw new InvalidArgumentError("should be a number between 0 and 1");
  return x;
};

export default function add(program: Command): void {
  program
    .command("tune")
    .description("Choose method, steps and pieces of time of a gate by measurement.")
    .argument("<file>", "specification, YAML or JSON")
    .option(
      "--tolerance <x>",
      "largest error of the infidelity (default: that of the specification, else 1e-6)",
      fraction,
    )
    .addOption(new Option("--methods <names...>", "methods to try").choices([...methodNames]))
    .option("--set <key=value...>", "override parameters")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--json", "write all measurements as JSON to standard output")
    .addHelpText("after", help)
    .action((file: string, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

async function run(file: string, options: Options): Promise<void> {
  if (options.device !== undefined) physical(() => setDevice(options.device!));
  const problem = loadProblem(file, options.set);
  const progress = new ProgressLine();
  let done = 0;
  const cores = availableParallelism();
  let rows: TunedEvolution[];
  try {
    rows = physical(() =>
      tuneEvolution(problem, {
        tolerance: options.tolerance,
        methods: options.methods,
        chunks: [1, cores, 4 * cores],
        onCandidate: (text) => progress.update(text, done++, 7),
      }),
    );
  } finally {
    progress.clear();
  }
  const [best] = rows;
  if (options.json) {
    printJson({ evolution: section(best!), candidates: rows });
    return;
  }
  printText(
    `evolution: ${yaml(section(best!))}\n\n${table(
      ["method", "steps or tolerance", "pieces", "error", "value and gradient", "first call"],
      rows.map((row) => [
        row.method,
        String(row.steps ?? row.tolerance),
        row.chunks === null ? "" : String(row.chunks),
        row.error.toExponential(1),
        time(row.perCall * 1e6),
        time(row.firstCall * 1e6),
      ]),
    )}\n\n${significant(rows.at(-1)!.perCall / best!.perCall)} times faster than the slowest choice\n`,
  );
}

/** The keys of the section evolution. */
const section = ({ method, steps, tolerance, chunks }: TunedEvolution): Record<string, string | number> => ({
  method,
  ...(steps !== null && { steps }),
  ...(tolerance !== null && { tolerance }),
  ...(chunks !== null && { chunks }),
});

const yaml = (keys: Record<string, string | number>): string =>
  `{${Object.entries(keys)
    .map(([key, value]) => `${key}: ${value}`)
    .join(", ")}}`;
