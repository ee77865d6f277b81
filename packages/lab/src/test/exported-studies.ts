// For tests: tables of epochs with the columns that other programs write. An epoch takes 10 s on one device and 3 s on four.
import { type OddStudy, text, two, yaml } from "./odd-studies.js";

const table = (header: string, rows: readonly (readonly (string | number)[])[]): string =>
  `${header}\n${rows.map((row) => row.join()).join("\n")}\n`;
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);
/** One table with 5 epochs of 10 s and one with 8 of 3 s; the first epoch of each takes half as long again. */
const pair = (of: (seconds: number[], run: number) => string): Record<string, string> => ({
  "study.yaml": yaml(),
  ...two(of([15, 10, 10.1, 9.9, 10], 0), of([4.5, 3, 3.03, 2.97, 3, 3, 3.03, 2.97], 1)),
});
/** Sums of the first values. */
const sums = (seconds: readonly number[]): number[] =>
  seconds.map((_, i) => seconds.slice(0, i + 1).reduce((a, b) => a + b));
const exported = (
  name: string,
  of: (seconds: number[], run: number) => string,
  options: { reports?: RegExp; speedup?: number | null } = {},
): OddStudy => {
  const { reports, speedup = 10 / 3 } = options;
  return { ...text(name, pair(of), "honest", reports), ...(speedup !== null && { speedup }) };
};
const iso = (seconds: number, hours: number): string => {
  const local = new Date(Date.UTC(2025, 9, 26, 0, 58, 0) + (seconds + hours * 3600) * 1000).toISOString();
  return `${local.slice(0, 19)}+0${hours}:00`;
};

export const exportedStudies: OddStudy[] = [
  exported("fastai writes minutes and seconds", (s) =>
    table(
      "epoch,train_loss,valid_loss,accuracy,time",
      s.map((t, i) => [i, 0.7 / (i + 1), 0.6, 0.8, `00:${String(Math.round(t)).padStart(2, "0")}`]),
    ),
  ),
  exported(
    "Ultralytics writes the time since the start",
    (s) =>
      table(
        "                  epoch,time,train/box_loss,metrics/mAP50(B)",
        sums(s).map((t, i) => [i + 1, t, 1.2, 0.3]),
      ),
    { reports: /time since the start/ },
  ),
  exported("W&B: _runtime and a step", (s) =>
    table(
      '"_step","_runtime","epoch","train/loss"',
      sums(s).map((t, i) => [i * 100, t, i, 0.5]),
    ),
  ),
  exported("W&B: a column with the name of the run", (s) =>
    table(
      '"Step","brisk-sun-3 - epoch","brisk-sun-3 - epoch_time","brisk-sun-3 - epoch_time__MIN"',
      s.map((t, i) => [i, i, t, t]),
    ),
  ),
  exported(
    "W&B: columns of two runs",
    (s) =>
      table(
        "Step,a - epoch,a - epoch_time,b - epoch_time",
        s.map((t, i) => [i, i, t, 2 * t]),
      ),
    { reports: /several runs \(a, b\)/, speedup: null },
  ),
  exported(
    "TensorBoard: one scalar",
    (s) =>
      table(
        "Wall time,Step,Value",
        s.map((t, i) => [1.7e9 + t, i, 0.5]),
      ),
    { reports: /TensorBoard/, speedup: null },
  ),
  exported("Lightning: rows of steps between those of epochs", (s) =>
    table(
      "epoch,step,train_loss_step,train_loss_epoch,epoch_time,val_acc",
      s.flatMap((t, i) => [
        [i, 100 * i + 49, 0.6, "", "", ""],
        [i, 100 * i + 99, 0.5, "", "", ""],
        [i, 100 * i + 99, "", 0.55, t, ""],
      ]),
    ),
  ),
  exported(
    "Lightning without times",
    (s) =>
      table(
        "epoch,step,train_loss",
        s.map((_, i) => [i, 100 * i, 0.5]),
      ),
    { reports: /Lightning/, speedup: null },
  ),
  exported(
    "Keras without times",
    (s) =>
      table(
        "epoch,accuracy,loss,val_accuracy,val_loss",
        s.map((_, i) => [i, 1, 1, 1, 1]),
      ),
    { reports: /Keras/, speedup: null },
  ),
  exported("a logger of steps with fractions of epochs, as HF Trainer counts them", (s) =>
    table(
      "step,epoch,loss,elapsed",
      sums(s).flatMap((t, i) => [
        [20 * i + 10, i + 0.5, 0.5, t - s[i]! / 2],
        [20 * i + 20, i + 1, 0.4, t],
      ]),
    ),
  ),
  exported("dates, and summer time ends between two rows", (s) =>
    table(
      "epoch,timestamp",
      sums(s).map((t, i) => [i + 1, iso(t, i < 3 ? 2 : 1)]),
    ),
  ),
  exported(
    "milliseconds since 1970 under the name of time",
    (s) =>
      table(
        "epoch,time",
        sums(s).map((t, i) => [i + 1, Math.round((1.7e9 + t) * 1000)]),
      ),
    { reports: /time of day/ },
  ),
  exported("milliseconds in one of the files, and its header says so", (s, run) =>
    run === 0
      ? table(
          "epoch,epoch_time",
          s.map((t, i) => [i + 1, t]),
        )
      : table(
          "epoch,epoch_time_ms",
          s.map((t, i) => [i + 1, 1000 * t]),
        ),
  ),
  exported("minutes", (s) =>
    table(
      "epoch,Epoch time (min)",
      s.map((t, i) => [i + 1, t / 60]),
    ),
  ),
  exported(
    "a clock that is set back by an hour",
    (s) =>
      table(
        "epoch,wall_time",
        sums(s).map((t, i) => [i + 1, 1.7e9 + t - (i > 2 ? 3600 : 0)]),
      ),
    { reports: /clock that went back/ },
  ),
  exported("time since the start, and a resumed job begins at zero again", (s) => {
    const rows = sums(s).map((t, i) => [i + 1, t]);
    return table("epoch,elapsed_time", [...rows, ...range(4).map((k) => [s.length + k - 1, k * s[1]!])]);
  }),
];
