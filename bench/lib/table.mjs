// The result of a benchmark as lines of a table: one line a comparison. Used for the terminal and for docs/performance.md.
const milliseconds = (ms) => {
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 0.1 ? `${ms.toPrecision(3)} ms` : `${(ms * 1000).toPrecision(3)} us`;
};
const times = (x) => x.toPrecision(3);

function rate(row, ms) {
  if (row.flops !== undefined) return `${(row.flops / ms / 1e6).toFixed(1)} GFLOP/s`;
  return row.bytes === undefined ? "" : `${(row.bytes / ms / 1e6).toFixed(1)} GB/s`;
}

const spreadOf = ({ spread }) => `${milliseconds(spread.lower)} to ${milliseconds(spread.upper)}`;
const verdicts = { true: "met", false: "MISSED", null: "" };

/** One line a comparison: { work, weft, spread, rate, peer, time, ratio, range, wanted, verdict }. */
export function tableLines(report) {
  return report.rows.flatMap((row) => {
    const own = row.times?.weft;
    const failed = row.wrong ?? row.problems?.weft;
    const base = {
      work: row.title,
      weft: own === undefined ? "-" : milliseconds(own.ms),
      spread: own === undefined ? "" : spreadOf(own),
      rate: own === undefined ? "" : rate(row, own.ms),
      peer: "",
      time: "",
      ratio: "",
      range: "",
      wanted: "",
      verdict: "",
    };
    if (failed) return [{ ...base, verdict: `FAILED: ${failed.split("\n")[0]}` }];
    const peers = Object.entries(row.ratios).map(([name, ratio]) => ({
      ...base,
      peer: ratio.name,
      time: milliseconds(row.times[name].ms),
      ratio: times(ratio.ratio),
      range: `${times(ratio.min)} to ${times(ratio.max)}`,
      wanted: ratio.wanted === null ? "" : String(ratio.wanted),
      verdict: verdicts[String(ratio.met)],
    }));
    const absent = Object.entries(row.problems ?? {}).map(([name, why]) => ({
      ...base,
      peer: name,
      verdict: `not run: ${why.split("\n")[0].slice(0, 80)}`,
    }));
    const limit =
      row.limit === undefined
        ? []
        : [{ ...base, wanted: `under ${milliseconds(row.limit.ms)}`, verdict: verdicts[String(row.limit.met)] }];
    return [...limit, ...peers, ...absent];
  });
}

export function printTable(report) {
  const columns = ["work", "weft", "rate", "peer", "time", "ratio", "range", "wanted", "verdict"];
  const short = (text) => (text.length > 46 ? `${text.slice(0, 45)}…` : text);
  const lines = tableLines(report).map((line) => columns.map((c) => (c === "work" ? short(line[c]) : line[c])));
  const widths = columns.map((c, i) => Math.max(c.length, ...lines.map((line) => line[i].length)));
  const print = (cells) =>
    console.log(
      cells
        .map((cell, i) => cell.padEnd(widths[i]))
        .join("  ")
        .trimEnd(),
    );
  const { processor, cores, system } = report.hardware;
  console.log(`\n${processor}, ${cores} cores, ${system}; ratio = peer's time / Weft's, median over rounds (range)`);
  print(columns);
  for (const line of lines) print(line);
}
