// The kinds of work that threads do: what each is given, and what it answers. A kind's module is loaded in its thread only.

import type { GateView, LedgerView, ScalingView } from "../wire/index.js";
import type { GateTask } from "./quantum.js";

/** What each kind of work is given. */
export interface JobTasks {
  study: { folder: string };
  ledger: { path: string };
  timeline: { files: string[]; name: string };
  quantum: GateTask;
}

/** What each kind of work answers. */
export interface JobResults {
  study: ScalingView;
  ledger: LedgerView;
  timeline: string;
  quantum: GateView;
}

/** A kind of work. */
export type JobKind = keyof JobTasks;

/** Does one task. */
type Job<K extends JobKind> = (task: JobTasks[K]) => JobResults[K] | Promise<JobResults[K]>;

/** Loads the work of a kind. */
export const jobs: { [K in JobKind]: () => Promise<Job<K>> } = {
  study: async () => (await import("./study.js")).viewStudy,
  ledger: async () => (await import("./ledger.js")).viewLedger,
  timeline: async () => (await import("./timeline.js")).viewTimeline,
  quantum: async () => (await import("./quantum.js")).viewGate,
};
