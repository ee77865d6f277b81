// One run, live: curves by step or by time, the parts of a step per rank, utilization, settings, log, and a button that stops it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunDetail, SeriesField, SeriesPart } from "../wire/index.js";
import { get, post } from "./api.js";
import { Chart, type ChartCurve } from "./chart.js";
import { atSteps, isLong, joinPoints, smooth } from "./curves.js";
import { AxisChoice, Choice, Command, type CurveAxis, Empty, Fact, Scroll, Smoothing, StateLabel } from "./parts.js";
import { RankParts } from "./rank-parts.js";
import { RunLog } from "./run-log.js";
import { follow } from "./store.js";
import { dateTime, duration, figure, formatCount, formatShare, rate } from "./text.js";
import { Utilization } from "./utilization.js";

const buckets = 1500;

interface Loaded {
  detail: RunDetail;
  curves: SeriesPart;
}

/** Loads a run and follows it. */
function useRun(id: string): {
  loaded: Loaded | null;
  problem: string | null;
  zoom: (range: [number, number] | null) => void;
  zoomed: SeriesPart | null;
} {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [zoomed, setZoomed] = useState<SeriesPart | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const curves = useRef<SeriesPart | null>(null);
  const reloading = useRef(false);
  useEffect(() => {
    let over = false;
    let close = (): void => {};
    const change = (part: Partial<Loaded>): void =>
      setLoaded((before) => (before === null ? null : { ...before, ...part }));
    const series = async (): Promise<SeriesPart> => get<SeriesPart>("series", { id, buckets });
    const onPoints = (added: SeriesPart): void => {
      if (curves.current === null) return;
      curves.current = joinPoints(curves.current, added);
      change({ curves: curves.current });
      if (!isLong(curves.current) || reloading.current) return;
      reloading.current = true;
      void series()
        .then((part) => {
          curves.current = part;
        })
        .finally(() => {
          reloading.current = false;
        });
    };
    const start = async (): Promise<void> => {
      try {
        const [detail, part] = await Promise.all([get<RunDetail>("run", { id }), series()]);
        if (over) return;
        curves.current = part;
        setLoaded({ detail, curves: part });
        close = follow(
          id,
          (name, data) => {
            if (name === "run") change({ detail: data as RunDetail });
            else if (name === "points") onPoints(data as SeriesPart);
            else if (name === "gone") setProblem((data as { error: string }).error);
          },
          { after: `${part.generation}:${part.read < 1 ? -1 : (part.step.at(-1) ?? -1)}` },
        );
      } catch (error) {
        if (!over) setProblem((error as Error).message);
        follow(null);
      }
    };
    setLoaded(null);
    setProblem(null);
    void start();
    return () => {
      over = true;
      close();
    };
  }, [id]);
  const zoom = (range: [number, number] | null): void => {
    if (range === null) {
      setZoomed(null);
      return;
    }
    void get<SeriesPart>("series", {
      id,
      buckets,
      from: Math.max(0, Math.floor(range[0])),
      to: Math.ceil(range[1]) + 1,
    }).then((part) => part.step.length > 1 && setZoomed(part));
  };
  return { loaded, problem, zoom, zoomed };
}

const capitalized = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

function curveOf(part: SeriesPart, field: SeriesField, label: string, color: string, weight = 0): ChartCurve[] {
  const values = part.values[field];
  if (values === undefined) return [];
  return [{ label, color, mean: smooth(values.mean, weight), low: values.low, high: values.high }];
}

/** The page of one run. */
export function RunPage({ id }: { id: string }) {
  const { loaded, problem, zoom, zoomed } = useRun(id);
  const [axis, setAxis] = useState<CurveAxis>("step");
  const [scale, setScale] = useState<"linear" | "log" | null>(null);
  const [weight, setWeight] = useState(0);
  const part = zoomed ?? loaded?.curves ?? null;
  const epochs = loaded?.detail.epochs;
  const marks = useMemo(() => {
    if (part === null || epochs === undefined) return null;
    const at = (value: (epoch: RunDetail["epochs"][number]) => number | undefined) =>
      atSteps(
        part.step,
        epochs.map((epoch) => ({ step: (epoch.lastStep ?? 1) - 1, value: value(epoch) })),
      );
    return { loss: at((epoch) => epoch.valLoss), accuracy: at((epoch) => epoch.valAccuracy) };
  }, [part, epochs]);
  const lossLabel = loaded?.detail.row.lossName ?? "train";
  const curves = useMemo(() => {
    if (part === null || marks === null) return null;
    const loss = curveOf(part, "loss", lossLabel, "c1", weight);
    if (marks.loss.some((value) => value !== null))
      loss.push({ label: "validation", color: "c2", mean: marks.loss, sparse: true });
    const accuracy: ChartCurve[] = marks.accuracy.some((value) => value !== null)
      ? [{ label: "validation", color: "c2", mean: marks.accuracy, sparse: true }]
      : [];
    return {
      loss,
      accuracy,
      rate: curveOf(part, "learningRate", "learning rate", "c3"),
      norm: curveOf(part, "gradientNorm", "gradient norm", "c4", weight),
    };
  }, [part, marks, weight, lossLabel]);
  if (problem !== null)
    return (
      <Empty title="This run cannot be shown">
        <p>{problem}</p>
        <p>
          <a href="#/runs">All runs</a>
        </p>
      </Empty>
    );
  if (loaded === null || part === null || curves === null) return <p class="soft">Reading the run …</p>;
  const { detail } = loaded;
  const { lossName } = detail.row;
  // An infidelity falls over decades.
  const log = scale ?? (lossName === undefined ? "linear" : "log");
  const x = axis === "step" ? part.step : part.t;
  const shared = { x, axis, sync: "run", ...(axis === "step" && { onZoom: zoom }) };
  return (
    <>
      <Head detail={detail} />
      <div class="toolbar">
        <AxisChoice value={axis} onChange={setAxis} />
        <Choice
          label="Loss axis"
          value={log}
          options={[
            ["linear", "linear"],
            ["log", "logarithmic"],
          ]}
          onChange={setScale}
        />
        <Smoothing value={weight} onChange={setWeight} />
        {zoomed !== null && (
          <button type="button" onClick={() => zoom(null)}>
            Show all steps
          </button>
        )}
        <span class="grow" />
        <span class="soft hint">
          {part.read < 1
            ? `a sample of the steps; reading the rest: ${formatShare(part.read)}`
            : part.width > 1
              ? `${part.width} steps per point, band from lowest to highest`
              : "every step"}
          {axis === "step" && " · drag to zoom"}
        </span>
      </div>
      <div class="grid two">
        <Chart
          title={lossName === undefined ? "Loss" : capitalized(lossName)}
          {...shared}
          curves={curves.loss}
          log={log === "log"}
          height={240}
          empty="No loss was recorded yet."
        />
        {lossName === undefined && (
          <>
            <Chart
              title="Accuracy"
              {...shared}
              curves={curves.accuracy}
              height={240}
              format={(value) => formatShare(value, 1)}
              empty="Accuracy appears after the first validation."
            />
            <Chart
              title="Learning rate"
              {...shared}
              curves={curves.rate}
              height={170}
              empty="No learning rate was recorded."
            />
          </>
        )}
        <Chart
          title={lossName === undefined ? "Gradient norm" : "Largest entry of the gradient"}
          {...shared}
          curves={curves.norm}
          log={log === "log"}
          height={lossName === undefined ? 170 : 240}
          empty="No gradient norm was recorded."
        />
      </div>
      <RankParts ranks={detail.ranks} part={part} x={x} axis={axis} />
      <Utilization history={detail.utilization} />
      <div class="grid two">
        <Settings detail={detail} />
        <RunLog log={detail.log} outputs={detail.outputs} />
      </div>
    </>
  );
}

function Head({ detail }: { detail: RunDetail }) {
  const { row } = detail;
  const done = row.step !== undefined && row.steps ? row.step / row.steps : null;
  return (
    <>
      <nav class="crumbs" aria-label="Breadcrumb">
        <a href="#/runs">Runs</a> <span aria-hidden="true">/</span> <span>{row.id}</span>
      </nav>
      <div class="toolbar">
        <h1>{row.id === "." ? row.name : (row.id.split("/").at(-1) ?? row.name)}</h1>
        <StateLabel state={row.state} message={row.message} />
        {row.verdict !== undefined && <span class={`verdict ${row.verdict.tone}`}>{row.verdict.text}</span>}
        <span class="grow" />
        {detail.tapes.length > 0 && (
          <a class="button" href={`#/timeline/${encodeURIComponent(`tape:${row.id}`)}`}>
            Timeline
          </a>
        )}
        {row.gate === true && (
          <a class="button" href={`#/quantum/${encodeURIComponent(`run:${row.id}`)}`}>
            Pulses and states
          </a>
        )}
        <StopButton detail={detail} />
      </div>
      {row.message !== undefined && row.state !== "ok" && (
        <p class="notice bad" role="status">
          {row.message}
        </p>
      )}
      {done !== null && row.state === "running" && (
        <progress class="whole" max={1} value={done} aria-label="Progress of the run">
          {formatShare(done)}
        </progress>
      )}
      <dl class="facts">
        <Fact name="Step">
          {row.step === undefined
            ? "–"
            : `${formatCount(row.step)}${row.steps === undefined ? "" : ` of ${formatCount(row.steps)}`}`}
        </Fact>
        <Fact name={row.state === "running" ? "Time left" : "Took"}>
          {duration(row.state === "running" ? row.left : row.seconds)}
        </Fact>
        <Fact name={row.lossName === undefined ? "Loss" : capitalized(row.lossName)}>{figure(row.loss)}</Fact>
        {row.lossName === undefined && <Fact name="Accuracy">{formatShare(row.accuracy, 1)}</Fact>}
        {row.lossName === undefined && <Fact name="Samples/s">{rate(row.samplesPerSecond)}</Fact>}
        <Fact name="Devices">{`${row.devices}${row.device === undefined ? "" : ` × ${row.device}`}`}</Fact>
        <Fact name="Started">{dateTime(row.startedAt)}</Fact>
      </dl>
    </>
  );
}

function StopButton({ detail }: { detail: RunDetail }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [answer, setAnswer] = useState<string | null>(null);
  if (detail.row.state !== "running") return null;
  const stop = async (): Promise<void> => {
    dialog.current?.close();
    try {
      setAnswer((await post<{ message: string }>("stop", { id: detail.row.id })).message);
    } catch (error) {
      setAnswer((error as Error).message);
    }
  };
  return (
    <>
      {answer !== null && (
        <span class="soft" role="status">
          {answer}
        </span>
      )}
      <button
        type="button"
        class="danger"
        disabled={!detail.stop.possible || answer !== null}
        title={detail.stop.reason}
        onClick={() => dialog.current?.showModal()}
      >
        Stop
      </button>
      <dialog ref={dialog} aria-labelledby="stop-title">
        <h2 id="stop-title">Stop {detail.row.name}?</h2>
        <p>The run {detail.stop.reason}.</p>
        <div class="toolbar end">
          <button type="button" onClick={() => dialog.current?.close()}>
            Go on training
          </button>
          <button type="button" class="danger" onClick={() => void stop()}>
            Stop the run
          </button>
        </div>
      </dialog>
    </>
  );
}

function Settings({ detail }: { detail: RunDetail }) {
  const entries = Object.entries(detail.settings);
  return (
    <section class="card">
      <h2>Settings</h2>
      {detail.command.length > 0 && <Command text={`weft ${detail.command.join(" ")}`} />}
      <Scroll label="Settings">
        <table class="plain">
          <tbody>
            {entries.map(([key, value]) => (
              <tr key={key}>
                <th scope="row">{key}</th>
                <td>{value}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
