// Rules about communication and load balance. They are evaluated last, because a late host looks like a slow network.

import { mean, weightedMean } from "@weft/formats/stats";
import {
  allReduceUs,
  busBandwidthGBps,
  ddpBuckets,
  type Fabric,
  fabrics,
  type Imbalance,
  imbalance,
  popEfficiencies,
  weightedTimes,
} from "../metrics/index.js";
import { evidence, type RuleFinding } from "../model/index.js";
import {
  computeUs,
  type EffectEstimate,
  estimateAccumulation,
  estimateBuckets,
  estimateEarlyTail,
  estimateOverlap,
  estimateRemoved,
} from "../predict/index.js";
import { type DiagnosisRule, toPercent } from "./catalog.js";
import type { RunView } from "./view.js";

const guide = "the DDP optimization guide";

/** Device name -> the fabric that its all-reduces usually use. */
const fabricOfDevice: [RegExp, keyof typeof fabrics][] = [
  [/B200|B100/, "nvlink5"],
  [/H100|H200|H800/, "nvlink4"],
  [/A100.*PCI|A30|A10\b|L4|L40|RTX/i, "pcie4"],
  [/A100|A800/, "nvlink3"],
  [/V100/, "nvlink2"],
];

function fabricOf({ facts, run }: RunView): Fabric | null {
  const name = facts.deviceName ?? run.machine?.devices?.[0]?.name;
  if (run.machine?.devices?.[0]?.link === "pcie" || run.machine?.devices?.[0]?.link === "shm") return fabrics["pcie4"]!;
  const key = fabricOfDevice.find(([pattern]) => name !== undefined && pattern.test(name))?.[1];
  return key === undefined ? null : fabrics[key]!;
}

const exposedShare = (r: RunView): number | null =>
  r.summary.steps?.exposedCommShare ??
  (r.parts === null || r.parts.commUs === 0 ? null : r.parts.exposedUs / r.parts.stepUs);
const backwardUs = (r: RunView): number | null => {
  const values = weightedTimes(r.run.steps, "backwardUs");
  return values.length === 0 ? null : weightedMean(values);
};

/** Waits of the ranks for each other; null where nothing shows them. */
const imbalanceOf = (r: RunView): Imbalance | null =>
  imbalance(r.run.steps, r.summary.steps?.warmupSteps ?? 0, r.facts.parallelism === "ddp");

/** Every step as fast as its fastest rank: with two ranks the slowest loses as much above the mean as the fastest gains. */
function asFastAsTheFastest(found: Imbalance, backwardShare = 0): EffectEstimate {
  const ranks = found.own.length;
  const share = Math.min(0.9, (found.lostShare * ranks) / (ranks - 1) + backwardShare);
  return estimateRemoved(share, "no rank waits for a slower one");
}

/**
 * How much longer the backward computation of a slow rank takes than that of the fastest one, by DDP's own timers, as a share of
 * the step. Waits that are inferred from backward passes cannot show it: the others wait inside theirs.
 */
function slowBackward(r: RunView, rank: number): number {
  const times = r.run.ranks.flatMap(({ rank: k, facts }) =>
    facts.ddpBackwardUs === undefined ? [] : [{ rank: k, us: facts.ddpBackwardUs }],
  );
  const own = times.find((t) => t.rank === rank)?.us;
  if (own === undefined || times.length !== r.run.ranks.length || r.parts === null) return 0;
  const fastest = times.reduce((a, t) => Math.min(a, t.us), own);
  return Math.min(0.8, (own - fastest) / r.parts.stepUs);
}

/** What an all-reduce between processes of one host reaches over the loopback device, and below which rate it is slow. */
const usualHostGBps = 0.5;
const slowHostGBps = 0.08;

/** Bus bandwidth of DDP's exchanges between processes over gloo, and what it should reach. */
function hostLink(r: RunView): { measured: number; expected: number } | null {
  const { backend, gradientBytes, device } = r.facts;
  // Ranks that wait for a core look like a slow link.
  if (backend !== "gloo" || device?.startsWith("cuda") || r.disturbed) return null;
  if (r.parts === null || r.parts.commUs <= 0) return null;
  // Small gradients measure latency.
  if (gradientBytes === undefined || gradientBytes < 256 * 1024 || (r.run.nodes ?? 1) > 1) return null;
  const measured = busBandwidthGBps("allreduce", gradientBytes, r.parts.commUs, r.devices);
  return measured !== null && measured < slowHostGBps ? { measured, expected: usualHostGBps } : null;
}

export const communicationRules: readonly DiagnosisRule[] = [
  {
    id: "wrong-backend",
    timeless: true,
    title: "Communication takes a slow path",
    source: "gloo with CUDA, DataParallel instead of DistributedDataParallel (PyTorch's TensorBoard plugin)",
    run: ({ facts, devices, run }) => {
      if (devices === 1) return null;
      const slowPath = run.events.find((e) => /NET\/Socket|via SHM|GDR 0/.test(e.message ?? ""));
      const list = [
        ...(facts.backend === "gloo" && facts.device?.startsWith("cuda")
          ? [evidence("backend on CUDA devices", "gloo")]
          : []),
        ...(facts.parallelism === "dp" ? [evidence("wrapper", "DataParallel")] : []),
        ...(slowPath === undefined ? [] : [evidence("NCCL says", slowPath.message!.slice(0, 120))]),
      ];
      if (list.length === 0) return null;
      return {
        severity: "high",
        evidence: list,
        cause: "Gradients go through host memory, or one process feeds all devices.",
        fix: "init_process_group('nccl') and DistributedDataParallel, one process per device; NCCL_DEBUG=INFO shows the path.",
        predicted: null,
        refutedBy: "The same all-reduce time with NCCL.",
      };
    },
  },
  {
    id: "communication-cost",
    title: "Communication takes part of the step",
    source: "above 10% (PyTorch's TensorBoard plugin), 30% collective-bound (XProf)",
    run: (r) => {
      const share = exposedShare(r);
      if (share === null || share < 0.1 || r.parts === null) return null;
      const k = 4;
      return {
        severity: share >= 0.3 ? "high" : "moderate",
        evidence: [
          evidence("exposed communication", toPercent(share), { unit: "% of the step", threshold: 10 }),
          evidence("exposed communication a step", r.parts.exposedUs / 1000, { unit: "ms" }),
        ],
        cause: "Gradients are exchanged in every step, and the backward pass does not hide it all.",
        alternatives: ["a late rank looks the same: compare the start of the collectives (skew) with their length"],
        fix: `Gradient accumulation over ${k} micro-steps with no_sync(), or a larger batch.`,
        predicted: r.effect(estimateAccumulation(r.parts, k)),
        refutedBy: "The same samples per second with the all-reduce left out.",
      };
    },
  },
  {
    id: "communication-dominates",
    title: "Computation does not outweigh communication",
    source: "compute over exposed communication below 3 weak, below 1 bad (final report of the published DDP study)",
    run: (r) => {
      if (r.parts === null || r.parts.exposedUs <= 0) return null;
      const ratio = computeUs(r.parts) / r.parts.exposedUs;
      if (ratio >= 3) return null;
      return {
        severity: ratio < 1 ? "high" : "moderate",
        evidence: [evidence("compute over exposed communication", ratio, { threshold: 3 })],
        cause: "The model is too small, or the batch too small, for this many devices and this link.",
        fix: "Fewer devices, a larger batch a device, or accumulation; more devices will make it worse.",
        predicted: r.effect(estimateAccumulation(r.parts, Math.ceil(3 / Math.max(ratio, 0.1)))),
        refutedBy: "A ratio above 3 in a trace.",
      };
    },
  },
  {
    id: "small-messages",
    title: "Messages are small",
    source: "more than 20% of messages below 16 MB (Ascend mstt, fast fabrics)",
    run: (r) => {
      const collectives = r.traces.flatMap((t) => t.collectives ?? []);
      const total = collectives.reduce((a, c) => a + c.count, 0);
      const small = collectives.filter((c) => c.bytes < 16e6).reduce((a, c) => a + c.count, 0);
      const fromTrace = total > 0;
      const buckets = r.facts.ddpBucketBytes ?? [];
      const share = fromTrace
        ? small / total
        : buckets.length === 0
          ? 0
          : buckets.filter((b) => b < 16e6).length / buckets.length;
      const exposed = exposedShare(r);
      if (r.devices === 1 || share <= 0.2 || (exposed !== null && exposed < 0.05) || (exposed === null && !fromTrace))
        return null;
      return {
        severity: "low",
        evidence: [evidence("messages below 16 MB", toPercent(share), { unit: "%", threshold: 20 })],
        cause: "Latency, not bandwidth, sets the time of each message.",
        fix: "Larger buckets (bucket_cap_mb=50 or 100) or fewer, fused collectives.",
        predicted: null,
        refutedBy: "The same time with one bucket.",
      };
    },
  },
  {
    id: "slow-link",
    title: "The link is slower than it should be",
    source: "bus bandwidth below 0.8 of what the fabric gives (Ascend mstt; about 80% of the specification is normal)",
    run: (r) => {
      const host = r.devices > 1 ? hostLink(r) : null;
      if (host !== null) {
        const faster = Math.min(r.parts!.exposedUs, r.parts!.commUs * (1 - host.measured / host.expected));
        return {
          severity: "high" as const,
          evidence: [
            evidence("bus bandwidth of the exchanges", host.measured, { unit: "GB/s", threshold: slowHostGBps }),
            evidence("expected between processes of one host", host.expected, { rank: "assumed", unit: "GB/s" }),
          ],
          cause:
            "Gradients travel between processes of one host more slowly than a loopback device moves them: a wrong interface, or a limited one.",
          fix: "GLOO_SOCKET_IFNAME of the fastest interface (lo on one host); look for limits on it (tc qdisc show).",
          predicted: r.effect(estimateRemoved(faster / r.parts!.stepUs, `an exchange at ${host.expected} GB/s`)),
          refutedBy: `An all-reduce of ${((r.facts.gradientBytes ?? 0) / 1e6).toFixed(1)} MB alone that is as slow on another interface.`,
        };
      }
      const fabric = fabricOf(r);
      if (fabric === null || r.devices === 1) return null;
      // Small messages measure latency; only large ones measure the link.
      const large = r.traces
        .flatMap((t) => t.collectives ?? [])
        .filter((c) => c.busGBps !== undefined && c.bytes >= 64e6);
      if (large.length === 0) return null;
      const measured = Math.max(...large.map((c) => c.busGBps!));
      if (measured >= 0.8 * fabric.busGBps) return null;
      return {
        severity: measured < 0.3 * fabric.busGBps ? "high" : "moderate",
        evidence: [
          evidence("bus bandwidth of the largest messages", measured, {
            unit: "GB/s",
            threshold: 0.8 * fabric.busGBps,
          }),
          evidence("expected fabric", fabric.name),
        ],
        cause:
          "Traffic takes another path than the fast one (PCIe or shared memory instead of NVLink, no GPUDirect), or shares it.",
        fix: "NCCL_DEBUG=INFO and nvidia-smi topo -m; check NCCL_P2P_DISABLE, container limits and placement.",
        predicted: null,
        refutedBy: `nccl-tests all_reduce_perf at ${(fabric.busGBps * 0.8).toFixed(0)} GB/s or more on these devices.`,
      };
    },
  },
  {
    id: "poor-overlap",
    title: "Communication is not hidden behind the backward pass",
    source:
      "exposed over total communication above 0.5 with a backward pass longer than it; last bucket above 20% (DDP's order)",
    run: (r) => {
      const parts = r.parts;
      const backward = backwardUs(r);
      const elements = r.facts.parameterElements ?? [];
      const bytesEach = r.facts.gradientElementBytes ?? 4;
      const buckets =
        r.facts.ddpBucketBytes ?? ddpBuckets(elements, { elementBytes: bytesEach }).map((n) => n * bytesEach);
      const total = buckets.reduce((a, b) => a + b, 0);
      const tail = buckets.length > 1 ? buckets.at(-1)! / total : 0;
      // Over shared memory the computing cores also communicate: nothing can overlap.
      if (parts === null || parts.commUs <= 0 || r.devices === 1 || r.facts.backend === "shm") return null;
      const exposed = parts.exposedUs / parts.commUs;
      const long = backward !== null && backward > parts.commUs;
      if (exposed <= 0.5 || parts.exposedUs / parts.stepUs < 0.05 || (backward !== null && !long)) return null;
      const tailUs = tail * parts.commUs;
      return {
        severity: "moderate",
        evidence: [
          evidence("exposed over total communication", exposed, { threshold: 0.5 }),
          ...(backward === null ? [] : [evidence("backward pass", backward / 1000, { unit: "ms" })]),
          ...(tail > 0.2
            ? [evidence("last bucket", toPercent(tail), { unit: "% of the gradient", threshold: 20 })]
            : []),
        ],
        cause:
          tail > 0.2
            ? "The last bucket holds a large early layer (an embedding): its gradient comes last and nothing is left to hide it."
            : "The all-reduces start late or run after the backward pass.",
        fix:
          tail > 0.2
            ? "Sparse gradients for the embedding, or its own earlier all-reduce; smaller buckets elsewhere do not help."
            : "DistributedDataParallel with static_graph=True instead of averaging after backward(); find_unused_parameters=False.",
        predicted: r.effect(
          tail > 0.2 ? estimateEarlyTail(parts, tailUs) : estimateOverlap(parts, backward ?? parts.stepUs * 0.6),
        ),
        refutedBy: "A trace in which the all-reduces run beside the backward kernels.",
      };
    },
  },
  {
    id: "bucket-size",
    title: "Another bucket size would hide more",
    source: `bucket simulator over DDP's own rule; default 25 MiB is too small for many (pytorch#118421); ${guide}`,
    run: (r) => {
      const { parameterElements, gradientElementBytes, ddpBucketCapBytes } = r.facts;
      const backward = backwardUs(r);
      const fabric = fabricOf(r);
      if (!parameterElements?.length || backward === null || fabric === null || r.parts === null || r.devices === 1)
        return null;
      const choice = estimateBuckets(r.parts, parameterElements, backward, (b) => allReduceUs(b, r.devices, fabric), {
        ...(gradientElementBytes !== undefined && { elementBytes: gradientElementBytes }),
        ...(ddpBucketCapBytes !== undefined && { capBytes: ddpBucketCapBytes }),
      });
      if (choice === null || choice.estimate.ratio > 0.99) return null;
      return {
        severity: "low",
        evidence: [
          evidence("bucket cap now", (ddpBucketCapBytes ?? 25 * 2 ** 20) / 2 ** 20, { unit: "MiB" }),
          evidence("bucket cap that hides most", choice.capBytes / 2 ** 20, { unit: "MiB" }),
        ],
        cause: "Buckets of this size start too late or cost too many latencies.",
        fix: `DDP(bucket_cap_mb=${choice.capBytes / 2 ** 20})`,
        predicted: r.effect(choice.estimate),
        refutedBy: "The same step time with the other bucket size.",
      };
    },
  },
  {
    id: "communication-contention",
    title: "All-reduces are slower in training than alone",
    source: "above 1.5 times an isolated all-reduce",
    run: (r) => {
      const alone = r.run.figures?.["isolatedAllReduceUs"];
      if (alone === undefined || r.parts === null || r.parts.commUs <= 1.5 * alone) return null;
      return {
        severity: "moderate",
        evidence: [
          evidence("communication a step", r.parts.commUs, { unit: "us" }),
          evidence("the same alone", alone, { unit: "us" }),
        ],
        cause: "Kernels and collectives compete for the device, or the ranks arrive at different times.",
        fix: "Separate skew from transfer with weft trace; limit NCCL's channels (NCCL_MAX_NCHANNELS) if transfer itself is slow.",
        predicted: null,
        refutedBy: "Equal times in training and alone.",
      };
    },
  },
  {
    id: "straggler",
    title: "One rank is slower than the others",
    source: "a rank deviates more than 5% from the mean (Ascend mstt); latest start of the dominant collective (HTA)",
    run: (r) => {
      const ranks = r.summary.steps?.perRank ?? [];
      if (ranks.length < 2) return null;
      const found = imbalanceOf(r);
      const own = found?.own ?? ranks.map(({ rank, meanUs }) => ({ rank, us: meanUs }));
      const inferred = found?.recorded === false;
      const middle = mean(own.map((o) => o.us));
      const slowest = own.reduce((a, b) => (b.us > a.us ? b : a));
      const deviation = slowest.us / middle - 1;
      // Inferred waits include the noise of the machine: a small deviation counts if that rank is nearly always the slow one, or
      // slow so often that chance does not explain it (a quota stops it in some of the steps).
      const steady =
        found !== null &&
        found.slowest.rank === slowest.rank &&
        (found.slowest.share > 0.75 || found.slowest.standardErrors > 5);
      if (deviation <= (inferred ? (steady ? 0.06 : 0.12) : 0.05)) return null;
      return {
        severity: deviation > 0.2 ? "high" : "moderate",
        evidence: [
          evidence(`rank ${slowest.rank} above the mean`, toPercent(deviation), {
            rank: inferred ? "inferred" : "derived",
            unit: "%",
            threshold: inferred ? (steady ? 6 : 12) : 5,
          }),
          evidence("its own time a step", slowest.us / 1000, { unit: "ms" }),
        ],
        cause: "That rank has more work, a slower device, fewer cores or a hotter card; the others wait for it.",
        fix: "Look at its device clocks, cores and shard size; move it to another device to see whether the slowness follows.",
        predicted: r.effect(
          found === null
            ? { ratio: middle / slowest.us, reason: "the slowest rank as fast as the mean" }
            : asFastAsTheFastest(found, slowBackward(r, slowest.rank)),
        ),
        refutedBy: "Another rank is slowest when the devices are exchanged.",
      };
    },
  },
  {
    id: "moving-straggler",
    title: "The ranks take turns at being late",
    source: "own time of the slowest rank of each step above the mean by 12% of the step, and no rank is the slow one",
    run: (r) => {
      const found = imbalanceOf(r);
      if (found === null || r.disturbed || found.lostShare < 0.12 || found.slowest.aboveMean > 0.12) return null;
      return {
        severity: found.lostShare > 0.2 ? "high" : "moderate",
        evidence: [
          evidence("lost to the slowest rank of each step", toPercent(found.lostShare), {
            rank: found.recorded ? "derived" : "inferred",
            unit: "% of the step",
            threshold: 12,
          }),
          evidence(`rank ${found.slowest.rank} is the slowest one in`, toPercent(found.slowest.share), {
            unit: "% of the steps",
          }),
        ],
        cause:
          "Every step waits for its slowest rank, and that is another rank each time: uneven samples, pauses, or neighbors on the host.",
        fix: "Bucket samples by length, prefetch more batches, collect garbage on all ranks at the same step, pin ranks to cores.",
        predicted: r.effect(asFastAsTheFastest(found)),
        refutedBy: "The same step time with samples of equal size and garbage collection off.",
      };
    },
  },
  {
    id: "load-imbalance",
    title: "The work is not balanced over the ranks",
    source: "load balance below 0.8 (POP)",
    run: (r) => {
      const useful = r.traces.map((t) => t.computeUs);
      if (useful.length < 2) return null;
      const pop = popEfficiencies(useful, Math.max(...r.traces.map((t) => t.spanUs)));
      if (pop === null || pop.loadBalance >= 0.8) return null;
      return {
        severity: "moderate",
        evidence: [evidence("load balance", pop.loadBalance, { threshold: 0.8 })],
        cause: "Ranks compute for different times between synchronizations.",
        fix: "Equal shards: bucket by length, drop or spread the uneven tail.",
        predicted: r.effect({ ratio: pop.loadBalance, reason: "every rank as busy as the mean" }),
        refutedBy: "Load balance above 0.8 on a shuffled data set.",
      };
    },
  },
  {
    id: "parallel-efficiency",
    title: "Parallel efficiency is low",
    source: "load balance x communication efficiency below 0.8 (POP)",
    run: (r) => {
      const useful = r.traces.map((t) => t.computeUs);
      if (useful.length < 2) return null;
      const pop = popEfficiencies(useful, Math.max(...r.traces.map((t) => t.spanUs)));
      if (pop === null || pop.parallel >= 0.8) return null;
      return {
        severity: pop.parallel < 0.5 ? "high" : "moderate",
        evidence: [
          evidence("parallel efficiency", pop.parallel, { threshold: 0.8 }),
          evidence("load balance", pop.loadBalance),
          evidence("communication efficiency", pop.communication),
        ],
        cause:
          pop.loadBalance < pop.communication
            ? "Imbalance costs more than communication."
            : "Communication and waiting cost more than imbalance.",
        fix: "Follow the findings about the smaller of the two factors.",
        predicted: null,
        refutedBy: "A parallel efficiency of 0.8 or more.",
      };
    },
  },
  {
    id: "sharding-fallback",
    timeless: true,
    title: "Arrays are replicated because they do not divide",
    source: "dimension not divisible by N falls back to replication (GT)",
    run: ({ facts, devices }) => {
      const names = facts.replicatedForDivisibility ?? [];
      if (names.length === 0 || devices === 1) return null;
      return {
        severity: "moderate",
        evidence: [evidence("replicated arrays", names.slice(0, 8).join(", "))],
        cause: `Their length does not divide by ${devices}, so every device holds and computes all of it.`,
        fix: `Pad them to a multiple of ${devices}, or choose a device count that divides them.`,
        predicted: null,
        refutedBy: "The same step time with padded arrays.",
      };
    },
  },
  {
    id: "single-axis-sharding",
    title: "Only one axis is divided",
    source:
      "sharding along a single axis ('p') limits what can run in parallel (the multi-GPU note on quantum simulation)",
    run: ({ facts, devices, count, isBaseline }) => {
      if (facts.shardedAxes !== 1 || devices < 4 || isBaseline || count === null || count.efficiency >= 0.5)
        return null;
      return {
        severity: "moderate",
        evidence: [
          evidence("sharded axes", 1),
          evidence("efficiency", toPercent(count.efficiency), { unit: "%", threshold: 50 }),
        ],
        cause: "What does not lie on that axis is computed by every device.",
        fix: "A two-dimensional mesh (say batch x state), and compare the patterns [None,'p'], ['p',None], ['p','p'] on the same problem.",
        predicted: null,
        refutedBy: "Equal times for all three patterns.",
      };
    },
  },
  {
    id: "past-the-peak",
    title: "More devices are slower",
    source: "S(N) below S(N/2): past the peak of the USL",
    study: ({ verdict }) => {
      // Which count is fastest cannot be said while others use the machine.
      const disturbed = verdict.findings.some((f) => f.id === "disturbed-machine");
      const inNoise = (devices: number): boolean =>
        verdict.findings.some(
          (f) => f.id === "not-distinguishable" && f.severity === "unresolved" && f.devices === devices,
        );
      const points =
        verdict.valid === false || disturbed
          ? []
          : verdict.scaling.filter((p) => !inNoise(p.devices)).map((p) => ({ ...p, workSpeedup: p.workSpeedup ?? 0 }));
      return points.flatMap((point, i): RuleFinding[] => {
        const best = points
          .slice(0, i)
          .reduce<(typeof points)[number] | null>(
            (a, p) => (a === null || p.workSpeedup > a.workSpeedup ? p : a),
            null,
          );
        if (best === null || point.workSpeedup >= best.workSpeedup * 0.98) return [];
        const count = verdict.view.counts.find((c) => c.devices === point.devices)!;
        const better = verdict.view.counts.find((c) => c.devices === best.devices)!;
        return [
          {
            severity: "high",
            devices: point.devices,
            run: count.runs[0]!.run.id,
            evidence: [
              evidence(`speedup at ${point.devices}`, point.workSpeedup),
              evidence(`speedup at ${best.devices}`, best.workSpeedup),
            ],
            cause: "Each device that is added costs more in overhead than it brings in work.",
            fix: `Use ${best.devices} of the ${point.devices} devices.`,
            predicted: {
              metric: "epochSeconds",
              devices: best.devices,
              from: count.seconds.mean,
              to: better.seconds.mean,
              interval: [better.seconds.min, better.seconds.max],
              unit: "s",
              reason: `measured in this study at ${best.devices}`,
            },
            refutedBy: `A repeat at ${point.devices} devices that is faster.`,
          },
        ];
      });
    },
  },
];
