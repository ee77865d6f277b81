// Explains a sharding plan as text: the choice, its predicted time, and the alternatives. Every line with a time says
// "predicted" and whether it is by operations or by compiled kernels, and names the machine where rates are assumed.
import type { Alternative, ShardingPlan } from "./planner.js";
import type { CollectiveSite } from "./sites.js";

const units: [number, string][] = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "us"],
];

export function showSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return "-";
  if (seconds === 0) return "0";
  const [scale, name] = units.find(([least]) => seconds >= least) ?? [1e-9, "ns"];
  const value = seconds / scale;
  return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${name}`;
}

export function showBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return "-";
  const step = bytes >= 1e9 ? 1e9 : bytes >= 1e6 ? 1e6 : bytes >= 1e3 ? 1e3 : 1;
  const name = { 1e9: "GB", 1e6: "MB", 1e3: "kB", 1: "B" }[step];
  return `${(bytes / step).toFixed(step === 1 ? 0 : 1)} ${name}`;
}

function row(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, i) => (i === cells.length - 1 ? cell : cell.padEnd(widths[i])))
    .join("  ")
    .trimEnd();
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((cells) => cells[i].length)));
  return rows.map((cells) => `  ${row(cells, widths)}`);
}

function reason(plan: ShardingPlan): string {
  const best = Math.min(...plan.alternatives.slice(1).map(({ seconds }) => seconds));
  if (plan.mesh.size === 1) {
    if (plan.alternatives.length === 1)
      return "Too small to gain from sharding, or planning is disabled: no alternative was evaluated.";
    return Number.isFinite(best)
      ? `The best alternative would take ${showSeconds(best)} (predicted, by operations): communication costs more than it saves.`
      : "Every alternative is far more expensive: the function is too small, or needs too much communication.";
  }
  const most = Math.max(...plan.alternatives.map(({ devices }) => devices));
  if (plan.mesh.size < most)
    return `${plan.mesh.size} of ${most} devices: with more, communication would cost more than it saves.`;
  return "";
}

const label = ({ assumed, name }: ShardingPlan["rates"], by: string): string =>
  `${assumed ? `predicted for ${name}` : "predicted"}, by ${by}`;

/** Predicted kernel time of the plan and of one device, available after the function is partitioned. */
export interface KernelSeconds {
  seconds: number;
  single: number;
}

/**
 * Formats the plan as text, with the collectives of the partitioned function if they are given. Alternatives are
 * estimated by operations; `kernels` replaces the time of the plan itself by the estimate from compiled kernels.
 */
export function explainPlan(
  plan: ShardingPlan,
  moves: readonly CollectiveSite[] = [],
  kernels?: KernelSeconds,
): string {
  const { mesh, rates } = plan;
  const { seconds, single } = kernels ?? plan;
  const tag = label(rates, kernels === undefined ? "operations" : "kernels");
  const speedup = single / seconds;
  const lines = [
    mesh.size === 1
      ? `One device, ${showSeconds(single)} (${tag}).`
      : `${mesh.size} devices (${mesh}), split along ${plan.name}: ${showSeconds(seconds)} against ` +
        `${showSeconds(single)} on one, ${speedup.toFixed(2)}x (${tag}).`,
  ];
  const why = reason(plan);
  if (why !== "") lines.push(why);
  lines.push("", `Tried (all ${label(rates, "operations")}):`);
  const ranked = [...plan.alternatives].sort((a, b) => a.seconds - b.seconds);
  lines.push(
    ...table([
      ["devices", "time", "compute", "communicate", "received", "split along"],
      ...ranked.map((option: Alternative) => [
        String(option.mesh),
        Number.isFinite(option.seconds) ? showSeconds(option.seconds) : "too expensive",
        showSeconds(option.compute),
        showSeconds(option.communicate),
        showBytes(option.bytes),
        option.name,
      ]),
    ]),
  );
  const placed = plan.params.flatMap((placement, i) => (placement.isReplicated ? [] : [`a${i} ${placement}`]));
  if (placed.length > 0 && mesh.size > 1) lines.push("", `Split at the start: ${placed.join(", ")}.`);
  if (moves.length > 0) {
    lines.push("", "Moves, in order (most that one device receives):");
    lines.push(
      ...table(
        moves
          .slice(0, 40)
          .map((move) => [
            move.kind,
            showBytes(move.bytes),
            `${move.of.op} [${move.of.shape.join(", ")}]`,
            `${move.from} -> ${move.to}`,
          ]),
      ),
    );
    if (moves.length > 40) lines.push(`  and ${moves.length - 40} more`);
  }
  return lines.join("\n");
}
