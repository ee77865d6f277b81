// What `weft quantum profile` concludes from its times: speedups of components, the component that does not scale, the fastest sharding
// pattern, and the lab's assessment.
import { availableParallelism } from "node:os";
import { medianOrNull } from "@weft/formats/stats";
import { karpFlatt, type ScalingClass, scalingClass, summarizeStudy } from "@weft/lab/internal/metrics";
import { emptyRun, type Study } from "@weft/lab/internal/model";
import { judgeStudy } from "@weft/lab/internal/validity";
import { significant, size, table, time } from "../terminal/index.js";
import type { ComponentTime, Pattern } from "./quantum-components.js";

/** Measurements of one pattern at one device count. */
export interface Measured {
  components: Record<string, ComponentTime>;
  heldBytes: number;
  /** The planner's explanation of the evolution with its gradient. */
  plan: string;
  devicesUsed: number;
  moved: { kind: string; bytes: number }[];
}

export interface ProfileRow {
  pattern: Pattern;
  devices: number;
  component: string;
  /** Median steady-state time, milliseconds. */
  ms: number;
  compileMs: number;
  bytes: number;
  speedup: number;
  serialFraction: number | null;
}
export interface Total {
  pattern: Pattern;
  devices: number;
  ms: number;
  speedup: number;
  heldBytes: number;
  samples: number[];
  plan: string;
  devicesUsed: number;
  moved: { kind: string; bytes: number }[];
}

export function profileRows(
  pattern: Pattern,
  devices: number,
  result: Measured,
  base: readonly ProfileRow[],
): ProfileRow[] {
  return Object.entries(result.components).map(([component, { firstMs, steadyMs, bytes }]) => {
    const ms = medianOrNull(steadyMs) ?? 0;
    const single = base.find((r) => r.component === component && r.pattern === pattern);
    const speedup = single === undefined ? 1 : single.ms / ms;
    return {
      pattern,
      devices,
      component,
      ms,
      compileMs: Math.max(0, firstMs - ms),
      bytes,
      speedup,
      serialFraction: devices === 1 ? null : karpFlatt(speedup, devices),
    };
  });
}

/** Components of one call. With the pattern tasks a call evolves many gates. */
const inTotal = ["eigen-solve", "evolution and gradient", "fidelity", "transfers"];

export function totalOf(pattern: Pattern, devices: number, result: Measured, known: readonly Total[]): Total {
  const { components, heldBytes, plan, devicesUsed, moved } = result;
  const samples = components["evolution and gradient"].steadyMs.map((_, k) =>
    inTotal.reduce((sum, name) => sum + (components[name].steadyMs[k] ?? 0), 0),
  );
  const ms = medianOrNull(samples) ?? 0;
  const single = known.find((t) => t.pattern === pattern && t.devices === 1);
  const speedup = single === undefined ? 1 : single.ms / ms;
  return { pattern, devices, ms, speedup, heldBytes, samples, plan, devicesUsed, moved };
}

/** A component at the largest device count, with what it loses. */
interface Ranked {
  component: string;
  /** Milliseconds on one device and on `devices`. */
  single: number;
  ms: number;
  devices: number;
  /** Share of one call on `devices`, 0 to 1. */
  share: number;
  speedup: number;
  class: ScalingClass;
  /** Milliseconds that a call would save if the component scaled perfectly. */
  lost: number;
}

/** Ranks the components of a call by the time that they would save with perfect scaling, or by their time on one device. */
export function rankProfiles(rows: readonly ProfileRow[], pattern: Pattern): Ranked[] {
  const own = rows.filter((row) => row.pattern === pattern && inTotal.includes(row.component));
  const devices = Math.max(...own.map((row) => row.devices));
  const at = (component: string, count: number): number =>
    own.find((row) => row.component === component && row.devices === count)!.ms;
  const whole = inTotal.reduce((sum, component) => sum + at(component, devices), 0);
  return inTotal
    .map((component) => {
      const [single, ms] = [at(component, 1), at(component, devices)];
      const speedup = single / ms;
      const lost = devices === 1 ? ms : Math.max(0, ms - single / devices);
      const share = ms / whole;
      return { component, single, ms, devices, share, speedup, class: scalingClass(speedup, devices), lost };
    })
    .sort((a, b) => b.lost - a.lost || b.ms - a.ms);
}

/** Why a component does not get faster with more devices, and what to do. */
const reasons: Readonly<Record<string, string>> = {
  "eigen-solve":
    "parts of equal structure are solved as one batch, and one matrix is not divided; it is computed once if only pulses are optimized",
  "evolution and gradient": "see what is communicated per gradient, and compare the patterns below",
  fidelity: "a small matrix, which one device computes",
  transfers: "one client fetches the result; fetch it less often",
};

/** Efficiency below which a component does not scale. */
const scales: readonly ScalingClass[] = ["super-linear", "near-perfect", "good"];
/** A component with a smaller share of a call is not worth a sentence. */
const leastShare = 0.05;

/** The important sentence: which component does not scale. */
export function rankSentence(ranked: readonly Ranked[], disturbance: string | null): string {
  const { devices } = ranked[0];
  const times = ({ single, ms, speedup }: Ranked): string =>
    `${time(single * 1e3)} on one device, ${time(ms * 1e3)} on ${devices} (${significant(speedup)}x)`;
  const share = (r: Ranked): string => `${(100 * r.share).toFixed(0)}% of a call`;
  if (devices === 1)
    return `${ranked[0].component} takes most of a call: ${time(ranked[0].ms * 1e3)}, ${share(ranked[0])}`;
  const worst = ranked.find((r) => !scales.includes(r.class) && r.share >= leastShare);
  if (disturbance !== null) {
    const seen = worst === undefined ? "" : `; measured worst: ${worst.component}, ${times(worst)}`;
    return `cannot say which component does not scale: ${disturbance}${seen}`;
  }
  if (worst === undefined)
    return `every component that takes ${100 * leastShare}% of a call or more scales to ${devices} devices`;
  const verb = worst.class === "negative" ? "gets slower" : "does not scale";
  return `${worst.component} ${verb}: ${times(worst)}, ${share(worst)}; ${reasons[worst.component]}`;
}

/** The fastest sharding pattern at the largest device count. */
export const fastest = (totals: readonly Total[]): Pattern => {
  const most = Math.max(...totals.map((t) => t.devices));
  return totals.filter((t) => t.devices === most && t.pattern !== "tasks").sort((a, b) => a.ms - b.ms)[0].pattern;
};

interface ProfileChoice {
  pattern: Pattern;
  devices: number;
  why: string;
  /** The plan of the sharding planner at the largest count, compared with the best measured pattern. */
  planner: { plan: string; devicesUsed: number; ms: number; best: Pattern; ofBest: number };
}

/** Compares the planner's choice at the largest count with the fastest pattern; sharding must gain at least 10%. */
export function chooseProfile(totals: readonly Total[]): ProfileChoice {
  const gates = totals.filter((t) => t.pattern !== "tasks");
  const most = Math.max(...gates.map((t) => t.devices));
  const best = [...gates].sort((a, b) => a.ms - b.ms)[0];
  const single = gates.filter((t) => t.devices === 1).sort((a, b) => a.ms - b.ms)[0];
  const own = gates.find((t) => t.pattern === "automatic" && t.devices === most)!;
  const planner = {
    plan: own.plan,
    devicesUsed: own.devicesUsed,
    ms: own.ms,
    best: best.pattern,
    ofBest: best.ms / own.ms,
  };
  const gain = single.ms / best.ms;
  if (best.devices === 1) return { pattern: best.pattern, devices: 1, why: "one device is fastest", planner };
  if (gain < 1.1) {
    const why = `no pattern gains 10% (best: ${best.pattern}, ${significant(gain)}x)`;
    return { pattern: best.pattern, devices: 1, why, planner };
  }
  const why = `${significant(single.ms)} ms on one device, ${significant(best.ms)} ms on ${best.devices} (${significant(gain)}x)`;
  return { pattern: best.pattern, devices: best.devices, why, planner };
}

/** Samples per call in the study; divisible by common device counts. */
const work = 5040;

/** The measured calls as a study, assessed by the lab's rules. */
export function assess(totals: readonly Total[], pattern: Pattern) {
  const study: Study = {
    name: `quantum profile, ${pattern}`,
    runs: totals
      .filter((t) => t.pattern === pattern)
      .map((t) => ({
        ...emptyRun(`${pattern}-${t.devices}`, t.devices, { kind: "points", path: "profile" }),
        status: "ok" as const,
        workload: { scaling: "strong" as const },
        // Every worker has its share of the work: the planner divided it.
        epochs: Array.from({ length: t.devices }, (_, rank) =>
          t.samples.map((ms, epoch) => ({ rank, epoch, seconds: ms / 1e3, samples: work / t.devices, steps: 1 })),
        ).flat(),
      })),
    warmup: 0,
    machine: { cores: availableParallelism() },
    problems: [],
  };
  const { valid, status, findings, scaling } = judgeStudy(summarizeStudy(study));
  return {
    valid,
    status,
    scaling: scaling.map(({ devices, speedup, efficiency, interval, karpFlatt: serial, class: kind }) => ({
      devices,
      speedup,
      efficiency,
      interval,
      serialFraction: serial,
      class: kind,
    })),
    findings: findings.map(({ id, title, severity }) => ({ id, title, severity })),
  };
}

export function profileReport(
  rows: readonly ProfileRow[],
  totals: readonly Total[],
  choice: ProfileChoice,
  verdict: ReturnType<typeof assess>,
  disturbance: string | null,
): string {
  const pattern = fastest(totals);
  const ranked = rankProfiles(rows, pattern);
  const { devices } = ranked[0];
  const lines: string[] = [
    rankSentence(ranked, disturbance),
    "",
    `components of one call, pattern ${pattern}, ranked by the time that perfect scaling would save`,
    table(
      ["component", "one device", `${devices} devices`, "speedup", "share", "would save", "class"],
      ranked.map((r) => [
        r.component,
        time(r.single * 1e3),
        time(r.ms * 1e3),
        devices === 1 ? "-" : significant(r.speedup),
        `${(100 * r.share).toFixed(0)}%`,
        devices === 1 ? "-" : time(r.lost * 1e3),
        r.class,
      ]),
    ),
    "",
  ];
  for (const each of new Set(rows.map((r) => r.pattern)))
    lines.push(
      `pattern ${each}`,
      table(
        ["component", "devices", "steady", "compile", "bytes", "speedup", "serial"],
        rows
          .filter((r) => r.pattern === each)
          .map((r) => [
            r.component,
            String(r.devices),
            time(r.ms * 1e3),
            time(r.compileMs * 1e3),
            size(r.bytes),
            r.devices === 1 ? "-" : significant(r.speedup),
            r.serialFraction === null ? "-" : significant(r.serialFraction),
          ]),
      ),
      "",
    );
  lines.push(
    table(
      ["pattern", "devices", "one call", "speedup", "memory held", "communicated per gradient"],
      totals.map((t) => [
        t.pattern,
        String(t.devices),
        time(t.ms * 1e3),
        significant(t.speedup),
        size(t.heldBytes),
        t.moved.length === 0
          ? "nothing"
          : `${size(t.moved.reduce((sum, { bytes }) => sum + bytes, 0))} in ${t.moved.length} collectives`,
      ]),
    ),
    "",
    disturbance === null
      ? `choice: ${choice.pattern} on ${choice.devices} device${choice.devices === 1 ? "" : "s"}: ${choice.why}`
      : `choice: cannot say: ${disturbance}; measured fastest: ${choice.pattern} on ${choice.devices}`,
    `planner: ${choice.planner.plan}; ${time(choice.planner.ms * 1e3)}, ${significant(choice.planner.ofBest)} of the best (${choice.planner.best})`,
    `lab: the comparison is ${verdict.status}` + verdict.findings.map((f) => `; ${f.severity}: ${f.title}`).join(""),
    ...verdict.scaling
      .filter((s) => s.devices > 1)
      .map(
        (s) =>
          `  ${s.devices} devices: ${significant(s.speedup)}x, efficiency ${significant(s.efficiency)}, ${s.class}`,
      ),
  );
  return lines.join("\n");
}
