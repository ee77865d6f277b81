// The GPU section of docs/performance.md, from the file that bench/gpu.mjs wrote.
const cell = (text) => String(text).replaceAll("|", "\\|");
const line = (cells) => `| ${cells.map(cell).join(" | ")} |`;
const time = (ms) =>
  ms === undefined
    ? "-"
    : ms < 0.1
      ? `${(ms * 1e3).toFixed(1)} us`
      : ms < 10
        ? `${ms.toFixed(3)} ms`
        : `${ms.toFixed(1)} ms`;

function wantedText(verdict) {
  if (verdict.milliseconds !== undefined)
    return `at most ${time(verdict.milliseconds)}: ${verdict.met ? "met" : "missed"}`;
  return `${verdict.wantedRatio}x ${verdict.peer}: ${verdict.met ? "met" : "missed"} (${verdict.ratio.toFixed(2)}x)`;
}

export function gpuSection(report) {
  const { hardware: h, versions, at, absent } = report;
  const rows = report.rows.map((row) => {
    const spread = row.times.weft?.spread;
    const rate = row.flops && row.times.weft ? `${(row.flops / row.times.weft.ms / 1e9).toFixed(0)} TFLOP/s` : "";
    return line([
      row.title,
      row.wrong === null ? time(row.times.weft?.ms) : `wrong: ${row.wrong.slice(0, 60)}`,
      spread ? `${time(spread.min)} to ${time(spread.max)}` : "",
      rate,
      row.peers
        .map(({ peer, ms, live, measured }) => `${peer} ${time(ms)}${live ? " *" : measured ? " +" : ""}`)
        .join(", "),
      row.verdicts.map(wantedText).join("; "),
    ]);
  });
  const products = report.rows.flatMap(({ id, peers }) =>
    id.startsWith("matmul-") ? peers.filter(({ peer }) => peer === "torch").slice(0, 1) : [],
  );
  const mean = Math.exp(products.reduce((sum, { ratio }) => sum + Math.log(ratio), 0) / Math.max(1, products.length));
  return [
    "## GPU",
    "",
    `- ${h.gpu}; ${Object.entries(versions)
      .map(([name, v]) => `${name} ${v}`)
      .join(", ")}; measured ${at.slice(0, 10)} with \`npm run bench:gpu\`, both sides in one run`,
    ...(report.rows.some(({ peers }) => peers.some(({ live }) => live))
      ? ["- Peers with * took turns with Weft, round by round; the others ran before or after it"]
      : []),
    ...[...new Set(report.rows.flatMap(({ peers }) => peers.flatMap(({ measured }) => measured ?? [])))].map(
      (when) => `- Peers with + were measured in an earlier run on such a machine, ${when}`,
    ),
    "- Times are medians; every result was checked (Freivalds' test, closed forms, the exact program, golden values) before it was timed",
    ...(products.length > 0
      ? [`- Matrix products against PyTorch: geometric mean ${mean.toFixed(3)}x over ${products.length} rows`]
      : []),
    ...Object.entries(absent).map(([name, why]) => `- Not available: ${name}: ${why}`),
    "",
    line(["work", "Weft", "range", "rate", "peers", "wanted"]),
    line(["---", "---", "---", "---", "---", "---"]),
    ...rows,
    "",
  ];
}
