// Debug output of runs and kernels (WEFT_DEBUG, see settings).
import type { Device, Executable } from "../device/index.js";
import { settings } from "../settings/index.js";

let level = settings.debug.get();
export const debugLevel = (): number => level;
export const setDebugLevel = (to: number): void => {
  level = to;
};

const pad = (text: string, width: number): string => text.padEnd(width);
const rate = (amount: number, seconds: number): string => (seconds > 0 ? (amount / seconds / 1e9).toFixed(1) : "-");

export function logRun(device: Device, executable: Executable, milliseconds: number, key: string): void {
  if (level < 1) return;
  const { kernels, lastTimes } = executable;
  const flops = kernels.reduce((n, k) => n + k.flops, 0);
  const bytes = kernels.reduce((n, k) => n + k.bytes, 0);
  const seconds = milliseconds / 1e3;
  console.error(
    `weft ${device.name} ${key.slice(0, 8)}  ${kernels.length} kernels  ${milliseconds.toFixed(3)} ms  ` +
      `${rate(flops, seconds)} GFLOP/s  ${rate(bytes, seconds)} GB/s`,
  );
  if (level < 2) return;
  kernels.forEach((kernel, i) => {
    const t = lastTimes?.[i] ?? 0;
    console.error(
      `  ${String(i).padStart(4)} ${pad(kernel.kind, 8)}${pad(kernel.name, 44)} ${(t * 1e6).toFixed(1).padStart(9)} us  ` +
        `${rate(kernel.flops, t).padStart(8)} GFLOP/s  ${rate(kernel.bytes, t).padStart(7)} GB/s`,
    );
  });
}
