// Device time per operator, module and source line; operations and bytes from shapes; achieved rates against the roofline of the
// device; share of tensor cores; model FLOP utilization.
import { attribute } from "./attribution.js";
import type { TraceData } from "./data.js";
import { hasOperationCount, operatorWork, precisionOf } from "./flops.js";
import { type DevicePeaks, type GpuPrecision, peaksOf } from "./gpus.js";
import { kernelTypes, matrixKernel, tensorCoreKernel } from "./kinds.js";
import type { DeviceView } from "./view.js";

/** One operator: device time of its kernels, work of its calls, and rates. */
export interface OperatorRow {
  name: string;
  calls: number;
  kernels: number;
  /** Device time of its kernels. */
  deviceUs: number;
  /** Part of it that belongs to the backward pass. */
  backwardUs: number;
  /** Operations and least bytes of all calls; null where shapes or rules are missing. */
  flops: number | null;
  bytes: number | null;
  tflops: number | null;
  bandwidthGBps: number | null;
  /** Operations per byte. */
  intensity: number | null;
  precision: GpuPrecision | null;
  /** Rate that the roofline allows at this intensity, and the share that was reached; null without the device's rates. */
  roofTflops: number | null;
  roofPercent: number | null;
  limit: "compute" | "memory" | null;
  /** Share of the device time in kernels of tensor cores. */
  tensorCorePercent: number;
  /** Sizes of the inputs of the calls with the most time. */
  shapes: string;
}

interface Place {
  name: string;
  us: number;
}

/** Operators of one rank. */
export interface OperatorReport {
  rows: OperatorRow[];
  modules: Place[];
  lines: Place[];
  /** Share of the device time that was attributed to an operator. */
  attributedPercent: number;
  /** Share of the time of computing kernels in kernels of tensor cores, and that of matrix kernels alone. */
  tensorCorePercent: number;
  matrixTensorCorePercent: number | null;
  peaks: DevicePeaks | null;
  /** Operations per analyzed step (or of the trace) from shapes. */
  flopsPerStep: number | null;
  /** Share of the time of matrix kernels whose operations are known. */
  countedPercent: number | null;
  /** Model FLOP utilization: `flopsPerStep` over step time and peak; its definition, with what is counted. */
  mfuPercent: number | null;
  mfuDefinition: string;
}

const mostPlaces = 30;
const computation = kernelTypes.indexOf("COMPUTATION");

/** Larger than the number of different inputs that a trace records. */
const cellsPerName = 2 ** 21;

/** Launches of one operator with the same inputs. */
class Cell {
  calls = 0;
  kernels = 0;
  us = 0;
  backwardUs = 0;
  matrixUs = 0;
  tensorUs = 0;
  /** Time of launches that were mostly on tensor cores. */
  tensorCallsUs = 0;

  constructor(
    readonly name: number,
    readonly inputs: number,
  ) {}
}

/** An operator with all its inputs. */
class Group {
  calls = 0;
  kernels = 0;
  us = 0;
  backwardUs = 0;
  tensorUs = 0;
  flops: number | null = 0;
  bytes: number | null = 0;
  readonly precisions = new Map<GpuPrecision, number>();
  readonly shapes = new Map<number, number>();

  add(cell: Cell, { flops, bytes, precision }: Work): void {
    this.calls += cell.calls;
    this.kernels += cell.kernels;
    this.us += cell.us;
    this.backwardUs += cell.backwardUs;
    this.tensorUs += cell.tensorUs;
    this.flops = this.flops === null || flops === null ? null : this.flops + cell.calls * flops;
    this.bytes = this.bytes === null || bytes === null ? null : this.bytes + cell.calls * bytes;
    this.shapes.set(cell.inputs, cell.us);
    if (precision === null) return;
    const tensor = precision === "fp32" ? cell.tensorCallsUs : 0;
    if (tensor > 0) this.precisions.set("tf32", (this.precisions.get("tf32") ?? 0) + tensor);
    this.precisions.set(precision, (this.precisions.get(precision) ?? 0) + cell.us - tensor);
  }
}

interface Work {
  flops: number | null;
  bytes: number | null;
  precision: GpuPrecision | null;
}

const mostOf = <T>(times: Map<T, number>): T | null =>
  [...times].reduce<[T | null, number]>((best, [key, us]) => (us > best[1] ? [key, us] : best), [null, -1])[0];

/** `number`: the accelerator among those of the trace. Null for traces without launches or with too many host events. */
export function operatorReport(view: DeviceView, number: number, measured?: DevicePeaks): OperatorReport | null {
  const { data } = view;
  const { device, runtime, symbols } = data;
  const launched = new Uint8Array(runtime.rows);
  // The kernels of a launch as a list: the first, and for each kernel the next one of the same launch.
  const firstKernel = new Int32Array(runtime.rows).fill(-1);
  const nextKernel = new Int32Array(device.rows).fill(-1);
  // By name: 1 matrix kernel, 2 tensor cores; 128: computed.
  const kinds = new Uint8Array(symbols.size);
  const kindOf = (row: number): number => {
    const id = device.name[row];
    if (kinds[id] === 0) {
      const name = symbols.text(id);
      kinds[id] = 128 | (matrixKernel.test(name) ? 1 : 0) | (tensorCoreKernel.test(name) ? 2 : 0);
    }
    return kinds[id] & 3;
  };
  const totals = { device: 0, compute: 0, tensor: 0, matrix: 0, matrixTensor: 0, attributed: 0, counted: 0 };
  for (let i = 0; i < view.rows.length; i++) {
    const row = view.rows[i];
    const kind = kindOf(row);
    const us = device.dur[row];
    const isCompute = view.type[row] === computation;
    totals.device += us;
    if (isCompute) {
      totals.compute += us;
      if (kind & 2) totals.tensor += us;
      if (kind & 1) totals.matrix += us;
      if (kind === 3) totals.matrixTensor += us;
    }
    const launch = view.launch[row];
    if (launch < 0) continue;
    launched[launch] = 1;
    nextKernel[row] = firstKernel[launch];
    firstKernel[launch] = row;
  }
  if (totals.device === 0) return null;

  const cells = new Map<number, Cell>();
  const modules = new Map<number, number>();
  const lines = new Map<number, number>();
  const attributed = attribute(
    data,
    launched,
    hasOperationCount,
    (launch, operator, inputs, isFirst, module, line, back) => {
      // Without an operator: the call itself (a CUDA graph, a library that launches directly).
      const name = operator < 0 ? runtime.name[launch] : operator;
      const key = name * cellsPerName + inputs + 1;
      let cell = cells.get(key);
      if (cell === undefined) cells.set(key, (cell = new Cell(name, inputs)));
      let us = 0;
      let tensorUs = 0;
      for (let row = firstKernel[launch]; row >= 0; row = nextKernel[row]) {
        const kind = view.type[row] === computation ? kindOf(row) : 0;
        us += device.dur[row];
        if (kind & 1) cell.matrixUs += device.dur[row];
        if (kind & 2) tensorUs += device.dur[row];
        cell.kernels++;
      }
      if (module >= 0) modules.set(module, (modules.get(module) ?? 0) + us);
      if (line >= 0) lines.set(line, (lines.get(line) ?? 0) + us);
      cell.us += us;
      cell.tensorUs += tensorUs;
      if (2 * tensorUs > us) cell.tensorCallsUs += us;
      if (back) cell.backwardUs += us;
      if (operator >= 0) totals.attributed += us;
      if (operator < 0 || isFirst) cell.calls++;
    },
  );
  if (!attributed) return null;

  const groups = new Map<number, Group>();
  for (const cell of cells.values()) {
    let group = groups.get(cell.name);
    if (group === undefined) groups.set(cell.name, (group = new Group()));
    const work = workOf(data, cell);
    if (work.flops !== null) totals.counted += cell.matrixUs;
    group.add(cell, work);
  }

  const deviceName = data.header.deviceNames[number] ?? data.header.deviceNames[0];
  const peaks = measured ?? (deviceName === undefined ? null : peaksOf(deviceName));
  const rows = [...groups]
    .map(([name, group]) => rowOf(symbols.text(name), group, data, peaks))
    .sort((a, b) => b.deviceUs - a.deviceUs || (a.name < b.name ? -1 : 1));
  const flops = rows.reduce((sum, row) => sum + (row.flops ?? 0), 0);
  const steps = Math.max(1, view.steps.length);
  const places = (times: Map<number, number>): Place[] =>
    [...times]
      .sort((a, b) => b[1] - a[1])
      .slice(0, mostPlaces)
      .map(([name, us]) => ({ name: symbols.text(name).replace(/^nn\.Module: /, ""), us }));
  return {
    rows,
    modules: places(modules),
    lines: places(lines),
    attributedPercent: (100 * totals.attributed) / totals.device,
    tensorCorePercent: totals.compute === 0 ? 0 : (100 * totals.tensor) / totals.compute,
    matrixTensorCorePercent: totals.matrix === 0 ? null : (100 * totals.matrixTensor) / totals.matrix,
    peaks,
    flopsPerStep: flops === 0 ? null : flops / steps,
    countedPercent: totals.matrix === 0 ? null : (100 * totals.counted) / totals.matrix,
    ...utilization(view, rows, flops, peaks),
  };
}

function workOf(data: TraceData, { name, inputs }: Cell): Work {
  const parsed = inputs < 0 ? null : data.shapes.inputs(inputs);
  if (parsed === null) return { flops: null, bytes: null, precision: null };
  return { ...operatorWork(data.symbols.text(name), parsed), precision: precisionOf(parsed) };
}

function rowOf(name: string, group: Group, data: TraceData, peaks: DevicePeaks | null): OperatorRow {
  const { flops, bytes, us } = group;
  const seconds = us / data.ticksPerUs / 1e6;
  const rate = (amount: number | null, unit: number): number | null =>
    amount === null || amount === 0 || seconds === 0 ? null : amount / seconds / unit;
  const tflops = rate(flops, 1e12);
  const bandwidthGBps = rate(bytes, 1e9);
  const intensity = flops !== null && flops > 0 && bytes !== null && bytes > 0 ? flops / bytes : null;
  const precision = mostOf(group.precisions);
  const peak = peaks === null || precision === null ? null : (peaks.tflops[precision] ?? null);
  const memoryRoof = peaks === null || intensity === null ? null : (intensity * peaks.bandwidthGBps) / 1000;
  const roofTflops = peak === null || memoryRoof === null ? null : Math.min(peak, memoryRoof);
  const overBandwidth =
    peaks === null || bandwidthGBps === null || (flops ?? 0) > 0 ? null : (100 * bandwidthGBps) / peaks.bandwidthGBps;
  const shape = mostOf(group.shapes);
  return {
    name,
    calls: group.calls,
    kernels: group.kernels,
    deviceUs: us,
    backwardUs: group.backwardUs,
    flops: flops === 0 ? null : flops,
    bytes: bytes === 0 ? null : bytes,
    tflops,
    bandwidthGBps,
    intensity,
    precision,
    roofTflops,
    roofPercent: roofTflops !== null && tflops !== null ? (100 * tflops) / roofTflops : overBandwidth,
    limit:
      roofTflops === null || peak === null
        ? overBandwidth === null
          ? null
          : "memory"
        : roofTflops < peak
          ? "memory"
          : "compute",
    tensorCorePercent: us === 0 ? 0 : (100 * group.tensorUs) / us,
    shapes: shape === null || shape < 0 ? "" : shapeText(data, shape),
  };
}

function shapeText(data: TraceData, id: number): string {
  const inputs = data.shapes.inputs(id);
  const shown = inputs?.dims.filter((sizes) => sizes.length > 0).map((sizes) => JSON.stringify(sizes)) ?? [];
  const text = shown.slice(0, 4).join(" ");
  return text.length > 160 ? `${text.slice(0, 157)}...` : text;
}

/** Utilization against the peak of the precision in which most operations run. */
function utilization(
  view: DeviceView,
  rows: readonly OperatorRow[],
  flops: number,
  peaks: DevicePeaks | null,
): Pick<OperatorReport, "mfuPercent" | "mfuDefinition"> {
  const perPrecision = new Map<GpuPrecision, number>();
  for (const row of rows)
    if (row.precision !== null && row.flops !== null)
      perPrecision.set(row.precision, (perPrecision.get(row.precision) ?? 0) + row.flops);
  const precision = mostOf(perPrecision);
  const peak = precision === null ? undefined : peaks?.tflops[precision];
  const mfuDefinition =
    "operations of matrix products, convolutions and attention (from shapes, forward and backward as executed, masks not discounted), divided by the time of the steps and the peak rate of the device in the precision of most of them";
  if (peak === undefined || flops === 0) return { mfuPercent: null, mfuDefinition };
  const { device, ticksPerUs } = view.data;
  const first = view.rows.length === 0 ? 0 : device.ts[view.rows[0]];
  let last = first;
  for (let i = 0; i < view.rows.length; i++) last = Math.max(last, device.ts[view.rows[i]] + device.dur[view.rows[i]]);
  const spent = view.steps.length > 0 ? view.steps.reduce((sum, step) => sum + step.dur, 0) : last - first;
  if (spent <= 0) return { mfuPercent: null, mfuDefinition };
  const seconds = spent / ticksPerUs / 1e6;
  return {
    mfuPercent: (100 * flops) / seconds / (peak * 1e12),
    mfuDefinition: `${mfuDefinition} (${precision}, ${peak} TFLOP/s, ${peaks?.from})`,
  };
}
