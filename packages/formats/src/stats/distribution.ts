// Distribution of a list of numbers, as pandas' describe() defines it: sample standard deviation, and quartiles by linear
// interpolation.

/** Count, moments and quartiles of a list of numbers. */
export interface Distribution {
  count: number;
  mean: number;
  std: number | null;
  min: number;
  q25: number;
  median: number;
  q75: number;
  max: number;
}

/** Distribution of a list, or null when the list is empty. */
export function distribution(values: Float64Array | Int32Array): Distribution | null {
  const n = values.length;
  if (n === 0) return null;
  let sum = 0;
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  let whole = true;
  for (let i = 0; i < n; i++) {
    const value = values[i];
    sum += value;
    if (value < min) min = value;
    if (value > max) max = value;
    if (whole && value !== Math.floor(value)) whole = false;
  }
  const mean = sum / n;
  let squares = 0;
  for (let i = 0; i < n; i++) squares += (values[i] - mean) ** 2;
  // Integer microseconds and queue lengths repeat often: counting them is much faster than sorting them.
  const at = whole && max - min < 4 * n + 65536 ? counted(values, min, max) : sorted(values);
  const quantile = (q: number): number => {
    const place = (n - 1) * q;
    const low = at(Math.floor(place));
    return low + (at(Math.ceil(place)) - low) * (place - Math.floor(place));
  };
  return {
    count: n,
    mean,
    std: n > 1 ? Math.sqrt(squares / (n - 1)) : null,
    min,
    q25: quantile(0.25),
    median: quantile(0.5),
    q75: quantile(0.75),
    max,
  };
}

/** The value at an index of the sorted list. */
type AtIndex = (index: number) => number;

function sorted(values: Float64Array | Int32Array): AtIndex {
  const list = values.slice().sort();
  return (index) => list[index];
}

function counted(values: Float64Array | Int32Array, min: number, max: number): AtIndex {
  const counts = new Uint32Array(max - min + 1);
  for (let i = 0; i < values.length; i++) counts[values[i] - min]++;
  return (index) => {
    let seen = 0;
    for (let i = 0; i < counts.length; i++) {
      seen += counts[i];
      if (seen > index) return i + min;
    }
    return max;
  };
}

/** Rounds to a number of digits; ties go to the even neighbor, as in NumPy. */
export function roundHalfEven(value: number, digits: number): number {
  const scale = 10 ** digits;
  const scaled = value * scale;
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const rounded = rest === 0.5 ? (floor % 2 === 0 ? floor : floor + 1) : Math.round(scaled);
  return rounded / scale;
}
