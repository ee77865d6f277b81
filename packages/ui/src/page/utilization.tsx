// CPU, memory, GPUs and power of the host while the run ran.
import { useMemo } from "preact/hooks";
import type { UtilizationHistory } from "../wire/index.js";
import { Chart, type ChartCurve } from "./chart.js";
import { formatBytes } from "./text.js";

const colors = ["c1", "c2", "c3", "c4", "c5", "c6"];

/** Charts of utilization. */
export function Utilization({ history }: { history: UtilizationHistory }) {
  const charts = useMemo(() => {
    const perDevice = (field: "utilizationPercent" | "memoryBytes" | "powerWatts"): ChartCurve[] =>
      history.devices
        .filter((device) => device[field].some((value) => value !== null))
        .map((device, i) => ({ label: `GPU ${device.index}`, color: colors[i % colors.length], mean: device[field] }));
    return {
      processor: [
        { label: "all", color: "c1", mean: history.cpuPercent, fill: true },
        { label: "others", color: "c4", mean: history.othersPercent },
      ] satisfies ChartCurve[],
      memory: [{ label: "host", color: "c3", mean: history.memoryBytes, fill: true }, ...perDevice("memoryBytes")],
      gpu: perDevice("utilizationPercent"),
      power: perDevice("powerWatts"),
    };
  }, [history]);
  if (history.t.length < 2) return null;
  const shared = { x: history.t, axis: "time" as const, height: 150, sync: "host" };
  const whole = (value: number): string => `${Math.round(value)}%`;
  return (
    <section class="card">
      <h2>Host and devices</h2>
      <div class="grid two">
        <Chart
          title="Processor, percent of all cores"
          {...shared}
          curves={charts.processor}
          range={[0, 100]}
          format={whole}
        />
        <Chart title="Memory" {...shared} curves={charts.memory} format={formatBytes} />
        {charts.gpu.length > 0 && (
          <Chart title="GPU utilization" {...shared} curves={charts.gpu} range={[0, 100]} format={whole} />
        )}
        {charts.power.length > 0 && (
          <Chart title="Power" {...shared} curves={charts.power} format={(value) => `${Math.round(value)} W`} />
        )}
      </div>
    </section>
  );
}
