// Findings that need only traces: what takes the time of a step, which lines and kernels are behind it, what a change would give
// (by replay) and how to verify it. A rule reports a finding only if its cause takes a considerable part of the step.
import { median } from "@weft/formats/stats";
import { evidence, type Finding, type PredictedEffect, type Severity } from "../model/index.js";
import { matrixKernel, type RankReport, type TraceReport, tensorCoreKernel } from "../trace/index.js";

/** Share of a step from which on a cause is worth a finding. */
const considerable = 0.1;
const large = 0.25;
/** Threads that the profiler does not record, and other programs on the cores, leave smaller gaps. */
const outsideShare = 0.35;

interface Rule {
  id: string;
  title: string;
  source: string;
  find(
    rank: RankReport,
    report: TraceReport,
  ): (Omit<Finding, "id" | "title" | "source" | "severity"> & { share: number }) | null;
}

const ms = (us: number): number => Math.round(us / 10) / 100;

/**
 * Mean step; without step marks the whole span counts as one. A host that runs ahead of its device marks steps that are shorter
 * than the work they launch: then the device's own time counts.
 */
function stepUs(rank: RankReport): number {
  if (rank.steps.length === 0) return rank.spanUs ?? 0;
  const marked = rank.steps.reduce((sum, step) => sum + step.us, 0) / rank.steps.length;
  return Math.max(marked, busyUs(rank) / rank.steps.length);
}

const stepCount = (rank: RankReport): number => Math.max(1, rank.steps.length);
/** Time in which the device did something. */
const busyUs = (rank: RankReport): number => (rank.spanUs ?? 0) - (rank.idleUs ?? 0);

/** A replay that does not reproduce the recorded step predicts nothing. */
const replayTolerance = 0.25;

/** Step with a change over the step as it was, by replay, and the error of the replay itself; null where it cannot be trusted. */
function replayed(rank: RankReport, change: string | null): { ratio: number; error: number } | null {
  if (rank.whatIf == null) return null;
  const { measuredStepUs, replayedStepUs, rows } = rank.whatIf;
  const error = Math.abs(replayedStepUs / measuredStepUs - 1);
  const row = rows.find((one) => one.name === change);
  return row === undefined || !(error < replayTolerance) ? null : { ratio: row.stepUs / measuredStepUs, error };
}

/** The effect of a change by replay; where there is none, by subtraction of the part that the change can remove. */
function effect(rank: RankReport, change: string | null, removableUs: number): PredictedEffect | null {
  const now = stepUs(rank);
  if (!(now > 0)) return null;
  const replay = replayed(rank, change);
  // Communication that nothing hides is waiting, too, as far as a change can remove it.
  const working = busyUs(rank) - (rank.exposedCommunicationUs ?? 0);
  const removed = Math.max(now - removableUs, working / stepCount(rank));
  const to = Math.min(now, replay === null ? removed : replay.ratio * now);
  const error = replay === null ? 0.1 : replay.error + 0.05;
  return {
    metric: "stepUs",
    from: Math.round(now),
    to: Math.round(to),
    interval: [Math.round(to * (1 - error)), Math.round(Math.min(now, to + 0.5 * (now - to)))],
    unit: "us",
    reason: replay === null ? "the step without that part" : `the recorded calls and kernels replayed with: ${change}`,
  };
}

/** What is said of idle time where only a trace is known. */
const profilerSlowsHost =
  "the profiler itself slows the host: if steps without it take no longer than the device is busy, nothing is lost";

/** Host time with a finding of its own: waits for data, compilation, allocation. */
const explainedUs = ({ host }: RankReport): number =>
  (host?.dataWait.us ?? 0) + (host?.compilation.us ?? 0) + (host?.allocation.us ?? 0);

/** Tensor cores compute products in TF32 two to eight times as fast as the general units; four times is promised. */
function fasterProducts(rank: RankReport, matrixUs: number): PredictedEffect {
  const now = stepUs(rank);
  const at = (factor: number): number => Math.round(now - matrixUs * (1 - 1 / factor));
  return {
    metric: "stepUs",
    from: Math.round(now),
    to: at(4),
    interval: [at(8), at(2)],
    unit: "us",
    reason: "matrix kernels four times as fast; two to eight times in the interval",
  };
}

const linesOf = (rank: RankReport, kind: "dataWait" | "synchronization" | "compilation" | "allocation"): string[] =>
  rank.host?.[kind].lines.map(({ line, us }) => `${line} (${ms(us)} ms)`) ?? [];

const kernelShare = (rank: RankReport, test: (name: string) => boolean, type = "COMPUTATION"): number =>
  rank.kernels.reduce((sum, kernel) => sum + (kernel.type === type && test(kernel.name) ? kernel.sumUs : 0), 0);

/** Idle time of the busiest stream because the host had not launched yet. */
function hostWaitUs(rank: RankReport): number {
  const main = [...rank.idle].sort((a, b) => b.busyUs - a.busyUs)[0];
  return Math.max(0, Math.min(main?.hostWaitUs ?? 0, rank.idleUs ?? 0));
}

/** Part of a step that calls which wait for the device cost, by replay: the device runs dry after each of them. */
function synchronizationShare(rank: RankReport): number {
  const often = (rank.host?.synchronization.count ?? 0) >= 2 * stepCount(rank);
  return often ? 1 - (replayed(rank, "no synchronization")?.ratio ?? 1) : 0;
}

/** Kernels under ten microseconds: their number, and what a launch of one costs. */
function smallKernels(rank: RankReport): { share: number; names: string[] } {
  const work = rank.kernels.filter((kernel) => kernel.type === "COMPUTATION");
  const all = work.reduce((sum, kernel) => sum + kernel.count, 0);
  const small = work.filter((kernel) => kernel.meanUs < 10).sort((a, b) => b.count - a.count);
  return {
    share: all === 0 ? 0 : small.reduce((sum, kernel) => sum + kernel.count, 0) / all,
    names: small
      .slice(0, 3)
      .map((kernel) => `${kernel.name.slice(0, 80)} (${kernel.count} of ${Number(kernel.meanUs.toPrecision(3))} us)`),
  };
}

const traceRules: readonly Rule[] = [
  {
    id: "trace-data-wait",
    title: "Steps wait for data",
    source: "events enumerate(DataLoader) of the profiler against the step; https://pytorch.org/docs/stable/data.html",
    find(rank) {
      const wait = (rank.dataLoaderUs ?? 0) / stepCount(rank);
      const share = wait / stepUs(rank);
      if (!(share >= considerable)) return null;
      return {
        share,
        evidence: [
          evidence("data wait per step", ms(wait), {
            unit: "ms",
            threshold: ms(considerable * stepUs(rank)),
            rows: linesOf(rank, "dataWait"),
          }),
          evidence("share of the step", `${(100 * share).toFixed(1)}%`),
        ],
        cause:
          "The loop asks for a batch that is not ready: loading and preprocessing take longer than the device needs for a step.",
        fix: "Load in other processes (DataLoader(num_workers=4, persistent_workers=True, pin_memory=True)), and raise the number until the wait is gone.",
        predicted: effect(rank, "no data wait", wait),
        refutedBy: "A trace with more loader processes whose data wait stays the same.",
      };
    },
  },
  {
    id: "trace-recompilation",
    title: "Functions are compiled again during the steps",
    source: "compilation events of torch.compile and XLA within profiled steps",
    find(rank) {
      const { us = 0, count = 0 } = rank.host?.compilation ?? {};
      const share = us / (stepUs(rank) * stepCount(rank));
      if (!(share >= considerable)) return null;
      return {
        share,
        evidence: [
          evidence("compilation per step", ms(us / stepCount(rank)), {
            unit: "ms",
            rows: linesOf(rank, "compilation"),
          }),
          evidence("compilations", count, { rank: "counted" }),
        ],
        cause: "Shapes or values that are constants of the compiled code change from step to step.",
        fix: "Pad to a few shapes or mark dimensions as dynamic (torch.compile(dynamic=True), mark_dynamic); TORCH_LOGS=recompiles names the guard that failed.",
        predicted: effect(rank, "no compilation", us / stepCount(rank)),
        refutedBy: "A trace of later steps with the same inputs that contains no compilation.",
      };
    },
  },
  {
    id: "trace-host-callback",
    title: "The compiled program calls back into Python",
    source: "operators of JAX with the name of a callback",
    find(rank) {
      const calls = rank.source === "jax" ? rank.kernels.filter(({ name }) => /callback/i.test(name)) : [];
      const inside = calls.reduce((sum, { sumUs }) => sum + sumUs, 0) / stepCount(rank);
      const share = inside / stepUs(rank);
      if (!(share >= considerable)) return null;
      return {
        share,
        evidence: [
          evidence("time in callbacks per step", ms(inside), { unit: "ms" }),
          evidence("callbacks", `${calls.map(({ name, count }) => `${name} ${count} times`).join(", ")}`, {
            rank: "counted",
          }),
        ],
        cause: "The device waits until Python has computed the result (pure_callback, io_callback, debug.print).",
        fix: "Write the function in JAX, call it outside of jit, or every n steps (jax.lax.cond).",
        predicted: effect(rank, null, inside),
        refutedBy: "A trace without the callback whose step takes as long.",
      };
    },
  },
  {
    id: "trace-outside-operators",
    title: "The program does other work between its operators",
    source: "gaps of a millisecond or more without an operator, communication, compilation or a wait for data",
    find(rank) {
      const outside = (rank.outsideUs ?? 0) / stepCount(rank);
      const share = outside / stepUs(rank);
      // One step has a beginning and an end, but nothing to compare them with.
      if (rank.steps.length < 2 || !(share >= outsideShare)) return null;
      return {
        share: share / 2,
        evidence: [
          evidence("time between operators per step", ms(outside), {
            unit: "ms",
            threshold: ms(outsideShare * stepUs(rank)),
          }),
          evidence("share of the step", `${(100 * share).toFixed(1)}%`),
        ],
        cause: "Python code, input, output or a wait of the program itself: no operator runs meanwhile.",
        alternatives: [
          "operators of threads that the profiler does not record",
          "the program waits for something outside on purpose: requests, a timer",
        ],
        fix: "Profile the host (with_stack=True, py-spy record), and move the work out of the loop or into other processes.",
        predicted: effect(rank, null, outside),
        refutedBy: "A trace without this code whose step takes as long.",
      };
    },
  },
  {
    id: "trace-straggler",
    title: "One rank arrives late at the collectives",
    source: "durations of one collective on all ranks; the shortest call did not wait",
    find(rank, report) {
      const late = report.stragglers[0];
      if (late === undefined || late.rank !== rank.rank) return null;
      const others = report.ranks.filter((one) => one.rank !== late.rank);
      const span = median(others.map((one) => one.spanUs ?? 0));
      const share = late.causedWaitUs / Math.max(1, others.length) / span;
      if (!(share >= considerable)) return null;
      return {
        share,
        evidence: [
          evidence("collectives in which it was last", `${late.last} of ${late.of}`, { rank: "counted" }),
          evidence("waiting that it causes per rank", ms(late.causedWaitUs / others.length), { unit: "ms" }),
        ],
        cause: `Rank ${late.rank} takes longer than the others for the same step: more work, a slower device, or a host that it shares.`,
        fix: `Compare its step with that of another rank (weft trace RANK${late.rank} --diff OTHER), and look at clocks, temperature and the processes beside it.`,
        predicted: effect(
          others[0],
          "all communication overlapped",
          late.causedWaitUs / others.length / stepCount(rank),
        ),
        refutedBy: "A trace on other devices in which another rank is last.",
      };
    },
  },
  {
    id: "trace-exposed-communication",
    title: "Communication is not hidden behind computation",
    source: "time with communication and without computation",
    find(rank, report) {
      // Waiting for the last rank looks like communication, but another kind of it would not shorten it.
      const transfer = 1 - (report.waitingPercent ?? 0) / 100;
      const exposed = transfer * (rank.exposedCommunicationUs ?? 0);
      const share = exposed / (rank.spanUs ?? Number.POSITIVE_INFINITY);
      if (!(share >= 0.15)) return null;
      const [first] = rank.collectives;
      return {
        share,
        evidence: [
          evidence("exposed communication per step, without waiting for other ranks", ms(exposed / stepCount(rank)), {
            unit: "ms",
          }),
          evidence("overlap", `${rank.overlapPercent ?? 0}%`),
          ...(first === undefined
            ? []
            : [
                evidence(
                  "largest collective",
                  `${first.collective} of ${first.bytes ?? "unknown"} bytes, ${first.count} times, ${ms(first.meanUs)} ms`,
                ),
              ]),
        ],
        cause: "Collectives run when nothing is left to compute, or the computation waits for their results.",
        fix: "Start them earlier (DDP buckets: gradient_as_bucket_view, bucket_cap_mb; FSDP: backward_prefetch), accumulate gradients over several steps, or send 16-bit gradients.",
        predicted: effect(rank, "all communication overlapped", exposed / stepCount(rank)),
        refutedBy: "A trace with communication turned off (DDP.no_sync) whose step takes as long.",
      };
    },
  },
  {
    id: "trace-synchronization",
    title: "The host waits for the device inside the step",
    source: "blocking calls and reads of device values (aten::item) within steps",
    find(rank) {
      const events = rank.host?.synchronization;
      const share = synchronizationShare(rank);
      if (events === undefined) return null;
      if (!(share >= considerable)) return null;
      return {
        share,
        evidence: [
          evidence("synchronizations per step", Math.round((10 * events.count) / stepCount(rank)) / 10, {
            rank: "counted",
            rows: linesOf(rank, "synchronization"),
          }),
          evidence("time in them per step", ms(events.us / stepCount(rank)), { unit: "ms" }),
        ],
        cause:
          "The program reads values from the device (item(), cpu(), nonzero, print of a tensor): the device runs dry each time, and then waits for launches.",
        fix: "Read losses every n steps, keep conditions on the device (torch.where), copy with non_blocking=True.",
        predicted: effect(rank, "no synchronization", share * stepUs(rank)),
        refutedBy: "A trace without these reads whose step takes as long.",
      };
    },
  },
  {
    id: "trace-allocation",
    title: "Steps allocate memory from the driver",
    source: "calls of cudaMalloc and cudaFree within steps; https://pytorch.org/docs/stable/notes/cuda.html",
    find(rank) {
      const { us = 0, count = 0 } = rank.host?.allocation ?? {};
      const share = us / (stepUs(rank) * stepCount(rank));
      if (!(share >= considerable) || count < 2 * stepCount(rank)) return null;
      return {
        share,
        evidence: [
          evidence("allocations and releases per step", Math.round((10 * count) / stepCount(rank)) / 10, {
            rank: "counted",
            rows: linesOf(rank, "allocation"),
          }),
          evidence("time in them per step", ms(us / stepCount(rank)), { unit: "ms" }),
        ],
        cause:
          "The caching allocator gives memory back and asks for it again: empty_cache() in the loop, memory that is nearly full, or sizes that keep changing. A release waits for the device.",
        fix: "Remove torch.cuda.empty_cache() from the loop; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; fewer different shapes.",
        predicted: effect(rank, "no allocation", us / stepCount(rank)),
        refutedBy: "A trace without these calls whose step takes as long.",
      };
    },
  },
  {
    id: "trace-small-kernels",
    title: "Kernels are shorter than their launches",
    source: "durations of kernels and of the calls that launch them",
    find(rank) {
      const small = smallKernels(rank);
      const wait = Math.max(0, hostWaitUs(rank) - explainedUs(rank));
      const share = wait / (rank.spanUs ?? Number.POSITIVE_INFINITY);
      if (rank.launches === null || small.share < 0.6 || !(share >= 0.2)) return null;
      return {
        share,
        evidence: [
          evidence("kernels under 10 us", `${(100 * small.share).toFixed(0)}%`, { rank: "counted", rows: small.names }),
          evidence("device idle because nothing was launched yet", `${(100 * share).toFixed(1)}%`),
          evidence("a launch takes", Math.round(rank.launches.callUs.mean * 100) / 100, { unit: "us" }),
        ],
        cause: "Many short kernels: the host cannot launch them as fast as the device finishes them.",
        alternatives: [profilerSlowsHost],
        fix: "Fuse them (torch.compile, fused optimizers: foreach=True or fused=True), record a CUDA graph (mode='reduce-overhead'), or use a larger batch.",
        predicted: effect(rank, "small kernels fused", wait / stepCount(rank)),
        refutedBy: "A trace with CUDA graphs whose idle time stays the same.",
      };
    },
  },
  {
    id: "trace-host-bound",
    title: "The device waits for launches",
    source: "idle time of the busiest stream before kernels that were launched late",
    find(rank) {
      const wait = Math.max(0, hostWaitUs(rank) - explainedUs(rank));
      const share = wait / (rank.spanUs ?? Number.POSITIVE_INFINITY);
      if (rank.launches === null || synchronizationShare(rank) >= share / 2) return null;
      if (smallKernels(rank).share >= 0.6 || !(share >= 0.25)) return null;
      return {
        share,
        evidence: [
          evidence("device idle because nothing was launched yet", `${(100 * share).toFixed(1)}%`, { threshold: 25 }),
          evidence("launches per step", Math.round(rank.launches.launches / stepCount(rank)), { rank: "counted" }),
        ],
        cause:
          "The host does other work between launches: Python code, preprocessing on the CPU, logging, or a busy core.",
        alternatives: [profilerSlowsHost],
        fix: "Profile the host (with_stack=True, py-spy record), move work out of the loop or into other processes, and compile the step (torch.compile).",
        predicted: effect(rank, null, wait / stepCount(rank)),
        refutedBy: "A trace with the same kernels and an idle host whose device idles as long.",
      };
    },
  },
  {
    id: "trace-copies",
    title: "Copies between host and device take the time",
    source: "time with copies and without computation or communication",
    find(rank) {
      const exposed = Math.max(0, (rank.nonComputeUs ?? 0) - (rank.exposedCommunicationUs ?? 0));
      const share = exposed / (rank.spanUs ?? Number.POSITIVE_INFINITY);
      if (!(share >= considerable)) return null;
      const copies = rank.kernels.filter((kernel) => kernel.type === "MEMORY").sort((a, b) => b.sumUs - a.sumUs);
      if (copies.length === 0) return null;
      const pageable = copies.some((kernel) => /Pageable/.test(kernel.name));
      return {
        share,
        evidence: [
          evidence("copies that nothing hides, per step", ms(exposed / stepCount(rank)), {
            unit: "ms",
            rows: copies.slice(0, 3).map((kernel) => `${kernel.name}: ${kernel.count} times, ${ms(kernel.sumUs)} ms`),
          }),
        ],
        cause: pageable
          ? "Copies from pageable memory run at a fraction of the bandwidth and block the host."
          : "Data moves between host and device within the step.",
        fix: pageable
          ? "pin_memory=True in the loader, and .to(device, non_blocking=True)."
          : "Keep data on the device, or copy on another stream while the device computes.",
        predicted: effect(rank, "no copies", exposed / stepCount(rank)),
        refutedBy: "A trace with data that is on the device already whose step takes as long.",
      };
    },
  },
  {
    id: "trace-no-tensor-cores",
    title: "Matrix products run without tensor cores",
    source: "names of matrix and convolution kernels",
    find(rank) {
      const compute = rank.kernels.reduce((sum, kernel) => sum + (kernel.type === "COMPUTATION" ? kernel.sumUs : 0), 0);
      const matrix = kernelShare(rank, (name) => matrixKernel.test(name));
      const tensor = kernelShare(rank, (name) => matrixKernel.test(name) && tensorCoreKernel.test(name));
      const share = matrix / (stepUs(rank) * stepCount(rank));
      if (
        rank.device !== "gpu" ||
        rank.launches === null ||
        matrix < 0.4 * compute ||
        tensor > 0.1 * matrix ||
        !(share >= 0.4)
      )
        return null;
      const top = rank.kernels.filter((kernel) => matrixKernel.test(kernel.name)).slice(0, 3);
      return {
        share: share / 2,
        evidence: [
          evidence("matrix kernels of the compute time", `${((100 * matrix) / compute).toFixed(0)}%`, {
            rows: top.map((kernel) => `${kernel.name.slice(0, 100)}: ${ms(kernel.sumUs)} ms`),
          }),
          evidence("of them on tensor cores", `${((100 * tensor) / matrix).toFixed(0)}%`),
        ],
        cause:
          "The products are computed in 32-bit floating point on the general units; tensor cores are several times faster.",
        fix: "torch.set_float32_matmul_precision('high') (TF32), or torch.autocast('cuda', torch.bfloat16).",
        predicted: fasterProducts(rank, matrix / stepCount(rank)),
        refutedBy: "The same step under autocast that takes as long.",
      };
    },
  },
];

function severityOf(share: number): Severity {
  return share >= large ? "high" : "moderate";
}

/** Findings of traces, the most expensive first; a rule speaks once, for the rank that it concerns most. */
export function traceFindings(report: TraceReport): Finding[] {
  const found: { finding: Finding; share: number }[] = [];
  for (const { id, title, source, find } of traceRules) {
    const candidates = report.ranks.flatMap((rank) => {
      const result = rank.spanUs === undefined ? null : find(rank, report);
      return result === null ? [] : [{ rank, result }];
    });
    candidates.sort((a, b) => b.result.share - a.result.share);
    if (candidates.length === 0) continue;
    const [{ rank, result }] = candidates;
    const { share, ...rest } = result;
    const where =
      report.ranks.length > 1
        ? ` (rank ${rank.rank}${candidates.length > 1 ? ` and ${candidates.length - 1} more` : ""})`
        : "";
    found.push({ share, finding: { id, title: `${title}${where}`, source, severity: severityOf(share), ...rest } });
  }
  return found.sort((a, b) => b.share - a.share).map(({ finding }) => finding);
}
