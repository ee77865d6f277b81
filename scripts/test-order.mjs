// The order of test files: those that take longest come first, so that no long file runs alone at the end.
// `npm test` prints the processor time of the slowest files; whoever sees a new one there adds it.

/** Parts of paths, longest first. */
const longest = [
  "lab/dist/hang/real-hangs",
  "lab/dist/test/real-jobs",
  "core/dist/test/ops.test",
  "cluster/dist/test/shard-cluster",
  "cluster/dist/faults",
  "cluster/dist/preflight.test",
  "cluster/dist/cluster.test",
  "cluster/dist/hosts",
  "train/dist/trainer/",
  "models/dist/",
  "quantum/dist/golden",
  "quantum/dist/spec/",
  "quantum/dist/meta/",
  "quantum/dist/solvers/",
  "cli/dist/test/",
  "cli/dist/commands/quantum",
  "core/dist/test/",
  "core/dist/device/cuda/emulated/",
  "cluster/",
  "quantum/",
];

/** Files in the order of the list above, the others after them by name. */
export function longestFirst(files) {
  const place = (file) => {
    const at = longest.findIndex((part) => file.includes(part));
    return at < 0 ? longest.length : at;
  };
  return [...files].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}
