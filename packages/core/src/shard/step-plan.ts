// Plans a training step under a memory limit per device: how many devices share the rows of the batch and how many share
// each layer, which parameters and states are split over ranks (ZeRO), and which activations are rematerialized. All of
// these are choices of one search that minimizes the predicted time of a step.
import type { Rates } from "../cost/index.js";
import { type GraphFn, range, WeftError } from "../graph/index.js";
import { showBytes } from "./explain.js";
import { notifyPlanning } from "./listeners.js";
import { divisionsOf, type StepDevices, stepDevices } from "./step-devices.js";
import type { Stage } from "./step-memory.js";
import { StepModel, type StepSplit } from "./step-model.js";
import {
  type PlannedPart,
  SplitProblem,
  type StepCandidate,
  type StepDecision,
  type StepPlanOptions,
} from "./step-problem.js";
import type { StepRoles } from "./step-rewrite.js";

export interface StepPlan extends StepCandidate {
  model: StepModel;
  candidates: StepCandidate[];
  devices: StepDevices;
  rates: Rates;
  /** What every device has of the step, where they differ. */
  parts: PlannedPart[];
  /** Whether it needs no more than the limit, by its estimate. */
  fits: boolean;
  /** Planning time in milliseconds. */
  planned: number;
}

/** Maximum number of devices for which a plan lists what each one has. */
const mostShown = 32;

const divisors = (n: number): number[] => range(n + 1).filter((k) => k > 0 && n % k === 0);

/**
 * Classes of layers for the model axis: those that make the step fastest together. One that divides most of the work alone (the residual
 * stream) is slower than several others (heads, hidden units and the vocabulary), so that all combinations are compared.
 */
function modelClasses(model: StepModel, options: StepPlanOptions): Set<number> {
  const { devices, rates } = options;
  const parts = divisors(devices)
    .filter((k) => k > 1 && k <= (rates.between?.devices ?? 8))
    .at(-1);
  if (parts === undefined) return new Set();
  const sequence = model.sequenceClasses();
  const candidates = model.candidateClasses().filter((id) => !sequence.has(id));
  let [chosen, best] = [new Set<number>(), Number.POSITIVE_INFINITY];
  for (let bits = 0; bits < 1 << candidates.length; bits++) {
    const classes = new Set(candidates.filter((_, i) => (bits >> i) & 1));
    const { compute, communicate } = model.cost({ data: devices / parts, model: parts, classes }, rates);
    const seconds = compute.forward + compute.backward + compute.update + communicate;
    if (seconds < best) [chosen, best] = [classes, seconds];
  }
  return chosen;
}

/** Whether the model axis divides only the positions of sequences. */
function isSequence(model: StepModel, { classes }: StepSplit): boolean {
  const own = model.sequenceClasses();
  return classes.size > 0 && [...classes].every((id) => own.has(id));
}

/** A decision in words. */
function nameOf(model: StepModel, { split, stages, rematerialized }: StepDecision): string {
  const by = { equal: " in equal parts", speed: " by speed", memory: " by memory" };
  const names = [`data ${split.data}${split.division === undefined ? "" : by[split.division]}`];
  if (split.model > 1) names.push(`${isSequence(model, split) ? "sequence" : "model"} ${split.model}`);
  for (const stage of [1, 2, 3] as const) {
    const count = stages.filter((own) => own === stage).length;
    if (count > 0)
      names.push(`ZeRO-${stage}${count < stages.length ? ` for ${count} of ${stages.length} tensors` : ""}`);
  }
  const count = rematerialized.size;
  if (count > 0) names.push(`rematerialize${count < model.segments ? ` ${count} of ${model.segments} segments` : ""}`);
  return names.join(", ");
}

/** The splits of a step over its devices whose model axis, of this number of devices, divides these classes. */
function splitsOf(
  model: StepModel,
  devices: StepDevices,
  rates: Rates,
  divided: (parts: number) => ReadonlySet<number>[],
): StepSplit[] {
  const { count } = devices;
  const most = rates.between?.devices ?? 8;
  const splits = divisors(count).flatMap((parts): StepSplit[] => {
    const data = count / parts;
    if (parts === 1 || parts > most || data > model.rows) return [];
    return divided(parts)
      .filter(({ size }) => size > 0)
      .map((classes) => ({ data, model: parts, classes }));
  });
  return splits.flatMap((split) => withDivisions(split, devices));
}

/** A split with every division of the rows that makes a difference. */
function withDivisions(split: StepSplit, devices: StepDevices): StepSplit[] {
  const divisions = divisionsOf(devices);
  return divisions.length === 1 || split.data === 1 ? [split] : divisions.map((division) => ({ ...split, division }));
}

/** What the model axis may divide, in the order of search: only rows, layers that it makes faster, or sequences; then parameters. */
function splitGroups(model: StepModel, options: StepPlanOptions, devices: StepDevices): (() => StepSplit[])[] {
  const { rates } = options;
  const whole = { data: devices.count, model: 1, classes: new Set<number>() };
  const fast = (): StepSplit[] => {
    const layers = [modelClasses(model, options), model.sequenceClasses()];
    return [...withDivisions(whole, devices), ...splitsOf(model, devices, rates, () => layers)];
  };
  if (devices.count === 1) return [() => [whole]];
  // Only where nothing else fits: every layer has classes of its own, and they take long to compare.
  return [fast, () => splitsOf(model, devices, rates, (parts) => [model.parameterClasses(parts)])];
}

interface Solved {
  candidate: StepCandidate;
  problem: SplitProblem;
}

/** Plans a simplified step whose loss and gradients are marked. */
export function planStep(fn: GraphFn, roles: StepRoles, options: StepPlanOptions): StepPlan {
  const begin = performance.now();
  const model = new StepModel(fn, roles);
  const { rates } = options;
  const devices = stepDevices(options.devices, options.speeds, options.memory);
  const most = Math.max(...devices.memory);
  const none = new Set<number>();
  const all = new Set(range(model.segments));
  const uniform = (stage: Stage): Stage[] => roles.params.map(() => stage);
  const candidates: StepCandidate[] = [];
  let best: Solved | null = null;
  let least: Solved | null = null;
  for (const splits of splitGroups(model, options, devices)) {
    if (best !== null) break;
    const problems: SplitProblem[] = [];
    for (const split of splits()) {
      const problem = new SplitProblem(model, split, options);
      problems.push(problem);
      const tried: [Stage, ReadonlySet<number>][] = [[0, none]];
      if (Number.isFinite(most)) {
        const stages = new Set(problem.increments.flatMap(({ item, stage }) => (item < 0 ? [] : [stage])));
        for (const stage of stages) tried.push([stage, none]);
        tried.push([stages.has(3) ? 3 : 0, all]);
      }
      for (const [stage, again] of tried) {
        const decision = { split, stages: uniform(stage), rematerialized: again };
        candidates.push(problem.candidate(nameOf(model, decision), decision.stages, again));
        notifyPlanning(candidates.length);
      }
    }
    // The fastest without a limit comes first: what takes longer than its solution even without one needs no search.
    const fastest = new Map(problems.map((problem) => [problem, problem.candidate("", uniform(0), none).seconds]));
    problems.sort((a, b) => fastest.get(a)! - fastest.get(b)!);
    for (const problem of problems) {
      if (best !== null && fastest.get(problem)! >= 0.99 * best.candidate.seconds) continue;
      // Estimates are coarse: what the life of every value needs decides, and a tighter limit makes up for the difference.
      let limit = most;
      for (let isLast = false; !isLast; ) {
        const solved = problem.solve(limit);
        // Where no estimate fits, the one that needs least is still worth a look.
        isLast = solved === null;
        const found = solved ?? problem.least();
        const decision = { split: problem.split, ...found };
        const candidate = problem.candidate(nameOf(model, decision), found.stages, found.rematerialized);
        if (best !== null && candidate.seconds >= 0.99 * best.candidate.seconds) break;
        const estimate = problem.bytes(found.stages, found.rematerialized);
        const needs = problem.confirm(candidate);
        candidates.push(candidate);
        notifyPlanning(candidates.length);
        // Among what was confirmed: the estimates before are coarser.
        if (least === null || candidate.bytes - candidate.limit < least.candidate.bytes - least.candidate.limit)
          least = { candidate, problem };
        if (needs <= most) {
          best = { candidate, problem };
          break;
        }
        limit = Math.min(most - (needs - estimate), 0.98 * estimate);
      }
    }
  }
  notifyPlanning(null);
  const chosen = best ?? (options.orLeast === true ? least : null);
  if (chosen === null) {
    const { name, bytes, limit } = least!.candidate;
    throw new WeftError(
      `no placement of the step fits in ${showBytes(limit)} per device: ${name} needs about ${showBytes(bytes)}. ` +
        "Give more memory, more devices, or a smaller batch",
    );
  }
  const { candidate, problem } = chosen;
  return {
    ...candidate,
    model,
    candidates,
    devices,
    rates,
    parts: divisionsOf(devices).length > 1 && devices.count <= mostShown ? problem.parts(candidate) : [],
    fits: best !== null,
    planned: performance.now() - begin,
  };
}
