// Watches a dispatcher, as `weft top` does, while somebody looks: status twice a second, with a history of each worker.
import type { ClusterView, WorkerHistory } from "../wire/index.js";

type Watching = typeof import("@weft/cluster");
/** Status of a dispatcher, its clients and its workers. */
type ClusterStatus = Parameters<Parameters<Watching["watch"]>[2]>[0];
/** Token and certificates for the dispatcher. */
export type ClusterSecurity = Parameters<Watching["watch"]>[1];

/** Two minutes. */
const mostKept = 240;
const mostWorkers = 512;
const retryMs = 2000;

interface Seen {
  history: WorkerHistory;
  busySeconds: number;
  uptimeSeconds: number;
}

/** The state of a cluster. */
export class ClusterMonitor {
  readonly #listeners = new Set<(view: ClusterView) => void>();
  readonly #seen = new Map<string, Seen>();
  #view: ClusterView;
  #stop = (): void => {};
  #retry: NodeJS.Timeout | null = null;
  #on = false;

  constructor(
    readonly address: string,
    private readonly security: ClusterSecurity,
  ) {
    const nothing = { messages: 0, bytes: 0, recomputed: 0, clients: 0 };
    this.#view = {
      address,
      problem: "connecting …",
      t: Date.now() / 1000,
      ...nothing,
      workers: [],
      clientRows: null,
      plans: [],
      pairs: null,
    };
  }

  /** Calls back with the state now and every later one; returns a function that ends it. */
  listen(listener: (view: ClusterView) => void): () => void {
    this.#listeners.add(listener);
    listener(this.#view);
    if (!this.#on) {
      this.#on = true;
      void this.#connect();
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  close(): void {
    this.#on = false;
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#stop();
    this.#stop = () => {};
  }

  async #connect(): Promise<void> {
    const { watch } = await import("@weft/cluster");
    if (!this.#on) return;
    this.#stop = watch(
      this.address,
      this.security,
      (status) => this.#show(this.#viewOf(status)),
      (reason) => {
        this.#show({ ...this.#view, problem: reason, t: Date.now() / 1000 });
        this.#retry = setTimeout(() => this.#on && void this.#connect(), retryMs);
      },
    );
  }

  #show(view: ClusterView): void {
    this.#view = view;
    for (const listener of this.#listeners) listener(view);
  }

  #viewOf(status: ClusterStatus): ClusterView {
    const { clients, messages, bytes, recomputed, users, plans = [] } = status;
    const queuedOf = (worker: string): number | null =>
      users === undefined ? null : users.reduce((sum, { queued }) => sum + (queued[worker] ?? 0), 0);
    const workers = status.workers
      .slice(0, mostWorkers)
      .map(({ info, stats, state }) => ({
        id: info.id,
        device: info.label ?? info.device,
        host: info.process.host,
        pid: info.process.pid,
        state,
        runs: stats?.runs ?? 0,
        kernels: stats?.kernels ?? 0,
        tensors: stats?.tensors ?? 0,
        bytes: stats?.bytes ?? 0,
        movedBytes: stats?.movedBytes ?? 0,
        utilization: stats?.utilization ?? null,
        queued: queuedOf(info.id),
        history: this.#historyOf(info.id, stats, queuedOf(info.id) ?? 0),
      }));
    const ids = workers.map(({ id }) => id);
    for (const id of this.#seen.keys()) if (!ids.includes(id)) this.#seen.delete(id);
    const pairs = ids.map(() => ids.map(() => 0));
    for (const { calls, pairs: own } of plans)
      for (const [from, to, each] of own) {
        const [a, b] = [ids.indexOf(from), ids.indexOf(to)];
        if (a >= 0 && b >= 0) pairs[a][b] += calls * each;
      }
    return {
      address: this.address,
      problem: null,
      t: Date.now() / 1000,
      messages,
      bytes,
      recomputed,
      clients,
      workers,
      clientRows:
        users?.map(({ queued, ...user }) => ({ ...user, queued: Object.values(queued).reduce((a, b) => a + b, 0) })) ??
        null,
      plans: plans.slice(-24).map(({ pairs: _, ...plan }) => plan),
      pairs: users === undefined ? null : pairs,
    };
  }

  /** Adds an interval to a worker's history: computing, waiting with work queued, or idle. */
  #historyOf(id: string, stats: ClusterStatus["workers"][number]["stats"], queued: number): WorkerHistory {
    const before = this.#seen.get(id);
    const history = before?.history ?? { busy: [], waiting: [] };
    if (stats !== null) {
      const seconds = before === undefined ? 0 : stats.uptimeSeconds - before.uptimeSeconds;
      // A worker reports once a second: without a new report there is nothing to add.
      if (before !== undefined && seconds > 0) {
        const busy = Math.max(0, Math.min(1, (stats.busySeconds - before.busySeconds) / seconds));
        history.busy.push(busy);
        history.waiting.push(queued > 0 ? 1 - busy : 0);
        if (history.busy.length > mostKept) {
          history.busy.shift();
          history.waiting.shift();
        }
      }
      if (before === undefined || seconds > 0)
        this.#seen.set(id, { history, busySeconds: stats.busySeconds, uptimeSeconds: stats.uptimeSeconds });
    }
    return history;
  }
}
