// Text of two benchmarks: jit against single operations, and the same rows in PyTorch.

import type { JitRow } from "@weft/bench";
import { medianOrNull } from "@weft/formats/stats";
import type { BenchRecord } from "@weft/lab/internal/bench";
import { table, time } from "../terminal/index.js";
import type { TorchRow } from "./bench-torch.js";

const verdict = (ratio: number): string => (ratio > 1.1 ? "jit wins" : ratio > 0.95 ? "about equal" : "op by op wins");

export function jitText(rows: readonly JitRow[]): string {
  const lines = rows.map((row) => {
    const [each, once] = [medianOrNull(row.opByOp.calls) ?? 0, medianOrNull(row.jit.calls) ?? 0];
    const ratio = each / once;
    // Number of calls after which compiling has paid off.
    const pays = each > once ? Math.ceil(Math.max(0, row.jit.first - row.opByOp.first) / (each - once)) : null;
    return [
      row.label,
      String(row.operations),
      time(each * 1e6),
      time(once * 1e6),
      `${ratio.toFixed(1)}x`,
      `${row.opByOp.kernelsPerCall} -> ${row.jit.kernelsPerCall}`,
      time(row.jit.first * 1e6),
      pays === null ? "never" : `${pays} calls`,
      verdict(ratio),
    ];
  });
  const header = ["program", "ops", "op by op", "jit", "speedup", "kernels", "first call", "pays after", ""];
  return `jit against op by op (medians of a call)\n\n${table(header, lines)}`;
}

export function torchText(record: BenchRecord, torch: readonly TorchRow[] | { reason: string }): string {
  if ("reason" in torch) return `PyTorch: not measured (${torch.reason})`;
  const lines = record.rows.flatMap((row, i) => {
    const mine = row.results.find((r) => r.devices === 1);
    const theirs = torch[i];
    if (mine === undefined || theirs === undefined) return [];
    return (["compute", "endToEnd"] as const).map((clock) => {
      const [a, b] = [medianOrNull(mine[clock]), medianOrNull(theirs[clock])];
      return [
        row.label,
        clock === "compute" ? "compute" : "end to end",
        a === null ? "-" : time(a * 1e6),
        b === null ? "-" : time(b * 1e6),
        a === null || b === null ? "-" : `${(b / a).toFixed(2)}x`,
      ];
    });
  });
  return `The same rows in PyTorch ${torch[0]?.torch ?? ""}, one device (medians)\n\n${table(["row", "clock", "Weft", "PyTorch", "ratio"], lines, 2)}`;
}
