// A cluster, live: workers as tiles with their history, bytes between workers, clients, and what clients planned.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { ClusterView, PlanView, TensorPlacement, WorkerTile } from "../wire/index.js";
import { Command, Empty, Fact, Scroll } from "./parts.js";
import { follow, useStore } from "./store.js";
import { formatBytes, formatCount, formatMicroseconds, formatShare } from "./text.js";

/** The page of the cluster. */
export function ClusterPage() {
  const server = useStore((state) => state.overview?.server ?? null);
  const [view, setView] = useState<ClusterView | null>(null);
  useEffect(() => {
    if (server === null) return;
    follow(null, (name, data) => name === "cluster" && setView(data as ClusterView), { cluster: "1" });
    return () => follow(null);
  }, [server]);
  if (server === null)
    return (
      <Empty title="No cluster is watched">
        <p>Name the dispatcher when you start the web app:</p>
        <Command text="weft ui --server localhost:9000" />
        <p>A cluster on this machine, in three terminals:</p>
        <Command text="weft server --insecure" />
        <Command text="weft worker --insecure" />
        <Command text="WEFT_INSECURE=1 WEFT_DEVICE=cluster:localhost:9000 node program.js" />
      </Empty>
    );
  if (view === null) return <p class="soft">Connecting to {server} …</p>;
  const memory = view.workers.reduce((sum, worker) => sum + worker.bytes, 0);
  return (
    <>
      <div class="toolbar">
        <h1>Cluster {view.address}</h1>
      </div>
      {view.problem !== null && (
        <p class="notice bad" role="status">
          {view.problem}
        </p>
      )}
      <dl class="facts">
        <Fact name="Workers">{view.workers.length}</Fact>
        <Fact name="Clients">{view.clients}</Fact>
        <Fact name="Tensors held">{formatBytes(memory)}</Fact>
        <Fact name="Through the dispatcher">{`${formatCount(view.messages)} messages, ${formatBytes(view.bytes)}`}</Fact>
        <Fact name="Recomputed tensors">{formatCount(view.recomputed)}</Fact>
      </dl>
      {view.workers.length === 0 && view.problem === null && (
        <Empty title="No workers yet" inside>
          <Command text="weft worker --insecure" />
        </Empty>
      )}
      {view.workers.length > 0 && (
        <ul class="legend">
          <li>
            <i class="swatch c1" aria-hidden="true" /> computing
          </li>
          <li>
            <i class="swatch c2" aria-hidden="true" /> waiting, with work queued
          </li>
          <li>
            <i class="swatch idle" aria-hidden="true" /> idle
          </li>
        </ul>
      )}
      <div class="tiles">
        {view.workers.map((worker) => (
          <Tile key={worker.id} worker={worker} most={Math.max(1, ...view.workers.map(({ bytes }) => bytes))} />
        ))}
      </div>
      <div class="grid two">
        {view.pairs !== null && view.workers.length > 1 && <Pairs pairs={view.pairs} workers={view.workers} />}
        {view.clientRows !== null && <Clients view={view} />}
      </div>
      {view.plans.length > 0 && <Plans plans={view.plans} />}
    </>
  );
}

/** Intervals that a tile shows. */
const shown = 60;

function Tile({ worker, most }: { worker: WorkerTile; most: number }) {
  const { busy, waiting } = worker.history;
  const recent = busy.slice(-shown);
  const rest = waiting.slice(-shown);
  const now = recent.at(-1);
  return (
    <section class={`card tile ${worker.state === "ready" ? "" : "bad"}`}>
      <div class="toolbar">
        <h2>{worker.id}</h2>
        <span class="soft">{worker.device}</span>
        <span class="grow" />
        <span class={`pill ${worker.state === "ready" ? "good" : "bad"}`}>{worker.state}</span>
      </div>
      <svg
        class="history"
        viewBox={`0 0 ${shown} 20`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Load of ${worker.id}: ${now === undefined ? "not known yet" : `computing ${formatShare(now)} of the last interval`}`}
      >
        {recent.map((share, i) => {
          const x = shown - recent.length + i;
          return (
            <g key={x}>
              <rect class="history-busy" x={x} y={20 - 20 * share} width={0.85} height={20 * share} />
              <rect class="history-wait" x={x} y={20 - 20 * (share + rest[i])} width={0.85} height={20 * rest[i]} />
            </g>
          );
        })}
      </svg>
      <dl class="tile-facts">
        <dt>computing</dt>
        <dd>{now === undefined ? "–" : formatShare(now)}</dd>
        <dt>queue</dt>
        <dd>{worker.queued === null ? "–" : formatCount(worker.queued)}</dd>
        <dt>kernels</dt>
        <dd>{formatCount(worker.kernels)}</dd>
        <dt>received</dt>
        <dd>{formatBytes(worker.movedBytes)}</dd>
        {worker.utilization !== null && (
          <>
            <dt>GPU</dt>
            <dd>{formatShare(worker.utilization / 100)}</dd>
          </>
        )}
      </dl>
      <div class="memory">
        <span class="bar" aria-hidden="true">
          <span class="bar-fill" style={{ width: `${(100 * worker.bytes) / most}%` }} />
        </span>
        <span class="soft">
          {formatBytes(worker.bytes)} in {formatCount(worker.tensors)} tensors
        </span>
      </div>
      <p class="soft where">
        process {worker.pid} on host {worker.host.slice(0, 12)}
      </p>
    </section>
  );
}

function Pairs({ pairs, workers }: { pairs: number[][]; workers: readonly WorkerTile[] }) {
  const most = Math.max(1, ...pairs.flat());
  return (
    <section class="card">
      <h2>Bytes from worker to worker</h2>
      <p class="soft hint">By the plans and how often they were called; rows send, columns receive.</p>
      <Scroll label="Bytes from worker to worker">
        <table class="matrix">
          <thead>
            <tr>
              <td />
              {workers.map(({ id }) => (
                <th key={id} scope="col">
                  {id}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {pairs.map((row, i) => (
              <tr key={workers[i].id}>
                <th scope="row">{workers[i].id}</th>
                {row.map((bytes, j) => (
                  <td key={workers[j].id} title={`${workers[i].id} to ${workers[j].id}: ${formatBytes(bytes)}`}>
                    <span class="heat" style={{ opacity: i === j ? 0 : 0.12 + 0.6 * (bytes / most) }} />
                    <span class="heat-text">{i === j ? "" : formatBytes(bytes)}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

function Clients({ view }: { view: ClusterView }) {
  const rows = view.clientRows ?? [];
  return (
    <section class="card">
      <h2>Clients</h2>
      {rows.length === 0 ? (
        <p class="soft">No client is connected.</p>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Client</th>
              <th scope="col">Process</th>
              <th scope="col">Tensors</th>
              <th scope="col">Queued</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((client) => (
              <tr key={client.id}>
                <td>{client.label === "" ? client.id : client.label}</td>
                <td>{`${client.pid} on host ${client.host.slice(0, 12)}`}</td>
                <td>{formatCount(client.tensors)}</td>
                <td>{formatCount(client.queued)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** Distinct names: the planner may reach one split by several meshes. */
function namesOf(plan: PlanView): string[] {
  const seen = new Map<string, number>();
  return plan.candidates.map(({ name, devices }) => {
    const base = `${name} on ${devices}`;
    const times = (seen.get(base) ?? 0) + 1;
    seen.set(base, times);
    return times === 1 ? base : `${base} (${times})`;
  });
}

function Plans({ plans }: { plans: PlanView[] }) {
  const [chosen, setChosen] = useState(-1);
  const sorted = useMemo(() => [...plans].sort((a, b) => b.calls - a.calls || b.program - a.program), [plans]);
  const plan = sorted.find(({ program }) => program === chosen) ?? sorted[0];
  const names = namesOf(plan);
  const longest = Math.max(1e-12, ...plan.candidates.map(({ seconds }) => seconds ?? 0));
  return (
    <section class="card">
      <div class="toolbar">
        <h2>What the planner chose</h2>
        <label>
          Function{" "}
          <select value={String(plan.program)} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {sorted.map(({ client, program, calls, why }) => (
              <option key={`${client} ${program}`} value={String(program)}>
                {`${program} of client ${client}: ${why}, ${calls} calls`}
              </option>
            ))}
          </select>
        </label>
      </div>
      <div class="grid two">
        <table class="plain candidates">
          <caption>Candidates, predicted by operations</caption>
          <tbody>
            {plan.candidates.map(({ seconds, communicate, bytes }, i) => (
              <tr key={names[i]}>
                <th scope="row">{names[i]}</th>
                <td>
                  {seconds === null ? (
                    <span class="soft">far more expensive</span>
                  ) : (
                    <span class="stack">
                      <span class="c1" style={{ width: `${(100 * Math.max(0, seconds - communicate)) / longest}%` }} />
                      <span class="c4" style={{ width: `${(100 * Math.min(communicate, seconds)) / longest}%` }} />
                    </span>
                  )}
                </td>
                <td class="number">{seconds === null ? "–" : formatMicroseconds(seconds * 1e6)}</td>
                <td class="number">{bytes > 0 ? formatBytes(bytes) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <div>
          {plan.tensors.map((tensor) => (
            <Placement key={tensor.role} tensor={tensor} />
          ))}
        </div>
      </div>
    </section>
  );
}

const colors = ["c1", "c2", "c3", "c4", "c5", "c6"];

/** A tensor as a rectangle, divided as its first two divided dimensions are; copies are named in one cell. */
function Placement({ tensor }: { tensor: TensorPlacement }) {
  const { shape, parts } = tensor;
  const isCut = (dim: number): boolean => parts.some(({ start, stop }) => start[dim] !== 0 || stop[dim] !== shape[dim]);
  const cut = shape.map((_, dim) => dim).filter(isCut);
  const [down, across] =
    shape.length < 2 ? [null, 0] : [cut[0] ?? 0, cut[1] ?? (cut[0] === 1 ? 0 : 1)].sort((a, b) => a - b);
  const cells = new Map<string, { x: number; y: number; w: number; h: number; workers: string[] }>();
  for (const { worker, start, stop } of parts) {
    const span = (dim: number | null): [number, number] =>
      dim === null || !(shape[dim] > 0) ? [0, 1] : [start[dim] / shape[dim], stop[dim] / shape[dim]];
    const [[x, right], [y, bottom]] = [span(across), span(down)];
    const key = `${x} ${y} ${right} ${bottom}`;
    const cell = cells.get(key) ?? { x, y, w: right - x, h: bottom - y, workers: [] };
    cell.workers.push(worker);
    cells.set(key, cell);
  }
  const text = [...cells.values()].map(({ workers }) => workers.join(", "));
  return (
    <figure class="placement">
      <figcaption>
        {tensor.role} <span class="soft">{`[${shape.join(", ")}] ${tensor.placement}`}</span>
      </figcaption>
      <svg
        viewBox="0 0 240 84"
        role="img"
        aria-label={`${tensor.role} of shape ${shape.join(" by ")}: parts on ${text.join("; ")}`}
      >
        {[...cells.values()].map(({ x, y, w, h, workers }, i) => (
          <g key={`${x} ${y}`} class={`part-${colors[i % colors.length]}`}>
            <rect
              x={1 + x * 238}
              y={1 + y * 82}
              width={Math.max(1, w * 238 - 2)}
              height={Math.max(1, h * 82 - 2)}
              rx={4}
            />
            {w * 238 > 30 && h * 82 > 14 && (
              <text x={x * 238 + (w * 238) / 2} y={y * 82 + (h * 82) / 2 + 4} class="middle">
                {workers.length > 4 ? `${workers.length} workers` : workers.join(", ")}
              </text>
            )}
          </g>
        ))}
      </svg>
    </figure>
  );
}
