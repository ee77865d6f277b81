// Scores that need the predictions of all rows at once: of numbers (regression), of several labels per row, and of tags with the entities
// that they mark. Rows come as predictions and labels beside each other, [rows, 2, width].
import { type ClassScore, type ClassScores, scoresOf } from "./class-scores.js";

/** What the numbers of a row are. */
export const scoreKinds = ["regression", "multi-label", "tags"] as const;
/** See {@link scoreKinds}. */
export type ScoreKind = (typeof scoreKinds)[number];

/** Scores of predicted numbers. NaN where a score is not defined, such as the correlation of a constant. */
interface RegressionScore {
  /** Mean squared error. */
  mse: number;
  /** Mean absolute error. */
  mae: number;
  /** Coefficient of determination. */
  r2: number;
  /** Pearson's correlation coefficient. */
  pearson: number;
  /** Spearman's correlation coefficient: that of the ranks, where equal values have their mean rank. */
  spearman: number;
}

/** Scores of a regression: means over the outputs, and by output if there are several. */
interface RegressionScores extends RegressionScore {
  /** By name of the output. */
  outputs: Record<string, RegressionScore>;
}

/** Scores of the entities that tags mark: an entity counts if its first word, its last word and its type are right. */
interface EntityScores {
  /** Share of the predicted entities that are right. */
  precision: number;
  /** Share of the entities that are found. */
  recall: number;
  /** Harmonic mean of precision and recall over all entities (micro). */
  f1: number;
  /** Mean F1 of the types. */
  macroF1: number;
  /** By type of entity. */
  types: Record<string, ClassScore>;
}

/** Scores of a split. */
export interface RowScores {
  /** Share of right rows, or of right tags; null for a regression. */
  accuracy: number | null;
  /** Scores by class, label or tag; null for a regression. */
  scores: ClassScores | null;
  /** Tags of the forms B-X, I-X, E-X, S-X and O (also L-X and U-X) only. */
  entities?: EntityScores;
  /** Regressions only. */
  regression?: RegressionScores;
}

const ratio = (a: number, b: number): number => (b === 0 ? 0 : a / b);
function mean(list: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < list.length; i++) sum += list[i];
  return sum / list.length;
}

/** Ranks from 1; equal values have the mean of their ranks. */
function ranksOf(values: Float64Array): Float64Array {
  const order = Uint32Array.from(values, (_, i) => i).sort((a, b) => values[a] - values[b]);
  const ranks = new Float64Array(values.length);
  for (let from = 0, to = 0; from < order.length; from = to) {
    while (to < order.length && values[order[to]] === values[order[from]]) to++;
    for (let i = from; i < to; i++) ranks[order[i]] = (from + 1 + to) / 2;
  }
  return ranks;
}

function correlation(x: Float64Array, y: Float64Array): number {
  const [mx, my] = [mean(x), mean(y)];
  let [xy, xx, yy] = [0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) ** 2;
    yy += (y[i] - my) ** 2;
  }
  // Rounding may end a hair beyond 1; 0 / 0 is not defined.
  return Math.max(-1, Math.min(1, xy / Math.sqrt(xx) / Math.sqrt(yy)));
}

/** Labels that are all the same leave nothing to explain: 1 if they are predicted, else 0. */
const determination = (error: number, variance: number): number =>
  variance === 0 ? Number(error === 0) : 1 - error / variance;

function regressionScore(predicted: Float64Array, labels: Float64Array): RegressionScore {
  const errors = predicted.map((x, i) => x - labels[i]);
  const center = mean(labels);
  const mse = mean(errors.map((e) => e * e));
  return {
    mse,
    mae: mean(errors.map(Math.abs)),
    r2: determination(mse, mean(labels.map((y) => (y - center) ** 2))),
    pearson: correlation(predicted, labels),
    spearman: correlation(ranksOf(predicted), ranksOf(labels)),
  };
}

/** Numbers of all rows: predictions and labels of row `i` are `at(i, 0, k)` and `at(i, 1, k)`. */
interface Rows {
  count: number;
  width: number;
  at(row: number, side: 0 | 1, k: number): number;
}

function ofRegression({ count, width, at }: Rows, names: readonly string[]): RowScores {
  const column = (side: 0 | 1, k: number): Float64Array =>
    Float64Array.from({ length: count }, (_, i) => at(i, side, k));
  const each = Array.from({ length: width }, (_, k) => regressionScore(column(0, k), column(1, k)));
  const over = (name: keyof RegressionScore): number => mean(each.map((score) => score[name]));
  return {
    accuracy: null,
    scores: null,
    regression: {
      ...{ mse: over("mse"), mae: over("mae"), r2: over("r2"), pearson: over("pearson"), spearman: over("spearman") },
      outputs: Object.fromEntries(each.map((score, k) => [names[k] ?? `output ${k}`, score])),
    },
  };
}

function ofLabels({ count, width, at }: Rows, names: readonly string[]): RowScores {
  const counts = [0, 1, 2].map(() => new Array<number>(width).fill(0));
  let exact = 0;
  for (let i = 0; i < count; i++) {
    let isExact = true;
    for (let k = 0; k < width; k++) {
      const [guess, truth] = [at(i, 0, k) > 0.5, at(i, 1, k) > 0.5];
      if (guess && truth) counts[0][k]++;
      if (guess) counts[1][k]++;
      if (truth) counts[2][k]++;
      isExact &&= guess === truth;
    }
    if (isExact) exact++;
  }
  const { scores } = scoresOf(counts[0], counts[1], counts[2], names, true);
  return { accuracy: ratio(exact, count), scores };
}

/** Tags without a type have the type `_`. */
const tagForm = /^([BIESLU])(?:-(.+))?$/s;

/** Whether tags mark entities. */
export const marksEntities = (names: readonly string[]): boolean =>
  names.some((name) => tagForm.test(name)) && names.every((name) => name === "O" || tagForm.test(name));

/**
 * Entities of a row of tags as `type first last`. An entity begins at B and S, and at I and E that do not continue one of their type, as
 * the script of the CoNLL tasks reads tags.
 */
function entitiesOf(tags: readonly string[]): string[] {
  const found: string[] = [];
  let open: { type: string; from: number } | null = null;
  const close = (last: number): void => {
    if (open !== null) found.push(`${open.type}\0${open.from}\0${last}`);
    open = null;
  };
  tags.forEach((tag, i) => {
    const [, letter = "O", type = "_"] = tagForm.exec(tag) ?? [];
    const isInside = letter === "I" || letter === "E" || letter === "L";
    const current = open as { type: string; from: number } | null;
    if (!(isInside && current?.type === type)) {
      close(i - 1);
      if (letter !== "O") open = { type, from: i };
    }
    if (letter === "E" || letter === "L" || letter === "S" || letter === "U") close(i);
  });
  close(tags.length - 1);
  return found;
}

function ofTags({ count, width, at }: Rows, names: readonly string[]): RowScores {
  const byTag = [0, 1, 2].map(() => new Array<number>(names.length).fill(0));
  const byType = new Map<string, [number, number, number]>();
  const add = (entity: string, which: 0 | 1 | 2): void => {
    const type = entity.slice(0, entity.indexOf("\0"));
    const counts = byType.get(type) ?? [0, 0, 0];
    counts[which]++;
    byType.set(type, counts);
  };
  const hasEntities = marksEntities(names);
  for (let i = 0; i < count; i++) {
    const sides: [string[], string[]] = [[], []];
    for (let k = 0; k < width; k++) {
      const [guess, truth] = [at(i, 0, k), at(i, 1, k)];
      if (!(truth >= 0 && truth < names.length)) continue;
      if (guess === truth) byTag[0][truth]++;
      byTag[1][guess]++;
      byTag[2][truth]++;
      sides[0].push(names[guess]);
      sides[1].push(names[truth]);
    }
    if (!hasEntities) continue;
    const [guessed, wanted] = sides.map(entitiesOf);
    const set = new Set(wanted);
    for (const entity of wanted) add(entity, 2);
    for (const entity of guessed) {
      add(entity, 1);
      if (set.has(entity)) add(entity, 0);
    }
  }
  const result = scoresOf(byTag[0], byTag[1], byTag[2], names);
  if (!hasEntities) return result;
  const types = [...byType.keys()].sort();
  const of = (which: 0 | 1 | 2): number[] => types.map((type) => byType.get(type)![which]);
  const { scores } = scoresOf(of(0), of(1), of(2), types);
  const total = (which: 0 | 1 | 2): number => of(which).reduce((a, b) => a + b, 0);
  const [right, predicted, labeled] = [total(0), total(1), total(2)];
  return {
    ...result,
    entities: {
      precision: ratio(right, predicted),
      recall: ratio(right, labeled),
      f1: ratio(2 * right, predicted + labeled),
      macroF1: scores.f1,
      types: scores.classes,
    },
  };
}

/**
 * Scores of a split from predictions and labels of its rows.
 *
 * @param values - Numbers [rows, 2, width]: numbers of a regression; 1 for labels of a row and 0 for others; ids of tags, of which those
 *   whose label is negative do not count.
 * @param names - Names of the outputs, labels or tags.
 */
export function rowScores(kind: ScoreKind, values: Float64Array, rows: number, names: readonly string[]): RowScores {
  const width = values.length / rows / 2;
  const all: Rows = { count: rows, width, at: (i, side, k) => values[(2 * i + side) * width + k] };
  return { regression: ofRegression, "multi-label": ofLabels, tags: ofTags }[kind](all, names);
}
