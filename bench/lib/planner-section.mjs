// The tables of predictions, collectives and round trips in docs/performance.md, from what bench/planner.mjs wrote and from
// bench/results/collectives.json.
const line = (cells) => `| ${cells.join(" | ")} |`;
const ms = (seconds) => `${(seconds * 1e3).toPrecision(3)} ms`;

export function plannerSection(files) {
  const records = Object.keys(files)
    .filter((name) => /^planner(-\d+)?$/.test(name))
    .sort()
    .map((name) => files[name]);
  const columns = [
    "machine",
    "workers",
    "program",
    "planned for",
    "planning",
    "predicted",
    "measured",
    "ratio",
    "within 15%",
  ];
  const rows = records.flatMap(({ processor, devices, rows: list }) =>
    list.map((row) => {
      const ratio = row.predictedSeconds / row.measuredSeconds;
      return line([
        processor,
        devices,
        row.program,
        row.devices === 1 ? "one device" : `${row.devices} devices`,
        `${row.planMilliseconds.toFixed(0)} ms`,
        ms(row.predictedSeconds),
        ms(row.measuredSeconds),
        ratio.toFixed(2),
        Math.abs(ratio - 1) <= 0.15 ? "yes" : "NO",
      ]);
    }),
  );
  if (rows.length === 0) return [];
  return [
    "## Predicted step times",
    "",
    "- By `node bench/planner.mjs`: the planner's choice and one device, predicted from measured rates before they run; medians over rounds",
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...rows,
    "",
  ];
}

export function collectivesSection({ collectives }) {
  if (collectives === undefined) return [];
  const { machine, at, source, allreduce, roundtrip } = collectives;
  return [
    "## Collectives and round trips",
    "",
    `- ${machine.processor}, ${machine.cores} cores, ${machine.mpi}; ${at}; ${source}`,
    "",
    line(["all-reduce", "ranks", "Weft", "OpenMPI", "ratio", "wanted", "verdict"]),
    line(Array.from({ length: 7 }, () => "---")),
    ...allreduce.flatMap(({ ranks, megabytes, inPlace, outOfPlace }) =>
      Object.entries({ "in place": inPlace, "out of place": outOfPlace }).map(([how, { weftMs, openmpiMs, ratio }]) =>
        line([
          `${megabytes} MB ${how}`,
          ranks,
          ms(weftMs / 1e3),
          ms(openmpiMs / 1e3),
          ratio.toFixed(2),
          "2x",
          ratio >= 2 ? "met" : "MISSED",
        ]),
      ),
    ),
    "",
    line(["round trip of a tiny operation", "median", "90%", "99%", "wanted", "verdict"]),
    line(Array.from({ length: 6 }, () => "---")),
    ...roundtrip.map(({ workers, medianMs, p90Ms, p99Ms }) =>
      line([
        `${workers} worker${workers === 1 ? "" : `s, ${workers - 1} idle`}`,
        ...[medianMs, p90Ms, p99Ms].map((t) => ms(t / 1e3)),
        "0.5 ms",
        medianMs < 0.5 ? "met" : "MISSED",
      ]),
    ),
    "",
  ];
}
