// Line charts on a canvas (uPlot) with a band from minimum to maximum where several steps share a point. The figure's
// description says in words what the canvas shows.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { figure } from "./text.js";

/** One curve. */
export interface ChartCurve {
  label: string;
  /** Name of a CSS color variable. */
  color: string;
  mean: (number | null)[];
  low?: (number | null)[] | undefined;
  high?: (number | null)[] | undefined;
  /** Draw points connected over gaps: values that are measured now and then. */
  sparse?: boolean;
  /** Fill the area below. */
  fill?: boolean;
  dash?: boolean;
}

interface ChartProps {
  title: string;
  x: readonly (number | null)[];
  curves: readonly ChartCurve[];
  /** The horizontal axis: steps, seconds of the clock, or plain numbers. */
  axis?: "step" | "time" | "number";
  axisLabel?: string;
  log?: boolean;
  /** Logarithmic horizontal axis. */
  logX?: boolean;
  height?: number;
  format?: (value: number) => string;
  /** Range of the vertical axis, if it is fixed. */
  range?: [number, number];
  /** Charts with the same key move their cursors together. */
  sync?: string;
  onZoom?: (range: [number, number] | null) => void;
  /** Shown instead of the chart when there is nothing to draw. */
  empty?: string;
}

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A color with less opacity; the variables hold six hexadecimal digits. */
const faint = (color: string, opacity: string): string => `${color}${opacity}`;

function optionsOf(props: ChartProps, width: number, box: HTMLElement): uPlot.Options {
  const { curves, axis = "step", log, logX, height = 200, format = figure, range, sync, onZoom } = props;
  const [ink, line] = [css("soft"), css("grid")];
  const series: uPlot.Series[] = [
    {
      label: axis === "time" ? "time" : (props.axisLabel ?? (axis === "step" ? "step" : "x")),
      ...(axis !== "time" && {
        value: (_: uPlot, value: number | null) => (value === null ? "–" : value.toLocaleString("en-US")),
      }),
    },
  ];
  const bands: uPlot.Band[] = [];
  for (const { label, color, low, sparse, fill, dash } of curves) {
    const stroke = css(color);
    if (low !== undefined) {
      bands.push({ series: [series.length, series.length + 1], fill: faint(stroke, "30") });
      for (const end of ["highest", "lowest"])
        series.push({
          label: `${label} ${end}`,
          stroke: "transparent",
          width: 0,
          points: { show: false },
          value: () => "",
        });
    }
    series.push({
      label,
      stroke,
      width: 1.6,
      spanGaps: sparse === true,
      points: { show: sparse === true, size: 6, fill: css("surface") },
      value: (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : format(value)),
      ...(fill === true && { fill: faint(stroke, "28") }),
      ...(dash === true && { dash: [6, 4] }),
    });
  }
  const font = "11px system-ui, sans-serif";
  return {
    width,
    height,
    series,
    bands,
    padding: [10, 12, 0, 0],
    legend: { live: true, markers: { width: 2 } },
    cursor: {
      drag: { x: true, y: false, setScale: onZoom === undefined },
      points: { size: 7 },
      ...(sync !== undefined && { sync: { key: sync, setSeries: false } }),
    },
    scales: {
      x: { time: axis === "time", ...(logX === true && { distr: 3, log: 2 }) },
      y: {
        ...(log === true && { distr: 3 }),
        ...(range !== undefined ? { range } : log === true ? {} : { range: padded }),
      },
    },
    axes: [
      {
        stroke: ink,
        font,
        grid: { stroke: line, width: 1 },
        ticks: { show: false },
        // Times have a second line with the date.
        size: axis === "time" ? 42 : 28,
        ...(axis !== "time" && { values: numbers }),
      },
      {
        stroke: ink,
        font,
        grid: { stroke: line, width: 1, ...(log === true && { filter: decades }) },
        ticks: { show: false },
        size: 58,
        ...(log === true && { filter: decades }),
        values: (_: uPlot, splits: number[]) => splits.map((value) => (value === null ? "" : format(value))),
      },
    ],
    hooks: {
      setSelect: [
        (plot: uPlot) => {
          const { left, width: wide } = plot.select;
          if (onZoom === undefined || wide < 4) return;
          onZoom([plot.posToVal(left, "x"), plot.posToVal(left + wide, "x")]);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      ready: [
        (plot: uPlot) => {
          plot.over.addEventListener("dblclick", () => onZoom?.(null));
          box.querySelectorAll(".u-legend tr").forEach((row) => {
            if (/ (highest|lowest)$/.test(row.textContent ?? "")) row.classList.add("hidden");
          });
        },
      ],
    },
  };
}

const numbers = (_: uPlot, splits: number[]): string[] =>
  splits.map((value) =>
    value === null ? "" : value >= 1e6 ? `${value / 1e6}M` : value >= 1e4 ? `${value / 1e3}k` : String(value),
  );

/** Of a logarithmic axis with many decades, at most eight. */
function decades(_: uPlot, splits: number[]): (number | null)[] {
  const powers = splits.map((value) => Math.log10(value));
  const span = Math.max(...powers) - Math.min(...powers);
  if (span < 2) return splits;
  const every = Math.max(1, Math.ceil(span / 8));
  return splits.map((value, i) => {
    const power = Math.round(powers[i]);
    return Math.abs(powers[i] - power) < 1e-6 && power % every === 0 ? value : null;
  });
}

/** The range of the values with some space; a constant gets a range, too. */
function padded(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const space = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - space < 0 ? 0 : low - space, high + space];
}

function columnsOf({ x, curves }: ChartProps): uPlot.AlignedData {
  const columns: unknown[] = [x];
  for (const { mean, low, high } of curves) {
    if (low !== undefined) columns.push(high, low);
    columns.push(mean);
  }
  return columns as uPlot.AlignedData;
}

/** What the chart shows, in words. */
function describe({ title, x, curves }: ChartProps): string {
  const parts = curves.map(({ label, mean, low, high }) => {
    let [least, most, last, any] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, false];
    mean.forEach((value, i) => {
      if (value === null) return;
      any = true;
      last = value;
      least = Math.min(least, low?.[i] ?? value);
      most = Math.max(most, high?.[i] ?? value);
    });
    return any
      ? `${label} is ${figure(last)} at the end, from ${figure(least)} to ${figure(most)}`
      : `${label} has no values`;
  });
  return `${title}: ${x.length} points. ${parts.join(". ")}.`;
}

/** A chart. */
export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isEmpty = props.x.length === 0 || props.curves.length === 0;
  // What needs a new plot; everything else is new data.
  const shape = JSON.stringify([
    props.curves.map(({ label, color, low, sparse }) => [label, color, low !== undefined, sparse]),
    props.axis,
    props.log,
    props.height,
    props.range,
    isEmpty,
  ]);
  useEffect(() => {
    const element = box.current;
    if (element === null || isEmpty) return;
    const make = (): void => {
      plot.current?.destroy();
      const width = Math.max(160, element.clientWidth);
      plot.current = new uPlot(optionsOf(latest.current, width, element), columnsOf(latest.current), element);
      // Its legend is a table of the values under the cursor; the description above says what matters.
      element.querySelector(".u-wrap")?.setAttribute("aria-hidden", "true");
      element.querySelector(".u-legend")?.setAttribute("aria-hidden", "true");
    };
    make();
    const resized = new ResizeObserver(() => {
      const width = Math.max(160, element.clientWidth);
      if (plot.current !== null && plot.current.width !== width)
        plot.current.setSize({ width, height: latest.current.height ?? 200 });
    });
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  const frame = useRef(0);
  useEffect(() => {
    // Several events may come between two frames; one drawing is enough.
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => plot.current?.setData(columnsOf(latest.current)));
  }, [props.x, props.curves]);
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      {isEmpty ? (
        <p class="empty-chart">{props.empty ?? "No values yet."}</p>
      ) : (
        <div class="plot" role="img" aria-label={describe(props)} ref={box} />
      )}
    </figure>
  );
}
