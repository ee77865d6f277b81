// Messages of the quantum page: a gate with its pulses, populations and errors at the values of the sliders.

/** A specification that can be opened. */
export interface GateRow {
  id: string;
  name: string;
  /** File, an example that comes with Weft, or a run that optimizes it. */
  source: "file" | "example" | "run";
  /** Newest values of the run. */
  values?: Record<string, number | number[]>;
  /** Whether the run has not ended. */
  live?: boolean;
}

/** A number of the specification, or a list of numbers. */
export interface GateParameter {
  key: string;
  value: number | number[];
  low: number;
  high: number;
  /** Optimization changes it. */
  learned: boolean;
}

/** A gate for one set of values. */
export interface GateView {
  name: string;
  target: string;
  duration: number;
  parameters: GateParameter[];
  infidelity: number;
  /** Error of the integration, leakage and shares of the error: computed when the sliders rest. */
  error: number | null;
  leaked: number | null;
  budget: { name: string; value: number }[] | null;
  pulses: { name: string; envelope: boolean; t: number[]; y: number[] }[];
  populations: { from: string; open: boolean; labels: string[]; t: number[]; weights: number[][] };
  /** Path of the lowest two levels on the Bloch sphere, for a device of one part; an SVG. */
  bloch: string | null;
  /** Wigner function at several times of the evolution, for a part with many levels: SVGs with one scale of colors. */
  wigner: { t: number[]; frames: string[] } | null;
  /** Seconds that the infidelity took. */
  seconds: number;
  /** Progress of the optimization; null before it started. */
  optimization: { values: number[]; done: string | null } | null;
  /** Why the values cannot be trusted; null if they can. */
  warning: string | null;
}
