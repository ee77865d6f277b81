// Makes a checkout ready to run: npm packages, and a C compiler and OpenBLAS where this machine lacks them and we may install them.
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

const hasCommand = (command) => spawnSync(command, ["--version"], { stdio: "ignore" }).status === 0;

/** Whether a C compiler runs: the CPU device compiles its kernels. */
const hasCompiler = () =>
  [process.env.WEFT_CC, process.env.CC, "cc", "gcc", "clang"].some((command) => command && hasCommand(command));

/** Programs and libraries beside Node: how to see that they are here, their packages, and what happens without them. */
const needed = [
  {
    name: "a C compiler",
    isHere: hasCompiler,
    debian: ["gcc", "libc6-dev"],
    fedora: "gcc",
    without: "tensors are computed by the reference device, which is far slower",
  },
  {
    name: "OpenBLAS",
    isHere: hasOpenBlas,
    debian: ["libopenblas0-openmp"],
    fedora: "openblas-openmp",
    without: "matrix products run on the slower built-in fallback",
  },
];

/** What only tests need. */
const neededByTests = [
  {
    name: "a C++ compiler",
    isHere: () => hasCommand("c++"),
    debian: ["g++"],
    fedora: "gcc-c++",
    without: "tests on the emulated CUDA driver are skipped",
  },
];

function installMissing(needed) {
  const missing = needed.filter(({ isHere }) => !isHere());
  if (missing.length === 0) return;
  const mayInstall = process.getuid?.() === 0 && isDebian();
  if (mayInstall) {
    const packages = missing.flatMap(({ debian }) => debian);
    console.log(`weft: installing ${packages.join(", ")} ...`);
    const quiet = {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    };
    sh("apt-get", ["-qq", "update"], quiet);
    sh("apt-get", ["-qq", "install", "-y", "--no-install-recommends", ...packages], quiet);
  }
  for (const { name, isHere, debian, fedora, without } of missing) {
    if (mayInstall && isHere()) continue;
    console.log(`weft: ${name} was not found; ${without}.`);
    console.log(`      Debian, Ubuntu: sudo apt install ${debian.join(" ")}    Fedora: sudo dnf install ${fedora}`);
  }
}

/** `tests`: also what only tests need. */
export function setup({ tests = false } = {}) {
  if (!packagesInstalled()) {
    console.log("weft: installing npm packages ...");
    const status = sh("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
    if (status !== 0) process.exit(status);
  }
  installMissing(tests ? [...needed, ...neededByTests] : needed);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) setup();
