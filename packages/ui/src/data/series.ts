// The curves of a run in bounded memory: consecutive steps share a bucket with minimum, maximum and mean of each field. When
// the buckets are full, neighbors are merged, so that a run of any length keeps its extremes.
import { type SeriesField, type SeriesPart, type SeriesValues, seriesFields } from "../wire/index.js";

const fieldCount = seriesFields.length;

/** Six significant digits: more than a screen shows, and half of the bytes. */
const shortened = (value: number): number | null => (Number.isFinite(value) ? Number(value.toPrecision(6)) : null);

/** Curves of one rank, reduced while they are added. */
export class StepSeries {
  #count = 0;
  #width = 1;
  readonly #step: Float64Array;
  readonly #time: Float64Array;
  readonly #low: Float32Array;
  readonly #high: Float32Array;
  readonly #sum: Float64Array;
  /** Values that were added up, per bucket and field: a step may lack a field. */
  readonly #values: Uint32Array;

  constructor(private readonly capacity: number) {
    this.#step = new Float64Array(capacity);
    this.#time = new Float64Array(capacity);
    this.#low = new Float32Array(capacity * fieldCount);
    this.#high = new Float32Array(capacity * fieldCount);
    this.#sum = new Float64Array(capacity * fieldCount);
    this.#values = new Uint32Array(capacity * fieldCount);
  }

  /** Steps per bucket. */
  get width(): number {
    return this.#width;
  }

  /** First step of the last bucket; -1 if empty. */
  get last(): number {
    return this.#count === 0 ? -1 : this.#step[this.#count - 1];
  }

  /** Adds a step; `fields` holds NaN where a value is missing. Steps before the last bucket are ignored. */
  add(step: number, t: number, fields: ArrayLike<number>): void {
    if (!(step >= 0) || step > Number.MAX_SAFE_INTEGER) return;
    let at = this.#count - 1;
    const start = step - (step % this.#width);
    if (at >= 0 && start < this.#step[at]) return;
    if (at < 0 || start > this.#step[at]) {
      if (this.#count === this.capacity) {
        this.#halve();
        this.add(step, t, fields);
        return;
      }
      at = this.#count++;
      this.#step[at] = start;
      this.#clear(at);
    }
    this.#time[at] = t;
    for (let f = 0; f < fieldCount; f++) {
      const value = fields[f];
      if (!Number.isFinite(value)) continue;
      const k = at * fieldCount + f;
      this.#low[k] = Math.min(this.#low[k], value);
      this.#high[k] = Math.max(this.#high[k], value);
      this.#sum[k] += value;
      this.#values[k]++;
    }
  }

  #clear(at: number): void {
    const from = at * fieldCount;
    this.#low.fill(Number.POSITIVE_INFINITY, from, from + fieldCount);
    this.#high.fill(Number.NEGATIVE_INFINITY, from, from + fieldCount);
    this.#sum.fill(0, from, from + fieldCount);
    this.#values.fill(0, from, from + fieldCount);
  }

  /** Doubles the width until at most half of the buckets are used. */
  #halve(): void {
    while (this.#count > this.capacity / 2) {
      this.#width *= 2;
      let to = -1;
      for (let from = 0; from < this.#count; from++) {
        const start = this.#step[from] - (this.#step[from] % this.#width);
        if (to < 0 || start !== this.#step[to]) {
          to++;
          this.#step[to] = start;
          if (to !== from) this.#move(from, to);
        } else this.#merge(from, to);
        this.#time[to] = this.#time[from];
      }
      this.#count = to + 1;
    }
  }

  #move(from: number, to: number): void {
    for (const column of [this.#low, this.#high, this.#sum, this.#values])
      column.copyWithin(to * fieldCount, from * fieldCount, (from + 1) * fieldCount);
  }

  #merge(from: number, to: number): void {
    for (let f = 0; f < fieldCount; f++) {
      const [a, b] = [to * fieldCount + f, from * fieldCount + f];
      this.#low[a] = Math.min(this.#low[a], this.#low[b]);
      this.#high[a] = Math.max(this.#high[a], this.#high[b]);
      this.#sum[a] += this.#sum[b];
      this.#values[a] += this.#values[b];
    }
  }

  /** First bucket at or after a step. */
  #find(step: number): number {
    let [low, high] = [0, this.#count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#step[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The curves between two steps in at most `buckets` points. */
  part(fields: readonly SeriesField[], buckets: number, from = 0, to = Number.POSITIVE_INFINITY): SeriesBody {
    const [first, end] = [this.#find(from), to === Number.POSITIVE_INFINITY ? this.#count : this.#find(to)];
    const span = end > first ? this.#step[end - 1] - this.#step[first] + this.#width : 1;
    // Whole multiples of the stored width, so that the points do not change when a step is added.
    const wide = this.#width * Math.max(1, 2 ** Math.ceil(Math.log2(span / this.#width / buckets)));
    const starts: number[] = [];
    for (let i = first; i < end; i++)
      if (i === first || Math.floor(this.#step[i] / wide) !== Math.floor(this.#step[i - 1] / wide)) starts.push(i);
    const columns = fields.map((field) => this.#column(seriesFields.indexOf(field), starts, end, wide === 1));
    return {
      width: wide,
      step: starts.map((i) => this.#step[i]),
      t: starts.map((_, k) => rounded(this.#time[(starts[k + 1] ?? end) - 1])),
      values: Object.fromEntries(fields.flatMap((field, k) => (columns[k] === null ? [] : [[field, columns[k]]]))),
    };
  }

  #column(f: number, starts: readonly number[], end: number, single: boolean): SeriesValues | null {
    const values: Required<SeriesValues> = { mean: [], low: [], high: [] };
    let any = false;
    starts.forEach((start, k) => {
      let [low, high, sum, count] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, 0];
      for (let i = start; i < (starts[k + 1] ?? end); i++) {
        const at = i * fieldCount + f;
        low = Math.min(low, this.#low[at]);
        high = Math.max(high, this.#high[at]);
        sum += this.#sum[at];
        count += this.#values[at];
      }
      any ||= count > 0;
      values.mean.push(count === 0 ? null : shortened(sum / count));
      values.low.push(count === 0 ? null : shortened(low));
      values.high.push(count === 0 ? null : shortened(high));
    });
    if (!any) return null;
    return single ? { mean: values.mean } : values;
  }

  /** Mean of a field over the last buckets that cover about `steps` steps. */
  recent(field: SeriesField, steps: number): { sum: number; count: number } {
    const f = seriesFields.indexOf(field);
    let [sum, count] = [0, 0];
    for (let i = this.#find(this.last - steps); i < this.#count; i++) {
      sum += this.#sum[i * fieldCount + f];
      count += this.#values[i * fieldCount + f];
    }
    return { sum, count };
  }
}

/** A part of a series without what the file adds. */
type SeriesBody = Pick<SeriesPart, "width" | "step" | "t" | "values">;

const rounded = (t: number): number | null => (Number.isFinite(t) ? Math.round(t * 1000) / 1000 : null);
