// How the steps of a schedule appear in kernel lists, tapes and profiles: name, kind and estimated cost.
import { kernelBytes, laneAvals, laneName, type ScheduleStep } from "../../compile/index.js";
import { opCost } from "../../cost/index.js";
import { bytesOf, isOp, numel } from "../../graph/index.js";
import type { KernelInfo } from "../contract.js";

/** Description of a step; null for one that launches nothing. `vendor` ends the name of steps that a vendor's library computes. */
export function kernelInfo(step: ScheduleStep, vendor: string): KernelInfo | null {
  switch (step.kind) {
    case "collective": {
      if (step.phase === "start") return null;
      const [operand] = step.node.inputs;
      const name = `${step.node.attrs.kind}_${operand.shape.join("x")}`;
      return { name, kind: "collective", ...opCost(step.node) };
    }
    case "kernel": {
      const { kernel } = step;
      return { name: kernel.name, kind: "kernel", flops: kernel.size * kernel.cost, bytes: kernelBytes(kernel) };
    }
    case "batch":
      return {
        name: `each_${step.kernels.length}_${step.kernels[0].name}`,
        kind: "kernel",
        flops: step.kernels.reduce((n, k) => n + k.size * k.cost, 0),
        bytes: step.kernels.reduce((n, k) => n + kernelBytes(k), 0),
      };
    case "copy":
      return { name: "copy", kind: "kernel", flops: 0, bytes: 2 * numel(step.from.shape) * bytesOf(step.from.dtype) };
    case "lane": {
      const { program, node } = step;
      return {
        name: laneName(program),
        kind: "kernel",
        flops: program.flops * program.lanes,
        bytes: laneAvals(node).reduce((n, x) => n + numel(x.shape) * bytesOf(x.dtype), 0),
      };
    }
    case "loop":
    case "library": {
      const { node } = step;
      const [first, second] = node.inputs;
      const product = step.kind === "library" && step.matrices !== null;
      const dims = [...(first?.shape ?? []), ...(product ? second.shape.slice(-1) : [])].join("x");
      const name = isOp(node, "custom") ? node.attrs.rule.name : node.op;
      return { name: `${name}_${dims}${vendor}`, kind: step.kind, ...opCost(node) };
    }
  }
}
