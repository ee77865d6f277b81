// Describes the machine of a study from /proc, the cgroup and nvidia-smi.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, hostname, release, totalmem, type } from "node:os";
import type { DeviceFacts, MachineFacts } from "@weft/formats/internal";

function read(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}

/** Cores that a job may use: the affinity mask, limited by the container's quota. */
export function usableCores(): number {
  const quota = read("/sys/fs/cgroup/cpu.max").split(" ");
  const limit = quota.length === 2 && quota[0] !== "max" ? Number(quota[0]) / Number(quota[1]) : Number.NaN;
  const cores = availableParallelism();
  return Number.isFinite(limit) && limit > 0 ? Math.min(cores, Math.max(1, Math.floor(limit))) : cores;
}

export const nvidiaSmi = (): string => process.env["WEFT_NVIDIA_SMI"] ?? "nvidia-smi";

function gpus(): { devices: DeviceFacts[]; driver?: string } {
  let text: string;
  try {
    text = execFileSync(
      nvidiaSmi(),
      ["--query-gpu=index,name,memory.total,uuid,driver_version", "--format=csv,noheader,nounits"],
      { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], timeout: 10_000 },
    );
  } catch {
    return { devices: [] };
  }
  let driver: string | undefined;
  const devices = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .flatMap((line) => {
      const [index, name, memory, uuid, version] = line.split(",").map((part) => part.trim());
      if (!/^\d+$/.test(index) || name === undefined) return [];
      driver = version;
      const facts: DeviceFacts = { index: Number(index), name };
      if (Number.isFinite(Number(memory))) facts.memoryBytes = Number(memory) * 2 ** 20;
      if (uuid !== undefined) facts.uuid = uuid;
      return [facts];
    });
  return driver === undefined ? { devices } : { devices, driver };
}

export function describeMachine(): MachineFacts {
  const facts: MachineFacts = {
    host: hostname(),
    os: `${type()} ${release()}`,
    cores: usableCores(),
    memoryBytes: totalmem(),
  };
  const model =
    cpus()[0]?.model ??
    (existsSync("/proc/cpuinfo") ? /model name\s*: (.*)/.exec(read("/proc/cpuinfo"))?.[1] : undefined);
  if (model) facts.cpuModel = model;
  const { devices, driver } = gpus();
  if (devices.length > 0) {
    facts.devices = devices;
    facts.devicesPerNode = devices.length;
  }
  if (driver !== undefined) facts.driver = driver;
  return facts;
}
