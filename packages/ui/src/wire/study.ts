// The scaling page: what the lab says about a study, and how well its predictions held.

/** One device count of a study. */
interface ScalePoint {
  devices: number;
  /** Ratio of measured times, and its 80% interval. */
  speedup: number;
  interval: [number, number] | null;
  efficiency: number;
  /** The work-normalized speedup, where one can be given. */
  workSpeedup: number | null;
  valid: boolean;
  status: string;
  /** Class of the efficiency, or "-". */
  class: string;
  seconds: number | null;
  runs: number;
}

/** A predicted speedup at a device count that was not measured. */
interface ScalePrediction {
  devices: number;
  speedup: number | null;
  interval: [number, number] | null;
  reason: string;
}

/** A finding of the lab, as a card. */
export interface FindingCard {
  id: string;
  title: string;
  severity: "invalid" | "unresolved" | "high" | "moderate" | "low" | "info";
  /** Device counts that it concerns. */
  devices: number[];
  evidence: { rank: string; text: string }[];
  readings: string[];
  cause: string;
  fix: string | null;
  effect: string | null;
  refutedBy: string;
  /** The command that would settle it. */
  command: string | null;
}

/** A study as the scaling page shows it. */
export interface ScalingView {
  name: string;
  status: "valid" | "undecided" | "not valid" | "nothing to compare";
  /** The verdict in a sentence. */
  verdict: string;
  basis: string | null;
  points: ScalePoint[];
  predictions: ScalePrediction[];
  findings: FindingCard[];
  problems: string[];
}

/** A prediction and what was measured later. */
interface Calibration {
  study: string;
  what: string;
  devices: number;
  unit: string;
  predicted: number;
  interval: [number, number] | null;
  measured: number | null;
  inside: boolean | null;
}

/** The ledger: predictions, outcomes, and how often intervals held. */
export interface LedgerView {
  path: string;
  entries: Calibration[];
  scored: number;
  withInterval: number;
  hitRate: number | null;
  medianError: number | null;
}
