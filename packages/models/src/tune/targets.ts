// What a model is fine-tuned to predict: one class per text, several labels, numbers, or a tag per word.
import { type Tensor, tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import type { ProblemType } from "../model/index.js";
import type { LabeledText } from "./rows.js";

/** Rows of the splits, by the names that errors use. */
type Splits = Readonly<Record<string, readonly LabeledText[] | null>>;

/** A text as errors show it. */
const shortened = (text: string): string => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}...` : text);

/** Names in the order of people: 2 before 10. */
const sorted = (names: Iterable<string>): string[] =>
  [...new Set(names)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));

/** Calls `check` for every row of every split, with the place that an error names. */
function eachRow(splits: Splits, check: (row: LabeledText, where: string) => void): void {
  for (const [split, rows] of Object.entries(splits))
    rows?.forEach((row, i) => {
      check(row, `${split}: text ${i + 1}`);
    });
}

/** Names of the classes: those of the training texts. Texts for the evaluation have no others. */
export function classNames(splits: Splits, given: readonly string[] | undefined): string[] {
  const names = given ?? sorted(splits["data"]?.map(({ label }) => label ?? "") ?? []);
  eachRow(splits, ({ label = "", labels, text }, where) => {
    if (labels !== undefined)
      throw new ModelError(
        `${where} has a list of labels (${shortened(labels.join(", "))}); set problem_type: multi_label_classification, or regression for numbers`,
      );
    if (label === "") throw new ModelError(`${where} has no label (${shortened(text)}); give it one, or remove it`);
    if (!names.includes(label))
      throw new ModelError(
        given === undefined
          ? `${where} has the label ${label}, which no training text has; these have ${names.join(", ")}`
          : `${where} has the label ${label}, which is not one of labels: ${names.join(", ")}`,
      );
  });
  if (names.length < 2)
    throw new ModelError(
      `data: all texts have the label ${names[0]}; a classifier needs texts of at least two classes`,
    );
  const fraction = names.find((name) => !Number.isInteger(Number(name)));
  if (given === undefined && fraction !== undefined && names.every((name) => Number.isFinite(Number(name))))
    throw new ModelError(
      `data: the labels are numbers such as ${fraction}; set problem_type: regression to predict numbers, or give labels, the list of the classes`,
    );
  return [...names];
}

/** The words of texts with tags as labeled texts, to find and check the names of the tags. */
export const asTags = (splits: Splits): Splits =>
  Object.fromEntries(
    Object.entries(splits).map(([split, rows]) => [
      split,
      rows?.flatMap(({ words, tags, text }, i) => {
        if (words === undefined || tags === undefined)
          throw new ModelError(
            `${split}: text ${i + 1} has no tags (${shortened(text)}); token classification needs .jsonl with lists "tokens" and "tags"`,
          );
        return words.map((word, k) => ({ text: word, label: tags[k] }));
      }) ?? null,
    ]),
  );

/** Names of what is predicted, and labels of rows as a tensor. */
interface Targets {
  readonly names: readonly string[];
  readonly problem: ProblemType;
  /** Classes int32 [rows]; float32 numbers [rows] or [rows, outputs]; or 0 and 1 in float32 [rows, labels]. */
  labelsOf(rows: readonly LabeledText[]): Tensor;
}

function classes(splits: Splits, given: readonly string[] | undefined): Targets {
  const names = classNames(splits, given);
  const numbers = new Map(names.map((name, i) => [name, i]));
  return {
    names,
    problem: "single_label_classification",
    labelsOf: (rows) => tensor(Int32Array.from(rows, ({ label }) => numbers.get(label as string) as number)),
  };
}

function numbers(splits: Splits, names: readonly string[]): Targets {
  const valuesOf = ({ label, labels }: LabeledText): readonly string[] =>
    labels ?? (label === undefined ? [] : [label]);
  eachRow(splits, (row, where) => {
    const values = valuesOf(row);
    // Infinity in float32 too.
    const wrong = values.find((value) => value.trim() === "" || !Number.isFinite(Math.fround(Number(value))));
    if (wrong !== undefined)
      throw new ModelError(
        `${where} has the label ${shortened(wrong)}, which is not a number; a regression needs one (problem_type of the options or of config.json)`,
      );
    if (values.length !== names.length)
      throw new ModelError(
        `${where} has ${values.length} numbers as its label, expected ${names.length} (${names.join(", ")})`,
      );
  });
  return {
    names,
    problem: "regression",
    labelsOf: (rows) =>
      tensor(Float32Array.from(rows.flatMap(valuesOf), Number), {
        shape: names.length === 1 ? [rows.length] : [rows.length, names.length],
      }),
  };
}

/** Words for a label that a text has, and for one that it has not, in a column of its own. */
const yes: readonly string[] = ["1", "1.0", "true", "True", "TRUE"];
const no: readonly string[] = ["0", "0.0", "false", "False", "FALSE"];

/** Labels that a text names: a list, or a text with commas, semicolons or bars between them. */
const namesIn = ({ label, labels }: LabeledText): string[] =>
  (labels ?? label?.split(/[,;|]/) ?? []).map((name) => name.trim()).filter((name) => name !== "");

function manyLabels(splits: Splits, columns: readonly string[] | null, given: readonly string[] | undefined): Targets {
  if (columns !== null && given !== undefined)
    throw new ModelError("fineTuning: labels are the columns that label names; leave out labels");
  const names = columns ?? given ?? sorted(splits["data"]?.flatMap(namesIn) ?? []);
  if (names.length < 2)
    throw new ModelError(
      `data: the texts have ${names.length === 0 ? "no labels" : `the label ${names[0]} alone`}; several labels per text need at least two`,
    );
  eachRow(splits, (row, where) => {
    if (row.label === undefined && row.labels === undefined)
      throw new ModelError(`${where} has no label (${shortened(row.text)}); give an empty list or field for none`);
    if (columns !== null) {
      const odd = row.labels?.findIndex((value) => !yes.includes(value) && !no.includes(value)) ?? -1;
      if (odd >= 0)
        throw new ModelError(
          `${where} has ${shortened(row.labels?.[odd] ?? "")} in the column ${columns[odd]}; columns of labels hold 0 and 1`,
        );
      return;
    }
    const unknown = namesIn(row).find((name) => !names.includes(name));
    if (unknown !== undefined)
      throw new ModelError(
        `${where} has the label ${unknown}, which ${given === undefined ? "no training text has; these have" : "is not one of labels:"} ${names.join(", ")}`,
      );
  });
  return {
    names,
    problem: "multi_label_classification",
    labelsOf(rows) {
      const table = new Float32Array(rows.length * names.length);
      rows.forEach((row, i) => {
        const own = new Set(
          columns === null ? namesIn(row) : names.filter((_, k) => yes.includes(row.labels?.[k] ?? "")),
        );
        names.forEach((name, k) => {
          table[i * names.length + k] = own.has(name) ? 1 : 0;
        });
      });
      return tensor(table, { shape: [rows.length, names.length] });
    },
  };
}

/** What texts with labels are trained to predict. */
export function targetsOf(
  splits: Splits,
  problem: ProblemType,
  column: string | readonly string[] | undefined,
  given: readonly string[] | undefined,
): Targets {
  const columns = column === undefined || typeof column === "string" ? null : column;
  if (problem === "single_label_classification") return classes(splits, given);
  if (problem === "multi_label_classification") return manyLabels(splits, columns, given);
  return numbers(splits, given ?? columns ?? [typeof column === "string" ? column : "value"]);
}
