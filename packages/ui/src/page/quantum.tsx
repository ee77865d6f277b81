// A quantum gate with sliders on its parameters: infidelity, pulses, populations, states and error budget follow as they move; an
// optimization shows the infidelity while it falls and the pulses as they change.
import { useEffect, useRef, useState } from "preact/hooks";
import type { GateParameter, GateRow, GateView } from "../wire/index.js";
import { get, post } from "./api.js";
import { Chart, type ChartCurve } from "./chart.js";
import { Command, Empty, Fact, Scroll } from "./parts.js";
import { go } from "./store.js";
import { figure, formatMicroseconds, formatShare } from "./text.js";

type Values = Record<string, number | number[]>;
type Gate = GateRow & { text: string };

const iterationsPerCall = 3;
/** Milliseconds without a change after which checks and error budget are computed, too. */
const restMs = 700;
const colors = ["c1", "c2", "c3", "c4", "c5", "c6"];

/** The page of all gates, or of one. */
export function QuantumPage({ id }: { id: string }) {
  const { gates, problem } = useGates(id);
  if (problem !== null) return <p class="notice bad">{problem}</p>;
  if (gates === null) return <p class="soft">Looking for gates …</p>;
  const chosen = gates.find((gate) => gate.id === id) ?? gates[0];
  if (chosen === undefined)
    return (
      <Empty title="No gates">
        <Command text="weft ui --gates examples/quantum" />
      </Empty>
    );
  return (
    <>
      <div class="toolbar">
        <h1>{chosen.name}</h1>
        <span class="soft">{sources[chosen.source]}</span>
        {chosen.source === "run" && (
          <a class="button" href={`#/run/${encodeURIComponent(chosen.id.slice("run:".length))}`}>
            Infidelity and log
          </a>
        )}
        <span class="grow" />
        <label>
          Gate{" "}
          <select
            value={chosen.id}
            onChange={(event) => go(`/quantum/${encodeURIComponent(event.currentTarget.value)}`)}
          >
            {gates.map((gate) => (
              <option key={gate.id} value={gate.id}>
                {gate.name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <GateBody key={chosen.id} gate={chosen} />
    </>
  );
}

const sources: Record<Gate["source"], string> = {
  example: "an example that comes with Weft",
  file: "file",
  run: "as the run has optimized it",
};

/** Milliseconds between looks at a run that goes on. */
const followMs = 1000;

/** The gates; those of a run that goes on are read again and again. */
function useGates(id: string): { gates: Gate[] | null; problem: string | null } {
  const [state, setState] = useState<{ gates: Gate[] | null; problem: string | null }>({ gates: null, problem: null });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    const look = async (): Promise<void> => {
      try {
        const gates = await get<Gate[]>("gates");
        if (over) return;
        setState({ gates, problem: null });
        if (gates.find((gate) => gate.id === id)?.live === true) timer = setTimeout(() => void look(), followMs);
      } catch (error) {
        if (!over) setState({ gates: null, problem: (error as Error).message });
      }
    };
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [id]);
  return state;
}

interface Session {
  view: GateView | null;
  problem: string | null;
  values: Values;
  running: boolean;
  history: number[];
}

/** Asks for the gate again and again: one request at a time, always with the newest values. */
function useGate({ id, values: reached = {} }: Gate) {
  const [state, setState] = useState<Session>({
    view: null,
    problem: null,
    values: reached,
    running: false,
    history: [],
  });
  const now = useRef(state);
  const busy = useRef(false);
  const stale = useRef<"no" | "fast" | "full">("no");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const over = useRef(false);
  const change = (part: Partial<Session>): void => {
    now.current = { ...now.current, ...part };
    if (!over.current) setState(now.current);
  };
  const ask = async (full: boolean): Promise<void> => {
    if (busy.current) {
      stale.current = full ? "full" : "fast";
      return;
    }
    busy.current = true;
    const { values, running } = now.current;
    const asked = JSON.stringify(values);
    try {
      const iterations = running ? iterationsPerCall : 0;
      const view = await post<GateView>("gate", { id, set: values, full, iterations });
      if (running && asked === JSON.stringify(now.current.values)) {
        const learned = view.parameters.filter(
          (parameter) => parameter.learned || Object.hasOwn(values, parameter.key),
        );
        change({
          values: Object.fromEntries(learned.map(({ key, value }) => [key, value])),
          history: view.optimization?.values ?? [],
        });
        if (view.optimization?.done != null) change({ running: false });
      }
      // What takes long is kept until it is computed again.
      const old = now.current.view;
      const kept = full || old === null ? view : { ...view, wigner: old.wigner, budget: old.budget };
      change({ view: kept, problem: null });
    } catch (error) {
      change({ problem: (error as Error).message, running: false });
    }
    busy.current = false;
    const next = stale.current;
    stale.current = "no";
    if (over.current) return;
    if (now.current.running || next !== "no") void ask(next === "full");
    else if (running) rest();
  };
  const rest = (): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void ask(true), restMs);
  };
  useEffect(() => {
    void ask(false).then(rest);
    return () => {
      over.current = true;
      clearTimeout(timer.current);
    };
  }, []);
  // A run that goes on has new values.
  const reachedText = JSON.stringify(reached);
  const shown = useRef(reachedText);
  useEffect(() => {
    if (shown.current === reachedText) return;
    shown.current = reachedText;
    change({ values: reached });
    void ask(false);
    rest();
  }, [reachedText]);
  return {
    ...state,
    set: (key: string, value: number): void => {
      change({ values: { ...now.current.values, [key]: value } });
      void ask(false);
      rest();
    },
    reset: (): void => {
      change({ values: reached, running: false, history: [] });
      void ask(false);
      rest();
    },
    optimize: (running: boolean): void => {
      change({ running });
      if (running) void ask(false);
    },
  };
}

function GateBody({ gate }: { gate: Gate }) {
  const { view, problem, values, running, history, set, reset, optimize } = useGate(gate);
  if (view === null)
    return problem === null ? (
      <p class="soft">Compiling the gate … the first call takes seconds, later ones milliseconds.</p>
    ) : (
      <p class="notice bad">{problem}</p>
    );
  const changed = JSON.stringify(values) !== JSON.stringify(gate.values ?? {});
  return (
    <>
      {(problem ?? view.warning) !== null && (
        <p class="notice warn" role="status">
          {problem ?? view.warning}
        </p>
      )}
      <dl class="facts">
        <Fact name="Infidelity">{figure(view.infidelity)}</Fact>
        <Fact name="Error of the steps">{figure(view.error)}</Fact>
        <Fact name="Leaked">{figure(view.leaked)}</Fact>
        <Fact name="Target">{view.target}</Fact>
        <Fact name="Duration">{`${figure(view.duration)} ns`}</Fact>
        <Fact name="One call">{formatMicroseconds(view.seconds * 1e6)}</Fact>
      </dl>
      <div class="toolbar">
        <button type="button" class="primary" onClick={() => optimize(!running)}>
          {running ? "Pause" : "Optimize"}
        </button>
        <button type="button" onClick={reset} disabled={!changed}>
          {gate.source === "run" ? "Back to the run" : "Back to the file"}
        </button>
        <span class="soft">
          {running
            ? `iteration ${history.length - 1}`
            : history.length > 1
              ? `${history.length - 1} iterations`
              : "L-BFGS over the parameters of learn"}
        </span>
      </div>
      <div class="grid quantum-grid">
        <Sliders parameters={view.parameters} values={values} onChange={set} />
        <div class="grid two">
          <Pulses view={view} />
          <Populations view={view} />
          <Falling history={history} now={view.infidelity} />
          <Budget view={view} />
          {view.bloch !== null && <Picture svg={view.bloch} name="Path on the Bloch sphere" />}
          {view.wigner !== null && <Wigner wigner={view.wigner} />}
        </div>
      </div>
      <details class="card">
        <summary>Specification</summary>
        <pre class="spec">{gate.text}</pre>
      </details>
    </>
  );
}

/** `values` are newer than the parameters of the last answer: a slider must not jump back while it moves. */
function Sliders(props: {
  parameters: readonly GateParameter[];
  values: Values;
  onChange: (key: string, value: number) => void;
}) {
  const { values, onChange } = props;
  const parameters = props.parameters.map((parameter) => ({
    ...parameter,
    value: values[parameter.key] ?? parameter.value,
  }));
  const single = parameters.filter((parameter) => typeof parameter.value === "number");
  const lists = parameters.filter((parameter) => Array.isArray(parameter.value));
  return (
    <section class="card">
      <h2>Parameters</h2>
      <Scroll class="sliders" label="Parameters">
        {single.map(({ key, value, low, high }) => (
          <label key={key} class="slider">
            <span>{key}</span>
            <b>{figure(value as number)}</b>
            <input
              type="range"
              min={low}
              max={high}
              step={(high - low) / 500}
              value={value as number}
              onInput={(event) => onChange(key, Number(event.currentTarget.value))}
            />
          </label>
        ))}
        {lists.length > 0 && (
          <p class="soft">
            {lists.map(({ key, value }) => `${key} (${(value as number[]).length} values)`).join(", ")}: changed by
            Optimize, drawn as pulses.
          </p>
        )}
      </Scroll>
    </section>
  );
}

function Pulses({ view }: { view: GateView }) {
  const [first] = view.pulses;
  const same = view.pulses.filter((pulse) => pulse.t.length === first?.t.length);
  const curves = same.map(
    ({ name, y, envelope }, i): ChartCurve => ({
      label: envelope ? `${name} (envelope)` : name,
      color: colors[i % colors.length],
      mean: y,
    }),
  );
  return (
    <Chart
      title="Pulses, rad/ns"
      x={first?.t ?? []}
      axis="number"
      axisLabel="ns"
      curves={curves}
      height={200}
      sync="gate"
      empty="This gate has no pulses."
    />
  );
}

function Populations({ view }: { view: GateView }) {
  const { labels, t, weights, from, open } = view.populations;
  const curves = labels.map((label, i): ChartCurve => ({ label, color: colors[i % colors.length], mean: weights[i] }));
  return (
    <Chart
      title={`Populations from |${from}⟩, ${open ? "with decay" : "without decay"}`}
      x={t}
      axis="number"
      axisLabel="ns"
      curves={curves}
      height={200}
      range={[0, 1.02]}
      sync="gate"
    />
  );
}

function Falling({ history, now }: { history: readonly number[]; now: number }) {
  const values = history.length > 0 ? history : [now];
  return (
    <Chart
      title="Infidelity while it falls"
      x={values.length > 1 ? values.map((_, i) => i) : []}
      axis="step"
      axisLabel="iteration"
      curves={[{ label: "infidelity", color: "c4", mean: values.map((value) => Math.max(value, 1e-16)) }]}
      log
      height={200}
      empty="Press Optimize."
    />
  );
}

function Budget({ view }: { view: GateView }) {
  const shares = view.budget ?? [];
  const most = Math.max(1e-300, ...shares.map(({ value }) => value));
  return (
    <figure class="chart">
      <figcaption>Error budget</figcaption>
      {shares.length === 0 ? (
        <p class="empty-chart">Computed when the sliders rest.</p>
      ) : (
        <table class="rank-parts">
          <tbody>
            {shares.map(({ name, value }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <span class="stack" role="img" aria-label={`${formatShare(value / most)} of the largest`}>
                    <span class="c1" style={{ width: `${(100 * value) / most}%` }} />
                  </span>
                </td>
                <td class="number">{figure(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </figure>
  );
}

const frameMs = 120;

/** The Wigner function over the evolution: a slider over time, and a button that plays it. */
function Wigner({ wigner: { t, frames } }: { wigner: { t: number[]; frames: string[] } }) {
  const [chosen, setChosen] = useState(frames.length - 1);
  const [playing, setPlaying] = useState(false);
  const last = frames.length - 1;
  const at = Math.min(chosen, last);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(
      () =>
        setChosen((now) => {
          if (now < last) return now + 1;
          setPlaying(false);
          return last;
        }),
      frameMs,
    );
    return () => clearInterval(timer);
  }, [playing, last]);
  const play = (): void => {
    if (!playing && at === last) setChosen(0);
    setPlaying(!playing);
  };
  return (
    <figure class="chart wigner">
      <SvgImage svg={frames[at]} name={`Wigner function at ${figure(t[at])} ns`} />
      <div class="toolbar">
        <button type="button" onClick={play}>
          {playing ? "Pause" : "Play"}
        </button>
        <label class="range grow">
          time
          <input
            type="range"
            min="0"
            max={last}
            step="1"
            value={at}
            aria-valuetext={`${figure(t[at])} ns`}
            onInput={(event) => {
              setPlaying(false);
              setChosen(Number(event.currentTarget.value));
            }}
          />
        </label>
        <span class="soft">{`${figure(t[at])} ns`}</span>
      </div>
    </figure>
  );
}

/** An SVG of the quantum package as an image: an image runs no script. */
function SvgImage({ svg, name }: { svg: string; name: string }) {
  return <img class="picture" alt={name} src={`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`} />;
}

function Picture({ svg, name }: { svg: string; name: string }) {
  return (
    <figure class="chart">
      <SvgImage svg={svg} name={name} />
    </figure>
  );
}
