// Fits the Universal Scalability Law X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)) with sigma, kappa >= 0:
// unconstrained fits of three points extrapolate badly.

/** A fit of the Universal Scalability Law. */
export interface Usl {
  /** Throughput of one device. */
  lambda: number;
  /** Contention. */
  sigma: number;
  /** Crosstalk. */
  kappa: number;
  /** Device count at which throughput peaks; null when kappa is 0. */
  peakDevices: number | null;
  /** Largest throughput of the fit; null if it grows without limit. */
  peakThroughput: number | null;
  /** Root mean square of the relative residuals. */
  residual: number;
}

type Parameters = [lambda: number, sigma: number, kappa: number];

/** Throughput by the Universal Scalability Law. */
export const uslThroughput = ({ lambda, sigma, kappa }: Pick<Usl, "lambda" | "sigma" | "kappa">, n: number): number =>
  (lambda * n) / (1 + sigma * (n - 1) + kappa * n * (n - 1));

function cost(points: readonly [number, number][], p: Parameters): number {
  let total = 0;
  for (const [n, x] of points) total += (uslThroughput({ lambda: p[0], sigma: p[1], kappa: p[2] }, n) - x) ** 2;
  return total;
}

/** Solves a 3x3 system by elimination with pivoting; null when singular. */
function solve3(matrix: number[][], right: number[]): number[] | null {
  const rows = matrix.map((row, i) => [...row, right[i]!]);
  for (let column = 0; column < 3; column++) {
    let pivot = column;
    for (let r = column + 1; r < 3; r++) if (Math.abs(rows[r]![column]!) > Math.abs(rows[pivot]![column]!)) pivot = r;
    [rows[column], rows[pivot]] = [rows[pivot]!, rows[column]!];
    const head = rows[column]![column]!;
    if (!(Math.abs(head) > 1e-300)) return null;
    for (let r = 0; r < 3; r++) {
      if (r === column) continue;
      const factor = rows[r]![column]! / head;
      for (let k = column; k < 4; k++) rows[r]![k]! -= factor * rows[column]![k]!;
    }
  }
  return rows.map((row, i) => row[3]! / row[i]!);
}

/** Damped Levenberg-Marquardt; parameters outside their bounds are clamped at each trial. */
function levenbergMarquardt(points: readonly [number, number][], start: Parameters, clamp: boolean): Parameters {
  let p = start;
  let best = cost(points, p);
  let damping = 1e-3;
  for (let round = 0; round < 500; round++) {
    const normal = [
      [0, 0, 0],
      [0, 0, 0],
      [0, 0, 0],
    ];
    const right = [0, 0, 0];
    for (const [n, x] of points) {
      const d = 1 + p[1] * (n - 1) + p[2] * n * (n - 1);
      const model = (p[0] * n) / d;
      const jacobian = [n / d, (-model * (n - 1)) / d, (-model * n * (n - 1)) / d];
      for (let i = 0; i < 3; i++) {
        right[i]! += jacobian[i]! * (x - model);
        for (let j = 0; j < 3; j++) normal[i]![j]! += jacobian[i]! * jacobian[j]!;
      }
    }
    const damped = normal.map((row, i) => row.map((v, j) => (i === j ? v * (1 + damping) : v)));
    const step = solve3(damped, right);
    if (step === null) break;
    const trial: Parameters = [p[0] + step[0]!, p[1] + step[1]!, p[2] + step[2]!];
    if (clamp) for (const i of [1, 2] as const) trial[i] = Math.max(0, trial[i]);
    const next = trial[0] > 0 ? cost(points, trial) : Number.POSITIVE_INFINITY;
    if (next < best) {
      const gain = (best - next) / best;
      p = trial;
      best = next;
      damping = Math.max(damping / 3, 1e-12);
      if (gain < 1e-14) break;
    } else {
      damping *= 4;
      if (damping > 1e12) break;
    }
  }
  return p;
}

/** Fits the law to [devices, throughput] points; null for fewer than three different counts. */
export function fitUsl(points: readonly [number, number][]): Usl | null {
  const good = points.filter(([n, x]) => n >= 1 && x > 0 && Number.isFinite(n) && Number.isFinite(x));
  if (new Set(good.map(([n]) => n)).size < 3) return null;
  const smallest = good.reduce((a, b) => (b[0] < a[0] ? b : a));
  const start: Parameters = [smallest[1] / smallest[0], 0.1, 0.01];
  const [lambda, sigma, kappa] = levenbergMarquardt(good, start, true);
  const fit = { lambda, sigma, kappa };
  const peak = kappa > 1e-12 && sigma < 1 ? Math.sqrt((1 - sigma) / kappa) : null;
  const peakDevices = peak === null ? null : Math.max(1, Math.floor(peak));
  const squares = good.map(([n, x]) => (uslThroughput(fit, n) / x - 1) ** 2);
  return {
    ...fit,
    peakDevices,
    peakThroughput: peakDevices === null ? null : uslThroughput(fit, peakDevices),
    residual: Math.sqrt(squares.reduce((a, b) => a + b, 0) / good.length),
  };
}
