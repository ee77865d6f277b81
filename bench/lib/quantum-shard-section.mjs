// The table of W8 in docs/performance.md, from what bench/quantum-shard.mjs wrote.
const line = (cells) => `| ${cells.join(" | ")} |`;
const ms = (seconds) => `${(seconds * 1e3).toPrecision(3)} ms`;
const bytes = (n) => (n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${Math.round(n)} B`);

function moved(collectives) {
  const kinds = [...new Set(collectives.map(([kind]) => kind))];
  const total = collectives.reduce((sum, [, n]) => sum + n, 0);
  return kinds.length === 0 ? "nothing" : `${kinds.join(", ")}: ${bytes(total)} in ${collectives.length}`;
}

/** Judged at eight workers, and only where dividing is worth it. */
function verdict(row, small, wanted) {
  if (small !== undefined) return "too small to divide";
  if (row.workers !== 8) return "";
  return row.right && row.efficiency >= wanted ? "met" : "MISSED";
}

export function quantumShardSection(record) {
  const { hardware: h, wanted } = record;
  const columns = [
    "work",
    "workers",
    "a call",
    "one by one",
    "slowest independent",
    "efficiency",
    "moved",
    "wanted",
    "verdict",
  ];
  const body = Object.values(record.rows).flatMap(({ title, small, counts }) =>
    counts.map((row) =>
      row.failed !== undefined
        ? line([title, row.workers, "-", "-", "-", "-", "-", "", `FAILED: ${row.failed.split("\n")[0].slice(0, 80)}`])
        : line([
            title,
            row.used < row.workers ? `${row.workers} (${row.used} used)` : row.workers,
            ms(row.seconds.median),
            row.alone === undefined ? "-" : ms(row.alone.median),
            ms(Math.max(...row.independent)),
            row.efficiency.toFixed(2),
            moved(row.collectives),
            row.workers === 8 && small === undefined ? wanted : "",
            verdict(row, small, wanted),
          ]),
    ),
  );
  const advice = Object.values(record.rows)
    .filter(({ small }) => small !== undefined)
    .map(({ title, small }) => `- ${title}: ${small}.`);
  return [
    "## Quantum programs on several workers",
    "",
    `- Machine: ${h.processor}, ${h.cores} cores; measured ${record.at.slice(0, 10)} with \`node bench/quantum-shard.mjs\`, one core a worker, value and gradient`,
    "- Divided by the planner alone. Efficiency is the time of the slowest of N workers that run the whole program by themselves at the same time, divided by N times the time of N workers that share it; both in turns, the median of the turns' ratios",
    '- "a call" with the next one issued before the last is done, as an optimiser does; "one by one" waits for each',
    ...(record.note === undefined ? [] : [`- ${record.note}`]),
    ...advice,
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...body,
    "",
  ];
}
