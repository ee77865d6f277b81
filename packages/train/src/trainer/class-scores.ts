// Scores of a classifier from its counts by class: right predictions, predictions and labels. Averages are over the classes that occur
// as a label or a prediction, and a score whose denominator is 0 is 0.

/** Scores of one class. */
export interface ClassScore {
  /** Share of the predictions of this class that are right. */
  precision: number;
  /** Share of the rows of this class that are found. */
  recall: number;
  /** Harmonic mean of precision and recall. */
  f1: number;
  /** Number of rows of this class. */
  support: number;
}

/** Scores of a classifier. */
export interface ClassScores {
  /** Mean precision of the classes. */
  precision: number;
  /** Mean recall of the classes. */
  recall: number;
  /** Mean F1 of the classes (macro). */
  f1: number;
  /** F1 of all decisions together: the accuracy, unless rows may have several labels. */
  microF1: number;
  /** Mean F1 weighted by the number of rows of a class. */
  weightedF1: number;
  /** Matthews correlation coefficient: 1 is perfect, 0 is chance; null if rows may have several labels. */
  correlation: number | null;
  /** By name of the class. */
  classes: Record<string, ClassScore>;
}

const ratio = (a: number, b: number): number => (b === 0 ? 0 : a / b);
const sum = (list: readonly number[]): number => list.reduce((n, x) => n + x, 0);

/**
 * Scores from counts by class.
 *
 * @param isMany - Rows may have several labels: means are over all labels, also over those that do not occur.
 */
export function scoresOf(
  right: readonly number[],
  predicted: readonly number[],
  labeled: readonly number[],
  names: readonly string[],
  isMany = false,
): { accuracy: number; scores: ClassScores } {
  const each = labeled.map((support, k): ClassScore => {
    const [precision, recall] = [ratio(right[k], predicted[k]), ratio(right[k], support)];
    return { precision, recall, f1: ratio(2 * right[k], predicted[k] + support), support };
  });
  const seen = each.filter((_, k) => isMany || predicted[k] + labeled[k] > 0);
  const [rows, hits] = [sum(labeled), sum(right)];
  const mean = (of: (score: ClassScore) => number): number => ratio(sum(seen.map(of)), seen.length);
  // Gorodkin's form for any number of classes, which needs no matrix of confusions.
  const joint = sum(labeled.map((n, k) => n * predicted[k]));
  const spread = (list: readonly number[]): number => rows * rows - sum(list.map((n) => n * n));
  return {
    accuracy: ratio(hits, rows),
    scores: {
      precision: mean(({ precision }) => precision),
      recall: mean(({ recall }) => recall),
      f1: mean(({ f1 }) => f1),
      microF1: ratio(2 * hits, sum(predicted) + rows),
      weightedF1: ratio(sum(each.map(({ f1, support }) => f1 * support)), rows),
      correlation: isMany
        ? null
        : ratio(hits * rows - joint, Math.sqrt(spread(predicted)) * Math.sqrt(spread(labeled))),
      classes: Object.fromEntries(each.map((score, k) => [names[k] ?? `class ${k}`, score])),
    },
  };
}
