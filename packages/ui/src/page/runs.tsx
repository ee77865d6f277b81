// The table of runs: sort, filter, select several to compare, all by keyboard too.
import { memo } from "preact/compat";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunRow, RunState } from "../wire/index.js";
import { Command, Empty, StateLabel, stateWord, useKeys } from "./parts.js";
import { go, runAddress, useStore } from "./store.js";
import { ago, duration, figure, formatCount, formatShare, rate } from "./text.js";

interface Column {
  key: string;
  title: string;
  /** The value that rows are sorted by. */
  value: (row: RunRow) => number | string | undefined;
  show: (row: RunRow) => preact.ComponentChildren;
  numeric?: boolean;
}

const columns: readonly Column[] = [
  {
    key: "state",
    title: "State",
    value: (row) => row.state,
    show: (row) => <StateLabel state={row.state} message={row.message} />,
  },
  { key: "progress", title: "Progress", value: (row) => share(row), show: (row) => <Progress row={row} /> },
  {
    key: "left",
    title: "Left",
    value: (row) => row.left,
    show: (row) => (row.left === undefined ? "–" : duration(row.left)),
    numeric: true,
  },
  {
    key: "devices",
    title: "Devices",
    value: (row) => row.devices,
    show: (row) => `${row.devices}${row.device === undefined ? "" : ` ${row.device.replace(/:.*/, "")}`}`,
    numeric: true,
  },
  {
    key: "rate",
    title: "Samples/s",
    value: (row) => row.samplesPerSecond,
    show: (row) => rate(row.samplesPerSecond),
    numeric: true,
  },
  {
    key: "loss",
    title: "Loss",
    value: (row) => row.loss,
    show: (row) => <span title={row.lossName}>{figure(row.loss)}</span>,
    numeric: true,
  },
  {
    key: "accuracy",
    title: "Accuracy",
    value: (row) => row.accuracy,
    show: (row) => formatShare(row.accuracy, 1),
    numeric: true,
  },
  {
    key: "verdict",
    title: "Verdict",
    value: (row) => row.verdict?.text,
    show: (row) =>
      row.verdict === undefined ? "–" : <span class={`verdict ${row.verdict.tone}`}>{row.verdict.text}</span>,
  },
  { key: "started", title: "Started", value: (row) => row.startedAt, show: (row) => ago(row.startedAt), numeric: true },
];

const share = (row: RunRow): number | undefined =>
  row.state === "ok" ? 1 : row.step === undefined || !row.steps ? undefined : Math.min(1, row.step / row.steps);

function Progress({ row }: { row: RunRow }) {
  const done = share(row);
  if (done === undefined)
    return <span class="soft">{row.step === undefined ? "–" : `step ${formatCount(row.step)}`}</span>;
  const text =
    row.step === undefined
      ? formatShare(done)
      : `${formatCount(row.step)}${row.steps === undefined ? "" : ` / ${formatCount(row.steps)}`}`;
  return (
    <span class="progress">
      <span class="bar" aria-hidden="true">
        <span class={`bar-fill bar-${row.state}`} style={{ width: `${done * 100}%` }} />
      </span>
      <span class="progress-text">{text}</span>
    </span>
  );
}

const compared = (a: number | string | undefined, b: number | string | undefined): number => {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
};

const textOf = (row: RunRow): string =>
  [row.name, row.id, row.study, row.model, row.dataset, stateWord(row.state), row.verdict?.text, row.host, row.device]
    .join(" ")
    .toLowerCase();

type Shown = "all" | "running" | "done" | "ended badly";
const groups: Record<Shown, (state: RunState) => boolean> = {
  all: () => true,
  running: (state) => state === "running",
  done: (state) => state === "ok" || state === "canceled",
  "ended badly": (state) => ["failed", "died", "timeout", "silent"].includes(state),
};

/** The folder of a run names it; several runs of one configuration have the same name. */
const folderOf = (row: RunRow): string => (row.id === "." ? row.name : (row.id.split("/").at(-1) ?? row.name));

function aboutOf(row: RunRow): string {
  if (row.study !== undefined) return `study ${row.study}`;
  const named = row.name === folderOf(row) ? undefined : row.name;
  return [...new Set([named, row.dataset, row.model])].filter((text) => text !== undefined).join(" · ");
}

interface RowProps {
  row: RunRow;
  selected: boolean;
  current: boolean;
  onSelect: (id: string) => void;
}

const Row = memo(({ row, selected, current, onSelect }: RowProps) => (
  <tr class={current ? "current" : ""} data-id={row.id} aria-selected={selected}>
    <td class="select">
      <input
        type="checkbox"
        checked={selected}
        onChange={() => onSelect(row.id)}
        aria-label={`Select ${row.id} to compare`}
      />
    </td>
    <th scope="row">
      <a href={runAddress(row.id)}>{folderOf(row)}</a>
      <span class="soft sub">{aboutOf(row)}</span>
    </th>
    {columns.map((column) => (
      <td key={column.key} class={column.numeric === true ? "number" : ""} data-label={column.title}>
        {column.show(row)}
      </td>
    ))}
  </tr>
));

/** The page of all runs. */
export function RunsPage() {
  const overview = useStore((state) => state.overview);
  const [filter, setFilter] = useState("");
  const [shown, setShown] = useState<Shown>("all");
  const [sort, setSort] = useState<{ key: string; down: boolean }>({ key: "started", down: true });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState(-1);
  const search = useRef<HTMLInputElement>(null);
  const runs = overview?.runs ?? [];
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const column = columns.find(({ key }) => key === sort.key);
    const value = column?.value ?? folderOf;
    return runs
      .filter((row) => groups[shown](row.state) && words.every((word) => textOf(row).includes(word)))
      .sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === undefined || y === undefined) return compared(x, y);
        return (sort.down ? -1 : 1) * compared(x, y) || compared(a.id, b.id);
      });
  }, [runs, filter, shown, sort]);
  const toggle = useCallback((id: string): void => {
    setSelected((before) => {
      const after = new Set(before);
      if (!after.delete(id)) after.add(id);
      return after;
    });
  }, []);
  const compare = (): void => {
    if (selected.size > 1) go(`/compare?${[...selected].map((id) => `id=${encodeURIComponent(id)}`).join("&")}`);
  };
  const move = (by: number): void => setCursor((at) => Math.max(0, Math.min(rows.length - 1, at + by)));
  useEffect(() => {
    document.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  useKeys({
    "/": () => search.current?.focus(),
    j: () => move(1),
    k: () => move(-1),
    x: () => rows[cursor] !== undefined && toggle(rows[cursor].id),
    o: () => rows[cursor] !== undefined && go(runAddress(rows[cursor].id)),
    c: compare,
  });
  if (overview === null) return <p class="soft">Reading the runs …</p>;
  if (runs.length === 0) return <NoRuns folder={overview.folder} exists={overview.exists} />;
  const number = (name: Shown): number => runs.filter(({ state }) => groups[name](state)).length;
  return (
    <>
      <div class="toolbar">
        <h1>Runs</h1>
        <label class="search">
          <span class="visually-hidden">Filter the runs</span>
          <input
            ref={search}
            type="search"
            placeholder="Filter: name, model, state …   /"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
          />
        </label>
        <fieldset class="choice">
          <legend class="visually-hidden">State</legend>
          {(Object.keys(groups) as Shown[]).map((name) => (
            <button key={name} type="button" aria-pressed={shown === name} onClick={() => setShown(name)}>
              {name} <span class="soft">{number(name)}</span>
            </button>
          ))}
        </fieldset>
        <span class="grow" />
        <button type="button" class="primary" disabled={selected.size < 2} onClick={compare}>
          Compare{selected.size > 0 ? ` ${selected.size}` : ""}
        </button>
      </div>
      {rows.length === 0 ? (
        <Empty title="No run matches" inside>
          <p>
            <button
              type="button"
              onClick={() => {
                setFilter("");
                setShown("all");
              }}
            >
              Show all {runs.length} runs
            </button>
          </p>
        </Empty>
      ) : (
        <div class="table-box">
          <table class="runs">
            <caption class="visually-hidden">
              {rows.length} of {runs.length} runs of {overview.folder}
            </caption>
            <thead>
              <tr>
                <td class="select" />
                {[{ key: "name", title: "Run", numeric: false }, ...columns].map(({ key, title, numeric }) => (
                  <th
                    key={key}
                    scope="col"
                    class={numeric === true ? "number" : ""}
                    aria-sort={sort.key === key ? (sort.down ? "descending" : "ascending") : "none"}
                  >
                    <button
                      type="button"
                      class="sort"
                      onClick={() => setSort((now) => ({ key, down: now.key === key ? !now.down : true }))}
                    >
                      {title}
                      <span aria-hidden="true" class="arrow">
                        {sort.key === key ? (sort.down ? "▾" : "▴") : ""}
                      </span>
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row, i) => (
                <Row key={row.id} row={row} selected={selected.has(row.id)} current={i === cursor} onSelect={toggle} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="soft hint">
        {overview.leftOut > 0 && `${overview.leftOut} older folders are not listed. `}
        <kbd>/</kbd> filter <kbd>j</kbd> <kbd>k</kbd> move <kbd>o</kbd> open <kbd>x</kbd> select <kbd>c</kbd> compare
      </p>
    </>
  );
}

function NoRuns({ folder, exists }: { folder: string; exists: boolean }) {
  return (
    <Empty title="No runs yet">
      <p>
        {exists ? `The folder ${folder} holds no run.` : `The folder ${folder} does not exist yet.`} Start one in a
        terminal; it appears here by itself.
      </p>
      <p>A training of seconds:</p>
      <Command text="weft train configs/synthetic.yaml" />
      <p>How your own job scales:</p>
      <Command text="weft scale --devices 1,2 -- python train.py" />
    </Empty>
  );
}
