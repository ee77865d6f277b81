// Several runs side by side: the settings that differ first, and their curves in one chart.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { EpochPoint, RunRow, SeriesPart } from "../wire/index.js";
import { get } from "./api.js";
import { Chart, type ChartCurve } from "./chart.js";
import { smooth } from "./curves.js";
import { AxisChoice, type CurveAxis, Empty, Scroll, Smoothing, StateLabel } from "./parts.js";
import { runAddress } from "./store.js";
import { duration, figure, formatShare, rate } from "./text.js";

interface Compared {
  row: RunRow;
  settings: Record<string, string>;
  epochs: EpochPoint[];
  series: SeriesPart;
}

const colors = ["c1", "c2", "c3", "c4", "c5", "c6"];

/** Curves of several runs on one axis: x values are merged, and a run has gaps where others have points. */
function overlay(
  runs: readonly Compared[],
  axis: "step" | "time",
  weight: number,
): { x: number[]; curves: ChartCurve[] } {
  const points = runs.map(({ row, series }) => {
    const start = row.startedAt ?? series.t[0] ?? 0;
    return series.step.map((step, i) => (axis === "step" ? step : Math.max(0, (series.t[i] ?? start) - start)));
  });
  const x = [...new Set(points.flat())].sort((a, b) => a - b);
  const index = new Map(x.map((value, i) => [value, i]));
  const curves = runs.map(({ row, series }, k): ChartCurve => {
    const mean = new Array<number | null>(x.length).fill(null);
    const values = smooth(series.values.loss?.mean ?? [], weight);
    points[k].forEach((value, i) => {
      mean[index.get(value)!] = values[i] ?? null;
    });
    return { label: nameOf(row, runs), color: colors[k % colors.length], mean, dash: k >= colors.length };
  });
  return { x, curves: curves.map((curve) => ({ ...curve, mean: filled(curve.mean) })) };
}

/** Connects the points of a run over the points of the others. */
function filled(values: (number | null)[]): (number | null)[] {
  let last = -1;
  const joined = [...values];
  values.forEach((value, i) => {
    if (value === null) return;
    if (last >= 0)
      for (let k = last + 1; k < i; k++)
        joined[k] = values[last]! + ((value - values[last]!) * (k - last)) / (i - last);
    last = i;
  });
  return joined;
}

const nameOf = (row: RunRow, runs: readonly Compared[]): string =>
  runs.filter((other) => other.row.name === row.name).length > 1 ? row.id : row.name;

/** The page that compares runs. */
export function ComparePage({ ids }: { ids: string[] }) {
  const [runs, setRuns] = useState<Compared[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [axis, setAxis] = useState<CurveAxis>("step");
  const [weight, setWeight] = useState(0.6);
  const [all, setAll] = useState(false);
  const key = ids.join("\n");
  useEffect(() => {
    let over = false;
    const load = (): void =>
      void get<Compared[]>("compare", { id: ids })
        .then((value) => over || setRuns(value))
        .catch((error: Error) => over || setProblem(error.message));
    load();
    const timer = setInterval(load, 3000);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [key]);
  const drawn = useMemo(() => (runs === null ? null : overlay(runs, axis, weight)), [runs, axis, weight]);
  if (problem !== null)
    return (
      <Empty title="These runs cannot be compared">
        <p>{problem}</p>
      </Empty>
    );
  if (ids.length < 2)
    return (
      <Empty title="Nothing to compare yet">
        <p>
          Select two or more runs in the <a href="#/runs">table of runs</a> (key <kbd>x</kbd>), then Compare (key{" "}
          <kbd>c</kbd>).
        </p>
      </Empty>
    );
  if (runs === null || drawn === null) return <p class="soft">Reading the runs …</p>;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const differs = (name: string): boolean => new Set(runs.map((run) => run.settings[name])).size > 1;
  const different = keys.filter(differs);
  const equal = keys.filter((name) => !differs(name));
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href="#/runs">Runs</a> <span aria-hidden="true">/</span> <span>compare</span>
      </nav>
      <div class="toolbar">
        <h1>Compare {runs.length} runs</h1>
        <span class="grow" />
        <AxisChoice value={axis} onChange={setAxis} />
        <Smoothing value={weight} onChange={setWeight} />
      </div>
      <Chart
        title={axis === "step" ? "Loss by step" : "Loss by seconds since the start"}
        x={drawn.x}
        axis={axis === "step" ? "step" : "number"}
        axisLabel="seconds"
        curves={drawn.curves}
        height={320}
      />
      <section class="card">
        <Scroll label="Results and settings of the runs">
          <table class="plain compare">
            <thead>
              <tr>
                <td />
                {runs.map(({ row }, k) => (
                  <th key={row.id} scope="col">
                    <i class={`swatch ${colors[k % colors.length]}`} aria-hidden="true" />{" "}
                    <a href={runAddress(row.id)}>{nameOf(row, runs)}</a>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              <Line
                name="state"
                cells={runs.map(({ row }) => <StateLabel key={row.id} state={row.state} message={row.message} />)}
              />
              <Line name="loss" cells={runs.map(({ row }) => figure(row.loss))} />
              <Line name="accuracy" cells={runs.map(({ row }) => formatShare(row.accuracy, 1))} />
              <Line name="samples/s" cells={runs.map(({ row }) => rate(row.samplesPerSecond))} />
              <Line name="time" cells={runs.map(({ row }) => duration(row.seconds))} />
              <Line name="verdict" cells={runs.map(({ row }) => row.verdict?.text ?? "–")} />
              <tr class="section">
                <th scope="rowgroup" colSpan={runs.length + 1}>
                  {different.length === 0 ? "All settings are equal" : "Settings that differ"}
                </th>
              </tr>
              {different.map((name) => (
                <Line key={name} name={name} differs cells={runs.map((run) => run.settings[name] ?? "–")} />
              ))}
              {all &&
                equal.map((name) => (
                  <Line key={name} name={name} cells={runs.map((run) => run.settings[name] ?? "–")} />
                ))}
            </tbody>
          </table>
        </Scroll>
        <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Hide" : "Show"} the {equal.length} equal settings
        </button>
      </section>
    </>
  );
}

function Line({
  name,
  cells,
  differs = false,
}: {
  name: string;
  cells: preact.ComponentChildren[];
  differs?: boolean;
}) {
  return (
    <tr class={differs ? "differs" : ""}>
      <th scope="row">{name}</th>
      {cells.map((cell, i) => (
        <td key={i}>{cell}</td>
      ))}
    </tr>
  );
}
