// The table of W8 in docs/performance.md, from what bench/quantum-shard.mjs wrote.
const line = (cells) => `| ${cells.join(" | ")} |`;
const ms = (seconds) => `${(seconds * 1e3).toPrecision(3)} ms`;
const bytes = (n) => (n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${Math.round(n)} B`);

function moved(collectives) {
  const kinds = [...new Set(collectives.map(([kind]) => kind))];
  const total = collectives.reduce((sum, [, n]) => sum + n, 0);
  return kinds.length === 0 ? "nothing" : `${kinds.join(", ")}: ${bytes(total)} in ${collectives.length}`;
}

export function quantumShardSection(record) {
  const { hardware: h, wanted } = record;
  const columns = ["work", "workers", "a call", "slowest independent", "efficiency", "moved", "wanted", "verdict"];
  const body = Object.values(record.rows).flatMap(({ title, counts }) =>
    counts.map((row) =>
      row.failed !== undefined
        ? line([title, row.workers, "-", "-", "-", "-", "", `FAILED: ${row.failed.split("\n")[0].slice(0, 80)}`])
        : line([
            title,
            row.workers,
            ms(row.seconds.median),
            ms(Math.max(...row.independent)),
            row.efficiency.toFixed(2),
            moved(row.collectives),
            row.workers === 8 ? wanted : "",
            row.workers !== 8 ? "" : row.right && row.efficiency >= wanted ? "met" : "MISSED",
          ]),
    ),
  );
  return [
    "## Quantum programs on several workers",
    "",
    `- Machine: ${h.processor}, ${h.cores} cores; measured ${record.at.slice(0, 10)} with \`node bench/quantum-shard.mjs\`, one core a worker, value and gradient`,
    "- Divided by the planner alone. Efficiency is the time of the slowest of N workers that run the whole program by themselves at the same time, divided by N times the time of N workers that share it",
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...body,
    "",
  ];
}
