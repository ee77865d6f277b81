// Tapes and traces on a timeline: the lab's page in a frame.
import { useEffect, useState } from "preact/hooks";
import type { TimelineSource } from "../wire/index.js";
import { post } from "./api.js";
import { Command, Empty } from "./parts.js";
import { useGet } from "./scaling.js";
import { formatBytes } from "./text.js";

/** The page of all timelines, or of one. */
export function TimelinePage({ id }: { id: string }) {
  const { value: rows, problem } = useGet<TimelineSource[]>("timelines", {}, "");
  if (problem !== null) return <p class="notice bad">{problem}</p>;
  if (rows === null) return <p class="soft">Looking for tapes and traces …</p>;
  if (rows.length === 0)
    return (
      <Empty title="No tapes or traces yet">
        <p>A tape records every kernel and collective of the first steps of a training:</p>
        <Command text="weft train configs/synthetic.yaml --tape 20" />
        <p>
          Traces of PyTorch and JAX are shown, too: put them into the runs folder, or let a measured job write them to
          $WEFT_TRACE_DIR.
        </p>
      </Empty>
    );
  const chosen = rows.find((row) => row.id === id);
  return (
    <>
      <div class="toolbar">
        <h1>Timeline</h1>
        <span class="soft">{rows.length === 1 ? "1 recording" : `${rows.length} recordings`}</span>
      </div>
      <ul class="recordings">
        {rows.map((row) => (
          <li key={row.id}>
            <a
              class="button"
              href={`#/timeline/${encodeURIComponent(row.id)}`}
              aria-current={row.id === id ? "true" : undefined}
            >
              {row.name}
              <span class="soft sub">
                {row.kind}, {row.files === 1 ? "1 file" : `${row.files} files`}, {formatBytes(row.bytes)}
              </span>
            </a>
          </li>
        ))}
      </ul>
      {chosen === undefined ? <p class="soft">Choose a recording.</p> : <Frame key={chosen.id} row={chosen} />}
    </>
  );
}

function Frame({ row }: { row: TimelineSource }) {
  const [address, setAddress] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    post<{ address: string }>("timeline", { id: row.id })
      .then((answer) => setAddress(answer.address))
      .catch((error: Error) => setProblem(error.message));
  }, []);
  if (problem !== null) return <p class="notice bad">{problem}</p>;
  if (address === null) return <p class="soft">Reading {formatBytes(row.bytes)} …</p>;
  return <iframe class="frame" title={`Timeline of ${row.name}`} src={address} sandbox="allow-scripts" />;
}
