// Line search for the strong Wolfe conditions (Nocedal and Wright, chapter 3): bracketing, then zoom with cubic interpolation.

/** Value and slope of the objective at a step along the line. */
interface LinePoint {
  step: number;
  value: number;
  slope: number;
}

const sufficientDecrease = 1e-4;
const curvature = 0.9;
const maxEvaluations = 30;

/** Minimum of the cubic through two points with slopes, at a distance from the ends of the interval. */
function interpolate(a: LinePoint, b: LinePoint): number {
  const d1 = a.slope + b.slope - (3 * (a.value - b.value)) / (a.step - b.step);
  const root = d1 * d1 - a.slope * b.slope;
  const [low, high] = [Math.min(a.step, b.step), Math.max(a.step, b.step)];
  const margin = 0.1 * (high - low);
  const middle = (low + high) / 2;
  if (!(root >= 0)) return middle;
  const d2 = Math.sign(b.step - a.step) * Math.sqrt(root);
  const at = b.step - (b.step - a.step) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
  return Number.isFinite(at) ? Math.min(Math.max(at, low + margin), high - margin) : middle;
}

/**
 * A step along a descent direction that satisfies the strong Wolfe conditions, or null if no step lowers the value. `at` evaluates
 * value and slope; non-finite values count as too long a step.
 */
export function strongWolfe(at: (step: number) => LinePoint, start: LinePoint, first: number): LinePoint | null {
  let evaluations = 0;
  const look = (step: number): LinePoint => {
    evaluations++;
    const point = at(step);
    return Number.isFinite(point.value) && Number.isFinite(point.slope)
      ? point
      : { step, value: Number.POSITIVE_INFINITY, slope: Number.POSITIVE_INFINITY };
  };
  const isTooHigh = (p: LinePoint): boolean => !(p.value <= start.value + sufficientDecrease * p.step * start.slope);
  const isFlat = (p: LinePoint): boolean => Math.abs(p.slope) <= -curvature * start.slope;

  const zoom = (from: LinePoint, to: LinePoint): LinePoint | null => {
    let [low, high] = [from, to];
    while (evaluations < maxEvaluations && Math.abs(high.step - low.step) > 1e-14 * Math.abs(low.step || 1)) {
      const middle = (low.step + high.step) / 2;
      const point = look(Number.isFinite(high.value) ? interpolate(low, high) : middle);
      if (isTooHigh(point) || point.value >= low.value) high = point;
      else {
        if (isFlat(point)) return point;
        if (point.slope * (high.step - low.step) >= 0) high = low;
        low = point;
      }
    }
    // Rounding can prevent the curvature condition; a lower value is still progress.
    return low.step > 0 && low.value < start.value ? low : null;
  };

  let previous = start;
  let step = first;
  while (evaluations < maxEvaluations) {
    const point = look(step);
    if (isTooHigh(point) || (previous.step > 0 && point.value >= previous.value)) return zoom(previous, point);
    if (isFlat(point)) return point;
    if (point.slope >= 0) return zoom(point, previous);
    previous = point;
    step *= 2.5;
  }
  return previous.step > 0 && previous.value < start.value ? previous : null;
}
