// Rules about the host: input, launches, Python, compile time, initialization. They are evaluated before the communication rules.
import { evidence } from "../model/index.js";
import { computeUs, estimateFewerLaunches, estimateLoaders } from "../predict/index.js";
import { type DiagnosisRule, graded, toPercent } from "./catalog.js";

const guide = "the DDP optimization guide";
const physics = "the multi-GPU note on differentiable quantum simulation";

export const hostRules: readonly DiagnosisRule[] = [
  {
    id: "input-bound",
    title: "The device waits for data",
    source: "data loading above 5% (PyTorch's TensorBoard plugin, XProf: 5% moderate, 20% high)",
    run: ({ summary, parts, facts, effect, run, devices }) => {
      const share = summary.steps?.dataShare ?? null;
      if (share === null || parts === null || share < 0.05) return null;
      const workers = facts.loaderWorkers;
      const cores = run.machine?.cores ?? facts.cores;
      const room = cores === undefined ? null : Math.max(0, Math.floor(cores / devices) - 1);
      const wanted = Math.max(1, Math.ceil((workers ?? 0) + 1) * 2);
      const target = room === null ? wanted : Math.min(wanted, Math.max(1, room));
      const factor = target / Math.max(1, workers ?? 1);
      const stuck = room !== null && room <= (workers ?? 0);
      return {
        severity: graded(share, 0.2),
        evidence: [
          evidence("data wait", toPercent(share), { unit: "% of the step", threshold: 5 }),
          evidence("data wait a step", parts.dataUs / 1000, { unit: "ms" }),
          ...(workers === undefined ? [] : [evidence("loader processes per rank", workers)]),
        ],
        cause: stuck
          ? "Batches are prepared more slowly than they are used, and there are no free cores to prepare more at once."
          : "Batches are prepared more slowly than they are used.",
        alternatives: ["a slow device would leave the queue full and the wait near zero"],
        fix: stuck
          ? `Prepare less per step (tokenize once, ahead of training) or ask for more cores: ${cores} for ${devices} ranks leave none to load with.`
          : `num_workers=${target}, persistent_workers=True, prefetch_factor=4; prepare once what does not change between epochs.`,
        predicted: stuck || factor <= 1 ? null : effect(estimateLoaders(parts, factor)),
        refutedBy: "The same step time with the same batch fed from memory again and again.",
      };
    },
  },
  {
    id: "transfer-bound",
    title: "Copying to the device takes part of the step",
    source:
      "of the input time, transfer at 30% or more (XProf); frequent transfers between host and devices (" +
      physics +
      ")",
    run: ({ facts, parts, effect }) => {
      if (facts.hostToDeviceUs === undefined || parts === null) return null;
      const share = facts.hostToDeviceUs / parts.stepUs;
      if (share < 0.05) return null;
      return {
        severity: graded(share, 0.2),
        evidence: [
          evidence("copies to the device", toPercent(share), { unit: "% of the step", threshold: 5 }),
          ...(facts.pinMemory === undefined ? [] : [evidence("pinned memory", facts.pinMemory)]),
        ],
        cause:
          facts.pinMemory === false
            ? "Copies come from pageable memory and cannot run beside the computation."
            : "Data moves between host and devices in every step.",
        fix: "pin_memory=True and .to(device, non_blocking=True); keep on the device what is used again; move once, not per step.",
        predicted: effect({ ratio: 1 - share * 0.8, reason: "copies beside the computation instead of before it" }),
        refutedBy: "The same step time with inputs that already lie on the device.",
      };
    },
  },
  {
    id: "slow-loader",
    title: "A batch takes long to arrive",
    source: "data loader above 10 ms per step (Ascend mstt)",
    run: ({ parts, summary }) => {
      const share = summary.steps?.dataShare ?? null;
      if (parts === null || share === null || parts.dataUs <= 10000 || share >= 0.05) return null;
      return {
        severity: "low",
        evidence: [evidence("data wait a step", parts.dataUs / 1000, { unit: "ms", threshold: 10 })],
        cause: "Preparing a batch is slow, though still hidden behind a long step.",
        fix: "Look at it before the step gets shorter: it will then be the limit.",
        predicted: null,
        refutedBy: "A data wait below 10 ms.",
      };
    },
  },
  {
    id: "launch-bound",
    title: "Kernels are shorter than their launches",
    source: "kernel launch 3% moderate, 15% high (XProf); GPU kernels shorter than their CPU launch (HTA)",
    run: ({ traces, parts, effect }) => {
      const trace = traces.find((t) => t.kernels !== undefined && t.shortKernels !== undefined && t.kernels > 0);
      if (trace === undefined) return null;
      const shortShare = trace.shortKernels! / trace.kernels!;
      const launchShare = trace.launchUs === undefined ? null : trace.launchUs / trace.spanUs;
      if (shortShare < 0.5 || (launchShare !== null && launchShare < 0.03)) return null;
      return {
        severity: launchShare !== null && launchShare >= 0.15 ? "high" : "moderate",
        evidence: [
          evidence("kernels shorter than their launch", toPercent(shortShare), { unit: "%", threshold: 50 }),
          ...(launchShare === null
            ? []
            : [evidence("launches", toPercent(launchShare), { unit: "% of the span", threshold: 3 })]),
        ],
        cause: "Many small kernels: the host cannot launch them as fast as the device runs them.",
        fix: "Fuse them (torch.compile, jit), capture CUDA graphs, or batch the small problems into one launch.",
        predicted:
          parts === null || launchShare === null
            ? null
            : effect(estimateFewerLaunches(parts, launchShare * parts.stepUs)),
        refutedBy: "The same step time with a captured CUDA graph.",
      };
    },
  },
  {
    id: "host-wait",
    title: "The device waits for the host",
    source: "host wait dominates the idle time, queue near zero (HTA); queue at 1024: the device is the limit",
    run: ({ traces }) => {
      const trace = traces.find((t) => t.hostWaitUs !== undefined && t.idleUs > 0);
      if (trace === undefined) return null;
      const waits = trace.hostWaitUs! + (trace.kernelWaitUs ?? 0) + (trace.otherWaitUs ?? 0);
      const idle = trace.idleUs / trace.spanUs;
      if (waits === 0 || trace.hostWaitUs! / waits < 0.5 || idle < 0.1) return null;
      return {
        severity: idle >= 0.3 ? "high" : "moderate",
        evidence: [
          evidence("host wait", toPercent(trace.hostWaitUs! / waits), { unit: "% of the idle time", threshold: 50 }),
          evidence("device idle", toPercent(idle), { unit: "% of the span", threshold: 10 }),
          ...(trace.meanQueueLength === undefined ? [] : [evidence("mean queue length", trace.meanQueueLength)]),
        ],
        cause: "Kernels are launched later than the device could take them: Python, synchronization or too few cores.",
        fix: "Remove synchronizations from the step (.item(), print, .cpu()); compile or capture the step; give each rank its own cores.",
        predicted: null,
        refutedBy: "The same idle time with the step captured as one launch.",
      };
    },
  },
  {
    id: "python-pauses",
    title: "The host pauses inside steps",
    source: "garbage collection above 1 ms (Ascend mstt); other host time 3% moderate, 15% high (XProf)",
    run: ({ run, traces }) => {
      const pauses = run.events.filter((e) => /gc|garbage/i.test(e.name) && Number(e.data?.["durationUs"] ?? 0) > 1000);
      const trace = traces.find((t) => t.otherWaitUs !== undefined && t.spanUs > 0);
      const other = trace === undefined ? 0 : trace.otherWaitUs! / trace.spanUs;
      if (pauses.length === 0 && other < 0.03) return null;
      return {
        severity: other >= 0.15 ? "high" : "moderate",
        evidence: [
          ...(pauses.length === 0 ? [] : [evidence("garbage collections above 1 ms", pauses.length, { threshold: 0 })]),
          ...(other < 0.03
            ? []
            : [evidence("unexplained waits", toPercent(other), { unit: "% of the span", threshold: 3 })]),
        ],
        cause: "Garbage collection, logging or other Python work between launches.",
        fix: "gc.freeze() after set-up and gc.disable() with a manual gc.collect() between epochs; log every hundredth step.",
        predicted: null,
        refutedBy: "The same waits with garbage collection and logging off.",
      };
    },
  },
  {
    id: "compile-in-window",
    title: "Compilation falls into the measured steps",
    source: "compile events inside the window, or a first step above 3 times the median (" + physics + ")",
    run: ({ summary }) => {
      const { steps } = summary;
      if (steps === null) return null;
      const dropped = steps.warmupSteps > 0;
      if (steps.compiledInWindow === 0 && (steps.firstStepRatio <= 3 || dropped)) return null;
      return {
        severity: "moderate",
        evidence: [
          ...(steps.compiledInWindow > 0
            ? [evidence("steps that compiled", steps.compiledInWindow, { threshold: 0 })]
            : []),
          evidence("first step over the median", steps.firstStepRatio, { threshold: 3 }),
        ],
        cause: "Shapes change between steps, or the warm-up is too short.",
        fix: "Pad to a few fixed shapes and warm up each of them before measuring.",
        predicted: null,
        refutedBy: "Steady steps from the first measured one on.",
      };
    },
  },
  {
    id: "compile-time",
    title: "Compilation takes a large part of the run",
    source: "compile time, separate from the steady state (" + physics + ")",
    run: ({ facts, run }) => {
      if (facts.compileSeconds === undefined || run.seconds === undefined) return null;
      const share = facts.compileSeconds / run.seconds;
      if (share < 0.2) return null;
      return {
        severity: graded(share, 0.5),
        evidence: [evidence("compilation", toPercent(share), { unit: "% of the run", threshold: 20 })],
        cause: "Each process compiles the same program, and that time does not shrink with the devices.",
        fix:
          facts.framework === "weft"
            ? "Weft keeps compiled kernels on disk (WEFT_CACHE_DIR): run once before measuring, or measure more steps; fewer data.length_buckets."
            : "A persistent compilation cache (jax_compilation_cache_dir; TORCHINDUCTOR_CACHE_DIR) shared by the ranks; fewer distinct shapes.",
        // Relative to the whole run; steady steps and epochs after the warm-up are unaffected.
        predicted: null,
        refutedBy: "The same run time with a warm compilation cache.",
      };
    },
  },
  {
    id: "serial-initialization",
    title: "Initialization does not shrink with the devices",
    source: "serial initialization (" + physics + ")",
    run: ({ facts, run, isBaseline }, view) => {
      if (facts.initSeconds === undefined || run.seconds === undefined || isBaseline) return null;
      const share = facts.initSeconds / run.seconds;
      const base = view.runs.find((r) => r.isBaseline)?.facts.initSeconds;
      if (share < 0.2 || (base !== undefined && facts.initSeconds < base * 0.7)) return null;
      return {
        // Every start imports its framework: in a run of seconds that is most of it.
        severity: facts.initSeconds < 10 ? "low" : graded(share, 0.5),
        evidence: [
          evidence("start to first step", facts.initSeconds, { unit: "s" }),
          evidence("its share of the run", toPercent(share), { unit: "%", threshold: 20 }),
          ...(base === undefined ? [] : [evidence("the same at the baseline", base, { unit: "s" })]),
        ],
        cause: "Every rank builds everything (data set, Hamiltonian, eigenbasis), or one does while the others wait.",
        fix: "Build once and share (cache on disk, broadcast), or divide the building itself.",
        predicted: null,
        refutedBy: "A start-up time that falls with the devices.",
      };
    },
  },
  {
    id: "serial-time-stepping",
    title: "A serial loop fills the step",
    source: "time stepping by a scan cannot be divided over devices (" + physics + ")",
    run: ({ facts, isBaseline }) => {
      const share = facts.serialLoopShare;
      if (share === undefined || share < 0.5 || isBaseline) return null;
      return {
        severity: graded(share, 0.8),
        evidence: [
          evidence("the serial loop", toPercent(share), { unit: "% of the step", threshold: 50 }),
          ...(facts.serialLoopSteps === undefined ? [] : [evidence("its iterations", facts.serialLoopSteps)]),
        ],
        cause: "Each time step needs the one before; more devices do not shorten the chain.",
        fix: "Divide another axis (batch of parameters, initial states, noise samples) and keep the loop whole on each device; run it as one kernel; or a parallel-in-time product tree where the steps are matrices.",
        predicted: null,
        refutedBy: "A step time that falls when only the number of time steps per device falls.",
      };
    },
  },
  {
    id: "cheap-switches",
    timeless: true,
    title: "Settings that cost nothing are off",
    source: guide + ": persistent_workers, cudnn.benchmark, static_graph, gradient_as_bucket_view",
    run: ({ facts, parts, onGpu, effect, devices }) => {
      const switches: [boolean, string][] = [
        [facts.persistentWorkers === false && (facts.loaderWorkers ?? 0) > 0, "persistent_workers=True"],
        [facts.pinMemory === false && onGpu, "pin_memory=True"],
        [facts.cudnnBenchmark === false && onGpu, "torch.backends.cudnn.benchmark=True"],
        [facts.ddpStaticGraph === false && devices > 1, "DDP(static_graph=True)"],
        [facts.ddpGradientAsBucketView === false && devices > 1, "DDP(gradient_as_bucket_view=True)"],
        [facts.ddpFindUnusedParameters === true && devices > 1, "DDP(find_unused_parameters=False)"],
      ];
      const off = switches.filter(([is]) => is).map(([, text]) => text);
      if (off.length === 0) return null;
      return {
        severity: "low",
        evidence: [evidence("settings to switch", off.join(", "))],
        cause: "Defaults that suit every program and are best for few.",
        fix: off.join("; "),
        predicted:
          parts === null || computeUs(parts) === 0
            ? null
            : effect({ ratio: 0.975, reason: "0 to 5% by experience; measure it" }),
        refutedBy: "The same step time with them on.",
      };
    },
  },
];
