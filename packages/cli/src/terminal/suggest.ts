// Wrong names on the command line always get a suggestion: the nearest name, what the word means here, or the list of names.
import { closestName } from "@weft/formats/text";

/** Words of other programs, and what to type here. The first that the command has is taken. */
const otherWords: Readonly<Record<string, readonly string[]>> = {
  "--gpus": ["--devices", "--device"],
  "--workers": ["--devices", "--cores"],
  "--nproc_per_node": ["--devices"],
  "--nproc-per-node": ["--devices"],
  "--np": ["--devices"],
  "--world-size": ["--devices"],
  "--batch-size": ["--global-batch", "--set"],
  "--batch_size": ["--global-batch", "--set"],
  "--lr": ["--set"],
  "--learning-rate": ["--set"],
  "--config": ["--set"],
  "--root": ["--out"],
  "--output-dir": ["--out"],
  "--output": ["--out"],
  "--steps": ["--max-steps", "--iterations"],
  "--num-workers": ["--set"],
  "--server": ["--host"],
  "--address": ["--server", "--host"],
  "--epoch": ["--epochs"],
  "--model": ["--set"],
  "--dataset": ["--set"],
  "--quiet": ["--json"],
  benchmark: ["bench"],
  download: ["get"],
  ls: ["list"],
  dispatcher: ["server"],
  start: ["server"],
  fit: ["train"],
  new: ["init"],
  create: ["init"],
  plot: ["analyze"],
  profile: ["diagnose"],
  watch: ["top"],
  dashboard: ["ui"],
  check: ["lint"],
  diff: ["compare"],
  torchrun: ["scale"],
};

/** The end of an error message about a wrong name. */
export function suggestName(wrong: string, known: readonly string[], what: string): string {
  const meant = otherWords[wrong]?.find((name) => known.includes(name)) ?? closestName(wrong, known);
  if (meant != null) return `(did you mean ${meant}?)`;
  return known.length === 0 ? `(there are no ${what})` : `(${what}: ${known.join(", ")})`;
}
