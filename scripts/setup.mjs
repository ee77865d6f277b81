// Makes a checkout ready to run: npm packages, and OpenBLAS where this machine lacks it and we may install it.
// `npm start` and `npm test` call it first; it does nothing when everything is there.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..");

export function sh(command, args, options = {}) {
  const done = spawnSync(command, args, { cwd: root, stdio: "inherit", ...options });
  if (done.error) throw done.error;
  return done.status ?? 1;
}

function packagesInstalled() {
  const marker = join(root, "node_modules", ".package-lock.json");
  if (!existsSync(marker)) return false;
  return statSync(marker).mtimeMs >= statSync(join(root, "package-lock.json")).mtimeMs - 1000;
}

const libraryFolders = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/lib",
  "/usr/local/lib",
  "/opt/OpenBLAS/lib",
];

export function hasOpenBlas() {
  const holds = (folder) =>
    existsSync(folder) &&
    (readdirSync(folder).some((f) => /^libopenblas.*\.so/.test(f)) ||
      ["openblas-openmp", "openblas-pthread"].some((f) => existsSync(join(folder, f, "libopenblas.so.0"))));
  return Boolean(process.env.WEFT_OPENBLAS) || libraryFolders.some(holds);
}

function isDebian() {
  try {
    return /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readFileSync("/etc/os-release", "utf8"));
  } catch {
    return false;
  }
}

export function setup() {
  if (!packagesInstalled()) {
    console.log("weft: installing npm packages ...");
    const status = sh("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
    if (status !== 0) process.exit(status);
  }
  if (!hasOpenBlas()) {
    const root = process.getuid?.() === 0;
    if (root && isDebian()) {
      console.log("weft: installing OpenBLAS (libopenblas0-openmp) ...");
      const quiet = {
        stdio: ["ignore", "ignore", "inherit"],
        env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
      };
      sh("apt-get", ["-qq", "update"], quiet);
      if (sh("apt-get", ["-qq", "install", "-y", "--no-install-recommends", "libopenblas0-openmp"], quiet) !== 0)
        console.log("weft: OpenBLAS could not be installed; matrix products run on the slower built-in fallback.");
    } else {
      console.log("weft: OpenBLAS was not found; matrix products run on the slower built-in fallback.");
      console.log(
        "      Debian, Ubuntu: sudo apt install libopenblas0-openmp    Fedora: sudo dnf install openblas-openmp",
      );
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) setup();
