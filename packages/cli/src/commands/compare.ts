// weft compare: two trainings, quantum results or benchmarks side by side. The verdict first, then the settings that differ,
// then what was measured.
import { bootstrapInterval, median } from "@weft/formats/stats";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  printJson,
  printText,
  shorten,
  significant,
  table,
  time,
  wrongUsage,
} from "../terminal/index.js";
import { type ComparedThing, type MeasuredRow, readCompared } from "./compare-read.js";

interface Options {
  all?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft compare runs/first runs/second            two trainings: settings that differ, accuracy, times
  weft compare before.json after.json            two results of weft quantum run --json, or two benchmarks
  weft compare bench/results/cpu.json new.json --json

A time counts as different only if the 95% interval of the ratio of medians excludes 1.`;

export default function add(program: Command): void {
  program
    .command("compare")
    .description("Compare two trainings, quantum results or benchmarks: what differs, and which is better.")
    .argument("<first>", "folder of a run, or a JSON file")
    .argument("<second>", "folder of a run, or a JSON file")
    .option("--all", "also rows that do not differ")
    .option("--json", "the comparison as JSON on standard output")
    .addHelpText("after", help)
    .action((first: string, second: string, options: Options) => attempt(() => run(first, second, options)));
}

interface Difference {
  name: string;
  first: number;
  second: number;
  samples: [number, number];
  /** second / first, with a 95% interval if both have three samples. */
  ratio: number | null;
  interval: [number, number] | null;
  verdict: "better" | "worse" | "equal" | "different" | "unclear";
  unit: MeasuredRow["unit"];
}

function differenceOf(a: MeasuredRow, b: MeasuredRow): Difference {
  const [first, second] = [median(a.values), median(b.values)];
  const samples: [number, number] = [a.values.length, b.values.length];
  const ratio = first === 0 ? null : second / first;
  const interval =
    Math.min(...samples) < 3 || ratio === null
      ? null
      : bootstrapInterval([a.values, b.values], ([x, y]) => median(y) / median(x), { level: 0.95 });
  const { name, unit, better } = a;
  const isTimed = unit === "seconds";
  const settled = interval !== null ? interval[0] > 1 || interval[1] < 1 : !isTimed;
  const verdict =
    first === second
      ? "equal"
      : !settled
        ? "unclear"
        : better === null
          ? "different"
          : second < first === (better === "lower")
            ? "better"
            : "worse";
  return { name, first, second, samples, ratio, interval, verdict, unit };
}

const shown = (value: number, unit: MeasuredRow["unit"]): string =>
  unit === "seconds"
    ? time(value * 1e6)
    : unit === "share"
      ? `${(100 * value).toFixed(2)}%`
      : value !== 0 && Math.abs(value) < 0.01
        ? value.toExponential(3)
        : significant(value);

const setting = (value: unknown): string => shorten(value === undefined ? "-" : (JSON.stringify(value) ?? "-"), 40);

function settingsThatDiffer(a: ComparedThing, b: ComparedThing): [key: string, first: string, second: string][] {
  return [...new Set([...a.settings.keys(), ...b.settings.keys()])]
    .map((key): [string, string, string] => [key, setting(a.settings.get(key)), setting(b.settings.get(key))])
    .filter(([, first, second]) => first !== second);
}

const ratioText = ({ ratio, interval }: Difference): string =>
  ratio === null
    ? "-"
    : `${ratio.toFixed(3)}x${interval === null ? "" : ` (${interval[0].toFixed(3)} to ${interval[1].toFixed(3)})`}`;

/** The important sentence: the quality first, then the time. */
function sentence(differences: readonly Difference[], second: string): string {
  const quality = differences.find((d) => d.unit !== "seconds" && ["better", "worse", "equal"].includes(d.verdict));
  const timed = differences.find((d) => d.unit === "seconds");
  const parts: string[] = [];
  if (quality !== undefined)
    parts.push(
      quality.verdict === "equal"
        ? `has the same ${quality.name} (${shown(quality.first, quality.unit)})`
        : `is ${quality.verdict} in ${quality.name} (${shown(quality.first, quality.unit)} -> ${shown(quality.second, quality.unit)})`,
    );
  if (timed !== undefined)
    parts.push(
      timed.verdict === "better"
        ? `is faster: ${timed.name} ${ratioText(timed)}`
        : timed.verdict === "worse"
          ? `is slower: ${timed.name} ${ratioText(timed)}`
          : `shows no clear difference in ${timed.name}: ${ratioText(timed)}`,
    );
  return parts.length === 0 ? "nothing was measured in both" : `${second} ${parts.join(", and ")}`;
}

async function run(first: string, second: string, options: Options): Promise<void> {
  const [a, b] = [readCompared(first), readCompared(second)];
  if (a.kind !== b.kind)
    throw new CommandError(`${first} is a ${a.kind} and ${second} a ${b.kind}; compare two of a kind`, wrongUsage);
  const differences = a.rows.flatMap((row) => {
    const other = b.rows.find(({ name }) => name === row.name);
    return other === undefined || row.values.length === 0 || other.values.length === 0
      ? []
      : [differenceOf(row, other)];
  });
  const settings = settingsThatDiffer(a, b);
  const unfinished = [a, b].flatMap(({ path, unfinished: why }) => (why === undefined ? [] : [`${path} ${why}`]));
  if (options.json) {
    printJson({ kind: a.kind, first, second, unfinished, settings, differences });
    return;
  }
  const rows = differences.filter((d) => options.all || d.verdict !== "equal" || differences.length <= 12);
  const text = [
    ...unfinished,
    sentence(differences, second),
    settings.length === 0
      ? "settings: no difference"
      : table(["setting that differs", shorten(first, 40), shorten(second, 40)], settings, 3),
    table(
      ["measured", shorten(first, 40), shorten(second, 40), "ratio", "second is"],
      rows.map((d) => [d.name, shown(d.first, d.unit), shown(d.second, d.unit), ratioText(d), d.verdict]),
    ),
  ];
  printText(`${text.join("\n\n")}\n`);
}
