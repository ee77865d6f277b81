// The chart of `weft predict`: measured points, predictions and counts without a prediction.
import type { ScalingPredictions } from "../predict/index.js";
import { framed, gray, palette, type ReportChart } from "./charts.js";

/** Measured and predicted points on one curve, for `weft predict`; the band is the 80% interval. */
export function predictionChart(
  result: ScalingPredictions,
  measured: readonly { devices: number; value: number }[],
): ReportChart {
  const unit = result.metric === "seconds" ? "Seconds" : "Throughput";
  const rows = [
    ...measured.map((m) => ({ ...m, kind: "measured", low: null as number | null, high: null as number | null })),
    ...result.predictions.flatMap((p) =>
      p.value === null || p.reason.startsWith("measured")
        ? []
        : [
            {
              devices: p.devices,
              value: p.value,
              kind: p.interval === null ? "no interval" : "predicted",
              low: p.interval?.[0] ?? null,
              high: p.interval?.[1] ?? null,
            },
          ],
    ),
  ];
  const counts = [...new Set(rows.map((r) => r.devices))].sort((a, b) => a - b);
  const kinds = ["measured", "predicted", "no interval"].filter((kind) => rows.some((r) => r.kind === kind));
  const x = {
    field: "devices",
    type: "quantitative",
    title: "Devices",
    scale: { type: "log", base: 2, domain: [counts[0]! * 0.85, counts.at(-1)! * 1.3], nice: false },
    axis: { values: counts, format: "d" },
  };
  const bounds = rows.flatMap((r) => [r.value, r.low ?? r.value, r.high ?? r.value]);
  const y = {
    field: "value",
    type: "quantitative",
    title: unit,
    scale: { type: "log", base: 2, domain: [Math.min(...bounds) * 0.85, Math.max(...bounds) * 1.15], nice: false },
    axis: { format: "~s", tickCount: 6 },
  };
  const color = {
    field: "kind",
    type: "nominal",
    title: null,
    scale: { domain: kinds, range: kinds.map((k) => ({ measured: palette[0], predicted: palette[1] })[k] ?? gray) },
    legend: { symbolOpacity: 1 },
  };
  const description = `${unit} against devices: ${rows.map((r) => `${r.devices}: ${r.value.toPrecision(4)} (${r.kind})`).join("; ")}.`;
  return {
    name: "predictions",
    title: `${unit} at other device counts`,
    description,
    spec: framed(
      { title: `${unit} at other device counts`, subtitle: "bars: 80% intervals; gray: no prediction", description },
      {
        width: 560,
        height: 340,
        layer: [
          {
            data: { values: rows.filter((r) => r.low !== null) },
            mark: { type: "rule", strokeWidth: 6, opacity: 0.35 },
            encoding: { x, y: { ...y, field: "low" }, y2: { field: "high" }, color },
          },
          {
            data: { values: rows },
            mark: { type: "point", filled: true, size: 110, opacity: 1 },
            encoding: {
              x,
              y,
              color,
              shape: {
                field: "kind",
                type: "nominal",
                title: null,
                scale: {
                  domain: kinds,
                  range: kinds.map((k) => ({ measured: "circle", predicted: "triangle-up" })[k] ?? "cross"),
                },
              },
            },
          },
        ],
      },
    ),
  };
}
