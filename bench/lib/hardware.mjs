// What the numbers were measured on: processor, memory, system, compilers and libraries.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg, platform, release, totalmem } from "node:os";

const firstLine = (command, args) => spawnSync(command, args, { encoding: "utf8" }).stdout?.split("\n")[0] ?? "";

function field(pattern, path) {
  try {
    return pattern.exec(readFileSync(path, "utf8"))?.[1] ?? null;
  } catch {
    return null;
  }
}

export function hardware(cores) {
  const flags = field(/^flags\s*:(.*)$/m, "/proc/cpuinfo") ?? "";
  return {
    processor: cpus()[0]?.model ?? "unknown",
    cores: cores.length,
    coreNumbers: cores,
    simd: ["avx512f", "avx2", "asimd"].find((f) => flags.includes(f)) ?? "unknown",
    virtual: flags.includes("hypervisor"),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: field(/^PRETTY_NAME="(.*)"$/m, "/etc/os-release") ?? platform(),
    kernel: release(),
    loadBefore: loadavg()[0],
  };
}

export const versions = () => ({ node: process.version, compiler: firstLine("cc", ["--version"]) });
