// Plots of few points as SVG: points with intervals, lines, logarithmic axes. Curves of many points are charts on a canvas.
import { useMemo } from "preact/hooks";

/** A point with an optional interval of its value. */
export interface PlotPoint {
  x: number;
  y: number;
  interval?: [number, number] | null;
  /** Class of the color: c1 to c6. */
  color: string;
  hollow?: boolean;
  label: string;
}

/** A line through points, without marks. */
export interface PlotLine {
  points: readonly (readonly [number, number])[];
  color: string;
  dash?: boolean;
}

interface PlotProps {
  title: string;
  /** What the plot shows, in a sentence, for those who do not see it. */
  description: string;
  points: readonly PlotPoint[];
  lines?: readonly PlotLine[];
  xLabel: string;
  yLabel: string;
  log?: { x?: boolean; y?: boolean };
  xTicks?: readonly number[];
  height?: number;
}

const width = 560;
const margin = { left: 52, right: 16, top: 12, bottom: 40 };

/** Round numbers between two ends: powers of ten (with 2 and 5), or steps of 1, 2 or 5. */
function ticksOf([low, high]: [number, number], log: boolean): number[] {
  if (log) {
    const ticks: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const digit of high / low > 200 ? [1] : [1, 2, 5]) ticks.push(digit * 10 ** power);
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  }
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((digit) => digit * power >= rough) ?? 10);
  const ticks: number[] = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step)
    ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

function rangeOf(values: readonly number[], log: boolean): [number, number] {
  const used = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (used.length === 0) return log ? [0.1, 10] : [0, 1];
  const [low, high] = [Math.min(...used), Math.max(...used)];
  if (log) return [low / 1.25, high * 1.25];
  return [Math.min(0, low), high + (high - Math.min(0, low)) * 0.08 || 1];
}

/** A plot. */
export function Plot(props: PlotProps) {
  const { title, description, points, lines = [], xLabel, yLabel, log = {}, height = 300 } = props;
  const scale = useMemo(() => {
    const xs = rangeOf(
      [...points.map(({ x }) => x), ...lines.flatMap((line) => line.points.map(([x]) => x))],
      log.x === true,
    );
    const ys = rangeOf(
      [
        ...points.flatMap(({ y, interval }) => [y, ...(interval ?? [])]),
        ...lines.flatMap((line) => line.points.map(([, y]) => y)),
      ],
      log.y === true,
    );
    const place = (value: number, [low, high]: [number, number], isLog: boolean, from: number, to: number): number => {
      const share = isLog
        ? Math.log(Math.max(value, low * 1e-3) / low) / Math.log(high / low)
        : (value - low) / (high - low);
      return from + Math.max(-0.2, Math.min(1.2, share)) * (to - from);
    };
    return {
      xs,
      ys,
      x: (value: number) => place(value, xs, log.x === true, margin.left, width - margin.right),
      y: (value: number) => place(value, ys, log.y === true, height - margin.bottom, margin.top),
    };
  }, [points, lines, height]);
  const xTicks = props.xTicks ?? ticksOf(scale.xs, log.x === true);
  const yTicks = ticksOf(scale.ys, log.y === true);
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <svg class="plot-svg" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={description}>
        {yTicks.map((tick) => (
          <g key={tick}>
            <line class="grid-line" x1={margin.left} x2={width - margin.right} y1={scale.y(tick)} y2={scale.y(tick)} />
            <text class="tick end" x={margin.left - 8} y={scale.y(tick) + 4}>
              {label(tick)}
            </text>
          </g>
        ))}
        {xTicks.map((tick) => (
          <g key={tick}>
            <line class="grid-line" x1={scale.x(tick)} x2={scale.x(tick)} y1={margin.top} y2={height - margin.bottom} />
            <text class="tick middle" x={scale.x(tick)} y={height - margin.bottom + 16}>
              {label(tick)}
            </text>
          </g>
        ))}
        <text class="axis-name middle" x={(width + margin.left) / 2} y={height - 6}>
          {xLabel}
        </text>
        <text class="axis-name middle" transform={`translate(13 ${(height - margin.bottom) / 2}) rotate(-90)`}>
          {yLabel}
        </text>
        {lines.map((line, i) => (
          <polyline
            key={i}
            class={`line-${line.color} ${line.dash === true ? "dash" : ""}`}
            points={line.points.map(([x, y]) => `${scale.x(x)},${scale.y(y)}`).join(" ")}
          />
        ))}
        {points.map((point, i) => (
          <g key={i} class={`mark-${point.color} ${point.hollow === true ? "hollow" : ""}`}>
            <title>{point.label}</title>
            {point.interval != null && (
              <path
                d={`M${scale.x(point.x)} ${scale.y(point.interval[0])}V${scale.y(point.interval[1])}m-5 0h10M${scale.x(point.x) - 5} ${scale.y(point.interval[0])}h10`}
              />
            )}
            <circle cx={scale.x(point.x)} cy={scale.y(point.y)} r={4.5} />
          </g>
        ))}
      </svg>
    </figure>
  );
}

const label = (value: number): string =>
  Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(0)
    : Number(value.toPrecision(6)).toString();
