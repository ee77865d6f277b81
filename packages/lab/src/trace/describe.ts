// Summary statistics of a list of numbers, as pandas' describe() defines them: the sample deviation, and quartiles by
// linear interpolation. Knows numbers only.

export interface Description {
  count: number;
  mean: number;
  std: number | null;
  min: number;
  q25: number;
  median: number;
  q75: number;
  max: number;
}

export function describe(values: Float64Array): Description | null {
  const n = values.length;
  if (n === 0) return null;
  const sorted = values.slice().sort();
  let sum = 0;
  for (let i = 0; i < n; i++) sum += values[i];
  const mean = sum / n;
  let squares = 0;
  for (let i = 0; i < n; i++) squares += (values[i] - mean) ** 2;
  return {
    count: n,
    mean,
    std: n > 1 ? Math.sqrt(squares / (n - 1)) : null,
    min: sorted[0],
    q25: quantile(sorted, 0.25),
    median: quantile(sorted, 0.5),
    q75: quantile(sorted, 0.75),
    max: sorted[n - 1],
  };
}

export function quantile(sorted: Float64Array, q: number): number {
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  const high = Math.ceil(at);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

export function round(value: number, digits: number): number {
  const scale = 10 ** digits;
  // Ties go to the even neighbour, as numpy rounds, so that percentages agree in their last digit.
  const scaled = value * scale;
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const rounded = rest === 0.5 ? (floor % 2 === 0 ? floor : floor + 1) : Math.round(scaled);
  return rounded / scale;
}
