// Launch statistics: duration of the calls, duration of the launched work, and the delay between them.
import { type Distribution, distribution } from "@weft/formats/stats";
import { launchCalls } from "./kinds.js";
import { nameIn } from "./symbols.js";
import type { DeviceView } from "./view.js";

export interface LaunchStatistics {
  launches: number;
  /** The call on the host, the work on the device, and from the end of the call to the start of the work. */
  callUs: Distribution;
  deviceUs: Distribution;
  delayUs: Distribution;
  /** Kernels that are shorter than the call that launched them. */
  shorterThanCall: number;
  /** Calls over 50 us, starts over 100 us after the call: the outliers of Holistic Trace Analysis. */
  slowCalls: number;
  lateStarts: number;
}

const slowCallUs = 50;
const lateStartUs = 100;

export function launchStatistics(view: DeviceView): LaunchStatistics | null {
  const { device, runtime, symbols } = view.data;
  const isLaunch = nameIn(symbols, launchCalls);
  const launches = new Uint32Array(view.rows.length);
  const slowCall = slowCallUs * view.data.ticksPerUs;
  const lateStart = lateStartUs * view.data.ticksPerUs;
  let n = 0;
  let shorterThanCall = 0;
  let slowCalls = 0;
  let lateStarts = 0;
  for (let i = 0; i < view.rows.length; i++) {
    const row = view.rows[i];
    const launch = view.launch[row];
    if (launch < 0 || !isLaunch(runtime.name[launch])) continue;
    const call = runtime.dur[launch];
    const work = device.dur[row];
    const delay = Math.max(0, device.ts[row] - runtime.ts[launch] - call);
    launches[n++] = row;
    if (call <= slowCall && work < call) shorterThanCall++;
    if (call > slowCall) slowCalls++;
    if (delay > lateStart) lateStarts++;
  }
  if (n === 0) return null;
  // One list after the other, because each is as long as the trace.
  const values = new Float64Array(n);
  const of = (value: (row: number, launch: number) => number): Distribution => {
    for (let i = 0; i < n; i++) values[i] = value(launches[i], view.launch[launches[i]]);
    return distribution(values)!;
  };
  return {
    launches: n,
    callUs: of((_, launch) => runtime.dur[launch]),
    deviceUs: of((row) => device.dur[row]),
    delayUs: of((row, launch) => Math.max(0, device.ts[row] - runtime.ts[launch] - runtime.dur[launch])),
    shorterThanCall,
    slowCalls,
    lateStarts,
  };
}
