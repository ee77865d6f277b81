// Rules about the devices: utilization, idle time, tensor cores, memory, batch size and precision.

import { mean } from "@weft/formats/stats";
import { evidence } from "../model/index.js";
import { estimateHalfGradients, estimateLargerBatch } from "../predict/index.js";
import { type DiagnosisRule, toPercent } from "./catalog.js";

const guide = "the DDP optimization guide";

export const deviceRules: readonly DiagnosisRule[] = [
  {
    id: "low-utilization",
    title: "The devices are mostly idle",
    source: "GPU utilization below 50% (PyTorch's TensorBoard plugin)",
    run: ({ utilization }) =>
      utilization === null || utilization >= 50
        ? null
        : {
            severity: utilization < 25 ? "high" : "moderate",
            evidence: [evidence("device utilization, mean", utilization, { unit: "%", threshold: 50 })],
            cause: "The devices wait for input, launches or each other; the other findings say for which.",
            fix: "Follow the finding about what they wait for; if there is none, take a trace (weft trace).",
            predicted: null,
            refutedBy: "Utilization above 50% in steady steps.",
          },
  },
  {
    id: "device-idle",
    title: "The device stands still inside steps",
    source: "idle 10% or more (XProf); one gap above 500 ms (Nsight Systems)",
    run: ({ traces }) => {
      const trace = traces.find((t) => t.spanUs > 0);
      if (trace === undefined) return null;
      const idle = trace.idleUs / trace.spanUs;
      const gap = trace.longestGapUs ?? 0;
      if (idle < 0.1 && gap <= 500000) return null;
      return {
        severity: idle >= 0.3 ? "high" : "moderate",
        evidence: [
          evidence("idle", toPercent(idle), { unit: "% of the span", threshold: 10 }),
          ...(gap > 500000 ? [evidence("longest gap", gap / 1000, { unit: "ms", threshold: 500 })] : []),
        ],
        cause: "Nothing is queued for the device part of the time.",
        fix: "See which wait fills the gaps (host, kernel, other) with weft trace.",
        predicted: null,
        refutedBy: "A trace with less than 10% idle time.",
      };
    },
  },
  {
    id: "device-limit",
    title: "What limits the device itself",
    source: "tensor cores above 70% and memory below 50%: compute-bound; the reverse: memory-bound (XProf)",
    run: ({ run }) => {
      const samples = run.samples.flatMap((s) => s.devices ?? []);
      const tensor = samples.flatMap((d) => (d.tensorActivePercent === undefined ? [] : [d.tensorActivePercent]));
      const memory = samples.flatMap((d) => (d.memoryActivePercent === undefined ? [] : [d.memoryActivePercent]));
      if (tensor.length < 3 || memory.length < 3) return null;
      const [t, m] = [mean(tensor), mean(memory)];
      const computeBound = t > 70 && m < 50;
      if (!computeBound && !(m > 70 && t < 50)) return null;
      return {
        severity: "info",
        evidence: [evidence("tensor cores active", t, { unit: "%" }), evidence("memory active", m, { unit: "%" })],
        cause: computeBound ? "The arithmetic is the limit." : "Moving data to and from device memory is the limit.",
        fix: computeBound
          ? "More devices, or lower precision; the code keeps the device busy."
          : "Fuse elementwise chains, lower precision, or larger tiles; more arithmetic for each byte.",
        predicted: null,
        refutedBy: "Counters on the other side of the thresholds.",
      };
    },
  },
  {
    id: "tensor-cores-idle",
    title: "Tensor cores are not used",
    source: "eligible kernels and none of them used (PyTorch's TensorBoard plugin)",
    run: ({ traces }) => {
      const eligible = traces.reduce((a, t) => a + (t.tensorCoreEligible ?? 0), 0);
      const used = traces.reduce((a, t) => a + (t.tensorCoreUsed ?? 0), 0);
      if (eligible === 0 || used > 0) return null;
      return {
        severity: "moderate",
        evidence: [evidence("eligible kernels", eligible), evidence("of them on tensor cores", used)],
        cause: "Matrix products run in full float32.",
        fix: "torch.set_float32_matmul_precision('high'), or autocast to bfloat16; sizes in multiples of 8.",
        predicted: null,
        refutedBy: "Tensor-core kernels in the trace.",
      };
    },
  },
  {
    id: "memory-limit",
    timeless: true,
    title: "Device memory is nearly full",
    source: "peak above 90% of device memory (PyTorch's TensorBoard plugin)",
    run: ({ facts, run }) => {
      const sampled = run.samples.flatMap((s) =>
        (s.devices ?? []).flatMap((d) =>
          d.memoryUsedBytes !== undefined && d.memoryTotalBytes ? [d.memoryUsedBytes / d.memoryTotalBytes] : [],
        ),
      );
      const known =
        facts.peakMemoryBytes !== undefined && facts.deviceMemoryBytes
          ? [facts.peakMemoryBytes / facts.deviceMemoryBytes]
          : [];
      const peak = Math.max(0, ...known, ...sampled);
      if (peak <= 0.9) return null;
      return {
        severity: "moderate",
        evidence: [evidence("peak memory", toPercent(peak), { unit: "% of the device", threshold: 90 })],
        cause: "There is no room for a larger batch, and the allocator may start to retry.",
        fix: "Lower precision, activation checkpointing, or gradient accumulation instead of a larger batch.",
        predicted: null,
        refutedBy: "A peak below 90%.",
      };
    },
  },
  {
    id: "small-batch",
    title: "The batch per device is small",
    source: `32 to 128 samples per GPU (${guide})`,
    run: ({ facts, parts, effect, onGpu, utilization, summary, isBaseline }) => {
      const batch = facts.batchPerRank;
      if (batch === undefined || batch > 64 || isBaseline) return null;
      const exposed = summary.steps?.exposedCommShare ?? null;
      const starved = (utilization !== null && utilization < 50) || (exposed !== null && exposed >= 0.1);
      // Without evidence that overheads dominate the step, a small batch is not a problem.
      if (batch >= 32 && !starved) return null;
      if (batch < 32 && !onGpu && !starved) return null;
      const target = 128;
      const m = target / batch;
      return {
        severity: starved ? "moderate" : "low",
        evidence: [
          evidence("batch per device", batch, { threshold: 32 }),
          ...(utilization === null
            ? []
            : [evidence("device utilization, mean", utilization, { unit: "%", threshold: 50 })]),
          ...(exposed === null
            ? []
            : [evidence("exposed communication", toPercent(exposed), { unit: "% of the step", threshold: 10 })]),
        ],
        cause: "Each synchronization and each launch is paid for few samples.",
        fix: `batch_size: ${target} per rank (with the learning rate scaled and warmed up), if memory and accuracy allow; otherwise gradient accumulation.`,
        predicted: parts === null ? null : effect(estimateLargerBatch(parts, m, (utilization ?? 100) / 100)),
        refutedBy: `The same samples per second at ${target} per device.`,
      };
    },
  },
  {
    id: "full-precision",
    timeless: true,
    title: "Training runs in float32",
    source: `mixed precision halves gradients and uses tensor cores (${guide})`,
    run: ({ facts, parts, onGpu, effect }) => {
      if (!onGpu || facts.precision !== "fp32" || parts === null) return null;
      return {
        severity: "low",
        evidence: [evidence("precision", "fp32")],
        cause: "Matrix products and gradients in float32 take twice the bytes and miss the tensor cores.",
        fix: "torch.autocast('cuda', dtype=torch.bfloat16), and a bf16 gradient hook (ddp_comm_hooks) for the communication.",
        predicted: parts.exposedUs > 0 ? effect(estimateHalfGradients(parts)) : null,
        refutedBy: "The same step time in bfloat16.",
      };
    },
  },
  {
    id: "many-sync-batch-norms",
    timeless: true,
    title: "Many synchronized batch norms",
    source: "more than 20 SyncBatchNorm (Ascend mstt)",
    run: ({ facts, devices }) =>
      (facts.syncBatchNorms ?? 0) <= 20 || devices === 1
        ? null
        : {
            severity: "moderate",
            evidence: [evidence("SyncBatchNorm layers", facts.syncBatchNorms!, { threshold: 20 })],
            cause: "Each of them synchronizes all devices in the forward and the backward pass.",
            fix: "Plain BatchNorm with a batch of 32 or more a device, or GroupNorm.",
            predicted: null,
            refutedBy: "The same step time with plain BatchNorm.",
          },
  },
];
