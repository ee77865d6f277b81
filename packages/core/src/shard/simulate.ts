// Simulates the functions of all devices with a clock instead of arithmetic, on a machine of given rates, collective by
// collective. The result is a prediction and is labeled so wherever it is printed.

import { linkTime, type Rates, ratesAt, wholeOf, workTime } from "../cost/index.js";
import { type CollectiveKind, functionOrder, type GraphFn, isOp, type Node, range } from "../graph/index.js";
import { groupMembers } from "../ops/index.js";
import { showBytes, showSeconds } from "./explain.js";
import { type Partitioned, partitionFunction } from "./partition.js";
import { type PlannerOptions, planSharding, type ShardingPlan } from "./planner.js";
import { Problem } from "./problem.js";

interface SimulatedRank {
  rank: number;
  /** Seconds of compute, and seconds in which this device only waited for others or for data. */
  compute: number;
  exposed: number;
  end: number;
}

interface Simulated {
  /** Until the last device finishes. */
  seconds: number;
  ranks: SimulatedRank[];
  /** Every collective: its start (when the last member is ready) and duration. */
  collectives: { kind: CollectiveKind; start: number; seconds: number; bytes: number }[];
}

interface Clock {
  problem: Problem;
  params: ReadonlySet<Node>;
  order: Node[];
  at: number;
  /** Seconds on the device's own clock, and on that of its links. */
  now: number;
  link: number;
  compute: number;
  ready: Map<Node, number>;
}

/** Seconds of a node on its device. */
function timeOf(clock: Clock, node: Node, rates: Rates): number {
  const work = clock.problem.work.get(node);
  if (work === undefined || node.op === "collective") return 0;
  return workTime(node, work, wholeOf(node), rates, (part) =>
    clock.problem.loopTime(node as Node<"scan">, rates, part),
  );
}

/** Advances a device to its next collective; null at the end. */
function advance(clock: Clock, rates: Rates): Node<"collective"> | null {
  for (; clock.at < clock.order.length; clock.at++) {
    const node = clock.order[clock.at];
    if (clock.params.has(node)) {
      clock.ready.set(node, 0);
      continue;
    }
    const inputs = Math.max(0, ...node.inputs.map((input) => clock.ready.get(input)!));
    if (isOp(node, "collective")) {
      clock.ready.set(node, inputs);
      return node;
    }
    const seconds = timeOf(clock, node, rates);
    if (seconds === 0) {
      clock.ready.set(node, inputs);
      continue;
    }
    clock.now = Math.max(clock.now, inputs) + seconds;
    clock.compute += seconds;
    clock.ready.set(node, clock.now);
  }
  return null;
}

/**
 * Simulates partitioned functions. With `overlap` a collective starts when its operands are ready and overlaps compute;
 * without it the device blocks.
 */
export function simulate(parts: Partitioned, rates: Rates, options: { overlap?: boolean } = {}): Simulated {
  const overlap = options.overlap ?? true;
  const { ranks } = parts.mesh;
  const bytesOf = new Map<number, number>();
  parts.moves.forEach((move, sequence) => {
    bytesOf.set(sequence, move.bytes);
  });
  const clocks = parts.functions.map((fn): Clock => {
    const problem = new Problem(fn);
    return {
      problem,
      params: new Set(fn.params),
      order: functionOrder(fn),
      at: 0,
      now: rates.call,
      link: 0,
      compute: rates.call,
      ready: new Map(),
    };
  });
  const waiting = clocks.map((clock) => advance(clock, rates));
  const collectives: Simulated["collectives"] = [];
  while (waiting.some((node) => node !== null)) {
    const next = Math.min(...waiting.map((node) => node?.attrs.sequence ?? Number.POSITIVE_INFINITY));
    const first = waiting.find((node) => node?.attrs.sequence === next)!;
    const members = groupMembers(first.attrs).map((rank) => parts.mesh.indexOf(rank));
    const readyAt = members.map((i) => {
      const inputs = clocks[i].ready.get(waiting[i]!)!;
      return overlap ? Math.max(inputs, clocks[i].link) : Math.max(inputs, clocks[i].now);
    });
    const start = Math.max(...readyAt);
    const bytes = bytesOf.get(next) ?? 0;
    const seconds = linkTime(rates, first.attrs.kind, members.length, bytes);
    collectives.push({ kind: first.attrs.kind, start, seconds, bytes });
    for (const i of members) {
      const clock = clocks[i];
      clock.ready.set(waiting[i]!, start + seconds);
      clock.link = start + seconds;
      if (!overlap) clock.now = start + seconds;
      clock.at++;
      waiting[i] = advance(clock, rates);
    }
  }
  const simulated = clocks.map((clock, i) => {
    const end = Math.max(clock.now, ...clock.problem.fn.outputs.map((output) => clock.ready.get(output) ?? 0));
    return { rank: ranks[i], compute: clock.compute, exposed: end - clock.compute, end };
  });
  return { seconds: Math.max(...simulated.map(({ end }) => end)), ranks: simulated, collectives };
}

interface SimulatedRow {
  name: string;
  devices: number;
  seconds: number;
  /** Against one device of the same machine. */
  speedup: number;
  plan: ShardingPlan;
  result: Simulated;
}

/** Plans and simulates a function for each number of devices; the first count is the baseline. */
export function simulateCounts(
  name: string,
  fn: GraphFn,
  counts: readonly number[],
  rates: Rates,
  options: Partial<PlannerOptions> = {},
): SimulatedRow[] {
  let baseline: number | null = null;
  return counts.map((devices) => {
    const made = planSharding(fn, { params: fn.params.map(() => null), ...options, ranks: range(devices), rates });
    const parts = partitionFunction(fn, {
      mesh: made.mesh,
      params: made.params,
      strategy: made.strategy,
      results: made.results,
    });
    const result = simulate(parts, ratesAt(rates, devices));
    baseline ??= result.seconds;
    return { name, devices, seconds: result.seconds, speedup: baseline / result.seconds, plan: made, result };
  });
}

/** Formats simulated rows; every line is labeled as simulated. */
export function simulatedTable(rows: readonly SimulatedRow[], rates: Rates): string {
  const widest = Math.max(...rows.map(({ name }) => name.length));
  const lines = rows.map(({ name, devices, seconds, speedup, plan: made, result }) => {
    const moved = result.collectives.reduce((n, { bytes }) => n + bytes, 0);
    const used = made.mesh.size < devices ? `uses ${made.mesh.size}` : `${made.mesh}`;
    return (
      `simulated  ${name.padEnd(widest)}  ${devices === 1 ? " 1 device " : `${String(devices).padStart(2)} devices`}  ${showSeconds(seconds).padStart(8)}  ` +
      `${speedup.toFixed(2).padStart(5)}x  receives ${showBytes(moved).padStart(8)}  ${used}`
    );
  });
  return [`simulated  ${rates.name}`, ...lines].join("\n");
}
