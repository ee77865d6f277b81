// @ts-check
// Trains classifiers on two CSV files of one's own. Numbers: read, normalize, hold rows out, train, look at the mistakes. Texts: one
// YAML file and two commands.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as weft from "@weft/core";
import { load } from "@weft/core/io";
import * as nn from "@weft/core/nn";
import { readCsvText } from "@weft/formats/csv";
import { exportRun, train } from "@weft/train";
import { lineChart, savePicture, small, verify, weftCommand } from "../example.mjs";

/** @typedef {{ hidden: nn.Linear, out: nn.Linear }} Params */
/** @typedef {{ x: weft.Tensor, y: weft.Tensor }} Batch */

// The first row names the columns; the last column is the label.
const file = join(import.meta.dirname, "flowers.csv");
const [header, ...rows] = Array.from(readCsvText(readFileSync(file), file), ({ fields }) => fields);
const labels = [...new Set(rows.map((row) => row[4]))].sort();
const x = weft.tensor(rows.map((row) => row.slice(0, 4).map(Number)));
const y = weft.tensor(
  rows.map((row) => labels.indexOf(row[4])),
  { dtype: "int32" },
);
console.log(`${rows.length} rows, columns ${header.join(", ")}; labels ${labels.join(", ")}`);

// Every fifth row is held out. Mean and deviation come from the other rows alone.
const every = Array.from(rows.keys());
const split = (/** @type {number[]} */ picked) => ({
  x: x.take(weft.tensor(picked, { dtype: "int32" }), 0),
  y: y.take(weft.tensor(picked, { dtype: "int32" }), 0),
});
const [known, held] = [split(every.filter((i) => i % 5 !== 0)), split(every.filter((i) => i % 5 === 0))];
const [mean, deviation] = [known.x.mean(0), known.x.std(0)];
const normalized = (/** @type {Batch} */ { x, y }) => ({ x: x.sub(mean).div(deviation), y });

const model = {
  /** @returns {Params} */
  init: (/** @type {weft.Key} */ key) => {
    const keys = weft.splitKey(key, 2);
    return {
      hidden: nn.linear.init({ in: 4, out: 16 }, keys.index(0)),
      out: nn.linear.init({ in: 16, out: labels.length }, keys.index(1)),
    };
  },
};
const apply = (/** @type {Params} */ p, /** @type {weft.Tensor} */ x) =>
  nn.linear.apply(p.out, nn.linear.apply(p.hidden, x).tanh());

const folder = mkdtempSync(join(tmpdir(), "weft-own-data-"));
try {
  const { losses, output } = await train({
    name: "flowers",
    model,
    loss: (/** @type {Params} */ p, /** @type {Batch} */ batch) => weft.crossEntropy(apply(p, batch.x), batch.y),
    data: normalized(known),
    training: { epochs: small ? 20 : 60, global_batch: 40 },
    optimizer: { learning_rate: 0.02 },
    output: join(folder, "run"),
  });
  await exportRun(output, join(folder, "model"));
  const saved = /** @type {Record<string, weft.Tensor>} */ (await load(join(folder, "model/model.safetensors")));
  /** @type {Params} */
  const params = {
    hidden: { weight: saved["hidden.weight"], bias: saved["hidden.bias"] },
    out: { weight: saved["out.weight"], bias: saved["out.bias"] },
  };

  // Confusion matrix of the held-out rows: the true label by row, the predicted one by column.
  const answers = apply(params, normalized(held).x).argmax(-1);
  const table = labels.map(() => labels.map(() => 0));
  const truth = await held.y.array();
  const guess = await answers.array();
  for (let i = 0; i < held.y.size; i++) table[/** @type {number[]} */ (truth)[i]][/** @type {number[]} */ (guess)[i]]++;
  console.log(`held-out rows by true (row) and predicted (column) label: ${labels.join(", ")}`);
  for (const [i, row] of table.entries())
    console.log(`  ${labels[i].padEnd(8)}${row.map((n) => String(n).padStart(4)).join("")}`);
  const right = table.reduce((sum, row, i) => sum + row[i], 0);
  verify(`${right} of ${held.y.size} held-out rows are classified correctly, at least 80%`, right >= 0.8 * held.y.size);
  savePicture(
    import.meta.dirname,
    "loss.svg",
    lineChart([{ name: "loss", x: losses.map((_, k) => k + 1), y: losses }], {
      title: "Loss on 240 rows of flowers.csv",
      x: "step",
      y: "cross entropy",
    }),
  );

  // Texts need no program: notes.yaml names the file and its columns.
  const weftText = (/** @type {string[]} */ ...args) =>
    spawnSync(process.execPath, [weftCommand, ...args], { encoding: "utf8" }).stdout;
  const notes = join(folder, "notes");
  console.log(
    weftText("train", join(import.meta.dirname, "notes.yaml"), "--out", notes)
      .trim()
      .split("\n")
      .at(-2),
  );
  const answer = weftText("classify", notes, "the storm and rain again");
  verify(`"the storm and rain again" is about ${answer.split("\t")[0]}`, answer.startsWith("weather"));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
