// What the whole page shares: the runs, the machine, the state of the connection, and the address. Components subscribe with
// `useStore`; one stream of events feeds it.
import { useEffect, useState } from "preact/hooks";
import type { MachineNow, Overview, RunRow, StudyRow } from "../wire/index.js";
import { get, openEvents, ServerError, type StreamState } from "./api.js";

/** The address: `#/run/ID?x=1` is page `run`, argument `ID`. */
export interface Route {
  page: string;
  argument: string;
  search: URLSearchParams;
}

/** The shared state. */
interface State {
  overview: Overview | null;
  machine: MachineNow | null;
  connection: StreamState;
  /** Why the first request failed. */
  problem: string | null;
  route: Route;
}

function readRoute(): Route {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const slash = path.indexOf("/");
  const [page, argument] = slash < 0 ? [path, ""] : [path.slice(0, slash), path.slice(slash + 1)];
  return { page: page || "runs", argument: safeDecode(argument), search: new URLSearchParams(search) };
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let state: State = { overview: null, machine: null, connection: "connecting", problem: null, route: readRoute() };
const listeners = new Set<() => void>();

function update(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

/** A part of the shared state; the component is drawn again when that part changes. */
export function useStore<T>(select: (state: State) => T): T {
  const [value, setValue] = useState(() => select(state));
  useEffect(() => {
    const listener = (): void => setValue(() => select(state));
    listeners.add(listener);
    listener();
    return () => void listeners.delete(listener);
  }, []);
  return value;
}

/** Address of a run's page. */
export const runAddress = (id: string): string => `#/run/${encodeURIComponent(id)}`;

/** Goes to an address of the page. */
export const go = (address: string): void => {
  location.hash = address;
};

interface RunsChange {
  changed: RunRow[];
  removed: string[];
  studies: StudyRow[];
}

function applyRuns({ changed, removed, studies }: RunsChange): void {
  const { overview } = state;
  if (overview === null) return;
  const gone = new Set([...removed, ...changed.map(({ id }) => id)]);
  const runs = [...overview.runs.filter(({ id }) => !gone.has(id)), ...changed];
  update({ overview: { ...overview, exists: true, runs, studies } });
}

/** Events of the run that is open, for its page. */
type RunListener = (name: string, data: unknown) => void;

let stopEvents = (): void => {};
let followed: string | null | undefined;

async function load(): Promise<void> {
  try {
    update({ overview: await get<Overview>("runs"), problem: null });
  } catch (error) {
    const isToken = error instanceof ServerError && error.status === 401;
    update({ problem: isToken ? "token" : (error as Error).message });
  }
}

/** Opens the stream for all runs, or for one of them with its points. A function that is returned closes it. */
export function follow(
  run: string | null,
  onRun: RunListener = () => {},
  parameters: Record<string, string> = {},
): () => void {
  stopEvents();
  followed = run;
  stopEvents = openEvents(
    { ...(run !== null && { run }), ...parameters },
    {
      onEvent: (name, data) => {
        if (name === "machine") update({ machine: data as MachineNow });
        else if (name === "runs") applyRuns(data as RunsChange);
        else onRun(name, data);
      },
      onState: (connection) => {
        // What happened while the connection was lost is in no event.
        if (connection === "open" && state.connection === "lost") void load();
        update({ connection });
      },
    },
  );
  const mine = run;
  return () => {
    if (followed === mine && mine !== null) follow(null);
  };
}

/** Loads the list of runs and starts following it. */
export function startStore(): void {
  addEventListener("hashchange", () => update({ route: readRoute() }));
  void load();
  if (readRoute().page !== "run") follow(null);
}
