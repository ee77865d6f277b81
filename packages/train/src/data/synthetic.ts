// A synthetic data set: generated headlines on four subjects, identical on every machine. For trying the trainer
// without a download; not a benchmark.
import { threefry2x32 } from "@weft/core/internal/ops";
import { TableBuilder, type TextTable } from "./table.js";

export const syntheticClasses = ["harbour", "orchard", "workshop", "weather"] as const;

const subjects: readonly (readonly string[])[] = [
  ["ferry", "pilot", "quay", "tide", "crane", "cargo", "anchor", "lighthouse", "dock", "skipper", "buoy", "trawler"],
  [
    "apple",
    "cider",
    "blossom",
    "grafting",
    "harvest",
    "pear",
    "ladder",
    "beehive",
    "plum",
    "pruning",
    "basket",
    "cherry",
  ],
  ["lathe", "chisel", "loom", "bench", "varnish", "gear", "rivet", "joinery", "anvil", "bearing", "solder", "spindle"],
  ["drizzle", "frost", "gale", "sleet", "thaw", "cloud", "hail", "breeze", "thunder", "fog", "heat", "barometer"],
];
const common = (
  "the a new old two three after before near over council report week crowd plan price local talks says why slow early late " +
  "returns opens closes waits grows falls keeps leaves brings makes finds small large quiet busy first last again people morning"
).split(" ");

/** Counter-based numbers in [0, 1), from row and position. */
const draw = (seed: number, row: number, place: number): number =>
  threefry2x32(seed, 0x73796e74, row, place)[0] / 2 ** 32;

/** Options of the synthetic data set. */
export interface SyntheticOptions {
  /** Number of rows. */
  rows: number;
  /** Seed of the texts. */
  seed: number;
  /** Share of rows whose words come from another class than the label. */
  noise?: number;
}

/** Generates the synthetic data set. */
export function syntheticTable({ rows, seed, noise = 0.05 }: SyntheticOptions): TextTable {
  const table = new TableBuilder();
  for (let row = 0; row < rows; row++) {
    const label = Math.floor(draw(seed, row, 0) * subjects.length);
    const other = draw(seed, row, 1) < noise;
    const words = subjects[other ? (label + 1) % subjects.length : label];
    const length = 6 + Math.floor(draw(seed, row, 2) * 24);
    const text: string[] = [];
    for (let i = 0; i < length; i++) {
      const own = draw(seed, row, 3 + 2 * i) < 0.25;
      const from = own ? words : common;
      text.push(from[Math.floor(draw(seed, row, 4 + 2 * i) * from.length)]);
    }
    table.add(label, [`${text[0][0].toUpperCase()}${text[0].slice(1)}`, ...text.slice(1)]);
  }
  return table.build();
}
