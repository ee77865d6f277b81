// Validity rules about the machine and its clocks: parts longer than the step, ranks that share a device, more processes than
// cores.

import { mean } from "@weft/formats/stats";
import { listSome } from "@weft/formats/text";
import type { RunSummary } from "../metrics/index.js";
import { disturbanceIn, type Evidence, evidence, isHard, type RankInfo, type RuleFinding } from "../model/index.js";
import type { ValidityRule } from "./rule.js";
import { publishedStudy as study } from "./source.js";

export const impossibleTime: ValidityRule = {
  id: "impossible-time",
  title: "A claimed time is impossible",
  source: `a part cannot be longer than its whole (${study} claims more communication than its steps have time)`,
  find: (view) =>
    view.runs.flatMap(({ run, steps }): RuleFinding[] => {
      if (steps === null) return [];
      const parts = ["dataWaitUs", "forwardUs", "backwardUs", "optimizerUs", "exposedCommUs"] as const;
      const bad = run.steps.filter((step) => {
        const longest = Math.max(...parts.map((part) => step[part] ?? 0));
        return longest > step.durationUs * 1.01;
      });
      if (bad.length === 0) return [];
      return [
        {
          severity: bad.length > run.steps.length / 20 ? "invalid" : "moderate",
          devices: run.devices,
          run: run.id,
          evidence: [
            evidence("steps with a part longer than the step", bad.length, {
              threshold: 0,
              rows: bad.slice(0, 5).map((step) => `${run.id} rank ${step.rank} step ${step.step}`),
            }),
          ],
          cause: "The parts were not measured on one clock, or the step was timed without waiting for the device.",
          fix: "Synchronize the device before reading the clock, or use the probe's own times.",
          predicted: null,
          refutedBy: "Parts that add up to no more than their step.",
        },
      ];
    }),
};

/** Devices that one process of a run drives by itself. */
function drivesSeveral({ run }: RunSummary): boolean {
  const facts = run.ranks[0]?.facts;
  return ["dp", "pmap", "sharding"].includes(facts?.parallelism ?? "") || facts?.framework === "jax";
}

/** Evidence that processes and devices do not fit together. */
function worldEvidence(summary: RunSummary): Evidence[] {
  const { run } = summary;
  const sizes = run.ranks.flatMap((r) => r.worldSize ?? r.facts.worldSize ?? []);
  const world = sizes.find((size) => size !== run.devices) ?? (sizes.length === 0 ? run.processes : undefined);
  if (world === undefined || world === run.devices) return [];
  // Tensor parallelism and frameworks that drive all devices from one process have fewer ranks than devices.
  if (world < run.devices && drivesSeveral(summary)) return [];
  const single = run.ranks.every(
    (r) => r.facts.deviceCount === undefined || r.facts.deviceCount <= 1 || r.facts.parallelism === "none",
  );
  const known =
    world > run.devices ||
    (single && run.ranks.some((r) => r.facts.framework === "torch" || r.worldSize !== undefined));
  return [
    evidence("processes", world, {
      rank: known ? "counted" : "inferred",
      threshold: run.devices,
      rows: [run.id],
      text: `${world} process${world === 1 ? "" : "es"} (world size) where ${run.devices} devices were asked for`,
    }),
  ];
}

/** Evidence that two ranks use one device. */
function sharedDevices({ run }: RunSummary): Evidence[] {
  const places = new Map<string, RankInfo[]>();
  for (const r of run.ranks) {
    const device = r.device ?? r.facts.device;
    if (device === undefined || !device.startsWith("cuda")) continue;
    // Ranks of several nodes all have a cuda:0.
    if (r.host === undefined && (run.nodes ?? 1) > 1 && r.facts.deviceUuid === undefined) continue;
    const index = Number(/:(\d+)$/.exec(device)?.[1] ?? 0);
    const place = r.facts.deviceUuid ?? `${r.host ?? "host"} ${r.facts.visibleDevices?.[index] ?? device}`;
    places.set(place, [...(places.get(place) ?? []), r]);
  }
  return [...places].flatMap(([place, ranks]) => {
    if (ranks.length < 2) return [];
    // A scheduler may show each rank one device, under the same name.
    const isolated = ranks.every((r) => r.facts.deviceCount === 1 && r.facts.deviceUuid === undefined);
    return [
      evidence(`ranks on ${place}`, listSome(ranks.map((r) => r.rank)), {
        rank: isolated ? "inferred" : "counted",
        rows: [run.id],
      }),
    ];
  });
}

export const wrongLaunch: ValidityRule = {
  id: "wrong-launch",
  title: "The launch does not give one rank a device",
  source: `world size, ranks and devices must agree (${study}: 4 tasks x 4 processes)`,
  find: (view) =>
    view.runs.flatMap((summary): RuleFinding[] => {
      const { run } = summary;
      const list = [...worldEvidence(summary), ...sharedDevices(summary)];
      if (list.length === 0) return [];
      const sure = list.some(isHard);
      return [
        {
          severity: sure ? "invalid" : "unresolved",
          devices: run.devices,
          run: run.id,
          evidence: list,
          cause: sure
            ? "Tasks times processes per task is not the number of devices, or ranks share a device."
            : "Either ranks share a device, or the launcher shows each rank its own device under the same name.",
          fix: "One launcher only: --ntasks-per-node=1 with torchrun --nproc_per_node=GPUS, or srun with one task per GPU and no torchrun. weft lint checks scripts.",
          predicted: null,
          refutedBy: sure
            ? "Ranks that each report their own device and the world size that was asked for."
            : "nvidia-smi -L inside each rank: different UUIDs are different devices.",
        },
      ];
    }),
};

export const disturbedMachine: ValidityRule = {
  id: "disturbed-machine",
  title: "Others used the machine",
  source: "other processes above 15% of the cores, steal or quota above 5%, or other processes on the GPU",
  find: (view) =>
    view.runs.flatMap(({ run }): RuleFinding[] => {
      const disturbance = disturbanceIn(run);
      if (disturbance === null) return [];
      return [
        {
          severity: "moderate",
          devices: run.devices,
          run: run.id,
          evidence: [
            evidence("disturbance", disturbance, {
              rank: "counted",
              rows: [run.id],
              text: `${run.id}: ${disturbance}`,
            }),
          ],
          cause:
            "The times include what others did to the machine: what limits the job and how many devices are best cannot be said from them.",
          fix: "Repeat on a quiet machine, or with --repeats 5: disturbed runs count only where no other run has their number of devices.",
          predicted: null,
          refutedBy: "The same times on a quiet machine.",
        },
      ];
    }),
};

/** Measured contention invalidates a count; the number of processes alone is a warning. */
export const oversubscribed: ValidityRule = {
  id: "cpu-oversubscription",
  title: "More processes than cores",
  source: `ranks x (1 + loaders) against cores; ${study}: 12 processes on 4 cores`,
  find: (view) =>
    view.runs.flatMap(({ run }): RuleFinding[] => {
      // The affinity of a rank is what one rank may use; other ranks may have cores of their own.
      const cores = run.machine?.cores;
      const workers = run.ranks[0]?.facts.loaderWorkers;
      if (cores === undefined || cores <= 0) return [];
      const nodes = run.nodes ?? 1;
      const ranks = (run.processes ?? run.devices) / nodes;
      const processes = ranks * (1 + (workers ?? 0));
      const threads = ranks * (run.ranks[0]?.facts.ompThreads ?? 1);
      // Imports and compilers at the start need cores as well, and say nothing about the training.
      const { from, until } = run.training ?? { from: Number.NEGATIVE_INFINITY, until: Number.POSITIVE_INFINITY };
      const samples = run.samples.filter((s) => from <= s.t && s.t <= until);
      const queues = samples.flatMap((s) => (s.host?.runQueue === undefined ? [] : [s.host.runQueue]));
      const foreign = samples.flatMap((s) =>
        s.host?.foreignCpuPercent === undefined ? [] : [s.host.foreignCpuPercent],
      );
      // A queue of other users' processes says nothing about this job.
      const theirs = (foreign.length > 0 && mean(foreign) > 15) || disturbanceIn(run) !== null;
      const queue = queues.length < 3 || theirs ? null : mean(queues);
      const worst = Math.max(processes, threads);
      if (worst <= cores) return [];
      // Sleeping loaders and idle threads of a pool use no core: only a queue shows that something waits for one.
      if (queue === null ? worst <= 2 * cores : queue <= 1.5 * cores) return [];
      const contended = queue !== null && queue > 2 * cores && worst > 2 * cores;
      const list = [
        evidence("processes", processes, {
          threshold: cores,
          text: `${processes} processes (${ranks} ranks x (1 + ${workers ?? 0} loaders)) on ${cores} cores`,
        }),
      ];
      if (threads > cores) list.push(evidence("threads of the ranks", threads, { threshold: cores }));
      if (queue !== null) list.push(evidence("runnable processes, mean", queue, { rank: "counted", threshold: cores }));
      const seconds = view.counts.find((c) => c.devices === run.devices)?.seconds.mean ?? null;
      const fewer = Math.max(0, Math.floor(cores / ranks) - 1);
      return [
        {
          // The number of processes alone explains nothing: they may sleep. Up to two to a core, such as one loader beside each
          // rank, is an ordinary launch: worth knowing, not what limits the job.
          severity: contended ? "invalid" : queue === null || worst <= 2 * cores ? "low" : "high",
          devices: run.devices,
          run: run.id,
          evidence: list,
          cause:
            "The ranks and their loaders wait for each other's cores, so adding ranks takes cores away from those that run.",
          fix: `Ask for ${Math.ceil(worst)} cores (SLURM: --cpus-per-task), or lower the loaders to ${fewer} per rank and ${run.ranks[0]?.facts.framework === "weft" ? "distributed.cores_per_rank" : "OMP_NUM_THREADS"} to ${Math.max(1, Math.floor(cores / ranks))}.`,
          predicted:
            seconds === null
              ? null
              : {
                  metric: "epochSeconds",
                  devices: run.devices,
                  from: seconds,
                  to: null,
                  interval: [(seconds * cores) / worst, seconds],
                  unit: "s",
                  reason: "host time x processes / cores at worst; how much of the step is host time was not measured",
                },
          refutedBy: "The same time with as many cores as processes.",
        },
      ];
    }),
};
