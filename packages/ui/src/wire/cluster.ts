// The cluster page: workers, clients and plans of a dispatcher.

/** What a worker did in each of the last half seconds. */
export interface WorkerHistory {
  /** Share of the interval in which it computed, 0 to 1. */
  busy: number[];
  /** Share in which it did not compute although instructions waited for it. */
  waiting: number[];
}

/** One worker. */
export interface WorkerTile {
  id: string;
  device: string;
  host: string;
  pid: number;
  /** "ready", or "hangs". */
  state: string;
  runs: number;
  kernels: number;
  tensors: number;
  bytes: number;
  /** Bytes received from other workers. */
  movedBytes: number;
  utilization: number | null;
  /** Instructions that wait for it; null if the dispatcher does not say. */
  queued: number | null;
  history: WorkerHistory;
}

/** One client of the dispatcher. */
interface ClientRow {
  id: number;
  label: string;
  host: string;
  pid: number;
  tensors: number;
  queued: number;
}

/** A way to shard a function that the planner compared. */
interface PlanCandidate {
  name: string;
  devices: number;
  /** Predicted seconds; null where the evaluation was given up because it costs far more. */
  seconds: number | null;
  communicate: number;
  bytes: number;
}

/** Where the parts of a tensor are. */
export interface TensorPlacement {
  role: string;
  shape: number[];
  placement: string;
  /** The part that each worker holds: first and behind-last index of each dimension. */
  parts: { worker: string; start: number[]; stop: number[] }[];
}

/** A function that a client planned. */
export interface PlanView {
  client: number;
  program: number;
  why: string;
  calls: number;
  devices: number;
  candidates: PlanCandidate[];
  tensors: TensorPlacement[];
}

/** A dispatcher and everything connected to it. */
export interface ClusterView {
  address: string;
  /** Why there is no connection; null while there is one. */
  problem: string | null;
  t: number;
  messages: number;
  bytes: number;
  recomputed: number;
  clients: number;
  workers: WorkerTile[];
  /** Clients; null if the dispatcher does not list them. */
  clientRows: ClientRow[] | null;
  plans: PlanView[];
  /** Bytes from one worker to another, by the plans and their calls, in the order of `workers`; null if not known. */
  pairs: number[][] | null;
}
