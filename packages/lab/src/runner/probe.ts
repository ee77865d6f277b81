// Injects the probe into the measured job, and explains when that is impossible or failed.
import { existsSync, readdirSync } from "node:fs";
import { basename, delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder with sitecustomize.py. */
export const probeFolder = join(dirname(fileURLToPath(import.meta.url)), "../../probe");

/** The environment that loads the probe: its folder is first on PYTHONPATH. */
export function probeEnvironment(
  runFolder: string,
  inherited: Record<string, string | undefined>,
): Record<string, string> {
  const before = inherited["PYTHONPATH"];
  return {
    PYTHONPATH: before ? `${probeFolder}${delimiter}${before}` : probeFolder,
    WEFT_PROBE_DIR: runFolder,
    PYTHONUNBUFFERED: inherited["PYTHONUNBUFFERED"] ?? "1",
  };
}

const python = /^python(?:\d+(?:\.\d+)*)?$/;
const shutsOut: Record<string, string> = {
  E: "-E makes Python ignore PYTHONPATH",
  I: "-I isolates Python from PYTHONPATH",
  S: "-S keeps Python from loading sitecustomize",
};

/** Why the flags of `python` in a command disable the probe, or null. */
export function probeShutOut(command: readonly string[]): string | null {
  const words = command.flatMap((part) => (part.includes(" ") ? part.split(/\s+/) : [part]));
  for (let i = 0; i < words.length; i++) {
    if (!python.test(basename(words[i]))) continue;
    for (let j = i + 1; j < words.length && /^-[A-Za-z]/.test(words[j]); j++) {
      const flags = words[j].slice(1);
      if (flags.startsWith("-")) break;
      for (const flag of flags) {
        if (flag === "c" || flag === "m") return null;
        const reason = shutsOut[flag];
        if (reason !== undefined) return reason;
        // -W and -X take the rest of the word, or the next one.
        if (flag === "W" || flag === "X") {
          if (flags.endsWith(flag)) j++;
          break;
        }
      }
    }
  }
  return null;
}

type ProbeState = "recorded" | "loaded" | "absent";

/** State of the probe, from the files in a run's folder. */
export function probeState(runFolder: string): ProbeState {
  if (readdirSync(runFolder).some((name) => /^rank\d+(?:\.\d+)?\.jsonl$/.test(name))) return "recorded";
  return existsSync(join(runFolder, "probe.loaded")) ? "loaded" : "absent";
}

function mentionsPython(command: readonly string[]): boolean {
  return command.some((part) =>
    part
      .split(/\s+/)
      .some(
        (word) =>
          python.test(basename(word)) || /^(?:torchrun|accelerate)$/.test(basename(word)) || word.endsWith(".py"),
      ),
  );
}

/** Explains why a run has no records of the probe; null when it has. */
export function probeMessage(state: ProbeState, command: readonly string[]): string | null {
  if (state === "recorded" || !mentionsPython(command)) return null;
  const reason = probeShutOut(command);
  if (reason !== null) return `the probe was kept out: ${reason}; only times from outside are known`;
  return state === "loaded"
    ? "the probe was loaded but saw no training step: no PyTorch optimizer and no JAX block_until_ready was used (weft_probe.step marks steps by hand)"
    : "the probe was not loaded: the command sets PYTHONPATH again, or Python was started with -E, -I or -S further down; only times from outside are known";
}
