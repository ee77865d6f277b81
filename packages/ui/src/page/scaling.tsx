// Scaling studies: speedup with intervals and predictions, efficiency, findings as cards, and how well predictions held.
import { useEffect, useState } from "preact/hooks";
import type { FindingCard, LedgerView, ScalingView, StudyRow } from "../wire/index.js";
import { get } from "./api.js";
import { Command, Empty, Fact, Scroll } from "./parts.js";
import { Plot, type PlotLine, type PlotPoint } from "./plot.js";
import { go, useStore } from "./store.js";
import { ago, figure, formatShare } from "./text.js";

/** A value of the server that is read again when the key changes. */
export function useGet<T>(
  path: string,
  parameters: Record<string, string>,
  key: string,
): { value: T | null; problem: string | null } {
  const [state, setState] = useState<{ value: T | null; problem: string | null }>({ value: null, problem: null });
  useEffect(() => {
    let over = false;
    setState({ value: null, problem: null });
    get<T>(path, parameters)
      .then((value) => over || setState({ value, problem: null }))
      .catch((error: Error) => over || setState({ value: null, problem: error.message }));
    return () => {
      over = true;
    };
  }, [path, key]);
  return state;
}

/** The page of all studies, or of one. */
export function ScalingPage({ id }: { id: string }) {
  const overview = useStore((state) => state.overview);
  if (overview === null) return <p class="soft">Reading the studies …</p>;
  const studies = [...overview.studies].sort((a, b) => (b.createdAt ?? 0) - (a.createdAt ?? 0));
  const chosen = studies.find((study) => study.id === id) ?? studies[0];
  return (
    <>
      {chosen === undefined ? (
        <Empty title="No studies yet">
          <p>
            A study runs one command at several device counts and says whether the speedup is real, and what holds it
            back.
          </p>
          <Command text="weft scale --devices 1,2 -- python train.py" />
          <Command text="weft scale --devices 1,2 -- weft train configs/synthetic.yaml --devices {n}" />
        </Empty>
      ) : (
        <Study key={chosen.id} row={chosen} all={studies} />
      )}
      <Calibrations />
    </>
  );
}

const tones = { valid: "good", undecided: "warn", "not valid": "bad", "nothing to compare": "warn" } as const;

function Study({ row, all }: { row: StudyRow; all: readonly StudyRow[] }) {
  const { value: view, problem } = useGet<ScalingView>("study", { id: row.id }, `${row.id} ${row.runs}`);
  return (
    <>
      <div class="toolbar">
        <h1>{row.name}</h1>
        <span class="soft">{row.createdAt === undefined ? "" : ago(row.createdAt)}</span>
        <span class="grow" />
        <label>
          Study{" "}
          <select value={row.id} onChange={(event) => go(`/scaling/${encodeURIComponent(event.currentTarget.value)}`)}>
            {all.map((study) => (
              <option key={study.id} value={study.id}>
                {study.name}
              </option>
            ))}
          </select>
        </label>
      </div>
      {problem !== null && <p class="notice bad">{problem}</p>}
      {view === null ? problem === null && <p class="soft">Analyzing the study …</p> : <StudyBody view={view} />}
    </>
  );
}

function StudyBody({ view }: { view: ScalingView }) {
  const last = view.points.at(-1);
  return (
    <>
      <p class={`notice ${tones[view.status]}`}>{view.verdict}</p>
      {last !== undefined && (
        <dl class="facts">
          <Fact name="Devices">{view.points.map((point) => point.devices).join(", ")}</Fact>
          <Fact name={`Speedup on ${last.devices}`}>{last.valid ? `${last.speedup.toFixed(2)}×` : last.status}</Fact>
          <Fact name="Efficiency">{last.valid ? formatShare(last.efficiency) : "–"}</Fact>
          <Fact name="Class">{last.class}</Fact>
          <Fact name="Time basis">{view.basis ?? "–"}</Fact>
        </dl>
      )}
      <div class="grid two">
        <SpeedupPlot view={view} />
        <section class="card">
          <h2>By device count</h2>
          <Scroll label="Speedup by device count">
            <PointTable view={view} />
          </Scroll>
        </section>
      </div>
      <h2 class="section-title">{view.findings.length === 0 ? "No findings" : `${view.findings.length} findings`}</h2>
      {view.findings.length === 0 && <p class="soft">No rule found a problem in these measurements.</p>}
      <div class="cards">
        {view.findings.map((finding) => (
          <Card key={finding.id} finding={finding} />
        ))}
      </div>
      {view.problems.length > 0 && (
        <details class="card">
          <summary>{view.problems.length} notes of the reader</summary>
          <ul>
            {view.problems.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function SpeedupPlot({ view }: { view: ScalingView }) {
  const base = view.points[0]?.devices ?? 1;
  const measured = view.points.map(
    (point): PlotPoint => ({
      x: point.devices,
      y: point.speedup,
      interval: point.interval,
      color: point.valid ? "c1" : "c4",
      label: `${point.devices} devices: ${point.speedup.toFixed(2)}× (${point.status})`,
    }),
  );
  const predicted = view.predictions.flatMap(({ devices, speedup, interval, reason }): PlotPoint[] =>
    speedup === null
      ? []
      : [
          {
            x: devices,
            y: speedup,
            interval,
            color: "c2",
            hollow: true,
            label: `${devices} devices, predicted: ${speedup.toFixed(2)}×. ${reason}`,
          },
        ],
  );
  const counts = [...measured, ...predicted].map(({ x }) => x);
  const most = Math.max(...counts, base * 2);
  const lines: PlotLine[] = [
    { points: [base, most].map((x) => [x, x / base] as const), color: "c6", dash: true },
    { points: measured.map(({ x, y }) => [x, y] as const), color: "c1" },
  ];
  return (
    <section>
      <Plot
        title="Speedup"
        description={`Speedup by devices. ${[...measured, ...predicted].map(({ label }) => label).join(". ")}.`}
        points={[...predicted, ...measured]}
        lines={lines}
        xLabel="devices"
        yLabel="speedup"
        log={{ x: true, y: true }}
        xTicks={[...new Set(counts)]}
      />
      <ul class="legend below">
        <li>
          <i class="swatch c1" aria-hidden="true" /> measured, 80% interval
        </li>
        <li>
          <i class="swatch c2" aria-hidden="true" /> predicted
        </li>
        <li>
          <i class="swatch c4" aria-hidden="true" /> not a valid speedup
        </li>
        <li>
          <i class="swatch c6" aria-hidden="true" /> ideal
        </li>
      </ul>
    </section>
  );
}

/** Colors of efficiency classes: from ideal to none. */
const classTone = (name: string): string =>
  ["super-linear", "near-perfect", "good", "baseline"].includes(name) ? "good" : name === "partial" ? "warn" : "bad";

function PointTable({ view }: { view: ScalingView }) {
  return (
    <table class="plain numbers">
      <thead>
        <tr>
          <th scope="col">Devices</th>
          <th scope="col">Time</th>
          <th scope="col">Runs</th>
          <th scope="col">Speedup</th>
          <th scope="col">80% interval</th>
          <th scope="col">Efficiency</th>
          <th scope="col">Class</th>
        </tr>
      </thead>
      <tbody>
        {view.points.map((point) => (
          <tr key={point.devices}>
            <td>{point.devices}</td>
            <td>{point.seconds === null ? "–" : `${figure(point.seconds)} s`}</td>
            <td>{point.runs}</td>
            <td>{point.valid ? `${point.speedup.toFixed(2)}×` : point.status}</td>
            <td>
              {point.interval === null ? "–" : `${point.interval[0].toFixed(2)} to ${point.interval[1].toFixed(2)}`}
            </td>
            <td>{point.valid ? formatShare(point.efficiency) : "–"}</td>
            <td>{point.class === "-" ? "–" : <span class={`pill ${classTone(point.class)}`}>{point.class}</span>}</td>
          </tr>
        ))}
        {view.predictions.map((point) => (
          <tr key={`p${point.devices}`} class="predicted" title={point.reason}>
            <td>{point.devices}</td>
            <td colSpan={2}>predicted</td>
            <td>{point.speedup === null ? "–" : `${point.speedup.toFixed(2)}×`}</td>
            <td>
              {point.interval === null ? "–" : `${point.interval[0].toFixed(2)} to ${point.interval[1].toFixed(2)}`}
            </td>
            <td colSpan={2} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const severityTone: Record<FindingCard["severity"], string> = {
  invalid: "bad",
  unresolved: "warn",
  high: "bad",
  moderate: "warn",
  low: "good",
  info: "good",
};

function Card({ finding }: { finding: FindingCard }) {
  const { devices } = finding;
  return (
    <article class={`card finding ${severityTone[finding.severity]}`}>
      <div class="toolbar">
        <h3>{finding.title}</h3>
        <span class={`pill ${severityTone[finding.severity]}`}>{finding.severity}</span>
        {devices.length > 0 && (
          <span class="soft">{`${devices.join(", ")} device${devices.length > 1 || devices[0] !== 1 ? "s" : ""}`}</span>
        )}
      </div>
      <ul class="evidence">
        {finding.evidence.map(({ rank, text }) => (
          <li key={text}>
            <span class="soft">{rank}</span> {text}
          </li>
        ))}
        {finding.readings.map((text) => (
          <li key={text}>
            <span class="soft">reading</span> {text}
          </li>
        ))}
      </ul>
      <dl>
        <dt>Cause</dt>
        <dd>{finding.cause}</dd>
        {finding.fix !== null && (
          <>
            <dt>Fix</dt>
            <dd>{finding.fix}</dd>
          </>
        )}
        {finding.effect !== null && (
          <>
            <dt>Predicted</dt>
            <dd>{finding.effect}</dd>
          </>
        )}
        <dt>Refuted by</dt>
        <dd>{finding.refutedBy}</dd>
      </dl>
      {finding.command !== null && (
        <>
          <p class="soft settle">This would settle it:</p>
          <Command text={finding.command} />
        </>
      )}
    </article>
  );
}

/** Predictions against outcomes. */
function Calibrations() {
  const { value: ledger, problem } = useGet<LedgerView>("ledger", {}, "");
  if (problem !== null) return <p class="notice bad">{problem}</p>;
  if (ledger === null) return null;
  const scored = ledger.entries.filter((entry) => entry.measured !== null);
  return (
    <section class="card">
      <h2>Were the predictions right?</h2>
      {ledger.entries.length === 0 ? (
        <p class="soft">
          No prediction is recorded in {ledger.path} yet: weft analyze and weft diagnose write them, and a later study
          of the same name scores them.
        </p>
      ) : (
        <>
          <p>
            {ledger.entries.length} predictions, {ledger.scored} scored.{" "}
            {ledger.hitRate === null
              ? "None of those with an interval was measured yet."
              : `${formatShare(ledger.hitRate)} of ${ledger.withInterval} intervals held; 80% should. Median error ${formatShare(ledger.medianError, 1)}.`}
          </p>
          {scored.length > 0 && <CalibrationPlot entries={scored} />}
        </>
      )}
    </section>
  );
}

function CalibrationPlot({ entries }: { entries: LedgerView["entries"] }) {
  const points = entries.map(
    (entry): PlotPoint => ({
      x: entry.measured!,
      y: entry.predicted,
      interval: entry.interval,
      color: entry.inside === null ? "c6" : entry.inside ? "c3" : "c4",
      label: `${entry.study}, ${entry.what}, ${entry.devices} devices: predicted ${figure(entry.predicted)} ${entry.unit}, measured ${figure(entry.measured)}`,
    }),
  );
  const all = points.flatMap(({ x, y }) => [x, y]).filter((value) => value > 0);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  return (
    <Plot
      title="Predicted against measured"
      description={`${points.length} scored predictions. ${points
        .slice(0, 20)
        .map(({ label }) => label)
        .join(". ")}.`}
      points={points}
      lines={[
        {
          points: [
            [low, low],
            [high, high],
          ],
          color: "c6",
          dash: true,
        },
      ]}
      xLabel="measured"
      yLabel="predicted, 80% interval"
      log={{ x: true, y: true }}
      height={340}
    />
  );
}
