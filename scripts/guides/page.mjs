// Writes docs/guides.md from the rows and from what came out when they were typed.

const cell = (text) => text.replaceAll("|", "\\|").replaceAll("\n", " ");
/** Text as a code span; backticks inside need a longer fence. */
const code = (text) => (text.includes("`") ? `\`\` ${text} \`\`` : `\`${text}\``);

/** How a row came out: what it printed decides, unless the row says that hardware is missing or that it works partly. */
function stateOf(row, result) {
  if (result === undefined || result.skipped !== undefined) return "not typed";
  if (!result.works) return "FAILS";
  return row.state ?? "works";
}

function outcome(row, result) {
  const printed = (result?.printed ?? []).map(code).join(", ");
  const skipped = result?.skipped === undefined ? [] : [`not typed here: ${result.skipped}`];
  return [...skipped, printed, row.says ?? ""].filter((part) => part !== "").join("; ");
}

/** The page. */
export function writePage(guides, { rows: results, machine }) {
  const byRow = new Map(results.map((result) => [result.row, result]));
  const all = guides.flatMap(({ sections }) => sections.flatMap(({ rows }) => rows));
  const count = (state) => all.filter((row) => stateOf(row, byRow.get(row.number)) === state).length;
  const parts = [
    [count("works"), "work"],
    [count("partly"), "work partly"],
    [count("needs hardware"), "need hardware that was not there (several GPUs, or any GPU)"],
    [count("not typed"), "were not typed"],
    [count("FAILS"), "FAIL"],
  ].filter(([n]) => n > 0);
  const text = [
    "<!-- Written by `npm run guides` from scripts/guides and bench/results/guides.json; do not edit. -->",
    "",
    "# The four guides, row by row",
    "",
    "Four guides describe what users of several GPUs do by hand or wish for: automatic sharding of tensors, data-parallel training of text",
    "classifiers, differentiable quantum simulation on several GPUs, and meta-learned quantum control. This page walks through them section by",
    "section. Each row is one thing that a guide asks for, what to type in Weft, and what came out: code in the fourth column is what the",
    "typed command printed. `npm run guides` types every row again, checks what comes out, and writes this page.",
    "",
    `Of ${all.length} rows ${parts.map(([n, what]) => `${n} ${what}`).join(", ")}. Rows that need hardware show what the same command does with CPU`,
    "workers or simulated devices. The machine had " +
      `${machine?.cores ?? "?"} cores that other programs used too: times here are not measurements; those are in [performance](performance.md).`,
    "",
    "Where a guide's claim does not hold, its row says what the measurement says instead.",
  ];
  for (const guide of guides) {
    text.push("", `## ${guide.title}`, "", `Guide \`${guide.file}\`.`);
    for (const section of guide.sections) {
      text.push("", `### ${section.title}`, "");
      text.push("| | the guide asks for | type | what comes out | |", "| ---: | --- | --- | --- | --- |");
      for (const row of section.rows) {
        const result = byRow.get(row.number);
        const typed = row.type ?? code(row.run);
        text.push(
          `| ${row.number} | ${cell(row.ask)} | ${cell(typed)} | ${cell(outcome(row, result))} | ${stateOf(row, result)} |`,
        );
      }
    }
  }
  return `${text.join("\n")}\n`;
}
